"""Scripted players, which are told where everything lies.

They measure what the task is worth: `oracle` goes to the healing items, `green` to the green ones, `any` to the
nearest of either color, `wrong` to the hurting ones; `random` and `idle` do not look. The one that collects episodes
likes one color for a while, then maybe the other, whichever heals: what it does says nothing about that, except that it
lives long only where it happened to be right.
"""

import heapq
import itertools
import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from .environment import FORWARD, LEFT_FORWARD, RIGHT_FORWARD, TURN_LEFT, TURN_RIGHT, Color, TwoColorsEnv
from .scenario import COLORS, HALF, WALLS

Player = Literal["oracle", "green", "any", "wrong"]
CELL = 32
SIDE = 2 * HALF // CELL
BODY = 20  # how far from a wall the player's middle stays
UNWANTED = 12.0  # what a step through an unwanted item costs, in steps
NEVER = 1e6
PLAN_EVERY = 15  # steps, or at the end of a way
LOOK_EVERY = 3  # steps, while it turns and sees nothing
NEAR, REACHED = 28, 20  # a way point this near is behind us; the end of a way
VIEW, ASIDE = 45, 75  # degrees to either side that are seen; where what was seen is not forgotten
FAR = 1000  # what lies further away is too small to be noticed
AHEAD, BESIDE = 6, 25  # degrees within which it walks straight on, or while turning

Point = tuple[float, float]
_middle = CELL * (np.arange(SIDE) + 0.5) - HALF
_X, _Y = np.meshgrid(_middle, _middle, indexing="ij")


def _walls() -> np.ndarray:
    room = HALF - BODY
    blocked = (np.abs(_X) > room) | (np.abs(_Y) > room)
    for x0, y0, x1, y1 in WALLS:
        blocked |= (x0 - BODY < _X) & (x1 + BODY > _X) & (y0 - BODY < _Y) & (y1 + BODY > _Y)
    return blocked


_BLOCKED = _walls()
_COST = np.where(_BLOCKED, NEVER, 1.0)


@dataclass
class ItemSeeker:
    """Walks to the item that is nearest along a way around walls and unwanted items.

    With `wandering` it now and then goes elsewhere: that share of its new plans leads to a random place. If it is
    `looking`, it heads for nothing that it does not see, so that what it does can be learned from what it saw: it turns
    until it sees something.
    """

    env: TwoColorsEnv
    wanted: tuple[str, ...]
    rng: np.random.Generator
    wandering: float = 0.0
    looking: bool = False
    _goal: Point | None = None
    _path: list[Point] = field(default_factory=list)
    _step: int = 0
    _plan_at: int = 0

    def action(self) -> int:
        x, y, angle = self._where()
        while self._path and math.dist(self._path[0], (x, y)) < (NEAR if len(self._path) > 1 else REACHED):
            self._path.pop(0)
            if not self._path:
                self._plan_at = self._step
        if self._step >= self._plan_at:
            self._path = self._plan((x, y), angle)
        self._step += 1
        if not self._path:
            return TURN_LEFT
        return _towards(self._path[0], x, y, angle)

    def _where(self) -> tuple[float, float, float]:
        from vizdoom import GameVariable

        ask = self.env.game.get_game_variable
        return ask(GameVariable.POSITION_X), ask(GameVariable.POSITION_Y), ask(GameVariable.ANGLE)

    def _plan(self, start: Point, angle: float) -> list[Point]:
        self._plan_at = self._step + PLAN_EVERY
        if self.wandering and self._path and self.rng.random() < self.wandering:
            self._plan_at = self._step + int(self.rng.integers(10, 40))
            goal = self.rng.uniform(CELL - HALF, HALF - CELL, 2)
            return find_way(start, [(float(goal[0]), float(goal[1]))], _COST)
        goals: list[Point] = []
        avoided: list[tuple[Point, float, float]] = []  # how far around it a step costs how much
        for thing in self.env.objects:
            place = (float(thing.position_x), float(thing.position_y))
            if thing.name.endswith("Pillar"):
                avoided.append((place, 40, NEVER))
            elif thing.name.endswith(("Healing", "Hurting")):
                if thing.name.lower().startswith(self.wanted):
                    goals.append(place)
                else:
                    avoided.append((place, 50, UNWANTED))
        if self.looking:
            goals = [goal for goal in goals if self._sees(goal, start, angle)]
        path: list[Point] = []
        if goals:
            cost = _COST.copy()
            for place, reach, price in avoided:
                cost[_around(place, reach)] += price
            path = find_way(start, goals, cost)
        self._goal = path[-1] if path else None
        if not path:
            self._plan_at = self._step + LOOK_EVERY
        return path

    def _sees(self, goal: Point, start: Point, angle: float) -> bool:
        aside = abs(_bearing(goal, *start, angle))
        near = math.dist(goal, start) < FAR
        return near and aside < (ASIDE if goal == self._goal else VIEW) and not is_hidden(goal, start)


