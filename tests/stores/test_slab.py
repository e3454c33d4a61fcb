"""The slab shows each slot its own episode, whole or in pieces, and can be opened at any update."""

from pathlib import Path

import numpy as np
import pytest

from stores.groups import Episode
from stores.layout import Field, Layout
from stores.reader import Trajectories
from stores.schedule import VisitOrder
from stores.slab import Derived, Slab, SlabTooSmall
from tests.stores.test_roundtrip import write

FIELDS = (Field("x", "int32"), Field("y", "uint8", (2,)))
SHORT = [17, 3, 40, 1, 25, 9, 33, 12, 8, 21, 30]


def make(folder: Path, lengths: list[int], layout: Layout) -> tuple[Trajectories, list[Episode]]:
    episodes = [
        Episode({"x": np.arange(n, dtype=np.int32) + 1000 * i, "y": np.full((n, 2), i, np.uint8)}, i)
        for i, n in enumerate(lengths)
    ]
    write(folder / "0000.zarr", layout, episodes)
    return Trajectories(folder, 1), episodes


@pytest.fixture
def short(tmp_path):
    return make(tmp_path, SHORT, Layout(FIELDS, 32, 3))


@pytest.fixture
def long(tmp_path):
    """Episodes of several chunks each, as the store lays out very long ones."""
    return make(tmp_path, [100, 131, 97, 250, 33, 64, 65], Layout(FIELDS, 32, 1))


def test_every_epoch_visits_every_episode_once_in_a_new_order(short):
    trajectories, episodes = short
    order = VisitOrder(trajectories, seed=3)
    visits = [next(order) for _ in range(4 * len(episodes))]
    assert [v.number for v in visits] == list(range(len(visits)))
    epochs = [[v.index for v in visits[i : i + len(episodes)]] for i in range(0, len(visits), len(episodes))]
    assert all(sorted(epoch) == list(range(len(episodes))) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_another_seed_is_another_order(short):
    orders = []
    for seed in (0, 1, 1):
        order = VisitOrder(short[0], seed)
        orders.append([next(order).index for _ in SHORT])
    assert orders[0] != orders[1] == orders[2]


def check_walk(slab: Slab, episodes: list[Episode], updates: int) -> set[int]:
    seen = set()
    for _ in range(updates):
        window, valid = slab.window(), slab.valid()
        for slot, (offset, episode) in enumerate(zip(slab.offset, slab.episode, strict=True)):
            whole = episodes[episode].arrays["x"]
            assert slab.length[slot] == len(whole)
            assert valid[slot] == min(slab.rollout, len(whole) - offset) > 0
            expected = whole[np.minimum(np.arange(offset, offset + slab.rollout), len(whole) - 1)]
            np.testing.assert_array_equal(window["x"][slot], expected)
            assert (window["y"][slot] == episode).all()
            seen.add(int(episode))
        slab.advance()
    return seen


@pytest.mark.parametrize("rollout", [1, 5, 7, 50])
def test_slots_walk_through_whole_episodes(short, rollout):
    trajectories, episodes = short
    with Slab(trajectories, slots=4, rollout=rollout, seed=0) as slab:
        assert len(set(slab.offset.tolist())) > 1 or rollout == 50, "slots start staggered"
        assert check_walk(slab, episodes, 120) == set(range(len(episodes)))


@pytest.mark.parametrize("rollout", [1, 5, 20, 32])
def test_slots_walk_through_pieces_when_episodes_do_not_fit(long, rollout, monkeypatch):
    trajectories, episodes = long
    monkeypatch.setattr("stores.slab.MIN_PIECE", 8)
    budget = 5 * (32 + rollout) * 6
    with Slab(trajectories, slots=5, rollout=rollout, seed=1, memory=budget) as slab:
        assert slab.arrays["x"].shape[1] == 32 + rollout
        assert sum(a.nbytes for a in slab.arrays.values()) <= budget
        assert check_walk(slab, episodes, 400) == set(range(len(episodes)))


def test_a_budget_that_holds_nothing_is_refused(long):
    with pytest.raises(SlabTooSmall, match="5 slots"):
        Slab(long[0], slots=5, rollout=4, seed=0, memory=100)


@pytest.mark.parametrize("memory", [5 * 36 * 6, 1 << 20])
def test_some_slots_see_only_the_start_of_episodes(long, memory, monkeypatch):
    monkeypatch.setattr("stores.slab.MIN_PIECE", 8)
    trajectories, episodes = long
    started = []
    with Slab(trajectories, slots=5, rollout=4, seed=2, memory=memory, starters=2) as slab:
        for _ in range(100):
            assert (slab.offset[3:] == 0).all()
            assert slab.fresh[3:].all()
            started += slab.episode[3:].tolist()
            check_walk(slab, episodes, 1)
        assert set(started) == set(range(len(episodes)))


def test_a_start_can_be_read_several_times_before_the_next(long):
    with Slab(long[0], slots=4, rollout=4, seed=2, starters=3, dwell=5) as slab:
        seen = []
        for _ in range(60):
            assert slab.fresh[1:].all()
            seen.append(slab.episode[1:].tolist())
            slab.advance()
    moves = np.array(seen)[1:] != np.array(seen)[:-1]
    for slot in range(3):
        assert set(np.diff(np.flatnonzero(moves[:, slot]))) <= {5, 10}  # 10: the same episode twice
    assert (moves.sum(1) < 3).any()  # not all at once


@pytest.mark.parametrize(("starters", "dwell"), [(0, 1), (2, 1), (2, 9)])
@pytest.mark.parametrize("memory", [5 * 36 * 6, 5 * 17 * 6, 1 << 20])
def test_a_slab_opened_later_shows_the_same(long, memory, starters, dwell, monkeypatch):
    monkeypatch.setattr("stores.slab.MIN_PIECE", 8)
    trajectories, _ = long

    def trace(slab: Slab, updates: int) -> list[tuple]:
        shown = []
        for _ in range(updates):
            window = slab.window()
            shown.append((slab.episode.tolist(), slab.offset.tolist(), window["x"].tolist()))
            slab.advance()
        return shown

    kept = {"slots": 5, "rollout": 4, "seed": 9, "memory": memory, "starters": starters, "dwell": dwell}
    with Slab(trajectories, **kept) as slab:
        whole = trace(slab, 130)
    for update in (0, 1, 2, 7, 8, 33, 64, 100):
        with Slab(trajectories, **kept, update=update) as slab:
            assert trace(slab, 30) == whole[update : update + 30]


@pytest.mark.parametrize("memory", [5 * 36 * 10, 1 << 20])
def test_derived_arrays_and_preparation_see_the_whole_episode(long, memory, monkeypatch):
    monkeypatch.setattr("stores.slab.MIN_PIECE", 8)
    trajectories, episodes = long
    prepared = {}

    def last_step(visit, read, start, stop):
        length = len(episodes[visit.index].arrays["x"])
        return np.full(stop - start, read("x", length - 1, length)[0], np.int32)

    def prepare(visit, read):
        return visit.index, read("x", 0, 3).tolist()

    with Slab(
        trajectories,
        slots=5,
        rollout=4,
        seed=2,
        memory=memory,
        derived=(Derived(Field("last", "int32"), last_step),),
        prepare=prepare,
        on_fresh=prepared.__setitem__,
    ) as slab:
        for _ in range(150):
            window = slab.window()
            for slot, episode in enumerate(slab.episode):
                assert (window["last"][slot] == episodes[episode].arrays["x"][-1]).all()
                assert prepared[slot] == (episode, episodes[episode].arrays["x"][:3].tolist())
            slab.advance()
