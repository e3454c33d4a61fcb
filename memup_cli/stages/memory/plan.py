"""The plan: what of a training nobody gave is settled by what the scored episodes look like, each choice with why.

Where they cannot tell, there are rivals: short trainings that race on the validation episodes (race.py).
"""

from dataclasses import dataclass, field
from typing import Any

from ...options.command_line import build
from ...options.memory_options import TrainMemoryOptions
from ...predictor.contexts import context_class
from ...registries import CELLS
from .facts import Facts

BEGUN = "as it was begun"  # why an option is not planned anew
MOST_TARGETS = 10
SHORTEST, LONGEST = 5, 20  # steps of a rollout
ROLLOUTS = 10  # of a short episode: targets lie behind a rollout's end, and gradients reach back to what they need
ALIKE = 0.1  # of the targets look like another one of their episode: then the step does not tell which one it is
WALK, WALKS = 1000, 1000  # steps that a walker goes on in an update; updates in which it comes through an episode
PASSES = 5  # updates in which it comes through a shorter one
NEAR_TARGETS = 4


@dataclass(frozen=True)
class Choice:
    option: str
    value: Any
    why: str


@dataclass(frozen=True)
class Plan:
    choices: tuple[Choice, ...] = ()
    rivals: tuple[dict[str, Any], ...] = ()  # options of which the better ones are found by a race

    def options(self, given: dict[str, Any]) -> TrainMemoryOptions:
        """What is given comes first."""
        return build(TrainMemoryOptions, {**{choice.option: choice.value for choice in self.choices}, **given})

    def undecided(self, given: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """The rivals that differ in what is not given; of ways to select, those that fit what is."""
        fitting = [r for r in self.rivals if "select" not in r or all(given.get(n, v) == v for n, v in r.items())]
        left = [{name: value for name, value in rival.items() if name not in given} for rival in fitting]
        different = [rival for number, rival in enumerate(left) if rival not in left[:number]]
        return tuple(different) if len(different) > 1 else ()

    def decided(self, winner: dict[str, Any], why: str) -> "Plan":
        kept = [choice for choice in self.choices if choice.option not in winner]
        return Plan((*kept, *(Choice(name, value, why) for name, value in winner.items())))

    def to_json(self) -> dict[str, Any]:
        return {"choices": [vars(choice) for choice in self.choices], "rivals": list(self.rivals)}

    @staticmethod
    def from_json(found: dict[str, Any]) -> "Plan":
        return Plan(tuple(Choice(**choice) for choice in found["choices"]), tuple(found["rivals"]))


NO_PLAN = Plan()


@dataclass
class _Draft:
    given: dict[str, Any]
    choices: list[Choice] = field(default_factory=list)

    def __call__(self, why: str, **options: Any) -> None:
        self.choices += [Choice(name, value, why) for name, value in options.items() if name not in self.given]

    def value(self, option: str) -> Any:
        """What is given, or chosen so far."""
        return self.given.get(option, next((c.value for c in self.choices if c.option == option), None))


def settle(facts: Facts, given: dict[str, Any]) -> Plan:
    """What the data tell without any training, of what is not given."""
    draft, length = _Draft(given), facts.usual_length
    flat = given.get("select") == "current" or (facts.scored and not facts.separates)
    draft("single updates are unsteady", average=0.05)
    if facts.images:
        draft("images are large: an update sees few", rollout=1)
    elif flat:
        draft("no step stands out", rollout=min(facts.longest, LONGEST))
    else:
        rollout = min(max(length // ROLLOUTS, SHORTEST), LONGEST)
        draft(f"episodes have {length:,} steps in the median", rollout=rollout)
    if flat:
        draft("no step stands out", targets=NEAR_TARGETS, near=True, predict_every=1)
    elif facts.scored:
        count = min(max(round(facts.events), 1), MOST_TARGETS)
        few = "one step of an episode stands" if facts.events == 1 else f"{facts.events:.3g} steps of an episode stand"
        draft(f"{few} out", targets=count)
        draft("a state that has just read the step is asked, too", at_targets=True)
        if facts.useful and not {"scores", "detector"} & set(given):
            draft("the probe found what the past explains", select="utility")
        if facts.returns and draft.value("select") != "utility":  # which would explore noise
            draft("an agent may ask what is certain, too", explore=0.1)
    if (draft.value("targets") or 1) > 1:
        draft("what is asked picks out what is remembered", predictor="gated")
        draft("several outcomes are kept apart", hidden=128, predictor_hidden=256, lr=3e-3, updates=20_000)
    if facts.numbers:
        draft("what cannot be known yet counts less", spread="learned")
    if facts.rare and not facts.images:
        if CELLS.entry(given.get("cell", "lstm")).novelty_gates:
            draft("some inputs are rare", novelty_gates=True)
        if given.get("select") != "current":
            draft("some inputs are rare", replay=0.5)
            _walk(draft, facts, length)
    return Plan(tuple(draft.choices), _rivals(facts, flat) if _samples(given) else ())


def _samples(given: dict[str, Any]) -> bool:
    """Whether not every rollout has to be trained."""
    return not context_class(given.get("context", "point")).trained_now


def _walk(draft: _Draft, facts: Facts, length: int) -> None:
    """Long episodes: most of their steps are walked through, and few of them trained."""
    rollout = draft.value("rollout")
    steps = max(min(length // PASSES, WALK), length // WALKS)
    if steps >= PASSES * rollout and _samples(draft.given):
        draft(f"of {length:,} steps few are worth an update", rollout_sampling="priority", stretch=steps // rollout)
        if facts.begins:
            draft("what is rare comes at the start", starts=0.25)


def _rivals(facts: Facts, flat: bool) -> tuple[dict[str, Any], ...]:
    if facts.images or not facts.scored:
        return ()
    if flat:
        now = {"select": "current", "context": "point", "near": False, "replay": 0.0, "rollout_sampling": "all"}
        return now, {"select": "surprise", "context": "point", "near": True}
    rates: list[dict[str, Any]] = [{"lr": 1e-2}, {"lr": 3e-3}]
    if facts.alike < ALIKE:
        return tuple(rates) if round(facts.events) > 1 else ()
    # Or each is about what came since the one before: then the next one is enough, and what is older can go.
    next_one = {"context": "point", "near": True, "targets": 1, "horizon": round(1 / max(facts.events, 1), 3)}
    known = ({"context": kind, "near": False, **rate} for kind in ("window", "totals") for rate in rates)
    return {**next_one, "predictor": "mlp", "hidden": 64, "predictor_hidden": 128, "lr": 1e-3}, *known
