"""What is built in of each kind: one line each. The option's choices, its help and docs/commands.md follow from here.

docs/extending.md says what a module must have; cells and detectors can also come from other packages.
"""

from dataclasses import dataclass

from .registry import Entry, Registry


@dataclass(frozen=True)
class CellEntry(Entry):
    """A memory cell: called with the number of inputs, a Shape and the length of the horizon (memory/cells.py)."""

    remembers: bool = True  # False: it has no state that options could be about
    novelty_gates: bool = False  # it can begin closed to usual inputs


@dataclass(frozen=True)
class DetectorEntry(Entry):
    """A kind of detector, as detector/kinds.py has them."""

    targets: tuple[str, ...] = ()  # kinds of target that it can predict; of a plug-in, its class says it


@dataclass(frozen=True)
class AgentEntry(Entry):
    """What learns: called with a policy, a TaskSpec, the options and a device; its `policy_class` makes the policy."""

    options: frozenset[str] = frozenset()  # of train-agent, besides those that all have
    core: str = ""  # module:name of what remembers by itself; empty: it acts on the trained memory
    eyes: str = "own"  # with what it sees images there
    numbered: bool = False  # it chooses among numbered actions only

    @property
    def on_memory(self) -> bool:
        return not self.core


@dataclass(frozen=True)
class BaselineEntry(Entry):
    """The core of a baseline: called with inputs, hidden, layers, heads and the length of the horizon."""

    layers: int = 2  # if nobody says
    one_layer: bool = False  # it can have no more
    attends: bool = False  # it has attention heads


CELLS = Registry(
    "memory cell",
    {
        "lstm": CellEntry("memup_cli.memory.recurrent:lstm", novelty_gates=True),
        "gru": CellEntry("memup_cli.memory.recurrent:gru"),
        "mingru": CellEntry("memup_cli.memory.linear:LinearMemory", "a linear recurrence, quick over many steps"),
        "none": CellEntry("memup_cli.memory.nothing:NoMemory", "what the predictor can do without", remembers=False),
    },
    unknown=CellEntry(""),
    group="memup.cells",
)

PROBE = "probe"  # trained with what came before each step, beside a detector of surprise

DETECTORS = Registry(
    "detector",
    {  # the first one that suits a target is its default: its scores should not look at y
        "quantile": DetectorEntry(
            "memup_cli.detector.kinds:Quantile", "the spread of the return's quantiles", ("scalar", "return")
        ),
        "classifier": DetectorEntry(
            "memup_cli.detector.kinds:Classifier", "the entropy of the class probabilities", ("classes",)
        ),
        "regression": DetectorEntry("memup_cli.detector.kinds:Regression", "the error", ("scalar", "return")),
        PROBE: DetectorEntry(
            "memup_cli.detector.kinds:Gain",
            "also how much of it the past explains, for --select utility",
            ("classes", "scalar", "return"),
        ),
    },
    unknown=DetectorEntry(""),
    group="memup.detectors",
)

SELECTIONS = Registry(
    "selection rule",
    {
        "surprise": Entry("memup_cli.selection.surprise:SURPRISE", "by uncertainty (MemUP)"),
        "utility": Entry(
            "memup_cli.selection.utility:UTILITY",
            "by how much of it the past explains (after `memup score --detector probe`)",
        ),
        "uniform": Entry("memup_cli.selection.uniform:UNIFORM", "uniform in the future (Rnd-Pred)"),
        "current": Entry("memup_cli.selection.current:CURRENT", "the current step (Default)"),
    },
    unknown=Entry(""),
)

CONTEXTS = Registry(
    "context",
    {
        "point": Entry("memup_cli.predictor.point:PointContext", "its query"),
        "window": Entry("memup_cli.predictor.window:WindowContext", "the last --window steps"),
        "carried": Entry("memup_cli.predictor.carried:CarriedContext", "everything up to it"),
        "totals": Entry(
            "memup_cli.predictor.totals:TotalsContext", "its query and how much of each input came up to it"
        ),
    },
    unknown=Entry(""),
)

PREDICTORS = Registry(
    "predictor",
    {
        "mlp": Entry("memup_cli.predictor.heads:PlainMLP"),
        "gated": Entry("memup_cli.predictor.heads:GatedMLP", "the first one multiplied by the context"),
    },
    unknown=Entry(""),
)

_MEMORY = {"checkpoint", "outlook", "alternate"}
_CORE = {"rollout", "core_hidden"}
_PPO = {"gae", "clip", "epochs", "entropy", "sample"}
_QRDQN = {"quantiles", "replay", "replay_ratio", "updates_at_most", "epsilon", "explore", "target_rate"}

AGENTS = Registry(
    "agent",
    {
        "ppo": AgentEntry("memup_cli.agents.ppo:PPO", options=frozenset({"imitate", "prefer"} | _PPO | _MEMORY)),
        "qrdqn": AgentEntry(
            "memup_cli.agents.qrdqn:QRDQN", options=frozenset(_QRDQN | _MEMORY), eyes="memory", numbered=True
        ),
        "ppo-lstm": AgentEntry(
            "memup_cli.agents.ppo:PPO", options=frozenset(_PPO | _CORE), core="memup_cli.agents.policies:lstm_core"
        ),
        "amrl": AgentEntry(
            "memup_cli.agents.ppo:PPO",
            options=frozenset({"aggregate"} | _PPO | _CORE),
            core="memup_cli.agents.policies:amrl_core",
        ),
        "gtrxl": AgentEntry(
            "memup_cli.agents.ppo:PPO",
            options=frozenset({"span", "layers", "heads"} | _PPO | _CORE),
            core="memup_cli.agents.policies:gtrxl_core",
        ),
    },
    unknown=AgentEntry(""),
)

BASELINES = Registry(
    "baseline",
    {
        "lstm": BaselineEntry("memup_cli.baselines.networks:lstm_baseline"),
        "mingru": BaselineEntry("memup_cli.baselines.networks:mingru_baseline"),
        "srnn": BaselineEntry("memup_cli.baselines.networks:SRNNBaseline", layers=1, one_layer=True),
        "transformer": BaselineEntry("memup_cli.baselines.networks:TransformerBaseline", layers=4, attends=True),
        "gtrxl": BaselineEntry("memup_cli.baselines.networks:gtrxl_baseline", attends=True),
    },
    unknown=BaselineEntry(""),
)
