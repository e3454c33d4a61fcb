"""Two-Colors as a Gymnasium environment: pixels only, 1050 steps at most."""

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle

from ...errors import UsageProblem
from ...extras import needs
from .engine import Engine
from .scenario import COLORS

with needs("doom"):
    import vizdoom  # noqa: F401  the engine needs it, but only at the first reset
    from PIL import Image

HEIGHT, WIDTH = 64, 112
FRAME_SKIP = 2  # tics of the engine per step
MAX_STEPS = 1050
LIVING_REWARD = 0.02  # per step
# Turn left, turn right, forward, back, and the pairs of a turn with a move.
ACTIONS = (
    [1, 0, 0, 0],
    [0, 1, 0, 0],
    [0, 0, 1, 0],
    [0, 0, 0, 1],
    [1, 0, 1, 0],
    [1, 0, 0, 1],
    [0, 1, 1, 0],
    [0, 1, 0, 1],
)
TURN_LEFT, TURN_RIGHT, FORWARD, BACK, LEFT_FORWARD, LEFT_BACK, RIGHT_FORWARD, RIGHT_BACK = range(len(ACTIONS))
NOTHING = [0, 0, 0, 0]

Color = Literal["green", "red"]


class TwoColorsEnv(gymnasium.Env[np.ndarray, np.int64], EzPickle):
    """Items of one color heal (+1), those of the other hurt (-1); a pillar shows which, for the first 45 steps.

    `good_color` fixes the healing color, else each episode draws it; reset(options={"good_color": ...}) says it for one
    episode. The engine starts with the first reset. A seed gives the same episode anywhere, bit for bit. `objects`
    lets scripted players ask where the items are.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 35 // FRAME_SKIP}  # noqa: RUF012  as Gymnasium has it

    def __init__(self, good_color: Color | None = None, render_mode: str | None = None, objects: bool = False) -> None:
        EzPickle.__init__(self, good_color, render_mode, objects)
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(len(ACTIONS))
        self._good_color = _checked(good_color)
        self._objects = objects
        self._engine: Engine | None = None
        self._frame = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
        self._state: Any = None

    @property
    def game(self) -> Any:
        """The running vizdoom.DoomGame."""
        if self._engine is None:
            raise gymnasium.error.ResetNeeded("call reset() first")
        return self._engine.game

    @property
    def objects(self) -> Any:
        """What lies where in the frame that was observed last."""
        return self._state.objects

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        drawn: Color = COLORS[int(self.np_random.integers(2))]  # type: ignore[assignment]
        doom_seed = int(self.np_random.integers(2**32))  # the same whether or not somebody says the color
        color = _checked((options or {}).get("good_color")) or self._good_color or drawn
        if self._engine is None:
            self._engine = Engine(MAX_STEPS * FRAME_SKIP, LIVING_REWARD / FRAME_SKIP, self._objects)
        self._engine.begin(f"map{COLORS.index(color) + 1:02}", doom_seed)
        return self._observe(), {"good_color": color}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise gymnasium.error.InvalidAction(f"action {action!r}; it can be an integer from 0 to {len(ACTIONS) - 1}")
        return self.act(ACTIONS[int(action)])

    def idle(self) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """A step without any action, which the agent does not have."""
        return self.act(NOTHING)

    def act(self, buttons: list[int]) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(self.game.make_action(buttons, FRAME_SKIP))
        dead = bool(self.game.is_player_dead())
        over = bool(self.game.is_episode_finished())
        return self._observe(), reward, dead, over and not dead, {}

    def _observe(self) -> np.ndarray:
        state = self.game.get_state()
        if state is not None:  # there is none after the end: the last frame stays
            self._state = state
            image = Image.fromarray(state.screen_buffer)
            self._frame = np.asarray(image.resize((WIDTH, HEIGHT), Image.Resampling.BOX))
        return self._frame.copy()

    def render(self) -> np.ndarray | None:
        return self._frame.copy() if self.render_mode == "rgb_array" else None

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def _checked(color: Any) -> Color | None:
    if color is not None and color not in COLORS:
        raise UsageProblem(f"good_color is {color!r}; it can be {' or '.join(COLORS)}")
    found: Color | None = color
    return found
