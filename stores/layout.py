"""What lies where in a shard.

0000.zarr/                   an ordinary Zarr v3 group; its attributes say what the shard holds (Identity)
  steps/<field>              (capacity, *row), chunks (chunk_steps, *row): one flat time axis for all episodes
  episodes/row               (episodes, columns): where each episode starts, its length, seed, end and checksum
                             attributes.memup.committed = episodes that count  <- the commit point

A *commit group* is group_episodes consecutive episodes. It starts on a chunk boundary and its tail is padded, so what a
group holds does not depend on where or when it was written. No committed chunk is ever written again, but those of a
last group that is not full, when the shard grows: the new ones hold the same steps, and more where the padding was.
"""

import json
import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from .codec import checksum, codec_metadata
from .errors import DamagedData, FormatMismatch

FORMAT = 1
COLUMNS = ("start", "length", "seed", "terminated", "checksum")
START, LENGTH, SEED, TERMINATED, CHECKSUM = range(len(COLUMNS))
CHUNK_BYTES = 1 << 20  # of the largest field, decoded: pieces of an episode too long for one chunk
GROUP_BYTES = 4 << 20  # the same, for a chunk of many short episodes: fewer files to sync
MIN_CHUNK_STEPS = 64
STEPPED_GROUP = 2048  # steps; a killed job repeats at most one group of slow stepping
MAX_GROUP_EPISODES = 4096  # however short they are
FIELD_KINDS = "biuf"


@dataclass(frozen=True)
class Field:
    """One array of a step: observation, action, reward, input, target ..."""

    name: str
    dtype: str  # numpy's name: int8, uint8, float32 ...
    shape: tuple[int, ...] = ()  # of one row

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"field name {self.name!r} is not an identifier")
        try:
            known = np.dtype(self.dtype).kind in FIELD_KINDS
        except TypeError:
            known = False
        if not known:
            raise ValueError(f"field {self.name!r} has dtype {self.dtype}, which the store does not take")

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(self.dtype).newbyteorder("<")

    @property
    def is_image(self) -> bool:
        """Height, width and up to four channels, in bytes."""
        return self.dtype == "uint8" and len(self.shape) == 3 and self.shape[2] <= 4

    @property
    def row_bytes(self) -> int:
        return self.numpy.itemsize * math.prod(self.shape)

    @property
    def shuffle(self) -> str:
        """Bits of small integers compress apart, bytes of floats do (STORE: measured); images do better as they are."""
        if self.is_image:
            return "noshuffle"
        return "bitshuffle" if self.numpy.kind in "biu" and self.numpy.itemsize <= 2 else "shuffle"

    @property
    def typesize(self) -> int:
        """Short rows are shuffled as one element, so that each of their columns compresses by itself."""
        return self.row_bytes if 0 < self.row_bytes <= 16 else self.numpy.itemsize


