"""A run's episodes as a Minari data set, written aside and given its name when it is complete."""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from stores.files import make_folder, move, remove_tree
from stores.layout import SEED, TERMINATED
from stores.reader import Trajectories

from .. import console
from ..errors import UsageProblem
from ..extras import needs
from ..records.opening import open_run, spec_of, stored_of
from ..tasks import load_task
from ..tasks.own.minari import MEMUP, OWN, minari_root

ID = re.compile(r"([-_\w]+/)*[-_\w]+-v\d+")  # as Minari has them


def export(run: Path | None, name: str, split: str, to: Path | None, quiet: bool) -> dict[str, Any]:
    """Write a split of a run; returns the summary to print."""
    if not ID.fullmatch(name):
        raise UsageProblem(f"--id {name}: Minari's ids are NAME-vN, after any number of folders: tmaze/random-v0")
    target = (to or minari_root() / name).absolute()  # Minari doubles relative paths
    if target.exists():
        raise UsageProblem(f"{target} exists; choose another --id or --to, or delete it (`minari delete {name}`)")
    with needs("minari"):
        import h5py  # noqa: F401  what Minari writes with
        import minari  # noqa: F401
    manifest = open_run(run)
    episodes, spec = stored_of(manifest, split), spec_of(manifest)
    kind = load_task(manifest.task["name"])
    if not hasattr(kind, "vector_environment"):
        raise UsageProblem(
            f"{manifest.run} is of the task {manifest.task['name']}, a data set without an environment; a Minari data "
            "set is of an environment, as tmaze, gym and two-colors are"
        )
    if not len(episodes):
        raise UsageProblem(f"{manifest.run} has no episodes in its {split} split")
    task: Any = kind(kind.Options(**manifest.task["options"]))
    envs = task.vector_environment(1, None)
    spaces = {"observation": envs.single_observation_space, "action": envs.single_action_space}
    envs.close()
    aside = target.with_name(f".{target.name}.partial")  # Minari does not list what begins with a dot
    remove_tree(aside)
    make_folder(aside / "data")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about an environment that cannot be named: then it is not
            storage = _create(aside / "data", spaces, getattr(task, "environment_spec", None))
        about = {"task": manifest.task["name"], "options": manifest.task["options"], "spec": spec.to_json()}
        storage.update_metadata({**_facts(name, manifest.task["name"]), MEMUP: about})
        with console.Progress("export", "episode", len(episodes), quiet=quiet) as bar:
            storage.update_episodes(_buffers(episodes, spaces, bar))
        size = sum(path.stat().st_size for path in aside.rglob("*") if path.is_file())
        move(aside, target)
    except BaseException:
        remove_tree(aside)
        raise
    steps = int(episodes.lengths.sum())
    return {
        "dataset": str(target),
        "id": name,
        "split": split,
        "episodes": len(episodes),
        "steps": steps,
        "bytes": size,
    }


def _create(folder: Path, spaces: dict[str, Any], environment: Any) -> Any:
    from minari.dataset.minari_storage import MinariStorage

    return MinariStorage.new(
        folder,
        observation_space=spaces["observation"],
        action_space=spaces["action"],
        env_spec=environment,
        data_format="hdf5",
        jpeg_encoding=False,  # which would change images
    )


def _facts(name: str, task: str) -> dict[str, Any]:
    import minari

    return {
        "dataset_id": name,
        "minari_version": minari.__version__,
        "algorithm_name": "memup collect",
        "description": f"Episodes of the task {task} of memup. The observation after the last action of an episode is "
        "not known; the one before it is repeated there.",
    }


def _buffers(episodes: Trajectories, spaces: dict[str, Any], bar: console.Progress) -> Iterator[Any]:
    """Episodes as Minari takes them, one at a time."""
    from minari.data_collector import EpisodeBuffer

    own = {*OWN, *(spaces["observation"].spaces if hasattr(spaces["observation"], "spaces") else ())}
    for row, arrays in zip(episodes.rows, episodes, strict=True):
        last = np.zeros(len(arrays["reward"]), bool)
        last[-1] = True
        terminated = bool(row[TERMINATED])
        yield EpisodeBuffer(
            seed=int(row[SEED]),
            observations=_observations(spaces["observation"], arrays),
            actions=_as_in(spaces["action"], arrays["action"]),
            rewards=arrays["reward"],
            terminations=last & terminated,
            truncations=last & (not terminated),
            infos={name: _with_last_again(values) for name, values in arrays.items() if name not in own},
        )
        bar.advance(1)


def _observations(space: Any, arrays: dict[str, np.ndarray]) -> Any:
    """One array, or a dict of the fields that an observation is stored in."""
    if not hasattr(space, "spaces"):
        return _with_last_again(_as_in(space, arrays["observation"]))
    return {name: _with_last_again(_as_in(part, arrays[name])) for name, part in space.spaces.items()}


def _as_in(space: Any, values: np.ndarray) -> Any:
    return values.astype(space.dtype) + getattr(space, "start", 0)


def _with_last_again(values: np.ndarray) -> Any:
    return np.concatenate([values, values[-1:]])
