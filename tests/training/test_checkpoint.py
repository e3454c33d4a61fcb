"""Checkpoints as files: what was damaged is not taken for what was saved."""

import pytest
import torch

from memup_cli.training import checkpoint
from stores.errors import Fenced

CPU = torch.device("cpu")


def test_one_changed_byte_of_a_tensor_is_found_and_the_checkpoint_before_is_taken(tmp_path, capsys):
    for update in (10, 20):
        state = {"update": update, "weights": torch.full((1000,), float(update))}
        checkpoint.save(tmp_path, update, state, lambda: None)
    newest = sorted(tmp_path.glob("checkpoint-*.pt"))[-1]
    data = bytearray(newest.read_bytes())
    data[data.index(torch.full((4,), 20.0).numpy().tobytes()) + 1000] ^= 1
    newest.write_bytes(data)
    assert checkpoint.load(newest, CPU) is None
    found = checkpoint.load_latest(tmp_path, CPU)
    assert found["update"] == 10
    assert found["weights"].eq(10).all()
    assert "going back to the checkpoint before it" in capsys.readouterr().err


def test_who_lost_the_folder_saves_nothing_and_removes_nothing(tmp_path):
    def lost() -> None:
        raise Fenced("somebody else has it now")

    kept = [checkpoint.save(tmp_path, update, {"update": update}, lambda: None) for update in (10, 20)]
    with pytest.raises(Fenced):
        checkpoint.save(tmp_path, 30, {"update": 30}, lost)
    assert sorted(tmp_path.iterdir()) == kept