@dataclass(frozen=True)
class Layout:
    """How a shard cuts its time axis."""

    fields: tuple[Field, ...]
    chunk_steps: int
    group_episodes: int

    def chunk_key(self, field: Field, index: int) -> str:
        return ".".join(["c", str(index), *["0"] * len(field.shape)])

    def chunk_shape(self, field: Field) -> tuple[int, ...]:
        return (self.chunk_steps, *field.shape)

    def group_bounds(self, group: int, episodes: int) -> tuple[int, int]:
        first = group * self.group_episodes
        return first, min(first + self.group_episodes, episodes)

    def groups(self, episodes: int) -> int:
        return -(-episodes // self.group_episodes)


def plan(fields: tuple[Field, ...], *, maximum: int | None, typical: int, stepped: bool) -> Layout:
    """Choose chunk and group sizes for episodes of at most `maximum` (if known) and `typical` steps.

    Short episodes share a chunk of some megabytes; an episode longer than a megabyte gets chunks of its own.
    Environments that must be stepped get small groups, because a group is what a killed job repeats.
    How many episodes there are does not matter: a run that grows has the bytes of one begun with as many.
    """
    row = max(max(f.row_bytes for f in fields), 1)
    steps = max(MIN_CHUNK_STEPS, CHUNK_BYTES // row // 8 * 8)
    if stepped:
        group = max(1, STEPPED_GROUP // max(typical, 1))
        return Layout(fields, min(steps, STEPPED_GROUP), group)
    if maximum is None:
        group = min(max(1, 4 * steps // max(typical, 1)), MAX_GROUP_EPISODES)
        return Layout(fields, steps, group)
    if maximum <= steps:
        group = min(max(1, GROUP_BYTES // row // maximum), MAX_GROUP_EPISODES)
        return Layout(fields, _round_up(group * maximum), group)
    return Layout(fields, _round_up(-(-maximum // -(-maximum // steps))), 1)


def _round_up(steps: int) -> int:
    """Whole bytes of shuffled bits: see codec.block_bytes."""
    return -(-steps // 8) * 8


@dataclass(frozen=True)
class Identity:
    """What a shard holds; written into the group's attributes at its creation, and when it is to hold more."""

    task: str
    options: dict[str, Any]
    seed: int
    split: str
    shard: int
    shards: int
    first: int  # index in the split of the shard's first episode
    episodes: int
    layout: Layout

    def grows_to(self, other: "Identity") -> bool:
        """Whether other is this shard with as many episodes or more, however they are cut."""
        same = replace(other, episodes=self.episodes, layout=self.layout) == self
        return same and self.layout.fields == other.layout.fields and self.episodes <= other.episodes

    def to_attributes(self) -> dict[str, Any]:
        values = {"format": FORMAT, **asdict(self)}
        return {"memup": {**values, "checksum": json_checksum(values)}}

    @staticmethod
    def from_attributes(attributes: Any, where: str) -> "Identity":
        try:
            values = dict(attributes["memup"])
            check_format(values["format"], where)
            claimed = values.pop("checksum")
            if claimed != json_checksum(values):
                raise DamagedData(f"{where} is damaged or was changed by hand: its checksum does not match")
            del values["format"]
            layout = values.pop("layout")
            fields = tuple(Field(f["name"], f["dtype"], tuple(f["shape"])) for f in layout["fields"])
            cut = Layout(fields, int(layout["chunk_steps"]), int(layout["group_episodes"]))
            identity = Identity(**values, layout=cut)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DamagedData(f"{where} does not describe a memup shard ({error!r})") from None
        if identity.episodes < 0 or cut.chunk_steps < 1 or cut.group_episodes < 1 or not fields:
            raise DamagedData(f"{where} describes an impossible shard")
        return identity


def json_checksum(values: Any) -> str:
    """Checksum of what will be read back from JSON; it tells damaged or hand-edited metadata from good."""
    return f"{checksum(json.dumps(values, sort_keys=True).encode()):08x}"


def check_format(found: Any, where: str) -> None:
    if found != FORMAT:
        raise FormatMismatch(
            f"{where} has format version {found}, but this memup reads version {FORMAT}; nothing was changed. "
            "Use the version of memup that wrote it, or collect the data again."
        )


def group_metadata(attributes: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": "group", "attributes": attributes or {}}


def array_metadata(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    chunk: tuple[int, ...],
    shuffle: str,
    typesize: int,
    attributes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """zarr.json of an array whose chunks are made by codec.encode()."""
    zero: Any = {"b": False, "f": 0.0}.get(dtype.kind, 0)
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": zero,
        "codecs": codec_metadata(shuffle, typesize),
        "attributes": attributes or {},
        "storage_transformers": [],
    }


def field_metadata(layout: Layout, field: Field, capacity: int) -> dict[str, Any]:
    return array_metadata(
        field.numpy, (capacity, *field.shape), layout.chunk_shape(field), field.shuffle, field.typesize
    )


def rows_metadata(
    layout: Layout,
    episodes: int,
    committed: int,
    next_chunk: int,
    quarantined: list[list[int]],
    tables: list[str] | None,
    growing: str,
) -> dict[str, Any]:
    """zarr.json of the episode table; renaming it into place is the commit."""
    state: dict[str, Any] = {
        "columns": list(COLUMNS),
        "committed": committed,
        "next_chunk": next_chunk,
        "quarantined": quarantined,  # [group, its first chunk, its number of chunks]
    }
    if tables is not None:  # early shards have no such list
        state["tables"] = tables  # the checksum that ends the table's chunk of each group
    if growing:
        state["growing"] = growing  # that of the chunk which is about to take the place of the last one
    state["checksum"] = json_checksum(state)
    shape, chunk = (episodes, len(COLUMNS)), (layout.group_episodes, len(COLUMNS))
    return array_metadata(np.dtype("<i8"), shape, chunk, "shuffle", 8, {"memup": state})
