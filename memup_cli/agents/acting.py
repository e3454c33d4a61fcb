"""A trained agent in programs of your own: it acts, one step at a time, and remembers by itself."""

from pathlib import Path

import numpy as np
import torch

from ..compute.devices import prepare_device
from ..errors import UsageProblem
from ..records.opening import open_run, spec_of
from ..registries import AGENTS
from ..streaming.actions import previous_action_field
from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .play.recording import to_device
from .policies import Policy
from .published import is_model_folder, read_policy
from .saved import load_policy
from .senses import OBSERVATION


def load_agent(
    run: str | Path,
    agent: str | None = None,
    device: str = "cpu",
) -> "Agent":
    """An agent of a run folder or of a model folder (None: the only one), at the start of an episode."""
    if agent is not None and agent not in AGENTS.names:
        raise UsageProblem(f"there is no agent {agent!r}; use one of {', '.join(AGENTS.names)}")
    if is_model_folder(Path(run)):
        policy, _, spec, digest = read_policy(Path(run), agent)
        return Agent(policy, spec, prepare_device(device, torch.get_num_threads()), digest)
    manifest = open_run(Path(run))
    policy, config = load_policy(manifest, agent)
    digest = manifest.stages[f"train-agent/{config['agent']}"]["outputs"][f"agent/{config['agent']}"]["digest"]
    return Agent(policy, spec_of(manifest), prepare_device(device, torch.get_num_threads()), digest)


class Agent:
    """Plays one episode after the other, on values as the store holds them: classes from 0."""

    def __init__(self, policy: Policy, spec: TaskSpec, device: torch.device, digest: str) -> None:
        self.spec, self.device, self.digest = spec, device, digest  # the digest of its weights
        self._policy = policy.to(device).eval().requires_grad_(False)
        self._step, self._decide = policy.prepared(), policy.decider()
        self._observation = next(f for f in spec.fields if f.name == OBSERVATION)
        self._action = previous_action_field(spec)
        self.begin()

    def begin(self, seed: int = 0) -> None:
        """Forget everything: an episode begins. The seed is that of the actions it draws."""
        none = self.spec.classes.get("action", 0)
        self._previous = np.full((1, *self._action.shape), none, self._action.numpy)
        with torch.inference_mode():
            self._state = self._policy.core.initial(1)
        self._generator = torch.Generator(self.device).manual_seed(seed)

    def act(self, observation: np.ndarray, greedy: bool = False) -> np.ndarray:
        """The action () or (*shape) at the next observation; greedy: the best one, instead of one drawn as in training.

        Actions of a Box may lie outside of its bounds.
        """
        sight = self._policy.see(np.asarray(observation, self._observation.numpy)[None])
        seen = {OBSERVATION: to_device(sight, self.device), PREVIOUS_ACTION: to_device(self._previous, self.device)}
        with torch.inference_mode():
            features, _, self._state = self._step(seen, self._state)
            action: np.ndarray = self._policy.choose(self._decide(features), self._generator, greedy).cpu().numpy()
        self._previous = action.astype(self._action.numpy)
        return action[0]
