"""One episode as networks see it, a piece at a time: stored fields, the action before each step, and y."""

from collections.abc import Callable

import numpy as np

from stores.layout import LENGTH, START
from stores.reader import Shard

from ..tasks.spec import TaskSpec
from .actions import late_rows
from .targets import TARGET, Returns, is_stored, return_targets

CACHE_BYTES = 32 << 20  # of decoded chunks
PIECE = 1 << 18  # steps whose returns are computed at a time

ReadEpisode = Callable[[str, int, int], np.ndarray]  # a stored field's steps [start, stop) of one episode


class EpisodeReader:
    """Steps [start, stop) of whatever a network sees. Of y, pieces that follow each other are quick.

    However an episode is cut, each number is the same to the last bit, and reading all of it takes time in proportion
    to its length.
    """

    def __init__(self, spec: TaskSpec, gamma: float, length: int, read: ReadEpisode, piece: int = PIECE) -> None:
        self.length = length
        self._spec, self._gamma, self._read, self._piece = spec, gamma, read, piece
        self._returns: Returns | None = None

    def __call__(self, name: str, start: int, stop: int) -> np.ndarray:
        if (source := self._spec.source(name)) != name:
            steps, first = np.arange(start, stop), max(start - 1, 0)
            stored = self._read(source, first, max(stop - 1, 1))
            return late_rows(self._spec, name, stored[np.maximum(steps - 1, 0) - first], steps == 0)
        if name == TARGET:
            return self._y(start, stop)
        return self._read(name, start, stop)

    def _y(self, start: int, stop: int) -> np.ndarray:
        spec = self._spec
        if is_stored(spec, self._gamma):
            return self._read(spec.target, start, stop)

        def returns() -> np.ndarray:
            if self._returns is None:
                self._returns = Returns(self._rewards, self.length, self._gamma, self._piece)
            return self._returns(start, stop)

        return return_targets(spec, returns)

    def _rewards(self, start: int, stop: int) -> np.ndarray:
        return self._read(self._spec.target, start, stop)


class ChunkReader:
    """Steps of fields, with the last decoded chunks kept: short episodes that follow each other share one."""

    def __init__(self) -> None:
        self._chunks: dict[tuple[int, str, int], np.ndarray] = {}
        self._bytes = 0

    def __call__(self, shard: Shard, name: str, start: int, stop: int) -> np.ndarray:
        size = shard.layout.chunk_steps
        index = start // size
        if stop > (index + 1) * size:
            return shard.read_steps(name, start, stop)
        key = (id(shard), name, index)
        if key not in self._chunks:
            if self._bytes > CACHE_BYTES:
                self._chunks.clear()
                self._bytes = 0
            self._chunks[key] = shard.read_steps(name, index * size, (index + 1) * size)
            self._bytes += self._chunks[key].nbytes
        return self._chunks[key][start - index * size : stop - index * size].copy()

    def episode(self, shard: Shard, row: np.ndarray, spec: TaskSpec, gamma: float) -> EpisodeReader:
        first = int(row[START])

        def read(name: str, start: int, stop: int) -> np.ndarray:
            return self(shard, name, first + start, first + stop)

        return EpisodeReader(spec, gamma, int(row[LENGTH]), read)
