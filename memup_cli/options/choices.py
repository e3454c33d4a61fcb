"""Options that are one name of a registry: checked, and listed in the help."""

from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ..registry import Registry, in_words


@dataclass(frozen=True)
class OneOf:
    """In Annotated[str, OneOf(REGISTRY)]: the names of the registry, but for some."""

    registry: Registry[Any]
    but: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name in self.registry.names if name not in self.but)

    def check(self, name: str) -> str:
        if name not in self.names:
            raise ValueError(f"must be {in_words(self.names)}")
        return name

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))
