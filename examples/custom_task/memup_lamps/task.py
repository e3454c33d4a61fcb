"""Lamps as a task of memup: which arrays an episode has, and what the memory is to predict from them."""

from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option

from memup_cli.errors import UsageProblem
from memup_cli.tasks.own.spaces import registered
from memup_cli.tasks.spec import StepRule, TaskOptions, TaskSpec
from stores.groups import Episode
from stores.layout import Field

from .environment import BELL, LAMPS, RIGHT, SPREAD, WRONG, LampsVectorEnv, draw_night


class LampsOptions(TaskOptions):
    """What `memup collect lamps` takes; the descriptions are its help."""

    length: int = Option(200, ge=SPREAD, le=10_000_000, description="Steps until the bell rings (at least).")


class Lamps:
    Options = LampsOptions
    summary: ClassVar[str] = "Four lamps, one of which blinks; much later a bell asks which."
    example: ClassVar[str] = "lamps --length 500"
    vectorised: ClassVar[bool] = True  # episodes are made in one piece, without stepping an environment

    def __init__(self, options: LampsOptions) -> None:
        self.options = options

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            fields=(
                Field("observation", "float32", (LAMPS + 1,)),
                Field("action", "uint8"),
                Field("reward", "float32"),
            ),
            memory_input=("observation",),  # buttons do nothing before the bell; else PREVIOUS_ACTION belongs here, too
            query=("observation", "action"),
            target="reward",
            target_kind="return",
            classes={"action": LAMPS},
            gamma=0.0,
            evaluate=StepRule("observation", 1, column=BELL),  # the steps that matter: where the bell rings
        )

    @property
    def run_name(self) -> str:
        return f"lamps-{self.options.length}"

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 3000, 100

    @property
    def max_length(self) -> int:
        return self.options.length + SPREAD

    def typical_length(self, seed: int) -> int:
        return self.max_length

    def episode(self, seed: int) -> Episode:
        """An episode of the random policy; it depends on the seed and the options only."""
        night = draw_night(np.random.Generator(np.random.PCG64(seed)), self.options.length)
        policy = np.random.default_rng((seed, 1))  # a stream of its own, apart from the night's
        action = policy.integers(LAMPS, size=len(night.seen), dtype=np.uint8)
        reward = np.zeros(len(action), np.float32)
        reward[-1] = RIGHT if action[-1] == night.lamp else WRONG
        return Episode({"observation": night.seen, "action": action, "reward": reward}, seed)

    def vector_environment(self, count: int, render_mode: str | None = None) -> LampsVectorEnv:
        """What train-agent and evaluate agent play in."""
        if render_mode:
            raise UsageProblem("Lamps cannot be rendered")
        return LampsVectorEnv(count, self.options.length)

    @property
    def environment_spec(self) -> Any:
        """What an exported Minari data set names as its environment."""
        return registered("memup_lamps/Lamps-v0", self.max_length, self.options.model_dump())
