"""One update of the memory, against a plain loop: its loss, its states, its weights, and what a restored one does."""

import copy
import io
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from memup_cli.compute.adam import Adam
from memup_cli.compute.pace import Watch
from memup_cli.compute.world import World
from memup_cli.learning.learner import MemoryLearner
from memup_cli.learning.stretches import Walked, one_of_a_stretch
from memup_cli.learning.update import NOW, optimiser_step, rollout_loss
from memup_cli.predictor.predictor import MemoryModel
from memup_cli.ranks import Rank
from memup_cli.selection.gains import WARM_UP
from stores.slab import Slab
from tests.learning.small import EPISODES, SCORES, learner_of, model_of, sharp, stored, walk


class Plain:
    """Algorithm 1 as it is written down: one slot, one step, one target at a time."""

    def __init__(self, model: MemoryModel, clip: float, slots: int) -> None:
        self.model, self.clip = copy.deepcopy(model), clip
        self.optimiser = torch.optim.Adam(self.model.parameters())
        self.states = [self.model.memory.initial(1) for _ in range(slots)]
        self.norms: list[float] = []

    def update(self, slab: Slab, lr: float) -> float:
        terms: list[Tensor] = []
        for slot, episode in enumerate(slab.episode):
            if slab.fresh[slot]:
                self.states[slot] = self.model.memory.initial(1)
            terms += self._slot(slot, EPISODES[episode], SCORES[episode], int(slab.offset[slot]), slab.rollout)
        loss = torch.stack(terms).mean()
        self.model.zero_grad()
        loss.backward()
        norm = torch.stack([p.grad.square().sum() for p in self.model.parameters()]).sum().sqrt()
        for p in self.model.parameters():
            p.grad *= min(1.0, self.clip / float(norm))
        self.optimiser.param_groups[0]["lr"] = lr
        self.optimiser.step()
        self.norms.append(float(norm))
        return float(loss.detach())

    def _slot(self, slot: int, arrays: dict[str, np.ndarray], scores: np.ndarray, start: int, r: int) -> list[Tensor]:
        """Squared errors of the targets of a rollout: at its last step, and at its second."""
        state, length, m = self.states[slot], len(scores), {}
        for t in range(start, start + r):
            x = torch.tensor([[[float(arrays["x"][min(t, length - 1)])]]])
            out, state = self.model.memory(x, state)
            m[t] = out[0, 0]
        self.states[slot] = tuple(part.detach() for part in state)
        last = min(start + r, length) - 1
        found = []
        for t in (last, min(start + 1, last)):
            ahead = sorted(range(t, length), key=lambda k: -scores[k])[:2]
            for k in ahead:
                predicted = self.model.predict(m[t], torch.tensor([float(arrays["q"][k])]))
                found.append((predicted - float(arrays["y"][k])) ** 2)
        return found


@pytest.fixture
def train(tmp_path):
    return stored(tmp_path)


def weights(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()]).clone()


def updates(learner: MemoryLearner, first: int, last: int) -> list[Tensor]:
    """The weights after each of these updates."""
    found, watch = [], Watch(learner.model)
    for update in range(first, last):
        learner.update(0.05 / (1 + update), update, watch)
        found.append(weights(learner.model))
    return found


@pytest.mark.parametrize("cell", ["lstm", "gru", "mingru"])
def test_updates_are_those_of_the_algorithm_step_by_step(train, cell):
    """Episodes end and begin on the way: states go on within one, and are zero at the start of the next."""
    options = sharp(cell=cell, clip=1.0)
    learner = learner_of(train, options)
    plain, watch, total = Plain(learner.model, options.clip, 2), Watch(learner.model), 0.0
    begun = 0
    with walk(train, learner, options) as slab:
        for update in range(14):
            begun += int(slab.fresh.sum())
            lr = 0.02 if update % 3 else 0.001
            total += plain.update(slab, lr)
            learner.update(lr, update, watch)
            for slot, state in enumerate(plain.states):
                for part, expected in zip(learner.walking, state, strict=True):
                    torch.testing.assert_close(part[slot], expected[0])
            torch.testing.assert_close(weights(learner.model), weights(plain.model), rtol=1e-3, atol=1e-5)
    assert begun > 4
    assert min(plain.norms) < options.clip < max(plain.norms), "some gradients are clipped, some are not"
    assert float(learner.losses) == pytest.approx(total, rel=1e-4), "summed until they are logged"


