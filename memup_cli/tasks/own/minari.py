"""The episodes of a Minari data set, as `memup import minari` brings them into a run.

Minari keeps the observation after the last action, too; a run does not, so it is dropped. A data set that memup
exported says in its metadata which task it is from, and is imported as just that.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from pydantic import Field as Option
from pydantic import field_validator

from stores.groups import Episode
from stores.layout import Field

from ...errors import BadInput, MemupError, UsageProblem
from ...extras import needs
from ..spec import PREVIOUS_ACTION, TaskSpec
from .gym import PREVIOUS_REWARD_HELP, GymOptions, GymTask, with_reward
from .held_out import check_same_test, shared_out, usual_shares
from .matters import HELP as MATTERS
from .matters import EnvironmentOptions, Matters, with_rule
from .spaces import View, class_counts, field_of, view_of

MEMUP = "memup"  # the key in a data set's metadata that holds the spec of the task it was exported from
OWN = ("observation", "action", "reward")  # the fields that a data set has a place for; others are among its infos
MOST_SEED = 2**63


class MinariOptions(EnvironmentOptions):
    newer: ClassVar[frozenset[str]] = EnvironmentOptions.newer | {"previous_reward"}

    dataset: str = Option(
        description="Folder of a Minari data set, or its id below Minari's own folder (MINARI_DATASETS_PATH).",
        min_length=1,
        json_schema_extra={"argument": "PATH|ID"},
    )
    test_share: float = Option(
        0.1, ge=0, lt=1, description="Share of the episodes for the test split, evenly spread over the data set."
    )
    observe: str | None = Option(
        None, description="Parts of a Dict observation to keep, e.g. image,direction (default: all numbers in it)."
    )
    import_: str | None = Option(
        None, alias="import", description="Module or file to import for the environment, should agents act in it."
    )
    gamma: float | None = Option(
        None, ge=0, le=1, description="Discount of the returns to be predicted (default: `memup score` chooses it)."
    )
    matters: Matters = Option(None, description=MATTERS)
    previous_reward: bool = Option(False, description=PREVIOUS_REWARD_HELP)

    @field_validator("dataset")
    @classmethod
    def _from_anywhere(cls, value: str) -> str:
        return str(Path(value).absolute()) if Path(value).is_dir() else value


def minari_root() -> Path:
    """Where Minari keeps its data sets. Minari's own function would create the folder."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets").absolute()


