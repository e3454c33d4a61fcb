"""The options of `memup train-agent`, in the groups of its help."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from ..registries import AGENTS
from ..registry import in_words
from .choices import OneOf
from .common import option
from .until import of_agent

ON_MEMORY = tuple(name for name, entry in AGENTS.built_in.items() if entry.on_memory)
ALONE = tuple(name for name in AGENTS.names if name not in ON_MEMORY)  # they remember by themselves

AGENT = "Agent"
SENSES = "The memory, and what the agent sees"
PLAYING = "Playing and learning"
PPO = "PPO, also of ppo-lstm, amrl and gtrxl"
QRDQN = "QR-DQN"
BASELINES = "Baselines that remember by themselves: ppo-lstm, amrl, gtrxl"


class TrainAgentOptions(BaseModel):
    """What `memup train-agent` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    agent: Annotated[str, OneOf(AGENTS)] = option(
        "ppo",
        AGENT,
        f"{in_words(ON_MEMORY, 'and')} act on the trained memory; {in_words(ALONE, 'and')} are baselines that learn to "
        "remember by themselves.",
    )
    steps: int = option(
        3_000_000, AGENT, "Environment steps at least: iterations are of whole episodes.", ge=1, le=10**12
    )
    until: str | None = option(
        None, AGENT, 'Stop once this holds for the last 200 training episodes or more: "success>0.95".'
    )
    alternate: int = option(
        0, AGENT, "Rounds of collecting with the policy, scoring, more memory and agent training.", ge=0, le=99
    )
    checkpoint_every: float = option(30.0, AGENT, "Seconds between checkpoints, at iteration ends.", ge=0, rare=True)

    checkpoint: Literal["best", "last"] = option(
        "best", SENSES, "Which weights of the memory: the best on the validation episodes, or the last ones."
    )
    eyes: Literal["own", "imitated", "memory"] | None = option(
        None,
        SENSES,
        "ppo and qrdqn, images: seen with convolutions of their own, begun as the memory's and trained; imitated: "
        "trained by --imitate only, which is quicker; or with the memory's as they are, the quickest (default: ppo "
        "own, qrdqn memory; two-colors: ppo imitated).",
    )
    outlook: bool = option(
        False,
        SENSES,
        "ppo and qrdqn: also see the return that the memory's predictor expects of each action; shown if the memory "
        "explains half of what is uncertain.",
        both=True,
        planned=True,
    )
    buffer_memory: int = option(
        256, SENSES, "MB of memory states kept in RAM; beyond, they are recomputed.", ge=1, rare=True
    )

    envs: int = option(
        64,
        PLAYING,
        "Environments played side by side: 64, or fewer if episodes are long.",
        ge=1,
        le=16_384,
        planned=True,
    )
    env_workers: int | None = option(
        None,
        PLAYING,
        "Processes that step the environments, 0: this one; results are the same (default: the CPUs you have if a step "
        "takes a millisecond or more, else 0).",
        ge=0,
        le=1024,
    )
    iteration_steps: int = option(
        8192, PLAYING, "Steps at least between two policy changes, always of complete episodes.", ge=1, rare=True
    )
    gamma: float = option(0.99, PLAYING, "Discount of the agent's rewards.", ge=0, le=1)
    lr: float = option(1e-3, PLAYING, "Learning rate; it falls to a tenth (PPO) or a fifth (qrdqn).", gt=0)
    hidden: int = option(64, PLAYING, "Units of the policy's layers.", ge=1, le=16_384)
    minibatch: int | None = option(
        None, PLAYING, "Steps per update (default: 512 on a memory, 2048 for baselines).", ge=1, rare=True
    )
    max_grad: float = option(0.5, PLAYING, "Largest norm of the gradient.", gt=0, rare=True)

    imitate: int = option(
        0,
        PPO,
        "ppo: before playing, so many passes over the collected episodes, to learn what was done in them.",
        ge=0,
        le=1000,
    )
    prefer: float = option(
        1.0,
        PPO,
        "ppo: how much imitating prefers what went better than expected: a step counts exp(PREFER * A), A = its "
        "advantage in units of their spread; 0: all alike.",
        ge=0,
        le=100,
        rare=True,
    )
    gae: float = option(0.95, PPO, "Lambda of the advantage estimates.", ge=0, le=1, rare=True)
    clip: float = option(0.2, PPO, "How far the policy may move in an iteration.", gt=0, lt=1, rare=True)
    epochs: int = option(4, PPO, "Passes over an iteration's steps.", ge=1, rare=True)
    entropy: float = option(0.01, PPO, "Weight of the entropy bonus.", ge=0, rare=True)
    sample: int | None = option(
        None,
        PPO,
        "Steps of an iteration to train on; of more, those with large advantages are drawn more often (default: 8192 "
        "on a memory, 32768 for baselines).",
        ge=1,
        rare=True,
    )

    quantiles: int = option(32, QRDQN, "Quantiles of the return.", ge=2, le=1024, rare=True)
    replay: int = option(500_000, QRDQN, "Steps in the replay memory.", ge=1000, rare=True)
    replay_ratio: float = option(1.0, QRDQN, "Steps replayed per step played.", gt=0, rare=True)
    updates_at_most: int = option(200, QRDQN, "Updates per iteration, at most.", ge=1, rare=True)
    epsilon: float = option(0.01, QRDQN, "Random actions at the end of exploration.", ge=0, le=1, rare=True)
    explore: float = option(0.3, QRDQN, "Share of the steps until then.", gt=0, le=1, rare=True)
    target_rate: float = option(0.01, QRDQN, "How fast the target network follows.", gt=0, le=1, rare=True)

    rollout: int = option(128, BASELINES, "Steps that gradients flow through.", ge=1, le=1_000_000, rare=True)
    core_hidden: int = option(64, BASELINES, "Size of the recurrent state.", ge=2, le=16_384, rare=True)
    aggregate: Literal["max", "sum", "avg"] = option("max", BASELINES, "amrl: what is kept of the past.", rare=True)
    span: int = option(64, BASELINES, "gtrxl: steps of attention.", ge=2, le=65_536, rare=True)
    layers: int = option(2, BASELINES, "gtrxl: layers.", ge=1, le=64, rare=True)
    heads: int = option(2, BASELINES, "gtrxl: attention heads; they must divide --core-hidden.", ge=1, le=64, rare=True)

    _until = field_validator("until")(of_agent)

    @model_validator(mode="after")
    def _fits(self) -> "TrainAgentOptions":
        if self.core_hidden % self.heads:
            raise ValueError(f"--heads {self.heads} does not divide --core-hidden {self.core_hidden}")
        if self.eyes == "imitated" and "imitate" not in AGENTS.entry(self.agent).options:
            raise ValueError(f"--eyes imitated are trained by --imitate, which {self.agent} does not have")
        if self.alternate and not AGENTS.entry(self.agent).on_memory:
            raise ValueError(f"--alternate trains the memory in turns with the agent; {self.agent} does not use it")
        return self
