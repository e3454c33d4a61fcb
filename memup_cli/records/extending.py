"""A training that gets more updates or steps: it goes on from where it is, and what was done counts as it was done.

What was asked for before is recorded, with how far it came. So the learning rate of every update is known, whichever
checkpoint is gone back to, and the result does not depend on how often the training was interrupted.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stores.manifest import Manifest

from .. import console
from . import checkpoint
from .runs import recorded_config

Earlier = tuple[tuple[int, int], ...]  # what was asked for, and how far it came, oldest first
SAVED = {"updates": "update", "steps": "steps"}  # what checkpoints call it
FALLS = {"updates": "follows the cosine over", "steps": "falls as over"}


@dataclass(frozen=True)
class Extent:
    """How many updates or steps there are to be, and those that fewer were asked for."""

    total: int
    earlier: Earlier = ()

    @property
    def begun(self) -> int:
        """Where the last part of the training begins."""
        return self.earlier[-1][1] if self.earlier else 0

    def share(self, done: int) -> float:
        """How much of what was asked for lay behind then."""
        return done / self._asked(done)

    def ends(self, done: int) -> bool:
        """Whether all that was asked for was done then."""
        return done == self.total or (done, done) in self.earlier

    def since_line(self, done: int, every: int) -> int:
        """Updates since the last line of the log, of which there is one at each end, too."""
        ends = [until for asked, until in self.earlier if asked == until < done]
        return done - max([(done - 1) // every * every, *ends])

    def extended(self, done: int, total: int) -> "Extent":
        """More is asked for when so much is done."""
        if not done:
            return Extent(total)
        kept = tuple(part for part in self.earlier if part[1] < done)
        return Extent(total, (*kept, (self._asked(done - 1), done)))

    def _asked(self, done: int) -> int:
        return next((asked for asked, until in self.earlier if done < until), self.total)


def is_extension(manifest: Manifest, stage: str, config: dict[str, Any], counted: str) -> bool:
    """Whether a stage is asked for more updates or steps (counted) of what it did before."""
    recorded = recorded_config(manifest, stage)
    return _same(recorded, config, counted) and recorded[counted] < config[counted]


def earlier_parts(
    manifest: Manifest, stage: str, config: dict[str, Any], counted: str, folder: Path, quiet: bool
) -> Earlier:
    """Of a stage that begins, goes on or is extended; the last is said, once."""
    entry = manifest.stages.get(stage, {})
    recorded = recorded_config(manifest, stage)
    if not _same(recorded, config, counted):
        return ()
    before = Extent(recorded[counted], tuple((asked, until) for asked, until in entry.get("earlier", ())))
    if not is_extension(manifest, stage, config, counted):
        return before.earlier
    done = entry["progress"]["done"] if entry["status"] == "complete" else checkpoint.progress(folder, SAVED[counted])
    now = before.extended(done, config[counted])
    if 0 < done < now.total:
        console.note(
            f"{stage}: extended at {done:,} to {now.total:,} {counted}. From here on the learning rate "
            f"{FALLS[counted]} {now.total:,} {counted}. The result is not exactly that of {now.total:,} from the "
            f"start, because the first {done:,} followed a shorter course",
            quiet,
        )
    return now.earlier


def _same(recorded: dict[str, Any], config: dict[str, Any], counted: str) -> bool:
    """Whether two configurations differ in what is counted at most."""
    return bool(recorded) and {**recorded, counted: config[counted]} == config
