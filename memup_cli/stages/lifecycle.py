"""The life of a stage: is there work, who owns its folder, what is recorded, and how it ends. Once, for all stages."""

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from stores import lease as leases
from stores.errors import DamagedData, StoreError
from stores.files import allowed, drop_partials, make_folder
from stores.manifest import Manifest, turn

from .. import console
from ..errors import BadInput, RankLost, StageMissing, UsageProblem
from ..interrupts import StopFlag
from ..invocation import command_words
from ..options.common import changed
from ..records.extending import is_extension
from ..records.growth import growth_since
from ..records.runs import again, altered_weights, now, recorded_config
from ..records.runs import attempt as this_attempt


def is_up_to_date(
    manifest: Manifest,
    stage: str,
    config: dict[str, Any],
    inputs: dict[str, str],
    restart: bool,
    begun: bool,
    counted: str = "",
) -> bool:
    """Whether there is nothing to do. Once something is saved, a change of options or inputs needs a restart.

    There may be more of what is counted: updates or steps.
    """
    entry = manifest.stages.get(stage)
    if restart or not entry or not (begun or entry["status"] == "complete"):
        return False
    extended = bool(counted) and is_extension(manifest, stage, config, counted)
    recorded_as = recorded_config(manifest, stage)
    differences = changed(recorded_as, config)
    if differences and not extended:
        fewer = counted and recorded_as.get(counted, 0) > config[counted]
        why = f" There can be more {counted}, but none can be taken back." if fewer else ""
        raise UsageProblem(
            f"{stage} was run on {manifest.run} with other options: {'; '.join(differences)}.{why} Use --restart to "
            "discard its result, or another --run."
        )
    recorded = entry.get("inputs", {})
    if {name: recorded.get(name) for name in inputs} != inputs:  # 0.1.0 also had the test episodes
        if grew := growth_since(manifest, recorded):
            raise StageMissing(
                f"{grew} since {stage} was run on {manifest.run}. Run `{again(manifest, stage, restart=True)}` to run "
                "it again on those there are now."
            )
        names = [n for n in inputs if recorded.get(n) != inputs[n]]
        raise StageMissing(
            f"{stage} was run on {manifest.run} with other inputs ({', '.join(names)} changed since). Run "
            f"`{again(manifest, stage, restart=True)}` to run it again on those there are now."
        )
    # The other stages make damaged weights again by themselves.
    trained = entry["status"] == "complete" and stage == "train-memory"
    if trained and (altered := altered_weights(manifest, stage)):
        raise DamagedData(
            f"{altered[0]} is missing, damaged or not what was trained. Run "
            f"`{again(manifest, stage, restart=True)}` to train it again."
        )
    return bool(entry["status"] == "complete") and not extended


def record(manifest: Manifest, stage: str, status: str, still_ours: Callable[[], None] = allowed, **more: Any) -> None:
    """Write the stage's entry, unless another attempt took over: what is given replaces what was there before.

    A stage that records more than once that it is running gives when it `started`.
    """
    with turn(manifest.run):
        manifest.data = Manifest.load(manifest.run).data
        clock = {"started" if status == "running" else "finished": now()}
        earlier = manifest.stages.get(stage, {})
        manifest.stages[stage] = {**earlier, **clock, **more, "status": status, "attempt": this_attempt()}
        manifest.save(still_ours)


@contextmanager
def owned(folder: Path, quiet: bool) -> Iterator[Callable[[], None]]:
    """Own a stage's output folder; yields a check that raises if another attempt has taken it over since.

    Every commit of the stage makes that check right before the rename that counts.
    """
    make_folder(folder)
    lease, earlier = leases.take(folder)
    if earlier:
        console.note(f"taking over from {earlier.describe()}", quiet)

    def still_ours() -> None:
        leases.check(folder, lease)

    try:
        drop_partials(folder)
        yield still_ours
    except (StoreError, OSError):
        still_ours()  # whoever took over drops our temporary files: tell that from a failing disk
        raise
    finally:
        leases.release(folder, lease)


def continue_command() -> str:
    """This command without --restart, which would discard what was saved."""
    return shlex.join(word for word in command_words() if word != "--restart")


class Attempt:
    """One attempt at a stage: it owns the stage's folder, heeds signals, and records how it goes.

    Of several processes only the first owns and records anything; the others just stop when they are told to.
    """

    def __init__(
        self, manifest: Manifest, stage: str, stop: StopFlag, still_ours: Callable[[], None], first: bool
    ) -> None:
        self.stop, self.still_ours, self._manifest, self._stage, self._first = stop, still_ours, manifest, stage, first

    def note(self, status: str, **more: Any) -> None:
        if self._first:
            record(self._manifest, self._stage, status, self.still_ours, **more)

    def interrupted(self, where: str, **more: Any) -> Exception:
        """What to raise when it was stopped, with all work up to there saved."""
        self.note("interrupted", **more)
        return self.stop.error(where, continue_command())

    def conclude(self, metrics: dict[str, Any], progress: dict[str, int], path: str) -> None:
        """Record how a training ended, its weights taken out of the metrics; raises if it is to be continued."""
        progress["done"] = metrics["updates"]
        if metrics.pop("stopped"):
            raise self.interrupted(f"checkpoint saved at update {metrics['updates']:,}", progress=progress)
        if self._first:
            weights = {which: metrics.pop(which) for which in ("best", "last")}
            outputs = {path: {"path": path, "digest": weights["last"]}}
            self.note("complete", progress=progress, metrics=metrics, outputs=outputs, weights=weights)


@contextmanager
def attempting(manifest: Manifest, stage: str, folder: Path, quiet: bool, first: bool = True) -> Iterator[Attempt]:
    """An attempt at a stage; what is wrong with the data is recorded, and so is a process that was lost."""
    stop = StopFlag()
    with stop, owned(folder, quiet) if first else nullcontext(allowed) as still_ours:
        attempt = Attempt(manifest, stage, stop, still_ours, first)
        try:
            yield attempt
        except BadInput as error:
            attempt.note("failed", problem=str(error))
            raise
        except RankLost:
            attempt.note("interrupted")
            raise
