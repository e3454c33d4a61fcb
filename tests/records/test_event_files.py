"""Event files against TensorBoard's own messages, to the byte, and its own reader."""

import math
from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from memup_cli.records import event_files as events
from memup_cli.records.event_files import EventFile

NOW = 1_700_000_000.25
STEPS = [0, 1, 127, 128, 300, 16_383, 16_384, 10**6, 2**40]
VALUES = {
    "loss": 0.125,
    "a/long/tag" * 30: -1e-30,
    "rmse": 0.0,
    "größe": 3.4e38,
    "too large": 1e300,
    "count": 3,
    "nan": math.nan,
    "inf": -math.inf,
}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(events.time, "time", lambda: NOW)


def written(folder: Path, purge_step: int | None = None) -> bytes:
    made = EventFile(folder, purge_step)
    for step in STEPS:
        made.add(step, {name: value + step for name, value in VALUES.items()})
    made.add(7, {})
    made.close()
    (path,) = folder.iterdir()
    return path.read_bytes()


@pytest.mark.parametrize("purge_step", [None, 1, 5000])
def test_the_bytes_are_those_of_tensorboard(tmp_path, purge_step):
    (tmp_path / "ours").mkdir()
    with (tmp_path / "theirs").open("wb") as file:
        writer = RecordWriter(file)
        messages = [Event(file_version="brain.Event:2")]
        if purge_step is not None:
            messages.append(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))
        for step in STEPS:
            scalars = [Summary.Value(tag=name, simple_value=value + step) for name, value in VALUES.items()]
            messages.append(Event(step=step, summary=Summary(value=scalars)))
        messages.append(Event(step=7, summary=Summary()))
        for message in messages:
            message.wall_time = NOW
            writer.write(message.SerializeToString())
    assert written(tmp_path / "ours", purge_step) == (tmp_path / "theirs").read_bytes()


def test_tensorboard_reads_them(tmp_path):
    written(tmp_path)
    read = EventAccumulator(str(tmp_path)).Reload()
    assert set(read.Tags()["scalars"]) == set(VALUES)
    for name, value in VALUES.items():
        found = read.Scalars(name)
        assert [event.step for event in found] == STEPS
        with np.errstate(over="ignore"):
            expected = np.float32([value + step for step in STEPS])
        np.testing.assert_array_equal([event.value for event in found], expected)


def test_a_torn_end_leaves_what_came_before(tmp_path):
    whole = written(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(whole[:-5])
    assert len(list(LegacyEventFileLoader(str(path)).Load())) == len(STEPS) + 1  # the version, and all but the last