def test_states_and_losses_hold_on_to_no_earlier_update(train):
    options = sharp()
    learner = learner_of(train, options)
    with walk(train, learner, options):
        updates(learner, 0, 3)
    assert not any(part.requires_grad for part in (*learner.walking, learner.losses))


@pytest.mark.parametrize(("share", "chance"), [(1.0, lambda n: 1.0), (0.5, lambda n: float(n))])
def test_what_is_kept_is_the_average_over_the_last_share_of_the_updates(train, share, chance):
    """All of them: each counts the same. Half of them: the n-th counts n times."""
    options = sharp(average=share)
    learner = learner_of(train, options)
    with walk(train, learner, options):
        after = updates(learner, 0, 7)
    counts = torch.tensor([chance(n) for n in range(1, 8)])
    expected = (torch.stack(after) * counts.unsqueeze(-1)).sum(0) / counts.sum()
    torch.testing.assert_close(weights(learner.kept), expected, rtol=1e-5, atol=1e-6)
    assert not torch.equal(weights(learner.kept), weights(learner.model))


def test_the_slow_average_follows_the_model_after_each_update(train):
    options = sharp(context="carried", ema=0.75)
    learner = learner_of(train, options)
    before = weights(learner.model)
    with walk(train, learner, options):
        after = updates(learner, 0, 3)
    expected = before
    for now in after:
        expected = 0.75 * expected + 0.25 * now
    found = torch.cat([value.flatten() for value in learner.state()["arrivals"]["average"].values()])
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_without_an_average_the_model_itself_is_kept(train):
    learner = learner_of(train, sharp())
    assert learner.kept is learner.model


def test_the_memory_learns_the_current_step_if_it_is_told_to(train):
    """--select current: every step that exists is predicted from the state there."""
    options = sharp(select="current")
    learner = learner_of(train, options)
    model, watch, seen = copy.deepcopy(learner.model), Watch(learner.model), []
    with walk(train, learner, options) as slab, torch.no_grad():
        for slot, episode in enumerate(slab.episode):
            arrays, start, state = EPISODES[episode], int(slab.offset[slot]), model.memory.initial(1)
            for t in range(start, min(start + 3, len(arrays["x"]))):
                m, state = model.memory(torch.tensor([[[float(arrays["x"][t])]]]), state)
                error = model.predict(m[0, 0], torch.tensor([float(arrays["q"][t])])) - float(arrays["y"][t])
                seen.append(float(error) ** 2)
        with torch.enable_grad():
            learner.update(0.05, 0, watch)
    assert float(learner.losses) == pytest.approx(np.mean(seen), rel=1e-5)


def test_without_targets_a_carried_encoder_learns_from_the_steps_at_hand_and_the_memory_does_not():
    """Its own loss is there to make contexts of; what to remember is for targets to say."""
    model = model_of(sharp(context="carried"))
    batch = {name: torch.randn(2, 3) for name in ("x", "q", NOW)}
    batch |= {"y": torch.randn(2, 1, 2), "query.context": torch.randn(2, 1, 2, 3), "points": torch.full((2, 1), 2)}
    there = {"fresh": torch.ones(2), "valid": torch.ones(2, 3), "exists": torch.zeros(2, 1, 2)}
    batch |= {name: values.bool() for name, values in there.items()}
    loss, _ = rollout_loss(model, batch, (*model.memory.initial(2), *model.context.initial(2)))
    loss.backward()
    assert loss > 0
    assert all(p.grad.any() for p in model.context.encoder.parameters())
    assert not any(p.grad is not None and p.grad.any() for p in model.memory.parameters())


def drawn_errors(model: MemoryModel, slab: Slab, walked: Walked, begin: tuple[Tensor, ...]) -> list[list[float]]:
    """Squared errors of the two targets of each slot's drawn rollout, from its last step."""
    found = []
    for slot, episode in enumerate(slab.episode):
        arrays, t = EPISODES[episode], int(walked.offset[slot] + walked.valid[slot]) - 1
        x = torch.from_numpy(arrays["x"][walked.offset[slot] : t + 1]).view(1, -1, 1)
        m, _ = model.memory(x, tuple(part[slot : slot + 1] for part in begin))
        ahead = sorted(range(t, len(arrays["x"])), key=lambda k, s=SCORES[episode]: -s[k])[:2]
        found.append([squared(model, m[0, -1], arrays["q"][k], arrays["y"][k]) for k in ahead])
    return found


