"""What follows for a task from all its sequences being as long as its option `length` says."""

from typing import Any, ClassVar


class EqualLengths:
    """Sequences that are made whole, as they should be."""

    name: ClassVar[str]
    vectorised: ClassVar[bool] = True
    checked: ClassVar[bool] = True

    def __init__(self, options: Any) -> None:  # they have a length
        self.options = options

    @property
    def run_name(self) -> str:
        return f"{self.name}-{self.options.length}"

    @property
    def max_length(self) -> int:
        length: int = self.options.length
        return length

    def typical_length(self, seed: int) -> int:
        return self.max_length
