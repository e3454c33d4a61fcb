"""Recordings: complete episodes, memory states that can be computed again, sums over episodes."""

import numpy as np
import pytest
import torch

from memup_cli.agents.play.environments import Arena
from memup_cli.agents.play.playing import Player
from memup_cli.agents.play.recording import Recording, final_states, sweep
from memup_cli.agents.policies import build_policy
from memup_cli.agents.ppo import decayed_sums, draw, played_rows
from memup_cli.options.agent_options import TrainAgentOptions
from memup_cli.tasks import load_task

CPU = torch.device("cpu")


def player(task_name: str, options: dict, agent: str, rollout: int, envs: int = 5, budget: int = 0) -> Player:
    task = load_task(task_name)(load_task(task_name).Options(**options))
    torch.manual_seed(0)
    config = {**TrainAgentOptions().model_dump(), "agent": agent, "core_hidden": 8, "span": 6}
    arena = Arena(task.vector_environment(envs), task.spec)
    return Player(arena, build_policy(task.spec, None, config), CPU, rollout, budget)


def cartpole(agent: str = "ppo-lstm", rollout: int = 7, max_steps: int = 30, budget: int = 0) -> Player:
    return player("gym", {"env_id": "CartPole-v1", "max_steps": max_steps}, agent, rollout, budget=budget)


def episodes(recording: Recording) -> list[list[int]]:
    """Rows of every episode, by walking along each environment."""
    found = []
    played = set(played_rows(recording).tolist())
    for env in range(recording.envs):
        rows: list[int] = []
        for t in range(len(recording.reward)):
            if t * recording.envs + env not in played:
                break
            rows.append(t * recording.envs + env)
            if recording.ended[t, env]:
                found.append(rows)
                rows = []
        assert rows == []  # episodes are complete
    return found


def test_recordings_hold_complete_episodes_and_repeat_themselves():
    first, second = (cartpole().play(3, steps=400) for _ in range(2))
    assert first.steps >= 400
    assert first.steps == len(played_rows(first)) == sum(first.lengths)
    lengths = sorted(len(rows) for rows in episodes(first))
    assert lengths == sorted(first.lengths.astype(int))
    assert max(lengths) <= 30
    for name, values in first.arrays.items():
        assert np.array_equal(values, second.arrays[name])
    assert not np.array_equal(cartpole().play(4, steps=400).reward.shape, first.reward.shape) or not np.array_equal(
        cartpole().play(4, steps=400).arrays["observation"], first.arrays["observation"]
    )


@pytest.mark.parametrize("agent", ["ppo-lstm", "amrl", "gtrxl"])
def test_states_computed_again_are_those_of_the_whole_episode(agent):
    p = cartpole(agent)
    recording = p.play(1, steps=300)
    again = np.zeros((recording.reward.size, p.policy.core.size), np.float32)
    for part in sweep(recording, p.policy, p.rollout, CPU):
        again[part.rows[part.exists]] = part.m.numpy()[part.exists]
    for rows in episodes(recording):
        whole = recording.take(np.array([rows]), ("observation", "previous_action"), CPU)
        with torch.no_grad():
            m, _ = p.policy.remember(whole, p.policy.core.initial(1))
        assert np.allclose(m[0].numpy(), again[rows], atol=1e-5)


def test_states_within_the_budget_are_kept():
    kept, again = cartpole(budget=1 << 20).play(1, steps=600), cartpole(budget=1000).play(1, steps=600)
    assert again.m is None
    rows = played_rows(kept)
    for part in sweep(again, cartpole().policy, 7, CPU):
        assert torch.allclose(part.m[part.exists], kept.m[part.rows[part.exists]], atol=1e-5)
    assert len(kept.m) == kept.reward.size > len(rows) > 64 * kept.envs


def test_cut_episodes_keep_what_they_saw_last():
    p = cartpole(max_steps=5)
    recording = p.play(1, steps=100)
    cut = recording.ended & ~recording.terminated
    assert sorted(np.flatnonzero(cut.reshape(-1))) == sorted(recording.final["row"])
    assert len(recording.final["row"]) > 0
    row = int(recording.final["row"][0])
    rows = next(r for r in episodes(recording) if r[-1] == row)
    before = recording.take(np.array([rows]), ("observation", "previous_action"), CPU)
    last = {
        "observation": torch.from_numpy(recording.final["observation"][:1]).unsqueeze(1),
        "previous_action": torch.from_numpy(recording.final["previous_action"][:1]).unsqueeze(1),
    }
    with torch.no_grad():
        _, state = p.policy.remember(before, p.policy.core.initial(1))
        m, _ = p.policy.remember(last, state)
    assert np.allclose(m[0, 0].numpy(), final_states(recording, p.policy, CPU)[0].numpy(), atol=1e-5)


@pytest.mark.parametrize("rollout", [1, 4, 50])
def test_decayed_sums_are_those_of_a_plain_loop(rollout):
    recording = cartpole(rollout=rollout).play(5, steps=300)
    values = np.random.default_rng(0).normal(size=recording.reward.size)
    found = decayed_sums(recording, values, 0.9, rollout)
    for rows in episodes(recording):
        total = 0.0
        for row in reversed(rows):
            total = values[row] + 0.9 * total
            assert found[row] == pytest.approx(total, rel=1e-5, abs=1e-6)


def test_drawn_steps_stand_for_all_of_them():
    rng = np.random.default_rng(0)
    size = rng.exponential(size=5000)
    size[:20] = 500.0
    truth = size.mean()
    means = []
    for _ in range(200):
        chosen, weight = draw(size, 500, rng)
        means.append(float((weight * size[chosen]).mean()))
    assert np.mean(means) == pytest.approx(truth, rel=0.01)
    everything, ones = draw(size, 5000, rng)
    assert len(everything) == 5000
    assert (ones == 1).all()
