"""Checkpoints as files: what was damaged is not taken for what was saved."""

import io
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from memup_cli.records import checkpoint, tensors
from memup_cli.stages.lifecycle import owned
from stores.errors import Fenced, FormatMismatch, StoreIO
from stores.files import PendingFiles

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


def write_half(folder: Path, where: Path, overtaken: bool) -> None:
    """What an attempt does that owns the folder; another one may come and go before its file has its final name."""
    pending = PendingFiles()
    with owned(folder, quiet=True):
        pending.write(where, b"half")
        if overtaken:
            with owned(folder, quiet=True):
                pass
        pending.publish()


def test_a_file_that_whoever_took_over_cleared_away_is_told_from_a_failing_disk(tmp_path):
    with pytest.raises(StoreIO, match="cannot write"):
        write_half(tmp_path, tmp_path / "nowhere" / "a.pt", overtaken=False)
    with pytest.raises(Fenced, match="was taken over"):
        write_half(tmp_path, tmp_path / "a.pt", overtaken=True)


def written_by(folder: Path, version: dict[str, int]) -> Path:
    buffer = io.BytesIO()
    torch.save({**version, "update": 10}, buffer)
    path = folder / checkpoint.file_name(10, buffer.getvalue())
    path.write_bytes(buffer.getvalue())
    return path


def test_a_checkpoint_of_0_1_0_is_read_and_one_of_a_later_version_is_refused_by_name(tmp_path):
    assert checkpoint.load(written_by(tmp_path, {}), CPU)["update"] == 10
    later = written_by(tmp_path, {"format": 3})
    with pytest.raises(FormatMismatch, match=f"{later.name} has format 3.*up to format 2"):
        checkpoint.load(later, CPU)


def test_weights_of_0_1_0_are_read_and_those_of_a_later_version_are_refused_by_name():
    weights = {"a": torch.arange(3.0)}
    for data in (tensors.to_bytes(weights), save(weights), save(weights, {"digest": "x"})):
        torch.testing.assert_close(tensors.from_bytes(data, "here"), weights)
    with pytest.raises(FormatMismatch, match="here has format 7"):
        tensors.from_bytes(save(weights, {"memup": '{"format": 7}'}), "here")


def test_the_same_weights_are_the_same_bytes():
    """However often they are saved: what is recorded of them is a digest."""
    assert len({tensors.to_bytes({"a": torch.arange(3.0)}, digest="x") for _ in range(20)}) == 1
