"""What train-memory updates: the model with its optimiser, the states that walkers carry, what they are to predict."""

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stores.reader import Trajectories
from stores.slab import Slab

from ..compute.adam import Adam
from ..compute.average import move_towards
from ..compute.pace import Watch
from ..compute.staging import Stager
from ..compute.world import ALONE, World
from ..options.memory_options import TrainMemoryOptions
from ..predictor.predictor import MemoryModel
from ..selection.arrivals import Arrivals
from ..selection.candidates import Candidates, TargetTables, interleaved, query_fields
from ..selection.gains import Gains, learns_gains
from ..tasks.spec import TaskSpec
from .rarity import Rarity
from .replay import Replay
from .stretches import every_rollout, one_of_a_stretch
from .update import WEIGHT, next_batch, once_each, optimiser_step, rollout_loss
from .weights import fill


class MemoryLearner:
    """Algorithm 1: r steps of memory, targets among the remaining steps, one optimiser step, detach.

    Among several processes each has its share of the slots, of the rollouts to repeat, and of the states.
    """

    def __init__(
        self, model: MemoryModel, options: TrainMemoryOptions, spec: TaskSpec, train: Trajectories, seed: int,
        online: bool, world: World = ALONE,
    ) -> None:  # fmt: skip
        self.model, self._options, self._seed, self._world = model, options, seed, world
        own_seed = seed + (world.rank << 40)  # of noise that no two processes should share
        self._slots = len(world.share(options.slots))
        self.kept = copy.deepcopy(model).requires_grad_(False) if options.average else model
        device = next(model.parameters()).device
        self._optimiser = Adam(model.parameters(), lr=options.lr)
        kept = query_fields(spec, options.context, options.window, options.context_hidden)
        self._tables = TargetTables(self._slots, options.targets, spec, kept)
        computed = online or model.context.trained_now  # targets, or their contexts, when an episode begins
        self._arrivals = Arrivals(model, own_seed, options, online) if computed else None
        self._gains = Gains(spec, options, own_seed, device, model.context.query) if learns_gains(options) else None
        self._restored = False
        self._names = tuple(f.name for f in spec.fields if f.name in spec.memory_input)
        by_rarity = options.rollout_sampling == "priority" and options.priority == "novelty"
        self._rarity = Rarity(train, spec, options.rollout) if by_rarity or options.slots < options.batch else None
        self._by_rarity = self._rarity if by_rarity else None
        self._replay = None
        if self._rarity and options.slots < options.batch:
            size, count = len(world.share(options.replay_size)), len(world.share(options.batch - options.slots))
            self._replay = Replay(size, count, self._rarity, self._names, own_seed)
        self.walking = model.memory.initial(self._slots)
        if model.context.trained_now:
            self.walking += model.context.initial(self._slots)
        self._stager = Stager(device)
        self.losses = torch.zeros((), device=device)  # summed since the last log

    def on_fresh(self, slot: int, candidates: Candidates) -> None:
        """Targets of a slot's new episode, or more than it needs, chosen by stored scores."""
        if self._arrivals:
            self._arrivals.choose(slot, candidates)
        elif not self._gains:
            self._tables.put(slot, candidates)
        elif not self._restored:  # otherwise the tables came with the checkpoint, also of slots that begin now
            self._tables.put(slot, self._gains.narrowed(candidates))

    def attach(self, slab: Slab, resumed: bool) -> None:
        self._slab, self._restored = slab, False
        if self._arrivals:
            self._arrivals.attach(slab, self._tables, resumed)

    def update(self, lr: float, update: int, watch: Watch) -> None:
        options = self._options
        if self._arrivals:
            self._arrivals.refresh()
        state = self.walking
        if options.rollout_sampling == "all":
            walked = every_rollout(self._slab)
        else:
            key = (self._seed, update)
            walked, state, behind = one_of_a_stretch(
                self._slab, self.model, state, options, self._by_rarity, self._names, key
            )
        batch = next_batch(walked, self._slab, self._tables, options, self._seed, update)
        if self._replay:
            batch, state = self._replay.mix(batch, state, update)
        if walked.weight is not None:  # what is replayed or begins again counts as it is
            batch[WEIGHT] = np.ones(len(batch["fresh"]), np.float32)
            batch[WEIGHT][: self._slots] = walked.weight
        tensors = self._stager(once_each(batch) if self.model.context.once else batch)
        with watch.saved_tensors():
            loss, after = rollout_loss(self.model, tensors, state, self._world, self._gains)
        if options.rollout_sampling == "all":
            behind = tuple(part[: self._slots] for part in after)
        self.walking = behind
        optimiser_step(self.model, self._optimiser, loss, lr, options.clip, self._world)
        self.losses += loss.detach()
        if self.kept is not self.model:
            share = 1 / (1 + options.average * update)
            move_towards(self.kept, self.model, share)
        if self._arrivals:
            self._arrivals.average()
        self._slab.advance()

    def state(self) -> dict[str, Any]:
        """At the first process, with what the others have; elsewhere nothing."""
        parts: list[dict[str, Any]] = self._world.gather(
            {
                "state": list(self.walking),
                "losses": self.losses,
                "arrivals": self._arrivals.state(self._tables) if self._arrivals else {},
                "gains": self._gains.state(self._tables) if self._gains else {},
                "replay": self._replay.state() if self._replay else {},
            }
        )
        if not self._world.first:
            return {}
        return {
            "model": self.model.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "state": [interleaved(list(states)) for states in zip(*(p["state"] for p in parts), strict=True)],
            "losses": torch.stack([p["losses"] for p in parts]).sum(),
            "arrivals": Arrivals.merged([p["arrivals"] for p in parts]) if self._arrivals else {},
            "gains": Gains.merged([p["gains"] for p in parts]) if self._gains else {},
            "replay": Replay.merged([p["replay"] for p in parts]) if self._replay else {},
            "kept": self.kept.state_dict() if self.kept is not self.model else {},
        }

    def load(self, saved: dict[str, Any]) -> None:
        """Take this process's share of a state, however many processes saved it."""

        def own(values: Tensor) -> Tensor:
            return values[self._world.rank :: self._world.size].clone()

        fill(self.model, saved["model"])
        if self.kept is not self.model:
            fill(self.kept, saved["kept"])
        self._optimiser.load_state_dict(saved["optimiser"])
        self.walking = tuple(own(part) for part in saved["state"])
        if self._world.first:
            self.losses += saved["losses"]
        if self._arrivals:
            self._arrivals.load(saved["arrivals"], self._tables, own)
        if self._gains:
            self._gains.load(saved["gains"], self._tables, own)
            self._restored = True
        if self._replay:
            self._replay.load(saved["replay"], own)
