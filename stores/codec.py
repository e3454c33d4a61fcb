"""One chunk to bytes and back: Zarr's bytes -> blosc -> crc32c pipeline, without the way through zarr."""

from typing import Any

import google_crc32c
import numpy as np
from numcodecs import blosc

from .errors import DamagedData

Array = np.ndarray[Any, np.dtype[Any]]

_LEVEL = 5
blosc.use_threads = False  # several threads of blosc lay its blocks down in any order: the same data, other bytes
_SHUFFLES = {"noshuffle": blosc.NOSHUFFLE, "shuffle": blosc.SHUFFLE, "bitshuffle": blosc.BITSHUFFLE}


def checksum(data: bytes | Array, start: int = 0) -> int:
    return int(google_crc32c.extend(start, data))


def block_bytes(typesize: int) -> int:
    """Size of the pieces that blosc works on: it shuffles bits only where a piece has a multiple of 8 elements."""
    return typesize * 8 * max(2048, 8192 // typesize)


def encode(chunk: Array, shuffle: str, typesize: int) -> bytes:
    """The bytes of one chunk as any Zarr v3 reader expects them, the checksum last."""
    packed: bytes = blosc.compress(chunk, b"lz4", _LEVEL, _SHUFFLES[shuffle], block_bytes(typesize), typesize)
    return packed + checksum(packed).to_bytes(4, "little")


def ending(data: bytes) -> str:
    """The checksum that ends an encoded chunk: tells it from all others."""
    return data[-4:].hex()


def decode(data: bytes, out: Array) -> None:
    """Decode a chunk straight into out, which must be contiguous and of the chunk's exact size."""
    packed = data[:-4]
    if len(data) < 20 or checksum(packed) != int.from_bytes(data[-4:], "little"):
        raise DamagedData("its checksum does not match")
    if int.from_bytes(packed[4:8], "little") != out.nbytes:  # blosc header: size of the decoded data
        raise DamagedData("it has the wrong size")
    try:
        blosc.decompress(packed, out)
    except (RuntimeError, ValueError) as error:
        raise DamagedData(f"it cannot be decoded ({error})") from None


def codec_metadata(shuffle: str, typesize: int) -> list[dict[str, Any]]:
    """The codecs entry of zarr.json for chunks made by encode()."""
    return [
        {"name": "bytes", "configuration": {"endian": "little"}},
        {
            "name": "blosc",
            "configuration": {
                "typesize": typesize,
                "cname": "lz4",
                "clevel": _LEVEL,
                "shuffle": shuffle,
                "blocksize": block_bytes(typesize),
            },
        },
        {"name": "crc32c"},
    ]
