"""What every training is asked to do: the job that a command resolves to before anything is touched."""

from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from pydantic import BaseModel

from stores.manifest import Manifest

from ..records.extending import Earlier
from ..tasks.spec import TaskSpec

Options = TypeVar("Options", bound=BaseModel)


@dataclass(frozen=True, kw_only=True)
class TrainingJob(Generic[Options]):
    """A fully resolved command that trains something."""

    manifest: Manifest
    spec: TaskSpec
    options: Options
    seed: int
    device: torch.device
    restart: bool
    quiet: bool
    earlier: Earlier = ()  # of a training that is extended
