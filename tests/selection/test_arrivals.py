"""Episodes that arrive, seen by a slow average of the model: exact averages, errors, contexts and slots."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from memup_cli.errors import UsageProblem
from memup_cli.options.memory_options import TrainMemoryOptions
from memup_cli.predictor.carried import CONTEXT
from memup_cli.predictor.predictor import MemoryModel
from memup_cli.predictor.window import SEEN
from memup_cli.selection.arrivals import Arrivals
from memup_cli.selection.candidates import Candidates, TargetTables, gather_candidates, query_fields
from memup_cli.selection.choosing import chooser, preparing
from memup_cli.streaming.slabs import open_slab
from stores.slab import Slab
from tests.learning.small import EPISODES, SCORES, SPEC, model_of, sharp, stored

SLOTS = 3
CONTEXTS = ["point", "window", "carried", "totals"]


class Walk:
    """The slow average of a model with its tables and its slab, by the model's own errors or by stored scores."""

    def __init__(
        self, folder: Path, options: TrainMemoryOptions, *, online: bool, update: int = 0, larger: int = 1
    ) -> None:
        """larger: how many times y is as large as in EPISODES."""
        self.model = model_of(options)
        self.tables = TargetTables(SLOTS, options.targets, SPEC, query_fields(SPEC, options.context, options.window, 3))
        self.arrivals = Arrivals(self.model, 0, options, online)
        self.fresh: list[int] = []
        self.slab = open_slab(
            stored(folder, [{**arrays, "y": larger * arrays["y"]} for arrays in EPISODES]),
            SPEC,
            batch=SLOTS,
            rollout=3,
            gamma=0.0,
            seed=0,
            update=update,
            memory=1 << 20,
            whole=True,
            with_targets=True,
            prepare=None
            if online
            else preparing(
                chooser(lambda visit: SCORES[visit.index], options.targets, 1e-6, 0),
                lambda top, *where: gather_candidates(top, SPEC, 0.0, options.context, options.window, *where),
            ),
            on_fresh=self._chosen,
        )

    def _chosen(self, slot: int, candidates: Candidates) -> None:
        self.fresh.append(slot)
        self.arrivals.choose(slot, candidates)

    def __enter__(self) -> "Walk":
        return self

    def __exit__(self, *_: object) -> None:
        self.slab.close()

    def begin(self, resumed: bool = False) -> None:
        self.arrivals.attach(self.slab, self.tables, resumed)

    def average(self) -> MemoryModel:
        found = copy.deepcopy(self.model)
        found.load_state_dict(self.arrivals.state(self.tables)["average"])
        return found


def shift(model: nn.Module, by: float) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p += by * torch.sin(torch.arange(p.numel(), dtype=torch.float32)).view_as(p)


def contexts(model: MemoryModel, kind: str, arrays: dict[str, np.ndarray]) -> list[torch.Tensor]:
    """c of each step, from the start of the episode, one at a time."""
    q = torch.from_numpy(arrays["q"])
    context, found = model.context, []
    state = context.initial(1) if kind in ("carried", "totals") else None
    for k in range(len(q)):
        if kind == "point":
            c = context({"q": q[k : k + 1]})
        elif kind == "window":
            rows = q[[max(step, 0) for step in range(k + 1 - context.window, k + 1)]].unsqueeze(0)
            c = context({"q": rows, SEEN: torch.tensor([min(k + 1, context.window)])})
        else:
            c, state = context.along({"q": q[k].view(1, 1)}, state)
            c = c[0]
        found.append(c[0])
    return found


@torch.no_grad()
def errors(model: MemoryModel, kind: str, arrays: dict[str, np.ndarray]) -> list[float]:
    """Of predicting each step's y from the memory there, one step at a time."""
    state, found = model.memory.initial(1), []
    for k, c in enumerate(contexts(model, kind, arrays)):
        m, state = model.memory(torch.tensor([[[float(arrays["x"][k])]]]), state)
        found.append((float(model.predict(m[0, 0], c)) - float(arrays["y"][k])) ** 2)
    return found


def chosen(walk: Walk, slot: int) -> list[list[float]]:
    """y of the targets of each step of a slot's episode."""
    length = int(walk.slab.length[slot])
    points = np.minimum(np.arange(length), walk.slab.length[:, None] - 1)
    _, y, exists = walk.tables.look_up(points)
    return [y[slot, t][exists[slot, t]].tolist() for t in range(length)]


