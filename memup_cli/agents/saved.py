"""A trained agent on disk: its weights, and loading it again together with the memory that it acts on."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stores.errors import DamagedData
from stores.files import inside, make_folder, read_file, to_json, write_durably
from stores.manifest import Manifest

from ..errors import StageMissing, UsageProblem
from ..learning.weights import restore
from ..records.opening import require, spec_of
from ..records.runs import again, altered_weights
from ..records.tensors import from_bytes, to_bytes
from ..registries import AGENTS
from .policies import Policy, build_policy


def save_policy(
    folder: Path,
    policy: Policy,
    config: dict[str, Any],
    acts_on: dict[str, str] | None,
    still_ours: Callable[[], None],
) -> str:
    """Weights as safetensors, and beside them, to be read by people, what made them; returns the digest."""
    make_folder(folder)
    data = to_bytes(policy.own_state())
    write_durably(folder / "policy.safetensors", data, still_ours)
    write_durably(folder / "config.json", to_json({"config": config, "memory": acts_on}), still_ours)
    return hashlib.sha256(data).hexdigest()


def trained_agents(manifest: Manifest) -> list[str]:
    return [a for a in AGENTS.names if manifest.stages.get(f"train-agent/{a}", {}).get("status") == "complete"]


def load_policy(manifest: Manifest, agent: str | None = None) -> tuple[Policy, dict[str, Any]]:
    """A trained agent of a run, ready to act, and its config."""
    if agent is None:
        trained = trained_agents(manifest)
        if len(trained) > 1:
            raise UsageProblem(f"{manifest.run} has several agents; choose one with --agent: {', '.join(trained)}")
        begun = [a for a in AGENTS.names if f"train-agent/{a}" in manifest.stages]
        if not trained:
            command = again(manifest, f"train-agent/{begun[0]}" if begun else "train-agent", restart=False)
            raise StageMissing(f"{manifest.run} has no trained agent; run `{command}` first")
        agent = trained[0]
    entry = require(manifest, f"train-agent/{agent}")
    if found := altered_weights(manifest, f"train-agent/{agent}"):
        raise DamagedData(
            f"{found[0]} is missing, damaged or not what was trained. Run "
            f"`{again(manifest, f'train-agent/{agent}', restart=True)}` to train it again."
        )
    config, memory = entry["config"], None
    if AGENTS.entry(agent).on_memory:
        path = inside(manifest.run, entry["acts_on"]["path"], "acts_on")
        trained_by = manifest if path.parent == manifest.run else Manifest.load(path.parent)
        options = trained_by.stages["train-memory"]["config"]
        memory = restore(spec_of(manifest), options, read_file(path / f"{config['checkpoint']}.safetensors"))
    policy = build_policy(spec_of(manifest), memory, config)
    path = manifest.run / "agent" / agent / "policy.safetensors"
    policy.load_own(from_bytes(read_file(path), path))
    return policy.eval(), config