class MinariTask:
    Options = MinariOptions
    summary: ClassVar[str] = "The episodes of a Minari data set: a folder, or an id of one that Minari has here."
    example: ClassVar[str] = "minari D4RL/pen/human-v2 --run runs/pen"
    vectorised: ClassVar[bool] = True

    def __init__(self, options: MinariOptions) -> None:
        self.options = options

    @cached_property
    def _folder(self) -> Path:
        """The one with the metadata; a data set's folder, its data folder and its id all lead there."""
        named = self.options.dataset
        for folder in (Path(named) / "data", Path(named), minari_root() / named / "data"):
            if (folder / "metadata.json").is_file():
                return folder
        raise UsageProblem(
            f"there is no Minari data set {named!r}: it is neither a folder with data/metadata.json nor an id below "
            f"{minari_root()}. `minari list local` shows those that are here, `minari download ID` fetches one."
        )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Whatever Minari and HDF5 raise is about this data set."""
        try:
            with needs("minari"):
                yield
        except MemupError:
            raise
        except Exception as error:
            raise BadInput(f"the Minari data set in {self._folder} cannot be read: {error!r}") from error

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        with self._reading():
            found: dict[str, Any] = json.loads((self._folder / "metadata.json").read_bytes())
            if not {"observation_space", "action_space"} <= found.keys():  # Minari would run what the file names
                raise BadInput(f"the Minari data set in {self._folder} does not say which spaces it has")
            if int(found["total_episodes"]) < 1 or int(found["total_steps"]) < 1:
                raise BadInput(f"the Minari data set in {self._folder} has no episodes")
            return found

    @cached_property
    def _storage(self) -> Any:
        _ = self._metadata
        with self._reading():
            from minari.dataset.minari_storage import MinariStorage

            return MinariStorage.read(self._folder)

    @property
    def _name(self) -> str:
        return str(self._metadata.get("dataset_id") or self._folder.parent.name)

    @cached_property
    def _view(self) -> View:
        return view_of(self._storage.observation_space, self.options.observe, self._name)

    @cached_property
    def spec(self) -> TaskSpec:
        spec = with_reward(self._own_spec) if self.options.previous_reward else self._own_spec
        return with_rule(spec, self.options.matters)

    @property
    def _own_spec(self) -> TaskSpec:
        spaces = {**self._view.spaces, "action": self._storage.action_space}
        fields = tuple(field_of(name, space, self._name) for name, space in spaces.items())
        if MEMUP in self._metadata:
            return self._exported(fields)
        return TaskSpec(
            fields=(*fields, Field("reward", "float32")),
            memory_input=(*self._view.shown, PREVIOUS_ACTION),
            query=(*self._view.shown, "action"),
            target="reward",
            target_kind="return",
            **class_counts(**spaces),
            gamma=self.options.gamma,
            parts=self._view.named,
        )

    def _exported(self, fields: tuple[Field, ...]) -> TaskSpec:
        """The spec of the task that a data set was exported from, if it fits the spaces."""
        with self._reading():
            found = TaskSpec.from_json(self._metadata[MEMUP]["spec"])
            shapes = {f.name: f.shape for f in found.fields}
            if not (found.target_kind == "return" and all(shapes.get(f.name) == f.shape for f in fields)):
                raise BadInput(f"the Minari data set in {self._folder} has other spaces than the task it names")
        if self.options.gamma is None:
            return found
        return TaskSpec.from_json({**found.to_json(), "gamma": self.options.gamma})

    @property
    def run_name(self) -> str:
        return "minari-" + self._name.replace("/", "-")

    @property
    def default_episodes(self) -> tuple[int, int]:
        return usual_shares(int(self._metadata["total_episodes"]), self.options.test_share)

    @property
    def max_length(self) -> None:
        return None

    def typical_length(self, seed: int) -> int:
        return -(-int(self._metadata["total_steps"]) // int(self._metadata["total_episodes"]))

    def load(self, seed: int, episodes: dict[str, int], note: Callable[[str], None]) -> dict[str, Any]:
        """Share out the episodes. The manifest tells data sets apart by their metadata and size."""
        self._numbers = shared_out(self._name, int(self._metadata["total_episodes"]), episodes)
        if not self._view.is_plain:
            note(f"{self._name}: {self._view.describe()}")
        with self._reading():
            files = [path for path in self._folder.rglob("*") if path.is_file()]
            digest = hashlib.sha256((self._folder / "metadata.json").read_bytes()).hexdigest()
            return {"dataset_id": self._name, "metadata": digest, "bytes": sum(p.stat().st_size for p in files)}

    def check_growth(self, earlier: dict[str, int], episodes: dict[str, int]) -> None:
        check_same_test(self._name, earlier, episodes)

    def items(self, split: str, first: int, stop: int) -> Iterator[Episode]:
        numbers = self._numbers[split][first:stop].tolist()
        with self._reading():
            facts = self._storage.get_episode_metadata(numbers)
            for found, known in zip(self._storage.get_episodes(numbers), facts, strict=True):
                yield self._episode(found, known)

    def _episode(self, found: dict[str, Any], known: dict[str, Any]) -> Episode:
        steps = len(found["rewards"])
        values = {
            **self._view.rows(found["observations"]),
            "action": found["actions"] - getattr(self._storage.action_space, "start", 0),
            "reward": found["rewards"],
        }
        arrays = {}
        for field in self.spec.fields:
            rows = np.asarray(values[field.name] if field.name in values else found["infos"][field.name])
            if not 0 < steps <= len(rows) or rows.shape[1:] != field.shape:
                raise BadInput(f"{self._name}: episode {found['id']} has {field.name}s {rows.shape} in {steps} steps")
            arrays[field.name] = rows[:steps].astype(field.numpy, copy=False)
        seed = int(known.get("seed", found["id"]))
        return Episode(arrays, seed if 0 <= seed < MOST_SEED else found["id"], bool(found["terminations"][-1]))

    @cached_property
    def _environment(self) -> GymTask:
        """The environment that the data set names, by its id: what else it says to run is not run."""
        with self._reading():
            named = json.loads(self._metadata.get("env_spec") or "null")
            if not named:
                raise UsageProblem(f"the data set {self._name} names no environment, so no agent can act in it")
            module = self.options.import_ or ("memup_cli.envs" if named["id"].startswith("memup/") else None)
            limit, settings = named.get("max_episode_steps"), named.get("kwargs") or {}
            options = {"env_id": named["id"], "import": module, "max_steps": limit, "observe": self.options.observe}
            return GymTask(GymOptions(**options), settings)

    def vector_environment(self, count: int, render_mode: str | None = None) -> Any:
        return self._environment.vector_environment(count, render_mode)

    @property
    def success_return(self) -> float | None:
        return self._environment.success_return