def best(scores: list[float], y: np.ndarray, k: int) -> list[list[float]]:
    """y of the k steps with the highest scores, of those from each step on."""
    return [
        [float(y[i]) for i in sorted(range(t, len(scores)), key=lambda i: -scores[i])[:k]] for t in range(len(scores))
    ]


def test_the_average_moves_by_one_minus_ema_towards_every_model(tmp_path):
    with Walk(tmp_path, sharp(ema=0.75, scores="online"), online=True) as walk:
        models = [[p.detach().clone() for p in walk.model.parameters()]]
        for n in range(4):
            shift(walk.model, 1.0 + n)
            models.append([p.detach().clone() for p in walk.model.parameters()])
            walk.arrivals.average()
        share = [0.75**4, 0.25 * 0.75**3, 0.25 * 0.75**2, 0.25 * 0.75, 0.25]
        for i, p in enumerate(walk.average().parameters()):
            torch.testing.assert_close(p.detach(), sum(s * m[i] for s, m in zip(share, models, strict=True)))


@pytest.mark.parametrize("context", CONTEXTS)
def test_online_targets_are_where_the_average_not_the_model_errs_most(tmp_path, context):
    options = sharp(scores="online", context=context, ema=0.5)
    with Walk(tmp_path, options, online=True) as walk:
        walk.begin()
        shift(walk.model, 2.0)
        walk.arrivals.average()
        walk.arrivals.refresh()
        average, others = walk.average(), []
        for slot, episode in enumerate(walk.slab.episode):
            arrays = EPISODES[episode]
            assert chosen(walk, slot) == best(errors(average, context, arrays), arrays["y"], 2)
            others.append(chosen(walk, slot) != best(errors(walk.model, context, arrays), arrays["y"], 2))
        assert any(others)


def test_the_temperature_is_in_units_of_the_spread_of_the_errors(tmp_path):
    """Targets that are all predicted as zero are drawn alike if all of them are larger, and not only the largest."""
    options, drawn = sharp(scores="online", temperature=0.5, ema=0.0), []
    for larger in (1, 16):
        with Walk(tmp_path / f"{larger}", options, online=True, larger=larger) as walk:
            walk.model.predict_always(torch.tensor(0.0))
            walk.begin()
            walk.arrivals.average()
            walk.arrivals.refresh()
            drawn.append([[y / larger for y in ys] for slot in range(SLOTS) for ys in chosen(walk, slot)])
    assert drawn[0] == drawn[1]
    largest = [ys for y in (EPISODES[e]["y"] for e in walk.slab.episode) for ys in best((y**2).tolist(), y, 2)]
    assert drawn[0] != largest


def test_at_the_start_all_slots_have_targets_later_only_those_that_begin_an_episode_get_new_ones(tmp_path):
    options = sharp(scores="online", ema=0.0)
    with Walk(tmp_path, options, online=True) as walk:
        walk.begin()
        walk.arrivals.refresh()
        assert not walk.slab.fresh.all(), "some begin in the middle"
        made = [copy.deepcopy(walk.model)] * SLOTS
        changed = 0
        for _ in range(8):
            for slot, episode in enumerate(walk.slab.episode):
                arrays = EPISODES[episode]
                assert chosen(walk, slot) == best(errors(made[slot], "point", arrays), arrays["y"], 2)
            walk.slab.advance()
            shift(walk.model, 1.0)
            walk.arrivals.average()
            walk.arrivals.refresh()
            for slot in np.flatnonzero(walk.slab.fresh):
                made[slot], changed = copy.deepcopy(walk.model), changed + 1
        assert 0 < changed < 8 * SLOTS


def test_every_visit_of_an_episode_draws_anew(tmp_path):
    drawn: dict[int, set[str]] = {}
    with Walk(tmp_path, sharp(scores="online", temperature=100.0), online=True) as walk:
        walk.begin()
        for _ in range(12):
            walk.arrivals.refresh()
            for slot in np.flatnonzero(walk.slab.fresh):
                drawn.setdefault(int(walk.slab.episode[slot]), set()).add(str(chosen(walk, slot)))
            walk.slab.advance()
    assert max(map(len, drawn.values())) > 1


