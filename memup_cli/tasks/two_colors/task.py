"""Two-Colors: remember for a thousand steps which color heals.

`truth` is not for networks: in its columns the healing color (0 green, 1 red) and, at steps that found an item, +1 or
-1. It says where to measure, and what a memory state should tell.
"""

import math
from collections.abc import Generator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field as Option
from pydantic import field_validator, model_validator

from stores.groups import Episode
from stores.layout import Field

from ... import randomness
from ...errors import UsageProblem
from ..own.spaces import registered
from ..spec import PREVIOUS_ACTION, StepRule, TaskOptions, TaskSpec
from .scenario import COLORS

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

    from .environment import TwoColorsEnv

ACTIONS, SHAPE, MAX_STEPS = 8, (64, 112, 3), 1050  # as the environment has them, which imports the game
WANDERING = 0.02  # of the scripted player's plans lead anywhere
NOISE = 0.05  # of its actions are random
LIKES_FOR = math.log(20), math.log(2000)  # steps that it likes a color, drawn evenly on this scale
TYPICAL = 300  # steps
LARGE = 0.5  # a reward beyond this has an item in it


class TwoColorsOptions(TaskOptions):
    places: ClassVar[frozenset[str]] = frozenset({"agent_run"})

    policy: Literal["scripted", "random", "agent"] = Option(
        "scripted",
        description="Who plays. scripted: walks to items of a color that it happens to like for a while, not knowing "
        "which heals, with some randomness. random: what the paper pre-trains the memory on; it meets few items. "
        "agent: that of --agent-run.",
    )
    agent_run: Path | None = Option(None, description="Run folder whose trained agent plays, as it was trained.")
    agent: str | None = Option(None, description="Which agent of --agent-run (default: the only one).")

    @field_validator("agent_run")
    @classmethod
    def _from_anywhere(cls, value: Path | None) -> Path | None:
        return value and value.absolute()  # the run may be continued from another folder

    @model_validator(mode="after")
    def _fits(self) -> "TwoColorsOptions":
        if self.policy != "agent" and (self.agent_run or self.agent):
            raise ValueError("--agent-run and --agent belong to --policy agent")
        return self


