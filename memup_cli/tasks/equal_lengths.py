"""What follows for a task from all its sequences being as long as its option `length` says."""

from typing import ClassVar

from .whole import WholeEpisodes


class EqualLengths(WholeEpisodes):
    name: ClassVar[str]

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.options.length}"

    @property
    def max_length(self) -> int:
        length: int = self.options.length
        return length

    def typical_length(self, seed: int) -> int:
        return self.max_length
