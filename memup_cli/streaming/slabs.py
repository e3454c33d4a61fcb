"""The slab of steps that a training walks through: stored fields, previous actions and y, as its networks see them."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from stores.reader import Trajectories
from stores.schedule import Visit
from stores.slab import Derived, Read, Slab

from ..tasks.spec import TaskSpec
from .actions import late_field
from .reading import EpisodeReader
from .targets import TARGET, target_field


def open_slab(
    trajectories: Trajectories,
    spec: TaskSpec,
    *,
    batch: int,
    rollout: int,
    gamma: float,
    seed: int,
    update: int,
    memory: int,
    starters: int = 0,
    dwell: int = 1,
    own: np.ndarray | None = None,
    whole: bool = False,
    with_targets: bool,
    prepare: Callable[[Visit, Read], Any] | None = None,
    on_fresh: Callable[[int, Any], None] | None = None,
    more: tuple[Derived, ...] = (),
) -> Slab:
    """A slab with the memory's inputs; with_targets: also each step's query and y, for predicting the current step."""
    wanted = {*spec.memory_input, *(spec.query if with_targets else ())}
    readers: dict[int, EpisodeReader] = {}  # of visits whose episodes are read in pieces

    def reader(visit: Visit, read: Read) -> EpisodeReader:
        return EpisodeReader(spec, gamma, visit.length, read)

    def late(name: str, visit: Visit, read: Read, start: int, stop: int) -> np.ndarray:
        return reader(visit, read)(name, start, stop)

    def y(visit: Visit, read: Read, start: int, stop: int) -> np.ndarray:
        """Reads the rewards of an episode a few times, however many pieces there are; of a start that is left, once."""
        episode = readers.pop(visit.number, None) or reader(visit, read)
        if start > 0 and stop < visit.length:
            readers[visit.number] = episode
        return episode(TARGET, start, stop)

    derived = [*more]
    derived += [Derived(late_field(spec, name), partial(late, name)) for name in spec.late(spec.memory_input)]
    if with_targets:
        derived.append(Derived(target_field(spec), y))
    return Slab(
        trajectories,
        batch,
        rollout,
        seed,
        fields=tuple(f.name for f in spec.fields if f.name in wanted),
        derived=tuple(derived),
        prepare=prepare,
        on_fresh=on_fresh if prepare is not None else None,
        memory=memory,
        update=update,
        starters=starters,
        dwell=dwell,
        own=own,
        whole=whole,
    )
