"""The episodes that training walks through, in RAM: B of them, never the whole set.

A prefetch thread decodes commit groups in an order that is a pure function of (seed, position); each slot of the slab
takes the next episode when it has walked through its own. Windows and future steps are then fancy indexing.
"""

import queue
import threading
from collections import deque
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from .codec import Array
from .errors import DamagedData
from .layout import LENGTH, START
from .reader import Shard, Trajectories


@dataclass(frozen=True)
class StreamedEpisode:
    index: int  # in the split
    length: int
    arrays: dict[str, Array]


class EpisodeOrder:
    """Position -> commit group: every epoch visits all groups, and all episodes of a group, in a new order."""

    def __init__(self, trajectories: Trajectories, seed: int) -> None:
        self._groups = trajectories.groups()
        self._sizes = np.array([self._size(shard, group) for shard, group in self._groups])
        self._seed = seed
        self.per_epoch = int(self._sizes.sum())

    @staticmethod
    def _size(shard: Shard, group: int) -> int:
        first, stop = shard.layout.group_bounds(group, shard.state.committed)
        return stop - first

    def visits(self, position: int) -> "GroupVisits":
        return GroupVisits(self, *divmod(position, self.per_epoch))

    def of_epoch(self, epoch: int) -> tuple[Array, np.random.Generator]:
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence((self._seed, epoch))))
        return rng.permutation(len(self._groups)), rng


class GroupVisits:
    """Endless iterator of (shard, group, order of its episodes), starting at an episode position."""

    def __init__(self, order: EpisodeOrder, epoch: int, skip: int) -> None:
        self._order, self._epoch, self._skip = order, epoch, skip
        self._left: deque[tuple[Shard, int, Array]] = deque()

    def __next__(self) -> tuple[Shard, int, Array]:
        while not self._left:
            groups, rng = self._order.of_epoch(self._epoch)
            self._epoch += 1
            for g in groups:
                episodes = rng.permutation(self._order._sizes[g])
                skipped = min(self._skip, len(episodes))
                self._skip -= skipped
                if skipped < len(episodes):
                    self._left.append((*self._order._groups[g], episodes[skipped:]))
        return self._left.popleft()


class EpisodeStream:
    """Episodes in order, decoded and checked one commit group ahead by a thread. Use as a context manager."""

    def __init__(self, trajectories: Trajectories, seed: int, position: int = 0) -> None:
        if not len(trajectories):
            raise ValueError(f"{trajectories.folder} holds no episodes")
        self._visits = EpisodeOrder(trajectories, seed).visits(position)
        self._ready: deque[StreamedEpisode] = deque()
        self._queue: queue.Queue[list[StreamedEpisode] | BaseException] = queue.Queue(maxsize=1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._prefetch, name="memup-prefetch")
        self._thread.start()

    def __enter__(self) -> "EpisodeStream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __next__(self) -> StreamedEpisode:
        if not self._ready:
            found = self._queue.get()
            if isinstance(found, BaseException):
                self.close()
                raise found
            self._ready.extend(found)
        return self._ready.popleft()

    def close(self) -> None:
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._queue.get_nowait()
            except queue.Empty:
                self._thread.join(0.01)

    def _prefetch(self) -> None:
        try:
            while not self._stop.is_set():
                self._queue.put(self._read(*next(self._visits)))
        except BaseException as error:
            self._queue.put(error)

    @staticmethod
    def _read(shard: Shard, group: int, order: Array) -> list[StreamedEpisode]:
        rows = shard.rows(group)
        data = shard.read_group(group, rows)
        first = shard.identity.first + group * shard.layout.group_episodes
        episodes = []
        for i in order:
            start, length = int(rows[i, START] - rows[0, START]), int(rows[i, LENGTH])
            arrays = {name: values[start : start + length] for name, values in data.items()}
            if not shard.check_episode(arrays, rows[i]):
                raise DamagedData(
                    f"episode {first + i} in {shard.path} is not what was committed, though its chunks are whole. "
                    "Run `memup verify --repair` to set it aside and collect it again."
                )
            episodes.append(StreamedEpisode(int(first + i), length, arrays))
        return episodes


class Slab:
    """B slots, each walking through an episode; windows and future steps of all slots in one gather.

    Slots start at staggered positions, so that rare steps (a hint at the start) are spread over updates.
    """

    def __init__(self, trajectories: Trajectories, slots: int, seed: int) -> None:
        longest = int(trajectories.lengths.max())
        self.arrays = {name: np.zeros((slots, longest, *f.shape), f.numpy) for name, f in trajectories.fields.items()}
        self._flat = {name: a.reshape(slots * longest, *a.shape[2:]) for name, a in self.arrays.items()}
        self._base = np.arange(slots)[:, None] * longest  # (B, 1)
        self.episode = np.zeros(slots, np.int64)
        self.length = np.zeros(slots, np.int64)
        self.position = np.zeros(slots, np.int64)
        self._stream = EpisodeStream(trajectories, seed)
        stagger = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, 2**32)))).random(slots)
        for slot in range(slots):
            self._refill(slot)
        self.position[:] = (stagger * self.length).astype(np.int64)

    def __enter__(self) -> "Slab":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()

    def _refill(self, slot: int) -> None:
        episode = next(self._stream)
        for name, values in episode.arrays.items():
            self.arrays[name][slot, : episode.length] = values
        self.episode[slot], self.length[slot], self.position[slot] = episode.index, episode.length, 0

    def window(self, steps: int) -> dict[str, Array]:
        """The next `steps` steps of every slot: (B, steps, *row); past its end an episode repeats its last step."""
        return self.gather(self.position[:, None] + np.arange(steps))

    def gather(self, steps: Array) -> dict[str, Array]:
        """Steps (B, K) of each slot's episode: (B, K, *row) of every field."""
        index = np.minimum(steps, self.length[:, None] - 1)
        index += self._base
        return {name: values.take(index, axis=0) for name, values in self._flat.items()}

    def advance(self, steps: int) -> Array:
        """Walk on; returns the slots that took a new episode."""
        self.position += steps
        done = np.flatnonzero(self.position >= self.length)
        for slot in done:
            self._refill(int(slot))
        return done
