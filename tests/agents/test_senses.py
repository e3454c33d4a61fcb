"""What agents take from the pre-training besides the memory's state: imitation, and the predictor's outlook."""

import numpy as np
import pytest
import torch

from memup_cli.agents.imitation import Imitation
from memup_cli.agents.policies import TRUST, build_policy
from memup_cli.errors import UsageProblem
from memup_cli.learning.weights import build_model
from memup_cli.options.agent_options import TrainAgentOptions
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions

SPEC = TMaze(TMazeOptions(length=20)).spec
CPU = torch.device("cpu")


def memory(**options):
    torch.manual_seed(0)
    return build_model(SPEC, TrainMemoryOptions(hidden=8, **options).model_dump(), 20)


def agent(**options):
    config = {**TrainAgentOptions(**options).model_dump(), "agent": "ppo", "minibatch": 64}
    return build_policy(SPEC, memory(), config), config


class Shown:
    """Episodes in which the action says whether the last number of the observation is positive."""

    def __len__(self) -> int:
        return 40

    def episode(self, index: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(index)
        observation = rng.choice(np.array([-1, 1], np.int8), (30, 3))
        action = (observation[:, 2] > 0).astype(np.uint8)
        return {"observation": observation, "action": action, "reward": action.astype(np.float32)}


def arrays() -> dict[str, torch.Tensor]:
    observation = torch.from_numpy(Shown().episode(99)["observation"])
    return {"observation": observation, "previous_action": torch.zeros(30, dtype=torch.int32)}


def test_imitation_teaches_what_was_done_and_what_it_led_to():
    policy, config = agent(imitate=4, lr=1e-2, gamma=0.0)
    Imitation(policy, SPEC, Shown(), config, CPU, 0, 0).run(lambda: False, lambda: None, True)
    seen = arrays()
    wanted = (seen["observation"][:, 2] > 0).long()
    features = policy.look(seen, torch.zeros(30, 8))
    assert policy.log_prob(features, wanted)[0].exp().min() > 0.9
    torch.testing.assert_close(policy.value(features), wanted.float(), atol=0.2, rtol=0)


class Guessed:
    """Episodes of guesses: it pays to do at the end what the first observation showed; who collected did not know."""

    def __len__(self) -> int:
        return 150

    def episode(self, index: int) -> dict[str, np.ndarray]:
        cue, guess = np.random.default_rng(index).integers(2, size=2)
        observation = np.zeros((4, 3), np.int8)
        observation[0, 0] = 2 * cue - 1
        reward = np.array([0, 0, 0, cue == guess], np.float32)
        return {"observation": observation, "action": np.array([0, 1, 0, guess], np.uint8), "reward": reward}


@pytest.mark.parametrize(("prefer", "budget"), [(4.0, 0), (0.0, 1 << 20)])
def test_imitation_prefers_what_went_well_given_the_memory(prefer: float, budget: int):
    policy, config = agent(imitate=12, lr=1e-2, gamma=0.9, prefer=prefer)
    Imitation(policy, SPEC, Guessed(), config, CPU, 0, budget).run(lambda: False, lambda: None, True)
    step, right = policy.prepared(), []
    for index in range(20):
        state, episode = policy.core.initial(1), Guessed().episode(index)
        previous = np.concatenate([[2], episode["action"][:-1]]).astype(np.int32)
        for t in range(4):
            seen = {"observation": episode["observation"][t : t + 1], "previous_action": previous[t : t + 1]}
            with torch.inference_mode():
                features, _, state = step({name: torch.from_numpy(v) for name, v in seen.items()}, state)
                cue = torch.tensor([episode["observation"][0, 0] > 0]).long()
                likely = policy.log_prob(features, cue)[0].exp()
        right.append(float(likely))
    assert np.mean(right) > 0.8 if prefer else np.mean(right) < 0.65


def test_with_an_outlook_the_first_policy_prefers_what_the_predictor_promises():
    policy, _ = agent(outlook=True)
    model = memory()
    seen = arrays()
    step = policy.prepared()
    with torch.inference_mode():
        features, m, _ = step(seen, policy.core.initial(30))
        state, _ = model.rollout({name: v.unsqueeze(1) for name, v in seen.items()}, model.memory.initial(30))
        query = {"observation": seen["observation"].unsqueeze(1).expand(-1, 2, -1)}
        query["action"] = torch.arange(2, dtype=torch.uint8).expand(30, 2)
        promised = model.predict(state, model.context(query))
        torch.testing.assert_close(m, torch.cat([state.squeeze(1), promised], 1))
        expected = (TRUST * promised).log_softmax(-1)
        found = torch.stack([policy.log_prob(features, torch.full((30,), a))[0] for a in range(2)], 1)
        decided = policy.decider()(features).log_softmax(-1)
    torch.testing.assert_close(found, expected, atol=0.1, rtol=0)
    torch.testing.assert_close(decided, found, atol=1e-4, rtol=1e-5)


def test_an_outlook_needs_a_predictor_that_can_be_asked_about_one_step():
    config = {**TrainAgentOptions(outlook=True).model_dump(), "agent": "ppo"}
    with pytest.raises(UsageProblem, match="--outlook"):
        build_policy(SPEC, memory(context="window"), config)


@pytest.mark.parametrize("predictor", ["mlp", "gated"])
@pytest.mark.parametrize("cell", ["lstm", "none"])
def test_a_single_step_with_an_outlook_is_that_of_a_sequence(predictor: str, cell: str):
    config = {**TrainAgentOptions(outlook=True).model_dump(), "agent": "ppo"}
    policy = build_policy(SPEC, memory(predictor=predictor, cell=cell), config)
    state = policy.core.initial(30)
    with torch.no_grad():
        _, m, _ = policy.prepared()(arrays(), state)
        wanted, _ = policy.remember({name: values.unsqueeze(1) for name, values in arrays().items()}, state)
    torch.testing.assert_close(m, wanted.squeeze(1), atol=1e-5, rtol=0)
