"""T-Maze: a hint at the first step tells which way to turn at the junction, thousands of steps later.

Observation = [hint (+1 or -1 at step 0, else 0), decision point (1 at the junction, else 0), noise (+1 or -1)].
The agent walks on whatever it does; its action at the junction pays +4 if it is the one hinted at, else -3.
With D distractors, D more decision points lie at random places at least 50 steps after the hint, each with its own
obs[1] value (2 ... D+1); they pay +4 or -3 at random. The junction (obs[1] = 1) is then one of D+1 random places.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field as Option
from pydantic import model_validator

from stores.groups import Episode
from stores.layout import Field

from ... import randomness
from ...errors import UsageProblem
from ..own.spaces import registered
from ..spec import PREVIOUS_ACTION, StepRule, TaskOptions, TaskSpec

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec
    from gymnasium.vector import VectorEnv

RIGHT, WRONG = 4.0, -3.0
LENGTH_SPREAD = 10  # LNR: length + 0..9
DISTRACTOR_GAP = 50  # steps between the hint and the first decision point
MAX_DISTRACTORS = 125  # obs[1] is stored as int8
LONG = 100_000  # steps, from which on hardly any rollout has anything in it


class CorridorOptions(TaskOptions):
    """What all mazes have."""

    length: int = Option(1000, ge=1, le=100_000_000, description="Steps from the hint to the junction (at least).")
    mode: Literal["LN", "LNR"] = Option(
        "LNR", description="LN: exactly that length. LNR: 0 to 9 steps more, drawn per corridor."
    )

    @property
    def max_length(self) -> int:
        """Steps of an episode, at most: with the one of the hint."""
        return self.length + (LENGTH_SPREAD if self.mode == "LNR" else 1)

    @property
    def marks(self) -> int:
        """How many kinds of decision points there are."""
        return 1

    def draw_lengths(self, rng: np.random.Generator, count: int) -> np.ndarray:
        spread = rng.integers(LENGTH_SPREAD, size=count) if self.mode == "LNR" else 0
        return np.full(count, self.length) + spread

    def draw(self, rng: np.random.Generator) -> "Maze":
        raise NotImplementedError


class TMazeOptions(CorridorOptions):
    distractors: int = Option(
        0, ge=0, le=MAX_DISTRACTORS, description="Decision points that pay at random (the Noisy-TV test)."
    )

    @model_validator(mode="after")
    def _room_for_distractors(self) -> "TMazeOptions":
        if self.distractors and self.length < DISTRACTOR_GAP + self.distractors:
            raise ValueError(
                f"length {self.length} has no room for {self.distractors} distractors at least {DISTRACTOR_GAP} "
                f"steps after the hint; use a length of {DISTRACTOR_GAP + self.distractors} or more"
            )
        return self

    @property
    def marks(self) -> int:
        return self.distractors + 1

    def draw(self, rng: np.random.Generator) -> "Maze":
        hint = draw_hints(rng, 1)
        length = int(self.draw_lengths(rng, 1)[0])
        noise = random_bytes(rng, length // 8 + 1)
        count = self.marks
        places, payoffs, turns = np.array([length]), np.zeros(count, np.float32), np.full(count, -1)
        if self.distractors:
            places = DISTRACTOR_GAP + rng.choice(length - DISTRACTOR_GAP + 1, count, replace=False)
            payoffs = np.where(rng.integers(2, size=count), RIGHT, WRONG).astype(np.float32)
        turns[0] = hint[0] > 0
        return Maze(hint, np.zeros(1, np.int64), length, noise, places, np.arange(1, count + 1), turns, payoffs)


@dataclass(frozen=True)
class Maze:
    """Everything random about one episode, drawn at its start."""

    hints: np.ndarray  # (C,) +1 or -1: of each corridor
    begins: np.ndarray  # (C,) the steps that show them
    length: int  # the episode has length + 1 steps
    noise: np.ndarray  # packed bits, one a step
    places: np.ndarray  # (P,) steps of the decision points
    marks: np.ndarray  # (P,) what obs[1] shows there; 1: a junction
    turns: np.ndarray  # (P,) the action that is right there; -1: none, it pays at random
    payoffs: np.ndarray  # (P,) what it pays then


def draw_hints(rng: np.random.Generator, count: int) -> np.ndarray:
    return 2 * rng.integers(2, size=count) - 1


class Corridors:
    """What all mazes have in common; episodes of the random policy, each made in one piece."""

    Options: ClassVar[type[CorridorOptions]]
    vectorised: ClassVar[bool] = True
    checked: ClassVar[bool] = True

    def __init__(self, options: CorridorOptions) -> None:
        self.options = options

    @property
    def spec(self) -> TaskSpec:
        return TaskSpec(
            fields=(Field("observation", "int8", (3,)), Field("action", "uint8"), Field("reward", "float32")),
            memory_input=("observation", PREVIOUS_ACTION),
            query=("observation", "action"),
            target="reward",
            target_kind="return",
            classes={"action": 2},
            gamma=0.0,
            cue_at_start=True,
            solved=0.1,
            evaluate=StepRule("observation", 1, column=1),
            near=(RIGHT - WRONG) / 2,  # on the right side of the middle between the two outcomes
        )

    @property
    def _long(self) -> bool:
        return self.options.length >= LONG

    @property
    def default_episodes(self) -> tuple[int, int]:
        return (256, 64) if self._long else (1000, 100)

    @property
    def max_length(self) -> int:
        return self.options.max_length

    def typical_length(self, seed: int) -> int:
        return self.max_length

    def vector_environment(self, count: int, render_mode: str | None = None) -> "VectorEnv[Any, Any, Any]":
        from gymnasium.vector import AutoresetMode

        if render_mode:
            raise UsageProblem("T-Maze is numbers only: it cannot be rendered; leave out --record")
        from .tmaze_env import MazeVectorEnv

        return MazeVectorEnv(count, self.options, AutoresetMode.DISABLED)

    def episode(self, seed: int) -> Episode:
        """What stepping the environment from this seed gives, with random_actions() as the policy."""
        maze = self.options.draw(np.random.Generator(np.random.PCG64(seed)))
        steps = maze.length + 1
        action = random_actions(seed, steps)
        observation = np.zeros((steps, 3), np.int8)
        observation[maze.begins, 0] = maze.hints
        observation[maze.places, 1] = maze.marks
        observation[:, 2] = np.unpackbits(maze.noise, count=steps).view(np.int8) * 2 - 1
        reward = np.zeros(steps, np.float32)
        turned = np.where(action[maze.places] == maze.turns, RIGHT, WRONG)
        reward[maze.places] = np.where(maze.turns >= 0, turned, maze.payoffs)
        return Episode({"observation": observation, "action": action, "reward": reward}, seed)


class TMaze(Corridors):
    """The T-Maze task."""

    Options = TMazeOptions
    summary: ClassVar[str] = "T-Maze with noise: a hint at the start, a junction at the end."
    example: ClassVar[str] = "tmaze --length 20000 --seed 1"
    options: TMazeOptions

    @property
    def run_name(self) -> str:
        mode = "-ln" if self.options.mode == "LN" else ""
        distractors = f"-d{self.options.distractors}" if self.options.distractors else ""
        return f"tmaze{mode}-{self.options.length}{distractors}"

    @property
    def environment_spec(self) -> "EnvSpec":
        return registered("memup/TMaze-v0", self.max_length, self.options.model_dump())


def random_actions(seed: int, steps: int) -> np.ndarray:
    """The random policy's actions for an episode: a stream of its own, apart from the maze's."""
    rng = randomness.stream(seed, randomness.RANDOM_POLICY)
    return np.unpackbits(random_bytes(rng, -(-steps // 8)), count=steps)


def random_bytes(rng: np.random.Generator, count: int) -> np.ndarray:
    words = rng.bit_generator.random_raw(-(-count // 8))
    return np.asarray(words).astype("<u8", copy=False).view(np.uint8)[:count]
