"""A trained agent in programs of your own: it acts, one step at a time, and remembers by itself."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..compute.devices import prepare_device
from ..errors import UsageProblem
from ..records.opening import open_run, spec_of
from ..registries import AGENTS
from ..streaming.actions import none_before
from ..tasks.spec import PREVIOUS_ACTION, PREVIOUS_REWARD, TaskSpec
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
        self._fields = [f for f in spec.fields if f.name in spec.observed]
        self._late = [name for name in policy.seen if name not in spec.observed]
        self.begin()

    def begin(self, seed: int = 0) -> None:
        """Forget everything: an episode begins. The seed is that of the actions it draws."""
        self._begins = True
        self._before = {name: none_before(self.spec, name)[None] for name in self._late}
        with torch.inference_mode():
            self._state = self._policy.core.initial(1)
        self._generator = torch.Generator(self.device).manual_seed(seed)

    def act(self, observation: Any, greedy: bool = False, reward: float | None = None) -> np.ndarray:
        """The action () or (*shape) at the next observation; greedy: the best one, instead of one drawn as in training.

        observation: a dict of arrays if the run has it in several fields. reward: what the action before brought, for
        runs whose memory reads it. Actions of a Box may lie outside of its bounds.
        """
        given = observation if isinstance(observation, dict) else {OBSERVATION: observation}
        if missing := [field.name for field in self._fields if field.name not in given]:
            names = ", ".join(field.name for field in self._fields)
            raise UsageProblem(f"the observation has no {missing[0]!r}; give act() a dict of arrays with {names}")
        if not self._begins and PREVIOUS_REWARD in self._before:
            if reward is None:
                raise UsageProblem("this agent sees what the action before brought; give act() the reward, too")
            self._before[PREVIOUS_REWARD] = np.array([reward], self._before[PREVIOUS_REWARD].dtype)
        sight = self._policy.see({f.name: np.asarray(given[f.name], f.numpy)[None] for f in self._fields})
        seen = {name: to_device(values, self.device) for name, values in (sight | self._before).items()}
        with torch.inference_mode():
            features, _, self._state = self._step(seen, self._state)
            action: np.ndarray = self._policy.choose(self._decide(features), self._generator, greedy).cpu().numpy()
        self._begins = False
        self._before[PREVIOUS_ACTION] = action.astype(self._before[PREVIOUS_ACTION].dtype)
        return action[0]