class TwoColors:
    Options = TwoColorsOptions
    summary: ClassVar[str] = "Doom: collect the items of the color that a pillar showed at the start. Images."
    example: ClassVar[str] = "two-colors --episodes 200 --workers 2"
    vectorised: ClassVar[bool] = False
    checked: ClassVar[bool] = True

    def __init__(self, options: TwoColorsOptions) -> None:
        self.options = options

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options}  # a live game stays in its process

    @cached_property
    def _env(self) -> "TwoColorsEnv":
        from .environment import TwoColorsEnv

        return TwoColorsEnv(objects=self.options.policy == "scripted")

    @cached_property
    def _agent(self) -> Any:
        from ... import load_agent

        assert self.options.agent_run is not None
        return load_agent(self.options.agent_run, self.options.agent)

    def load(self, seed: int, episodes: dict[str, int], note: Any) -> dict[str, Any]:
        """The agent that plays, if one does; its weights tell it from others."""
        from . import environment  # noqa: F401  without its packages nothing is begun

        if self.options.policy != "agent":
            return {}
        if self.options.agent_run is None:
            raise UsageProblem("--policy agent needs --agent-run: the run folder of a trained agent")
        wanted, found = self.spec.fields, self._agent.spec.fields
        if found != wanted:
            raise UsageProblem(
                f"--agent-run {self.options.agent_run} has an agent of another task; name a run of two-colors"
            )
        return {"agent": self._agent.digest}

    def close(self) -> None:
        """End the game, if there is one."""
        self._env.close()

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            fields=(
                Field("observation", "uint8", SHAPE),
                Field("action", "uint8"),
                Field("reward", "float32"),
                Field("truth", "int8", (2,)),
            ),
            memory_input=("observation", PREVIOUS_ACTION),
            query=("observation", "action"),
            target="reward",
            target_kind="return",
            classes={"action": ACTIONS},
            gamma=0.8,
            evaluate=StepRule("truth", 0, column=1, equal=False),
            recipes=self.recipes,
        )

    @property
    def recipes(self) -> dict[str, dict[str, Any]]:
        """Gradients through one step: of an episode's images, an update sees four."""
        hints = {"rollout": 1, "targets": 3, "hidden": 128}
        often = {"updates": 4000, "evaluate_every": 1000, "evaluate_episodes": 50}
        memory = {"hints": {**hints, **often}, "score": {"hidden": 128, "updates": 600}}
        play = {"envs": 8, "iteration_steps": 4096, "hidden": 256}
        on_memory = {**play, "eyes": "memory", "outlook": True, "checkpoint": "best"}
        imitating = {"eyes": "imitated", "imitate": 3, "prefer": 2.0, "gamma": 0.98}  # credit ends with an approach
        ppo = {**on_memory, **imitating, "lr": 7e-4, "entropy": 0.003, "minibatch": 256}
        others = dict.fromkeys(("ppo-lstm", "amrl", "gtrxl"), play)
        return {**memory, "ppo": ppo, "qrdqn": on_memory, **others}

    @property
    def run_name(self) -> str:
        return "two-colors" + ("" if self.options.policy == "scripted" else f"-{self.options.policy}")

    @property
    def default_episodes(self) -> tuple[int, int]:
        return 1000, 100

    @property
    def max_length(self) -> int:
        return MAX_STEPS

    def typical_length(self, seed: int) -> int:
        return TYPICAL

    def vector_environment(self, count: int, render_mode: str | None = None) -> "VectorEnv[Any, Any, Any]":
        """Each game in a process of its own."""
        from functools import partial

        from gymnasium.vector import AsyncVectorEnv, AutoresetMode

        from .environment import TwoColorsEnv

        games = [partial(TwoColorsEnv, render_mode=render_mode)] * count
        return AsyncVectorEnv(games, context="spawn", autoreset_mode=AutoresetMode.DISABLED)

    @property
    def environment_spec(self) -> "EnvSpec":
        return registered("memup/TwoColors-v0", MAX_STEPS, {})

    def episode(self, seed: int) -> Episode:
        blocks = self.blocks(seed, MAX_STEPS)
        block = next(blocks)
        try:
            next(blocks)
        except StopIteration as end:
            return Episode(block, seed, bool(end.value))
        raise AssertionError("an episode is longer than the game allows")

    def blocks(self, seed: int, size: int) -> Generator[dict[str, np.ndarray], None, bool]:
        observation, info = self._env.reset(seed=seed)
        actions = self._actions(seed)
        next(actions)
        color = COLORS.index(info["good_color"])
        images = np.empty((size, *SHAPE), np.uint8)
        steps: list[tuple[int, float, int]] = []
        over = terminated = False
        while not over:
            images[len(steps)] = observation
            action = actions.send(observation)
            observation, reward, terminated, truncated, _ = self._env.step(action)
            steps.append((action, reward, (reward > LARGE) - (reward < -LARGE)))
            over = terminated or truncated
            if over or len(steps) == size:
                taken, paid, found = zip(*steps, strict=True)
                yield {
                    "observation": images[: len(steps)],
                    "action": np.array(taken, np.uint8),
                    "reward": np.array(paid, np.float32),
                    "truth": np.stack([np.full(len(steps), color), found], axis=1).astype(np.int8),
                }
                steps.clear()
        return terminated

    def _actions(self, seed: int) -> Generator[int, np.ndarray, None]:
        """The policy's, from a stream of random numbers of its own, apart from the game's; it is sent observations."""
        drawn = randomness.sequence(seed, randomness.RANDOM_POLICY)
        rng = np.random.Generator(np.random.PCG64(drawn))
        observation = yield -1
        if self.options.policy == "random":
            while True:
                yield int(rng.integers(ACTIONS))
        if self.options.policy == "agent":
            self._agent.begin(int(drawn.generate_state(1)[0]))
            while True:
                observation = yield int(self._agent.act(observation))
        from .players import ItemSeeker

        player = ItemSeeker(self._env, COLORS, rng, WANDERING, looking=True)
        step = until = 0
        while True:
            if step >= until:
                player.wanted = (COLORS[int(rng.integers(len(COLORS)))],)
                until += int(math.exp(rng.uniform(*LIKES_FOR)))
            action = player.action()
            yield int(rng.integers(ACTIONS)) if rng.random() < NOISE else action
            step += 1
