"""What follows for a task from its episodes being made or read whole, and every step of them being looked at."""

from typing import Any, ClassVar


class WholeEpisodes:
    vectorised: ClassVar[bool] = True
    checked: ClassVar[bool] = True

    def __init__(self, options: Any) -> None:
        self.options = options
