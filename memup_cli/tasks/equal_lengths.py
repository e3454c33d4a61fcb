"""What follows for a task from all its sequences being as long as its option `length` says."""

from typing import Any, ClassVar


class EqualLengths:
    name: ClassVar[str]
    options: Any  # they have a length

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.options.length}"

    @property
    def max_length(self) -> int:
        length: int = self.options.length
        return length

    def typical_length(self, seed: int) -> int:
        return self.max_length
