"""Model folders, as `memup export hub` writes them: a memory and the agents on it, without the run that they came from.

Such a folder may come from anywhere. Only its own few files are read, and nothing in it is run. Files may be links,
because the caches of hub clients are made of them.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from stores.errors import DamagedData
from stores.manifest import Manifest

from ..errors import UsageProblem
from ..learning.weights import restore
from ..predictor.predictor import MemoryModel
from ..records.tensors import check_format, from_bytes
from ..registries import AGENTS
from ..tasks.spec import TaskSpec
from .policies import Policy, build_policy

FORMAT = 1
DESCRIPTION, WEIGHTS = "config.json", "model.safetensors"


def is_model_folder(path: Path) -> bool:
    return not Manifest.exists(path) and (path / DESCRIPTION).is_file()


def describe(task: dict[str, Any], version: str, memory: dict[str, Any], agents: dict[str, Any]) -> dict[str, Any]:
    """What config.json says; memory and agents with their options and the digests of their weights."""
    return {"memup": {"format": FORMAT, "version": version}, "task": task, "memory": memory, "agents": agents}


def read_memory(folder: str | Path) -> tuple[MemoryModel, TaskSpec]:
    """The memory and its predictor, as a torch module, and the task that they were trained on."""
    found = _description(Path(folder))
    try:
        spec = TaskSpec.from_json(found["task"]["spec"])
        data = _weights(Path(folder) / WEIGHTS, found["memory"]["digest"])
        return restore(spec, found["memory"]["config"], data), spec
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        raise _not_ours(Path(folder), error) from error


def read_policy(folder: Path, agent: str | None) -> tuple[Policy, dict[str, Any], TaskSpec, str]:
    """An agent (None: the only one), its options, its task and the digest of its weights."""
    found = _description(folder)
    try:
        there = {name: found["agents"][name] for name in AGENTS.names if name in found["agents"]}
        if agent not in there and (agent is not None or len(there) != 1):
            raise UsageProblem(f"{folder} holds {', '.join(there) or 'no agent'}; name one that is there")
        name = agent or next(iter(there))
        config, digest = there[name]["config"], there[name]["digest"]
        memory, spec = read_memory(folder)
        policy = build_policy(spec, memory if AGENTS.entry(name).on_memory else None, config)
        path = folder / f"{name}.safetensors"
        policy.load_own(from_bytes(_weights(path, digest), path))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, SafetensorError) as error:
        raise _not_ours(folder, error) from error
    return policy.eval(), config, spec, digest


def _description(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / DESCRIPTION).read_bytes())
        check_format(found["memup"]["format"], folder / DESCRIPTION)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _not_ours(folder, error) from error
    return found


def _weights(path: Path, digest: str) -> bytes:
    data = path.read_bytes() if path.exists() else b""
    if hashlib.sha256(data).hexdigest() != digest:
        raise DamagedData(f"{path} is missing, damaged or not what config.json beside it is about; download it again")
    return data


def _not_ours(folder: Path, error: Exception) -> DamagedData:
    return DamagedData(
        f"{folder} is neither a run nor a model folder that `memup export hub` wrote: {DESCRIPTION} does not hold what "
        f"it should ({error!r}). Download it again, or export it anew."
    )
