"""Checks every chunk and row of a run's shards, and sets damaged commit groups aside."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from . import lease as leases
from .errors import DamagedData, FormatMismatch, StoreError, UnsafePath
from .files import move, refuse_link, to_json, write_durably
from .reader import Shard


@dataclass(frozen=True)
class Damage:
    """One damaged place, and the commit group (None: the whole shard) that falls with it."""

    shard: Path
    group: int | None
    array: str
    chunk: int | None
    episodes: tuple[int, int]  # [first, stop) in the split
    problem: str


@dataclass
class Check:
    chunks: int = 0
    episodes: int = 0
    bytes: int = 0


def check_shard(path: Path, count: Check, progress: Callable[[int], None]) -> list[Damage]:
    """Read everything that is committed in a shard; progress is told the episodes of each group."""
    try:
        _refuse_links(path)
        shard = Shard(path)
        _ = shard.chunks
    except (UnsafePath, FormatMismatch):
        raise
    except StoreError as error:
        return [Damage(path, None, "", None, (0, 0), str(error))]
    found: list[Damage] = []
    for group in shard.available_groups():
        first, stop = shard.layout.group_bounds(group, shard.state.committed)
        span = (shard.identity.first + first, shard.identity.first + stop)
        found += _check_group(shard, group, span, count)
        progress(stop - first)
    try:
        shard.check_order(_places(shard))
    except DamagedData as error:
        found.append(Damage(path, None, "episodes/row", None, (0, 0), str(error)))
    return found


def _check_group(shard: Shard, group: int, span: tuple[int, int], count: Check) -> list[Damage]:
    try:
        rows = shard.claimed_rows(group)
    except DamagedData as error:
        return [Damage(shard.path, group, "episodes/row", group, span, str(error))]
    found = []
    size = shard.layout.chunk_steps
    for field in shard.layout.fields:
        for chunk in shard.place(group):
            try:
                count.bytes += shard.decode(field.name, chunk * size, (chunk + 1) * size).nbytes
                count.chunks += 1
            except DamagedData as error:
                found.append(Damage(shard.path, group, f"steps/{field.name}", chunk, span, str(error)))
    if found:
        return found
    wrong = shard.wrong_episodes(rows, shard.decode)
    count.episodes += len(rows)
    if wrong:
        problem = f"the chunks are whole, but {len(wrong)} of its episodes are not those that were committed"
        found.append(Damage(shard.path, group, "steps", None, (span[0] + wrong[0], span[0] + wrong[-1] + 1), problem))
    return found


def _places(shard: Shard) -> list[range | None]:
    """The chunks of every committed group; None where its table is unreadable."""
    places: list[range | None] = []
    for group in range(shard.layout.groups(shard.state.committed)):
        try:
            places.append(shard.place(group))
        except DamagedData:
            places.append(None)
    return places


def _refuse_links(path: Path) -> None:
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            refuse_link(Path(folder) / name)


def quarantine(run: Path, damages: list[Damage]) -> list[Path]:
    """Move the files of damaged groups to <run>/quarantine and mark the groups as missing; returns the places."""
    places = []
    for path in dict.fromkeys(d.shard for d in damages):
        place = free_place(run / "quarantine" / f"{path.parent.name}-{path.stem}")
        groups = [d.group for d in damages if d.shard == path]
        holes = None if None in groups else _holes(path, sorted({g for g in groups if g is not None}))
        if not path.exists():
            continue  # nothing to set aside
        if holes is None:
            move(path, place)
        else:
            _quarantine_groups(Shard(path), holes, place)
        places.append(place)
    return places


def _quarantine_groups(shard: Shard, holes: list[tuple[int, int, int]], place: Path) -> None:
    """The mark is written first: after a crash in between, the groups are missing, never damaged."""
    lease, _ = leases.take(shard.path)
    try:
        state = replace(shard.state, quarantined=tuple(sorted((*shard.state.quarantined, *holes))))
        write_durably(shard.path / "episodes" / "row" / "zarr.json", to_json(state.metadata(shard.identity)))
        for group, first, count in holes:
            files = [Path("episodes") / "row" / f"c.{group}.0"]
            for field in shard.layout.fields:
                for chunk in range(first, first + count):
                    files.append(Path("steps") / field.name / shard.layout.chunk_key(field, chunk))
            for name in files:
                if (shard.path / name).exists():
                    move(shard.path / name, place / name)
    finally:
        leases.release(shard.path, lease)


def _holes(path: Path, groups: list[int]) -> list[tuple[int, int, int]] | None:
    """(group, first chunk, chunks) of each group; None if damaged neighbours leave no way to tell."""
    shard = Shard(path)
    known = {g: (place.start, len(place)) for g, place in enumerate(_places(shard)) if place is not None}
    last = shard.layout.groups(shard.state.committed)
    known[-1], known[last] = (0, 0), (shard.state.next_chunk, 0)
    holes = []
    for group in groups:
        if group not in known:
            if group - 1 not in known or group + 1 not in known:
                return None
            first = sum(known[group - 1])
            known[group] = first, known[group + 1][0] - first
        holes.append((group, *known[group]))
    return holes


def free_place(path: Path) -> Path:
    number = 1
    while (place := path.with_name(f"{path.name}.{number}")).exists():
        number += 1
    return place
