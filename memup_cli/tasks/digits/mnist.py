"""Where the MNIST files come from: a folder of the user's, or the mirrors, by way of a cache folder."""

import hashlib
import http.client
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stores.errors import StoreIO
from stores.files import make_folder, write_durably

from ...errors import BadInput, UsageProblem
from .idx import read_idx

MIRRORS = "https://ossci-datasets.s3.amazonaws.com/mnist/ https://storage.googleapis.com/cvdf-datasets/mnist/"
MIRRORS_VARIABLE = "MEMUP_MNIST_MIRRORS"  # other ones, separated by spaces
TIMEOUT = 20.0  # seconds without a byte
CLASSES = 10
PREFIX = {"train": "train", "test": "t10k"}


@dataclass(frozen=True)
class Published:
    """A file as the mirrors have it, gzipped."""

    size: int
    sha256: str


PUBLISHED = {
    "train-images-idx3-ubyte": Published(9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    "train-labels-idx1-ubyte": Published(28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    "t10k-images-idx3-ubyte": Published(1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    "t10k-labels-idx1-ubyte": Published(4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
}


@dataclass(frozen=True)
class Images:
    """One split: square images and the class of each."""

    pixels: np.ndarray  # (n, side, side) uint8
    labels: np.ndarray  # (n,) uint8

    @property
    def side(self) -> int:
        return int(self.pixels.shape[1])

    def describe(self) -> dict[str, object]:
        """For the manifest: the same for plain and gzipped files, wherever they lie."""
        digest = hashlib.sha256(self.pixels.data)
        digest.update(self.labels.data)
        return {"count": len(self.labels), "side": self.side, "sha256": digest.hexdigest()}


def read_splits(data_dir: Path | None, splits: Iterable[str], note: Callable[[str], None]) -> dict[str, Images]:
    """The splits, from the user's folder or else downloaded."""
    names = {split: (f"{PREFIX[split]}-images-idx3-ubyte", f"{PREFIX[split]}-labels-idx1-ubyte") for split in splits}
    needed = [name for pair in names.values() for name in pair]
    paths = _downloaded(needed, note) if data_dir is None else _given(data_dir, needed)
    return {split: _read_split(paths[images], paths[labels]) for split, (images, labels) in names.items()}


def _read_split(images: Path, labels: Path) -> Images:
    pixels, classes = read_idx(images, 3), read_idx(labels, 1)
    count, height, width = pixels.shape
    if height != width or not height:
        raise BadInput(
            f"{images} has images of {height} x {width} pixels; they must be square. Name other files with --data-dir."
        )
    if count != len(classes):
        raise BadInput(
            f"{images} has {count:,} images, but {labels} has {len(classes):,} labels. Fetch both files again."
        )
    if (classes >= CLASSES).any():
        where = int((classes >= CLASSES).argmax())
        raise BadInput(
            f"{labels}: label {where} is {classes[where]}; labels must be 0 to {CLASSES - 1}. Fetch the file again."
        )
    return Images(pixels, classes)


def _given(folder: Path, names: list[str]) -> dict[str, Path]:
    if not folder.is_dir():
        raise UsageProblem(f"--data-dir {folder} is not a folder; name the one that has the four MNIST files")
    found = {name: next(filter(Path.is_file, _spellings(folder, name)), None) for name in names}
    if missing := [name for name, path in found.items() if path is None]:
        raise BadInput(
            f"{folder} lacks {', '.join(missing)}. Each may be plain or .gz, and may have a dot before idx instead of "
            "the hyphen. Name the folder that has them with --data-dir; without that option they are downloaded."
        )
    return {name: path for name, path in found.items() if path}


def _spellings(folder: Path, name: str) -> list[Path]:
    return [folder / (s + end) for s in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]


def cache_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "memup" / "mnist"


def _downloaded(names: list[str], note: Callable[[str], None]) -> dict[str, Path]:
    """The files in the cache; those that are not there, or not as published, are downloaded."""
    folder = cache_folder()
    paths = {name: folder / f"{name}.gz" for name in names}
    for name, path in paths.items():
        if not _is_published(path, PUBLISHED[name]):
            note(f"downloading {path.name} to {folder}")
            data = _download(path.name, PUBLISHED[name])
            try:
                make_folder(folder)
                write_durably(path, data)
            except StoreIO as error:
                raise StoreIO(
                    f"cannot keep MNIST in {folder}: {getattr(error.__cause__, 'strerror', None) or error}. Set "
                    "XDG_CACHE_HOME to a folder that you can write to, or name a folder that has the files with "
                    "--data-dir."
                ) from error
    return paths


def _is_published(path: Path, published: Published) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == published.sha256
    except OSError:
        return False


def _download(name: str, published: Published) -> bytes:
    """From the first mirror that has it as published."""
    problems = []
    for mirror in (os.environ.get(MIRRORS_VARIABLE) or MIRRORS).split():
        url = f"{mirror.rstrip('/')}/{name}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
                data: bytes = answer.read(published.size + 1)
        except urllib.error.HTTPError as error:
            with error:
                problems.append(f"{url}: {error}")
        except (OSError, ValueError, http.client.HTTPException) as error:  # no network, no such address, cut off
            problems.append(f"{url}: {getattr(error, 'reason', error)}")
        else:
            if hashlib.sha256(data).hexdigest() == published.sha256:
                return data
            problems.append(f"{url}: not the published file, its checksum is wrong; it was not kept")
    raise BadInput(
        f"MNIST cannot be downloaded ({'; '.join(problems)}). Fetch its four files where there is a network and name "
        f"their folder with --data-dir, or name other mirrors in {MIRRORS_VARIABLE}."
    )
