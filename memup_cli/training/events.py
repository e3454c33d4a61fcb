"""TensorBoard event files, written where the figures arise.

TensorBoard's own writer does it in a thread of its own, whose traceback is all that a user sees of a full disk.
"""

import os
import socket
import time
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from stores.files import write_all


class Events:
    """One file of scalars; steps from purge_step on that earlier files show are hidden."""

    def __init__(self, folder: Path, purge_step: int | None) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        self._records = RecordWriter(self)
        self._add(Event(file_version="brain.Event:2"))
        if purge_step is not None:
            self._add(Event(step=purge_step, session_log=SessionLog(status=SessionLog.START)))

    def add(self, step: int, values: dict[str, float]) -> None:
        scalars = [Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
        self._add(Event(step=step, summary=Summary(value=scalars)))

    def _add(self, event: Event) -> None:
        event.wall_time = time.time()
        self._records.write(event.SerializeToString())

    def write(self, data: bytes) -> None:
        """What RecordWriter writes to."""
        write_all(self._fd, data)

    def close(self) -> None:
        os.close(self._fd)