def squared(model: MemoryModel, m: Tensor, q: float, y: float) -> float:
    return (float(model.predict(m, torch.tensor([float(q)])).detach()) - float(y)) ** 2


def test_of_a_stretch_one_rollout_is_trained_with_its_weight_and_the_state_goes_on_behind_it(train):
    options = sharp(rollout_sampling="priority", priority="change", stretch=2, predict_every=0)
    learner = learner_of(train, options)
    model, watch = copy.deepcopy(learner.model), Watch(learner.model)
    with walk(train, learner, options) as slab:
        walked, begin, behind = one_of_a_stretch(slab, model, learner.walking, options, None, ("x",), (0, 0))
        errors = drawn_errors(model, slab, walked, begin)
        learner.update(0.05, 0, watch)
    losses = [w * error for w, each in zip(walked.weight, errors, strict=True) for error in each]
    assert (walked.weight != 1).all()
    assert float(learner.losses) == pytest.approx(np.mean(losses), rel=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(learner.walking, behind, strict=True))


def test_nothing_of_the_episode_before_is_left_in_the_states_of_a_stretch(train):
    """Neither in that behind it, nor where a rollout is drawn that is not the first of its episode."""
    options = sharp(rollout_sampling="priority", priority="change", stretch=2, predict_every=0)
    learner, begun = learner_of(train, options), 0
    with walk(train, learner, options) as slab:
        for update in range(14):
            zero = learner.model.memory.initial(2)
            left = tuple(part + torch.from_numpy(slab.fresh).float().unsqueeze(-1) for part in zero)
            (walked, begin, behind), (same, *expected) = (
                one_of_a_stretch(slab, learner.model, state, options, None, ("x",), (0, update))
                for state in (left, zero)
            )
            assert walked.offset.tolist() == same.offset.tolist()
            for part, other in zip((*begin, *behind), itertools.chain(*expected), strict=True):
                assert torch.equal(part, other)
            begun += int((slab.fresh & (walked.offset > 0)).sum())
            slab.advance()
    assert begun > 1


def test_where_no_state_changes_every_rollout_of_a_stretch_has_its_turn(train):
    """As of a memory that has learned to keep what it has: all are as likely, and count the same."""
    options = sharp(rollout_sampling="priority", priority="change", stretch=2, predict_every=0)
    learner, places = learner_of(train, options), set()
    with torch.no_grad():
        for parameter in learner.model.parameters():
            parameter.zero_()
    with walk(train, learner, options) as slab:
        for update in range(14):
            walked, begin, behind = one_of_a_stretch(
                slab, learner.model, learner.walking, options, None, ("x",), (0, update)
            )
            assert not any(part.any() for part in (*begin, *behind))
            assert walked.weight.tolist() == [1.0 if steps > 3 else 0.5 for steps in slab.valid()]
            places |= set((walked.offset - slab.offset).tolist())
            slab.advance()
    assert places == {0, 3}


def test_what_is_replayed_counts_as_it_is_beside_rollouts_with_weights(train):
    """With room for one, what is repeated is the last slot's rollout of the same update, once for each slot."""
    options = sharp(rollout_sampling="priority", priority="change", stretch=2, predict_every=0)
    options = options.model_copy(update={"batch": 6, "replay": 0.5, "replay_size": 1})
    learner = learner_of(train, options)
    model, watch = copy.deepcopy(learner.model), Watch(learner.model)
    with walk(train, learner, options) as slab:
        walked, begin, _ = one_of_a_stretch(slab, model, learner.walking, options, None, ("x",), (0, 0))
        errors = drawn_errors(model, slab, walked, begin)
        learner.update(0.05, 0, watch)
    assert learner.state()["replay"]["arrays"]["x"].tolist() == walked.arrays["x"][-1:].tolist()
    assert (walked.weight != 1).all()
    losses = [w * error for w, each in zip(walked.weight, errors, strict=True) for error in each]
    assert float(learner.losses) == pytest.approx(np.mean(losses + 3 * errors[-1]), rel=1e-5)


