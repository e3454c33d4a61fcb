"""A run's memory and agents as a folder for a model hub: weights, their description, and a page about them."""

import hashlib
from pathlib import Path
from typing import Any

from stores.files import make_folder, move, read_file, remove_tree, to_json, write_durably
from stores.manifest import Manifest

from .. import __version__
from ..agents.published import DESCRIPTION, WEIGHTS, describe, read_memory, read_policy
from ..agents.saved import load_policy, trained_agents
from ..errors import UsageProblem
from ..learning.weights import load_model
from ..records.opening import open_run
from ..registries import AGENTS
from ..reports.gather import gather_run
from .model_card import card

CHECKPOINT = "best"


def export_folder(run: Path | None, target: Path) -> dict[str, Any]:
    """Write the folder aside, read it as its users will, and give it its name; returns the summary to print."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageProblem(f"{target} exists, and may hold changes of yours; give another name, or delete it")
    manifest = open_run(run)
    load_model(manifest, CHECKPOINT)  # which checks it
    files = {WEIGHTS: read_file(manifest.run / "memory" / f"{CHECKPOINT}.safetensors")}
    trained = manifest.stages["train-memory"]
    memory = {"checkpoint": CHECKPOINT, "digest": _digest(files[WEIGHTS]), "config": trained["config"]}
    agents, left_out = {}, []
    for name in trained_agents(manifest):
        if reason := _unfit(manifest, name, memory["digest"]):
            left_out.append(f"the agent {name} is left out: {reason}")
            continue
        load_policy(manifest, name)
        data = files[f"{name}.safetensors"] = read_file(manifest.run / "agent" / name / "policy.safetensors")
        agents[name] = {"digest": _digest(data), "config": manifest.stages[f"train-agent/{name}"]["config"]}
    found = gather_run(manifest.run)
    files[DESCRIPTION] = to_json(describe(manifest.task, __version__, memory, agents))
    files["README.md"] = card(found, list(agents), manifest).encode()
    aside = target.absolute().with_name(f".{target.absolute().name}.partial")
    remove_tree(aside)
    make_folder(aside)
    try:
        for name, data in files.items():
            write_durably(aside / name, data)
        read_memory(aside)
        for name in agents:
            read_policy(aside, name)
        move(aside, target.absolute())
    except BaseException:
        remove_tree(aside)
        raise
    problems = [
        *left_out,
        *([] if found["memory"] else ["the memory was not evaluated: the page has no figures of it"]),
    ]
    return {
        "run": str(manifest.run),
        "folder": str(target),
        "files": {name: len(data) for name, data in sorted(files.items())},
        "agents": list(agents),
        "problems": problems,
    }


def _unfit(manifest: Manifest, agent: str, memory: str) -> str:
    """Why an agent cannot go with this memory; empty if it can."""
    if manifest.stale(f"train-agent/{agent}"):
        return "the memory was trained again since"
    acts_on = manifest.stages[f"train-agent/{agent}"].get("acts_on")
    if AGENTS.entry(agent).on_memory and (acts_on or {}).get("digest") != memory:
        return "it acts on other weights of the memory"
    return ""


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