def _around(place: Point, reach: float) -> tuple[slice, slice]:
    """The cells whose middles are nearer than `reach` in both directions."""
    i, j = (
        slice(max(0, math.ceil((value - reach + HALF) / CELL - 0.5)), math.ceil((value + reach + HALF) / CELL - 0.5))
        for value in place
    )
    return i, j


def _cell(point: Point) -> int:
    i, j = int((point[0] + HALF) // CELL), int((point[1] + HALF) // CELL)
    return min(max(i, 0), SIDE - 1) * SIDE + min(max(j, 0), SIDE - 1)


def _neighbours(cell: int) -> list[tuple[int, float]]:
    i, j = divmod(cell, SIDE)
    found = []
    for di in (-1, 0, 1):
        for dj in (-1, 0, 1):
            inside = 0 <= i + di < SIDE and 0 <= j + dj < SIDE
            if not (di or dj) or not inside or (di and dj and (_BLOCKED[i + di, j] or _BLOCKED[i, j + dj])):
                continue
            found.append(((i + di) * SIDE + j + dj, math.hypot(di, dj)))
    return found


_apart = np.abs(np.arange(1 - SIDE, SIDE))
_APART = np.maximum.outer(_apart, _apart) + (math.sqrt(2) - 1) * np.minimum.outer(_apart, _apart)  # way between cells
_NEIGHBOURS = [_neighbours(cell) for cell in range(SIDE * SIDE)]


def find_way(start: Point, goals: list[Point], cost: np.ndarray) -> list[Point]:
    """Way points from start to the goal that is cheapest to reach, none if there is no goal.

    Where nothing lies in between, it leads straight on: whoever watches sees a player that turns towards what it wants,
    not along the cells of its map.
    """
    price = cost.ravel().tolist()
    if straight := _straight_way(start, goals, price):
        return [straight]
    path = _shortest_path(start, goals, price)
    found, at = [], start
    while path:
        last = next((k for k in range(len(path) - 1, 0, -1) if _is_clear(at, path[k], price)), 0)
        at = path[last]
        found.append(at)
        path = path[last + 1 :]
    return found


def _straight_way(start: Point, goals: list[Point], price: list[float]) -> Point | None:
    """The goal that _shortest_path() would lead to, if it can be told without a search.

    It can where one goal is nearer than all others even if nothing lay in their way, and nothing lies in its own.
    """
    i, j = divmod(_cell(start), SIDE)
    at = {_cell(goal): goal for goal in goals}
    apart = sorted((float(_APART[SIDE - 1 + cell // SIDE - i, SIDE - 1 + cell % SIDE - j]), cell) for cell in at)
    if not apart or (len(apart) > 1 and apart[1][0] - apart[0][0] < 1e-6):
        return None
    cell = apart[0][1]
    di, dj = cell // SIDE - i, cell % SIDE - j
    count = max(abs(di), abs(dj))
    passed = [(i, j), *((i + round(k * di / count), j + round(k * dj / count)) for k in range(1, count + 1))]
    for (i, j), (to_i, to_j) in itertools.pairwise(passed):  # with the corners that a diagonal step cuts
        if max(price[to_i * SIDE + to_j], price[i * SIDE + to_j], price[to_i * SIDE + j]) > 1:
            return None
    return at[cell] if _is_clear(start, at[cell], price) else None


def _is_clear(start: Point, end: Point, price: list[float]) -> bool:
    """Whether every cell on the straight line costs no more than a free one."""
    count = 1 + int(math.dist(start, end) / (CELL / 2))
    (x, y), (dx, dy) = start, ((end[0] - start[0]) / count, (end[1] - start[1]) / count)
    return all(price[_cell((x + k * dx, y + k * dy))] <= 1 for k in range(count + 1))


def _shortest_path(start: Point, goals: list[Point], price: list[float]) -> list[Point]:
    """From cell to cell (A*)."""
    if not goals:
        return []
    at = {_cell(goal): goal for goal in goals}
    left = _at_least(list(at)).tolist()
    first = _cell(start)
    found = [math.inf] * len(price)
    found[first] = 0.0
    before: dict[int, int] = {}
    queue = [(left[first], 0.0, first)]
    while queue:
        _, length, cell = heapq.heappop(queue)
        if length > found[cell]:
            continue
        if cell in at:
            path = [at[cell]]
            while cell in before:
                path.append((float(_X.flat[cell]), float(_Y.flat[cell])))
                cell = before[cell]
            return path[::-1]
        for other, distance in _NEIGHBOURS[cell]:
            total = length + distance * price[other]
            if total < found[other]:
                found[other], before[other] = total, cell
                heapq.heappush(queue, (total + left[other], total, other))
    return []


def _at_least(cells: list[int]) -> np.ndarray:
    """For every cell, the length of the way to the nearest of some cells if nothing lay in between: (SIDE * SIDE,)."""
    shortest = np.full((SIDE, SIDE), np.inf)
    for cell in cells:
        i, j = divmod(cell, SIDE)
        np.minimum(shortest, _APART[SIDE - 1 - i : 2 * SIDE - 1 - i, SIDE - 1 - j : 2 * SIDE - 1 - j], out=shortest)
    return shortest.ravel()


def is_hidden(place: Point, start: Point) -> bool:
    """Whether a free-standing wall lies between: the parts of the line inside its two strips have some in common."""
    for wall in WALLS:
        first, last = 0.0, 1.0
        for axis in (0, 1):
            low, high = wall[axis] - start[axis], wall[axis + 2] - start[axis]
            way = place[axis] - start[axis] or 1e-9
            first, last = max(first, min(low / way, high / way)), min(last, max(low / way, high / way))
        if first < last:
            return True
    return False


def _bearing(goal: Point, x: float, y: float, angle: float) -> float:
    """Degrees that a goal lies to the left of where one looks, -180 to 180."""
    return (math.degrees(math.atan2(goal[1] - y, goal[0] - x)) - angle + 180) % 360 - 180


def _towards(goal: Point, x: float, y: float, angle: float) -> int:
    bearing = _bearing(goal, x, y, angle)
    if abs(bearing) < AHEAD:
        return FORWARD
    if abs(bearing) < BESIDE:
        return LEFT_FORWARD if bearing > 0 else RIGHT_FORWARD
    return TURN_LEFT if bearing > 0 else TURN_RIGHT


def seeker(env: TwoColorsEnv, player: Player, good: Color, rng: np.random.Generator) -> ItemSeeker:
    """A player for the episode that the environment was just reset to; it needs `objects`."""
    bad = COLORS[1 - COLORS.index(good)]
    wanted = {"oracle": (good,), "green": ("green",), "any": COLORS, "wrong": (bad,)}[player]
    return ItemSeeker(env, wanted, rng)