KINDS: dict[str, dict[str, Any]] = {
    "stored": {},
    "averaged": {"average": 0.3},
    "window": {"context": "window"},
    "replayed": {"batch": 6, "replay": 0.5, "replay_size": 5, "starts": 0.2, "random_points": 1},
    "stretches": {"rollout_sampling": "priority", "stretch": 2, "at_targets": True},
    "utility": {"select": "utility"},
    "online": {"scores": "online", "ema": 0.5, "temperature": 0.5},
    "carried": {"context": "carried", "ema": 0.5},
}


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("first", [1, 5, 8])
@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_learner_goes_on_to_the_last_bit(train, kind, first):
    options = sharp(**KINDS[kind])
    learner = learner_of(train, options)
    with walk(train, learner, options):
        updates(learner, 0, first)
        saved = through_a_file(learner.state())
        whole = updates(learner, first, first + 9)
    restored = learner_of(train, options, seed=1)
    restored.load(saved)
    with walk(train, restored, options, first):
        again = updates(restored, first, first + 9)
    for one, other in zip(whole, again, strict=True):
        assert torch.equal(one, other)
    assert torch.equal(weights(learner.kept), weights(restored.kept))
    assert torch.equal(learner.losses, restored.losses)
    assert all(torch.equal(a, b) for a, b in zip(learner.walking, restored.walking, strict=True))


def test_a_restored_learner_draws_targets_by_the_running_gain_as_it_would_have(train):
    """Those of the episodes that it was in come with the state: they are not drawn a second time."""
    options = sharp(select="utility")
    learner = learner_of(train, options)
    with walk(train, learner, options):
        updates(learner, 0, 1)
    late = through_a_file(learner.state())
    late["gains"] |= {"updates": WARM_UP, "networks": {**late["gains"]["networks"], "largest": torch.tensor(1.0)}}
    whole, again = [], []
    learner.load(through_a_file(late))
    with walk(train, learner, options, 1):
        whole += updates(learner, 1, 19)
    restored = learner_of(train, options, seed=1)
    restored.load(through_a_file(late))
    for first in range(1, 19, 3):
        with walk(train, restored, options, first):
            again += updates(restored, first, first + 3)
        saved, restored = restored.state(), learner_of(train, options, seed=first)
        restored.load(through_a_file(saved))
    assert all(torch.equal(one, other) for one, other in zip(whole, again, strict=True))
    networks = [found.state()["gains"]["networks"] for found in (learner, restored)]
    assert all(torch.equal(networks[0][name], networks[1][name]) for name in networks[0])


class Twins(World):
    """Of two processes, where the other one finds what this one finds, and has nothing to tell."""

    def __init__(self, rank: int) -> None:
        super().__init__(Rank(rank, 2, 0))

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor.mul_(2)

    def begin_sum(self, tensor: Tensor) -> Callable[[], Tensor]:
        return lambda: tensor.mul_(2)


def test_the_gradient_of_all_processes_is_clipped_not_each_ones_part():
    w = torch.nn.Parameter(torch.zeros(2))
    model = torch.nn.ParameterList([w])
    for clip, norm in ((100.0, 10.0), (7.0, 7.0), (4.0, 4.0)):
        optimiser_step(model, Adam([w], lr=0.1), w @ torch.tensor([3.0, 4.0]), 0.1, clip, Twins(0))
        assert float(w.grad.norm()) == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("more", [{"scores": "online", "temperature": 1e6}, {"replay": 0.5, "replay_size": 12}])
def test_of_several_processes_each_draws_by_itself(train, more):
    """They are given the same slots here, so what they do differently is what they draw."""
    found = []
    for rank in (0, 1, 1):
        part = learner_of(train, sharp(batch=8 if "replay" in more else 4, **more), world=Twins(rank))
        with walk(train, part, sharp(**more | {"replay": 0.0})):
            found.append(updates(part, 0, 9)[-1])
    assert torch.equal(found[1], found[2])
    assert not torch.equal(found[0], found[1])


@pytest.mark.parametrize("rank", [0, 1])
def test_of_several_processes_each_takes_every_other_slot_and_the_first_one_the_losses(train, rank):
    options = sharp(batch=5)
    learner = learner_of(train, options)
    with walk(train, learner, options):
        updates(learner, 0, 2)
    saved = through_a_file(learner.state())
    part = learner_of(train, options, seed=1, world=World(Rank(rank, 2, 0)))
    part.load(saved)
    for own, whole in zip(part.walking, learner.walking, strict=True):
        assert torch.equal(own, whole[rank::2])
    assert float(part.losses) == (float(learner.losses) if rank == 0 else 0.0)
    assert torch.equal(weights(part.model), weights(learner.model))
