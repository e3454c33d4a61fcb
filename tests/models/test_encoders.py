"""What networks see of stored fields."""

from types import SimpleNamespace

import torch

from memup_cli.models.encoders import FieldEncoder
from memup_cli.tasks.pmnist import PermutedMNIST, PermutedMNISTOptions
from memup_cli.tasks.tmaze import TMaze, TMazeOptions
from memup_cli.training.stages import spec_of


def test_fields_are_scaled_and_classes_become_one_hot():
    encoder = FieldEncoder(PermutedMNIST(PermutedMNISTOptions()).spec, ("pixel", "ask"))
    steps = {"pixel": torch.tensor([0, 51, 255], dtype=torch.uint8), "ask": torch.tensor([0, 1, 0], dtype=torch.uint8)}
    torch.testing.assert_close(encoder(steps), torch.tensor([[0.0, 1, 0], [0.2, 0, 1], [1, 1, 0]]))


def test_fields_without_a_scale_are_as_stored():
    encoder = FieldEncoder(TMaze(TMazeOptions()).spec, ("observation",))
    observation = torch.tensor([[1, 0, -1], [0, 5, 1]], dtype=torch.int8)
    torch.testing.assert_close(encoder({"observation": observation}), observation.float())


def test_a_manifest_from_before_scales_still_loads():
    recorded = TMaze(TMazeOptions()).spec.to_json()
    del recorded["scale"]
    assert spec_of(SimpleNamespace(task={"spec": recorded})) == TMaze(TMazeOptions()).spec
