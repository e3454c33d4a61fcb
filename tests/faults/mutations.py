"""Ways to damage one file of a run: what disks, people and attackers do to it."""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

DEEP = 3000
ODD_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1,
    7,
    2**31,
    2**63,
    -(2**63) - 1,
    10**40,
    0.5,
    float("nan"),
    float("inf"),
    "",
    "0",
    "x" * 5000,
    "\ud800",
    "../../outside",
    "/etc/passwd",
    "a\0b",
    [],
    {},
    [[[]]],
    [1, 2, 3],
    {"a": {"b": {}}},
    {"name": "x"},
]


def flip_bits(path: Path, others: list[Path], rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, others: list[Path], rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.choice([0, rng.randrange(len(data)), len(data) - 1])])


def append(path: Path, others: list[Path], rng: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data + rng.choice([b"\0", b" ", b"}", rng.randbytes(100), data]))


def zero_block(path: Path, others: list[Path], rng: random.Random) -> None:
    """What a power cut leaves of a page that was never written back."""
    data = bytearray(path.read_bytes())
    first = rng.choice([0, rng.randrange(len(data))])
    stop = rng.choice([len(data), min(len(data), first + 1 + rng.randrange(64))])
    data[first:stop] = bytes(stop - first)
    path.write_bytes(data)


def delete(path: Path, others: list[Path], rng: random.Random) -> None:
    path.unlink()


def swap(path: Path, others: list[Path], rng: random.Random) -> None:
    """Two good files in each other's place, alike if there are such."""
    other = _another(path, others, rng)
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def overwrite(path: Path, others: list[Path], rng: random.Random) -> None:
    """A copy of another good file: a restore that went wrong."""
    path.write_bytes(_another(path, others, rng).read_bytes())


def make_folder(path: Path, others: list[Path], rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def make_link(path: Path, others: list[Path], rng: random.Random) -> None:
    """To a copy outside the run, to nothing, to itself, or to a folder."""
    outside = path.parents[len(path.parents) - 1] if rng.random() < 0.2 else Path("outside").absolute()
    if outside.name == "outside":
        outside.write_bytes(path.read_bytes())
    path.unlink()
    path.symlink_to(rng.choice([outside, outside, Path("nowhere"), path, path.parent]))


def make_pipe(path: Path, others: list[Path], rng: random.Random) -> None:
    """Opening one waits for a writer that never comes."""
    path.unlink()
    os.mkfifo(path)


def replace_value(path: Path, others: list[Path], rng: random.Random) -> None:
    data = json.loads(path.read_text())
    holder, key = rng.choice(_places(data))
    holder[key] = rng.choice(ODD_VALUES)
    path.write_text(json.dumps(data, indent=2))


def nest_deeply(path: Path, others: list[Path], rng: random.Random) -> None:
    """A value inside so many brackets that a recursive reader runs out of stack."""
    data = json.loads(path.read_text())
    holder, key = rng.choice(_places(data))
    holder[key] = "@@"
    depth = rng.choice([50, 300, 700, 900, 990, DEEP, 100 * DEEP])
    left, right = rng.choice([("[", "]"), ('{"path":', "}"), ('{"a":', "}")])
    path.write_text(json.dumps(data).replace('"@@"', left * depth + "1" + right * depth))


def huge_number(path: Path, others: list[Path], rng: random.Random) -> None:
    data = json.loads(path.read_text())
    holder, key = rng.choice(_places(data))
    holder[key] = "@@"
    number = rng.choice(["1e999", "-1e999", "9" * 400, "9" * 6000, "1e-999", "-0", "1.0"])
    path.write_text(json.dumps(data).replace('"@@"', number))


def delete_key(path: Path, others: list[Path], rng: random.Random) -> None:
    data = json.loads(path.read_text())
    holder, key = rng.choice(_places(data))
    del holder[key]
    path.write_text(json.dumps(data, indent=2))


def duplicate_key(path: Path, others: list[Path], rng: random.Random) -> None:
    """The same key twice in an object; the last one counts, as everywhere."""
    data = json.loads(path.read_text())
    holder, key = rng.choice([place for place in _places(data) if isinstance(place[0], dict)])
    value = rng.choice([holder[key], *ODD_VALUES])
    holder["@@"] = value
    path.write_text(json.dumps(data, indent=2).replace('"@@"', json.dumps(key)))


def _places(data: Any) -> list[tuple[Any, Any]]:
    """(object or list, key or index) of every value in a JSON document."""
    found: list[tuple[Any, Any]] = []
    keys = data.keys() if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        found += [(data, key), *_places(data[key])]
    return found


def _another(path: Path, others: list[Path], rng: random.Random) -> Path:
    """Mostly a neighbour, or the same file of another split: those are the ones that might be taken for it."""
    near = [other for other in others if other.parent == path.parent and other != path]
    alike = [other for other in others if other.name == path.name and other != path]
    return rng.choice(rng.choice([found for found in (near, near, alike, others) if found]))


Mutation = Callable[[Path, list[Path], random.Random], None]
ON_BYTES: list[Mutation] = [
    flip_bits,
    flip_bits,
    truncate,
    append,
    zero_block,
    delete,
    swap,
    swap,
    overwrite,
    make_folder,
    make_link,
    make_pipe,
]
ON_JSON: list[Mutation] = [
    *([replace_value] * 4),
    *([delete_key] * 2),
    duplicate_key,
    nest_deeply,
    huge_number,
    flip_bits,
]


def kind_of(name: str) -> str:
    """What sort of file this is, for the table of results."""
    if name.startswith("manifest"):
        return "manifest"
    if name.endswith("zarr.json"):
        return "zarr metadata"
    if name.startswith("scores/"):
        return "score chunk"
    if "/episodes/row/" in name:
        return "episode table chunk"
    if name.startswith("trajectories/"):
        return "step chunk"
    if "checkpoint-" in name:
        return "checkpoint"
    return "weights" if name.endswith(".safetensors") else "other"


def mutate(run: Path, number: int) -> tuple[str, str]:
    """Damage one file of a run; which, and how, depends on the number only. Returns (file, mutation)."""
    rng = random.Random(number)
    files = sorted(p for p in run.rglob("*") if p.is_file() and "logs" not in p.relative_to(run).parts)
    kinds: dict[str, list[Path]] = {}
    for path in files:
        kinds.setdefault(kind_of(str(path.relative_to(run))), []).append(path)
    path = rng.choice(kinds[rng.choice(sorted(kinds))])
    change = rng.choice(ON_JSON if path.suffix == ".json" and rng.random() < 0.7 else ON_BYTES)
    change(path, files, rng)
    return str(path.relative_to(run)), change.__name__
