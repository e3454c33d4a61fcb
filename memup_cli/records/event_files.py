"""TensorBoard event files, written where the figures arise.

TensorBoard's own writer does it in a thread of its own, whose traceback is all that a user sees of a full disk. And
the few messages that are needed are not worth importing protobuf and half of TensorBoard.
"""

import os
import socket
import struct
import time
from pathlib import Path

import numpy as np

from stores.codec import checksum
from stores.files import write_all

# Fields of TensorBoard's event.proto and summary.proto, by number, and how protobuf lays them out.
WALL_TIME, STEP, FILE_VERSION, SUMMARY, SESSION_LOG = 1, 2, 3, 5, 7  # of Event
VALUE = 1  # of Summary
TAG, SIMPLE_VALUE = 1, 2  # of Summary.Value
STATUS, START = 1, 1  # of SessionLog, and its value
VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5


class EventFile:
    """One file of scalars; steps from purge_step on that earlier files show are hidden."""

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        self._add(0, _text(FILE_VERSION, b"brain.Event:2"))
        if purge_step is not None:
            self._add(purge_step, _text(SESSION_LOG, _number(STATUS, START)))

    def add(self, step: int, values: dict[str, float]) -> None:
        with np.errstate(over="ignore"):  # what is too large becomes infinity
            singles = np.array(list(values.values()), "<f4")
        scalars = [
            _text(TAG, name.encode()) + _key(SIMPLE_VALUE, FLOAT) + single.tobytes()
            for name, single in zip(values, singles, strict=True)
        ]
        self._add(step, _text(SUMMARY, b"".join(_text(VALUE, scalar) for scalar in scalars)))

    def _add(self, step: int, what: bytes) -> None:
        event = _key(WALL_TIME, DOUBLE) + struct.pack("<d", time.time()) + _number(STEP, step) + what
        write_all(self._fd, record(event))

    def close(self) -> None:
        os.close(self._fd)


def record(data: bytes) -> bytes:
    """A message as it stands in an event file: its length and itself, each with a checksum."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    """A crc32c, turned and shifted: one of data that hold checksums themselves would be weak."""
    found = checksum(data)
    return struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def _number(field: int, value: int) -> bytes:
    """Zero is what is not there."""
    return _key(field, VARINT) + _varint(value) if value else b""


def _text(field: int, data: bytes) -> bytes:
    return _key(field, BYTES) + _varint(len(data)) + data


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; all bytes but the last have their highest bit set."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
