"""One float32 per step, beside the trajectories: scores/<detector>/<split>/<shard>.zarr/score.

The array has the same flat time axis and chunks as the shard it belongs to. A commit group is scored once all its chunk
files are there and listed with their checksums in the attributes of the group; they are written like those of a shard,
so a killed job continues with the next group.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from .chunks import DirectChunks
from .codec import Array, encode, ending
from .errors import DamagedData, Incomplete
from .files import (
    PendingFiles,
    allowed,
    drop_partials,
    make_folder,
    move,
    read_json,
    remove_tree,
    to_json,
    write_durably,
)
from .integrity import Check, Damage, free_place
from .layout import FORMAT, START, Field, Layout, check_format, field_metadata, group_metadata, json_checksum
from .reader import Shard

SCORE = Field("score", "float32")
AGAIN = "Run `memup verify --repair`: it says how to make the scores again."


def _layout(shard: Shard) -> Layout:
    return Layout((SCORE,), shard.layout.chunk_steps, 1)


def score_path(run: Path, detector: str, shard: Shard) -> Path:
    return run / "scores" / detector / shard.identity.split / shard.path.name


def read_source(path: Path) -> dict[str, Any]:
    """What a score group says about itself: which detector made it from what, and the endings of its chunks."""
    try:
        values = dict(read_json(path / "zarr.json")["attributes"]["memup"])
        check_format(values["format"], str(path))
        claimed = values.pop("checksum")
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedData(f"{path / 'zarr.json'} does not describe scores ({error!r}). {AGAIN}") from None
    if claimed != json_checksum(values):
        raise DamagedData(f"{path / 'zarr.json'} is damaged: its checksum does not match. {AGAIN}")
    return values


def missing_groups(path: Path, shard: Shard) -> list[int]:
    """Commit groups of a shard that have no scores yet."""
    listed = read_source(path).get("chunks")
    present = {p.name for p in (path / SCORE.name).glob("c.*") if listed is None or p.name[2:] in listed}
    chunks = {g: shard.place(g) for g in shard.available_groups()}
    return [g for g, numbers in chunks.items() if not {f"c.{c}" for c in numbers} <= present]


def check_scores(path: Path, shard: Shard, count: Check) -> list[Damage]:
    """Damaged places in the scores of a shard."""
    try:
        return ScoreReader(path, shard).check(shard.available_groups(), shard, count)
    except (DamagedData, Incomplete) as error:
        return [Damage(path, None, "", None, (0, 0), str(error))]


def set_scores_aside(run: Path, damages: list[Damage]) -> list[Path]:
    """Move damaged score chunks to <run>/quarantine; scoring again makes just those that are not there."""
    places = []
    for path in dict.fromkeys(d.shard for d in damages if d.shard.exists()):
        place = free_place(run / "quarantine" / "-".join(path.relative_to(run).with_suffix("").parts))
        chunks = [d.chunk for d in damages if d.shard == path]
        if None in chunks:
            move(path, place)
        for name in () if None in chunks else [f"{SCORE.name}/c.{chunk}" for chunk in chunks]:
            if (path / name).exists():
                move(path / name, place / name)
        places += [place] if place.exists() else []
    return places


class ScoreWriter:
    """Writes the scores of one shard, group by group. `source` says which detector made them, `check` who may."""

    def __init__(self, path: Path, shard: Shard, source: dict[str, Any], check: Callable[[], None] = allowed) -> None:
        self.path, self.shard, self._layout = path, shard, _layout(shard)
        self._source, self._check = {"format": FORMAT, **source}, check
        earlier = self._read_written()
        self._written: dict[str, str] = earlier or {}
        if earlier is None:
            check()
            remove_tree(path)
            make_folder(path / SCORE.name)
            capacity = shard.state.next_chunk * shard.layout.chunk_steps
            metadata = field_metadata(self._layout, SCORE, capacity)
            write_durably(path / SCORE.name / "zarr.json", to_json(metadata), check)
            self._list()
        drop_partials(path / SCORE.name)
        self._pending = PendingFiles(check)

    def _read_written(self) -> dict[str, str] | None:
        """What an earlier attempt with the same source wrote; None if there is nothing to go on from."""
        if not (self.path / "zarr.json").exists():
            return None
        values = read_source(self.path)
        written: dict[str, str] | None = values.pop("chunks", None)
        return written if values == self._source else None

    def _list(self) -> None:
        chunks = dict(sorted(self._written.items(), key=lambda item: int(item[0])))
        values = {**self._source, "chunks": chunks}
        attributes = {"memup": {**values, "checksum": json_checksum(values)}}
        write_durably(self.path / "zarr.json", to_json(group_metadata(attributes)), self._check)

    def missing_groups(self) -> list[int]:
        """Groups to score: those whose chunks are not all there and as they were written."""
        if not self._written:
            return self.shard.available_groups()
        damages = ScoreReader(self.path, self.shard).check(self.shard.available_groups(), self.shard, Check())
        return sorted({d.group for d in damages if d.group is not None})

    def add(self, group: int, pieces: Iterable[Array]) -> None:
        """Scores of all steps of a group, in order and in pieces of any size; they count after publish()."""
        chunks = iter(self.shard.place(group))
        chunk, filled = np.zeros(self._layout.chunk_steps, SCORE.numpy), 0
        for piece in pieces:
            done = 0
            while done < len(piece):
                part = piece[done : done + len(chunk) - filled]
                chunk[filled : filled + len(part)] = part
                done, filled = done + len(part), filled + len(part)
                if filled == len(chunk):
                    self._write(next(chunks), chunk)
                    filled = 0
        if filled:
            chunk[filled:] = 0
            self._write(next(chunks), chunk)

    def _write(self, number: int, chunk: Array) -> None:
        data = encode(chunk, SCORE.shuffle, SCORE.typesize)
        self._pending.write(self.path / SCORE.name / f"c.{number}", data)
        self._written[str(number)] = ending(data)

    def publish(self) -> None:
        """The list is written after the chunks: what a killed attempt did not list is scored again."""
        self._pending.publish()
        self._list()

    def discard(self) -> None:
        self._pending.discard()


class ScoreReader:
    """Scores of one shard, by step of its flat time axis."""

    def __init__(self, path: Path, shard: Shard) -> None:
        if not (path / "zarr.json").exists():
            raise Incomplete(f"{path} is missing; run `memup score` first")
        self.path, self.source = path, read_source(path)
        self._chunks = DirectChunks(path / SCORE.name, _layout(shard), SCORE, self.source.get("chunks"))
        self._size = shard.layout.chunk_steps

    def read(self, start: int, stop: int) -> Array:
        first, last = start // self._size, -(-stop // self._size)
        found = np.empty((last - first) * self._size, SCORE.numpy)
        for chunk in range(first, last):
            try:
                self._chunks.read(chunk, found[(chunk - first) * self._size : (chunk - first + 1) * self._size])
            except DamagedData:
                raise DamagedData(
                    f"chunk {chunk} of the scores in {self._chunks.folder} is damaged or missing. {AGAIN}"
                ) from None
        return found[start - first * self._size : stop - first * self._size]

    def check(self, groups: list[int], shard: Shard, count: Check) -> list[Damage]:
        """Read every chunk of these commit groups."""
        found = []
        for group in groups:
            first, stop = shard.layout.group_bounds(group, shard.state.committed)
            span = (shard.identity.first + first, shard.identity.first + stop)
            for chunk in shard.place(group):
                try:
                    count.bytes += self.read(chunk * self._size, (chunk + 1) * self._size).nbytes
                    count.chunks += 1
                except DamagedData:
                    problem = f"chunk {chunk} of the scores is damaged or missing"
                    found.append(Damage(self.path, group, SCORE.name, chunk, span, problem))
        return found

    def episode(self, row: Array) -> Array:
        """Scores of the episode of this row of the episode table."""
        return self.read(int(row[START]), int(row[START] + row[1]))