@pytest.mark.parametrize("online", [True, False])
def test_carried_contexts_are_the_averages_states_at_the_targets(tmp_path, online):
    options = sharp(context="carried", ema=0.5, scores="online" if online else "stored")
    with Walk(tmp_path, options, online=online) as walk, torch.no_grad():
        walk.begin()
        shift(walk.model, 1.0)
        walk.arrivals.average()
        walk.arrivals.refresh()
        average = walk.average()
        query, y, exists = walk.tables.look_up(np.zeros((SLOTS, 1), int))
        for slot, episode in enumerate(walk.slab.episode):
            arrays = EPISODES[episode]
            scores = errors(average, "carried", arrays) if online else SCORES[episode]
            steps = sorted(range(len(scores)), key=lambda k, s=scores: -s[k])[:2]
            c = contexts(average, "carried", arrays)
            assert exists[slot, 0].all()
            assert y[slot, 0].tolist() == arrays["y"][steps].tolist()
            torch.testing.assert_close(torch.from_numpy(query[CONTEXT][slot, 0]), torch.stack([c[k] for k in steps]))


def test_stored_targets_are_taken_up_once_and_those_of_other_slots_stay(tmp_path):
    with Walk(tmp_path, sharp(context="carried", ema=0.0), online=False) as walk:
        walk.begin()
        walk.arrivals.refresh()
        for _ in range(6):
            before = walk.arrivals.state(walk.tables)["tables"]
            walk.fresh.clear()
            walk.slab.advance()
            shift(walk.model, 1.0)
            walk.arrivals.average()
            walk.arrivals.refresh()
            after = walk.arrivals.state(walk.tables)["tables"]
            width = before["query.context"].shape[1]
            moved = (before["query.context"] != after["query.context"][:, :width]).flatten(1).any(1)
            assert np.flatnonzero(moved).tolist() == sorted(walk.fresh)


@pytest.mark.parametrize("online", [True, False])
@pytest.mark.parametrize("update", range(1, 6))
def test_a_restored_one_has_its_tables_and_fills_only_those_of_slots_that_begin_now(tmp_path, online, update):
    """The model has moved on since the others began: their targets and contexts are those of then."""
    options = sharp(context="carried", ema=0.5, scores="online" if online else "stored", temperature=0.3)

    def go_on(walk: Walk) -> list[dict[str, torch.Tensor]]:
        found = []
        for _ in range(4):
            walk.arrivals.refresh()
            found.append(walk.arrivals.state(walk.tables)["tables"])
            shift(walk.model, 0.5)
            walk.arrivals.average()
            walk.slab.advance()
        return found

    with Walk(tmp_path / "one", options, online=online) as walk:
        walk.begin()
        for _ in range(update):
            walk.arrivals.refresh()
            shift(walk.model, 1.0)
            walk.arrivals.average()
            walk.slab.advance()
        saved, model = copy.deepcopy(walk.arrivals.state(walk.tables)), copy.deepcopy(walk.model.state_dict())
        whole = go_on(walk)
    with Walk(tmp_path / "other", options, online=online, update=update) as again:
        again.model.load_state_dict(model)
        again.arrivals.load(saved, again.tables, lambda values: values.clone())
        again.begin(resumed=True)
        found = go_on(again)
    for one, other in zip(whole, found, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in one)


def test_states_of_several_processes_are_put_together_slot_by_slot(tmp_path):
    with Walk(tmp_path, sharp(scores="online"), online=True) as walk:
        walk.begin()
        walk.arrivals.refresh()
        whole = walk.arrivals.state(walk.tables)
    parts = [
        {**whole, "visits": 3 + rank, "tables": {n: v[rank::2] for n, v in whole["tables"].items()}} for rank in (0, 1)
    ]
    merged = Arrivals.merged(parts)
    assert merged["visits"] == 4
    assert all(torch.equal(values, whole["tables"][name]) for name, values in merged["tables"].items())


@pytest.mark.parametrize("rollout", [1, 3])
def test_pieces_of_episodes_are_not_enough(tmp_path, rollout):
    """Whatever the slots hold now: 11 steps come as 8 and 3, with room for one piece and a rollout."""
    options = sharp(scores="online")
    tables = TargetTables(2, 2, SPEC, query_fields(SPEC, "point", 2, 3))
    arrivals = Arrivals(model_of(options), 0, options, online=True)
    with Slab(stored(tmp_path), 2, rollout, 0, memory=2 * 12 * 15) as slab:
        assert not slab.whole
        with pytest.raises(UsageProblem, match="--scores online needs whole episodes"):
            arrivals.attach(slab, tables, resumed=False)
    with Slab(stored(tmp_path / "again"), 2, rollout, 0) as slab:
        assert slab.whole
        arrivals.attach(slab, tables, resumed=False)
