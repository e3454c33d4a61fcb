"""Recordings of episodes that are too long to keep: bounded, with every ending, and standing for all steps."""

import numpy as np
import pytest
import torch

from memup_cli.agents.play.environments import Arena
from memup_cli.agents.play.playing import Player
from memup_cli.agents.play.recording import Recording, sweep
from memup_cli.agents.play.thinning import Block, Kind, Thinning
from memup_cli.agents.policies import build_policy
from memup_cli.agents.ppo import PPO, draw, played_rows
from memup_cli.learning.weights import build_model
from memup_cli.options.agent_options import TrainAgentOptions
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions

CPU = torch.device("cpu")
ROLLOUT, ENVS = 32, 4
BLOCK = ROLLOUT * ENVS


def played(length: int, limit: int | None, budget: int = 0, seed: int = 3) -> tuple[Recording, PPO]:
    task = TMaze(TMazeOptions(length=length))
    torch.manual_seed(0)
    memory = build_model(task.spec, TrainMemoryOptions(hidden=8).model_dump(), 20)
    given = TrainAgentOptions(gamma=0.9, gae=0.5, sample=200, minibatch=50)
    config = {**given.model_dump(), "agent": "ppo", "rollout": ROLLOUT}
    policy = build_policy(task.spec, memory, config)
    player = Player(Arena(task.vector_environment(ENVS), task.spec), policy, CPU, ROLLOUT, budget, limit=limit)
    return player.play(seed), PPO(policy, task.spec, config, CPU)


@pytest.mark.parametrize("length", [500, 1500])
def test_what_is_kept_is_bounded_and_has_every_ending(length: int):
    limit = 12 * BLOCK
    recording, _ = played(length, limit, budget=1 << 30)
    assert recording.reward.size <= limit
    assert recording.steps == recording.lengths.sum() >= ENVS * length
    assert recording.terminated.sum() == ENVS
    assert sorted(recording.reward[recording.terminated]) == sorted(recording.returns)
    assert recording.weight[recording.terminated.any(1)].max() == 1
    assert recording.m is None
    rows = played_rows(recording)
    assert len(rows) == len(np.unique(rows))
    stood_for = recording.weights(rows).sum()
    assert abs(stood_for - recording.steps) <= recording.weight.max() * BLOCK


def same_rows(thin: Recording, full: Recording) -> tuple[np.ndarray, np.ndarray]:
    """Rows of whole blocks of a thinned recording, and the rows of the full one that they are: (B, BLOCK) each."""

    def blocks(recording: Recording) -> dict[bytes, np.ndarray]:
        seen, count = recording.arrays["observation"], len(recording.reward) // ROLLOUT
        rows = np.arange(count * BLOCK).reshape(count, BLOCK)
        return {
            seen[i * ROLLOUT : (i + 1) * ROLLOUT].tobytes(): rows[i] for i in range(count)
        }  # noise tells them apart

    mine, all_of_them = blocks(thin), blocks(full)
    assert set(mine) <= set(all_of_them)
    return np.array(list(mine.values())), np.array([all_of_them[key] for key in mine])


def test_kept_steps_have_the_states_and_the_advantages_of_the_full_recording():
    (thin, learner), (full, _) = played(1500, 12 * BLOCK), played(1500, None)
    assert full.weight is None
    mine, theirs = same_rows(thin, full)
    assert len(mine) >= 5

    def states(recording: Recording) -> np.ndarray:
        found = np.zeros((recording.reward.size, learner.policy.core.size), np.float32)
        for part in sweep(recording, learner.policy, ROLLOUT, CPU):
            found[part.rows[part.exists]] = part.m.numpy()[part.exists]
        return found

    assert np.allclose(states(thin)[mine], states(full)[theirs], atol=1e-5)
    (found, target), (wanted, wanted_target) = learner.advantages(thin), learner.advantages(full)
    for one, other in ((found, wanted), (target, wanted_target)):
        early = slice(0, BLOCK // 2)  # the last steps of a block see the value of what follows, not its advantage
        assert np.allclose(one[mine][:, early], other[theirs][:, early], atol=1e-5)
        assert np.allclose(one[mine], other[theirs], atol=1.0)


def test_nothing_changes_if_everything_fits():
    (first, learner), (second, other) = played(300, 10**6, budget=1000), played(300, None, budget=1000)
    assert first.weight is None
    assert np.array_equal(first.segments, second.segments)
    assert all(torch.equal(a, b) for a, b in zip(first.states, second.states, strict=True))
    assert learner.learn(first, 0, 0.0) == other.learn(second, 0, 0.0)
    for name, weights in learner.policy.own_state().items():
        assert torch.equal(weights, other.policy.own_state()[name])


def test_a_thinned_recording_can_be_learned_from():
    recording, learner = played(1500, 12 * BLOCK)
    before = {name: weights.clone() for name, weights in learner.policy.own_state().items()}
    found = learner.learn(recording, 0, 0.0)
    assert all(np.isfinite(list(found.values())))
    assert any(not torch.equal(before[name], weights) for name, weights in learner.policy.own_state().items())


def made_up(number: int, ends: bool = False, pays: bool = False) -> Block:
    columns = {"active": np.ones((2, 1), bool), "over": np.array([[ends], [False]])}
    return Block(number, columns | {"reward": np.full((2, 1), float(pays))}, used=2)


def test_on_average_the_kept_blocks_are_those_of_all():
    values, sums = np.arange(101.0) ** 2, []
    for seed in range(400):
        thinning = Thinning(8, np.random.default_rng(seed))
        for number in range(len(values)):
            thinning.add(made_up(number))
        thinning.settle()
        assert 4 <= len(thinning.kept) <= 8
        sums.append(sum(thinning.weight(b) * values[b.number] for b in thinning.kept))
    assert np.mean(sums) == pytest.approx(values.sum(), rel=0.05)


def test_endings_stay_whole_where_every_step_pays():
    ends = {13, 50, 51, 90}
    thinning = Thinning(16, np.random.default_rng(0))
    for number in range(100):
        thinning.add(made_up(number, ends=number in ends, pays=True))
    thinning.settle()
    kept = {b.number for b in thinning.kept if b.kind == Kind.ENDING}
    assert kept == ends | {n - 1 for n in ends}
    assert len(thinning.kept) <= 16


def test_drawn_steps_stand_for_those_that_were_left_out():
    rng = np.random.default_rng(0)
    size, stands_for = rng.exponential(size=5000), rng.choice([1.0, 16.0], 5000)
    truth = np.average(size, weights=stands_for)
    means = []
    for _ in range(200):
        chosen, weight = draw(size, 500, rng, stands_for)
        means.append(float((weight * size[chosen]).mean()))
    assert np.mean(means) == pytest.approx(truth, rel=0.01)
    everything, weight = draw(size, 5000, rng, stands_for)
    assert np.array_equal(weight, stands_for[everything])
