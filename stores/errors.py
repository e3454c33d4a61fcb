"""What can go wrong with a store.

StoreError
├── DamagedData      bytes on disk are not what was committed
│   └── FormatMismatch   written by another version of the format
├── UnfitEpisode     an episode that the store does not take
├── Incomplete       readable, but episodes are missing
├── StoreIO          the file system refused (full, read-only, failing)
├── PackageMissing   what reads from there is not installed
├── Fenced           another attempt owns the shard
└── UnsafePath       a path or link that leads out of the run
"""


class StoreError(Exception):
    """Base of all errors of the stores package; the message is one paragraph for the user."""


class DamagedData(StoreError):
    """Bytes on disk are not what was committed."""


class FormatMismatch(DamagedData):
    """The store or manifest was written by another version of the format."""


class UnfitEpisode(StoreError):
    """An episode that the store does not take; `number` counts those of its group."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(problem)
        self.number = number


class Incomplete(StoreError):
    """The store is readable but does not hold all its episodes."""


class StoreIO(StoreError):
    """The file system refused: full, read-only, or failing."""


class PackageMissing(StoreError):
    """What reads from there is not installed."""


class Fenced(StoreError):
    """Another attempt owns this shard; this one must stop without committing."""


class UnsafePath(StoreError):
    """A path or symbolic link that would lead out of the run."""
