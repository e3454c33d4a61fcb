"""Which rollouts are kept for replay, and what comes back."""

import numpy as np
import pytest
import torch

from memup_cli.learning.rarity import Rarity
from memup_cli.learning.replay import Replay
from memup_cli.records.opening import open_run, spec_of, split_of


@pytest.fixture
def opened(memup, request):
    memup("collect", *request.param, "--episodes", 100, "--test-episodes", 1, "--run", "run")
    manifest = open_run(memup.folder / "run")
    return split_of(manifest, "train"), spec_of(manifest)


def rollouts(train, size: int) -> list[dict[str, np.ndarray]]:
    """Every rollout of the first episode, as a batch of one."""
    episode = next(iter(train))
    steps = len(next(iter(episode.values())))
    return [{n: v[None, s : s + size] for n, v in episode.items()} for s in range(0, steps - size + 1, size)]


class Always:
    def chance(self, arrays):
        return np.ones(len(arrays["x"]))


@pytest.mark.parametrize("opened", [["copy", "--length", 200]], indirect=True)
def test_digits_are_rarer_than_marks_and_blanks_have_the_least_chance(opened):
    train, spec = opened
    rarity = Rarity(train, spec, 10)
    chance = [float(rarity.chance(batch)[0]) for batch in rollouts(train, 10)]
    assert chance[0] > chance[-1] > 0.2
    assert chance[0] > 0.8
    assert set(chance[1:-1]) == {0.02}


@pytest.mark.parametrize("opened", [["add", "--length", 300]], indirect=True)
def test_noise_is_not_rare_but_marks_are(opened):
    train, spec = opened
    rarity = Rarity(train, spec, 10)
    marked, plain = [], []
    for batch in rollouts(train, 10):
        (marked if batch["input"][..., 1].any() else plain).append(float(rarity.chance(batch)[0]))
    assert min(marked) > 3 * max(plain)


def test_kept_rollouts_come_back_with_the_states_they_began_in(monkeypatch):
    replay = Replay(6, 5, Always(), ("x",), seed=0)
    for update in range(4):
        number = np.arange(4 * update, 4 * update + 4)
        batch = {"x": np.tile(number[:, None], (1, 3)), "fresh": number % 4 == 0}
        state = (torch.tensor(number).float().unsqueeze(-1) + 100,)
        mixed, states = replay.mix(batch, state, update)
        assert len(mixed["x"]) == 9
        np.testing.assert_array_equal(mixed["x"][:4], batch["x"])
        assert set(mixed["x"][4:, 0]) <= set(range(max(0, 4 * update - 2), 4 * update + 4))  # the last six
        expected = np.where(mixed["fresh"], 0, mixed["x"][:, 0] + 100)
        np.testing.assert_array_equal(states[0][4:, 0].numpy(), expected[4:])
    again = Replay(6, 5, Always(), ("x",), seed=0)
    again.load(replay.state(), lambda rows: rows)
    for one, other in zip(replay.mix(batch, state, 9), again.mix(batch, state, 9), strict=True):
        values = (one.values(), other.values()) if isinstance(one, dict) else (one, other)
        assert all(np.array_equal(a, b) for a, b in zip(*values, strict=True))


def test_rings_of_several_processes_are_shared_out_anew():
    rings = []
    for rank, size in enumerate((3, 3)):
        rings.append(Replay(size, 2, Always(), ("x",), seed=rank))
        number = np.arange(10 * rank, 10 * rank + 2 + rank)
        batch = {"x": np.tile(number[:, None], (1, 3)), "fresh": np.zeros(len(number), bool)}
        rings[-1].mix(batch, (torch.tensor(number).float().unsqueeze(-1),), 0)
    merged = Replay.merged([ring.state() for ring in rings])
    found = []
    for rank in range(3):
        part = Replay(2, 2, Always(), ("x",), seed=0)
        part.load(merged, lambda rows, rank=rank: rows[rank::3].clone())
        state = part.state()
        assert state["arrays"]["x"][:, 0].tolist() == state["states"][0][:, 0].tolist()
        found += state["arrays"]["x"][:, 0].tolist()
    assert sorted(found) == [0, 1, 10, 11, 12]
