"""The options of train-agent and evaluate agent, as configs.py has those of the other stages."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..registries import AGENTS
from ..registry import in_words
from .choices import OneOf

ON_MEMORY = tuple(name for name, entry in AGENTS.built_in.items() if entry.on_memory)
ALONE = tuple(name for name in AGENTS.names if name not in ON_MEMORY)  # they remember by themselves
SENSES: dict[str, Any] = {"panel": "The memory, and what the agent sees"}  # where the help shows an option


class TrainAgentOptions(BaseModel):
    """What `memup train-agent` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    planned: ClassVar[frozenset[str]] = frozenset({"outlook", "envs"})

    agent: Annotated[str, OneOf(AGENTS)] = Field(
        "ppo",
        description=f"{in_words(ON_MEMORY, 'and')} act on the trained memory; {in_words(ALONE, 'and')} are baselines "
        "that learn to remember by themselves.",
    )
    steps: int = Field(
        3_000_000,
        ge=1,
        le=10**12,
        description="Environment steps at least: iterations are of whole episodes.",
    )
    until_success: float | None = Field(
        None, gt=0, le=1, description="Stop once this share of the last 200 training episodes or more succeeded."
    )
    envs: int = Field(
        64, ge=1, le=16_384, description="Environments played side by side: 64, or fewer if episodes are long."
    )
    iteration_steps: int = Field(
        8192, ge=1, description="Steps at least between two policy changes, always of complete episodes."
    )
    checkpoint: Literal["best", "last"] = Field(
        "best",
        description="Which weights of the memory: the best on the validation episodes, or the last ones.",
        json_schema_extra=SENSES,
    )
    eyes: Literal["own", "imitated", "memory"] | None = Field(
        None,
        description="ppo and qrdqn, images: seen with convolutions of their own, begun as the memory's and trained; "
        "imitated: trained by --imitate only, which is quicker; or with the memory's as they are, the quickest "
        "(default: ppo own, qrdqn memory; two-colors: ppo imitated).",
        json_schema_extra=SENSES,
    )
    outlook: bool = Field(
        False,
        description="ppo and qrdqn: also see the return that the memory's predictor expects of each action; shown "
        "if the memory explains half of what is uncertain.",
        json_schema_extra={**SENSES, "both": True},
    )
    imitate: int = Field(
        0,
        ge=0,
        le=1000,
        description="ppo: before playing, so many passes over the collected episodes, to learn what was done in them.",
    )
    prefer: float = Field(
        1.0,
        ge=0,
        le=100,
        description="ppo: how much imitating prefers what went better than expected: a step counts exp(PREFER * A), "
        "A = its advantage in units of their spread; 0: all alike.",
    )
    gamma: float = Field(0.99, ge=0, le=1, description="Discount of the agent's rewards.")
    lr: float = Field(1e-3, gt=0, description="Learning rate; it falls to a tenth (PPO) or a fifth (qrdqn).")
    hidden: int = Field(64, ge=1, le=16_384, description="Units of the policy's layers.")
    minibatch: int | None = Field(
        None, ge=1, description="Steps per update (default: 512 on a memory, 2048 for baselines)."
    )
    max_grad: float = Field(0.5, gt=0, description="Largest norm of the gradient.")
    gae: float = Field(0.95, ge=0, le=1, description="PPO: lambda of the advantage estimates.")
    clip: float = Field(0.2, gt=0, lt=1, description="PPO: how far the policy may move in an iteration.")
    epochs: int = Field(4, ge=1, description="PPO: passes over an iteration's steps.")
    entropy: float = Field(0.01, ge=0, description="PPO: weight of the entropy bonus.")
    sample: int | None = Field(
        None,
        ge=1,
        description="PPO: steps of an iteration to train on; of more, those with large advantages are drawn more often "
        "(default: 8192 on a memory, 32768 for baselines).",
    )
    buffer_memory: int = Field(256, ge=1, description="MB of memory states kept in RAM; beyond, they are recomputed.")
    rollout: int = Field(128, ge=1, le=1_000_000, description="Baselines: steps that gradients flow through.")
    core_hidden: int = Field(64, ge=2, le=16_384, description="Baselines: size of the recurrent state.")
    aggregate: Literal["max", "sum", "avg"] = Field("max", description="amrl: what is kept of the past.")
    span: int = Field(64, ge=2, le=65_536, description="gtrxl: steps of attention.")
    layers: int = Field(2, ge=1, le=64, description="gtrxl: layers.")
    heads: int = Field(2, ge=1, le=64, description="gtrxl: attention heads; they must divide --core-hidden.")
    quantiles: int = Field(32, ge=2, le=1024, description="qrdqn: quantiles of the return.")
    replay: int = Field(500_000, ge=1000, description="qrdqn: steps in the replay memory.")
    replay_ratio: float = Field(1.0, gt=0, description="qrdqn: steps replayed per step played.")
    updates_at_most: int = Field(200, ge=1, description="qrdqn: updates per iteration, at most.")
    epsilon: float = Field(0.01, ge=0, le=1, description="qrdqn: random actions at the end of exploration.")
    explore: float = Field(0.3, gt=0, le=1, description="qrdqn: share of the steps until then.")
    target_rate: float = Field(0.01, gt=0, le=1, description="qrdqn: how fast the target network follows.")
    alternate: int = Field(
        0, ge=0, le=99, description="Rounds of collecting with the policy, scoring, more memory and agent training."
    )
    checkpoint_every: float = Field(30.0, ge=0, description="Seconds between checkpoints, at iteration ends.")

    @model_validator(mode="after")
    def _fits(self) -> "TrainAgentOptions":
        if self.core_hidden % self.heads:
            raise ValueError(f"--heads {self.heads} does not divide --core-hidden {self.core_hidden}")
        if self.eyes == "imitated" and "imitate" not in AGENTS.entry(self.agent).options:
            raise ValueError(f"--eyes imitated are trained by --imitate, which {self.agent} does not have")
        if self.alternate and not AGENTS.entry(self.agent).on_memory:
            raise ValueError(f"--alternate trains the memory in turns with the agent; {self.agent} does not use it")
        return self


class EvaluateAgentOptions(BaseModel):
    """What `memup evaluate agent` takes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    agent: Annotated[str, OneOf(AGENTS)] | None = Field(
        None, description="Which agent of the run (default: the only one trained)."
    )
    episodes: int = Field(200, ge=1, le=10**9, description="Episodes, greedy and stochastic each.")
    envs: int = Field(64, ge=1, le=16_384, description="Environments played side by side.")
    record: Path | None = Field(
        None, description="Film one greedy episode: a .gif that moves, or a .png with a strip of its pictures."
    )
