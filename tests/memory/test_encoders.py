"""What networks see of stored fields."""

from types import SimpleNamespace

import torch

from memup_cli.memory import images
from memup_cli.memory.encoders import FieldEncoder
from memup_cli.records.opening import spec_of
from memup_cli.tasks.digits.pmnist import PermutedMNIST, PermutedMNISTOptions
from memup_cli.tasks.mazes.tmaze import TMaze, TMazeOptions
from memup_cli.tasks.two_colors.task import TwoColors, TwoColorsOptions


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


def test_images_become_features_that_can_be_learned():
    encoder = FieldEncoder(TwoColors(TwoColorsOptions()).spec, ("observation", "action"))
    pictures = torch.randint(0, 256, (2, 3, 64, 112, 3), dtype=torch.uint8)
    out = encoder({"observation": pictures, "action": torch.zeros(2, 3, dtype=torch.uint8)})
    assert out.shape == (2, 3, images.SIZE + 8)
    assert encoder.size == images.SIZE + 8
    out[..., : images.SIZE].sum().backward()
    assert all(p.grad is not None for p in encoder.parameters())


def test_images_are_encoded_alike_however_many_there_are(monkeypatch):
    encoder = images.ImageEncoder((64, 112, 3))
    pictures = torch.randint(0, 256, (7, 64, 112, 3), dtype=torch.uint8)
    together = encoder(pictures)
    monkeypatch.setattr(images, "SLICE", 3)
    with torch.no_grad():
        torch.testing.assert_close(encoder(pictures), together)


def test_images_can_stay_flat_numbers():
    encoder = FieldEncoder(TwoColors(TwoColorsOptions()).spec, ("observation",), flat=True)
    pictures = torch.randint(0, 256, (2, 64, 112, 3), dtype=torch.uint8)
    torch.testing.assert_close(encoder({"observation": pictures}), pictures.flatten(1).float())
