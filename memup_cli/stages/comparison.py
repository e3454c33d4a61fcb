"""The memory and the baselines of a run side by side: how well each predicts, and what an update of each costs."""

from typing import Any

import torch

from stores.manifest import Manifest

from ..baselines.baseline_evaluation import predict_baseline
from ..evaluation.predictions import Predictions, predict_split
from ..learning.weights import load_baseline, load_model
from ..records.opening import require, spec_of, split_of
from ..selection.importance import Matters


def trained_methods(manifest: Manifest) -> list[str]:
    """Finished stages to compare: the memory first, then every baseline, those out of memory included."""
    names = ["train-memory", *sorted(s for s in manifest.stages if s.startswith("train-baseline/"))]
    return [s for s in names if manifest.stages.get(s, {}).get("status") == "complete"]


def compare(manifest: Manifest, which: str, episodes: int | None, device: torch.device) -> list[dict[str, Any]]:
    """One row per method; a baseline that is out of memory has nothing but its prediction."""
    spec, test = spec_of(manifest), split_of(manifest, "test")
    like = manifest.stages.get("train-memory", {}).get("config", {})  # all are measured at the same steps
    matters = Matters(manifest, spec, like)
    rows: list[dict[str, Any]] = []
    for stage in trained_methods(manifest):
        entry = require(manifest, stage)
        config, name = entry["config"], stage.partition("/")[2]
        if entry["metrics"].get("outcome"):
            rows.append({"method": name, **entry["metrics"]})
            continue
        if name:
            baseline = load_baseline(manifest, name, which).to(device)
            found = predict_baseline(baseline, config, test, spec, config["gamma"], matters, episodes)
        else:
            memory = load_model(manifest, which).to(device)
            found = predict_split(memory, test, spec, config["gamma"], matters, episodes)
        rows.append({"method": name or "memup", "outcome": "trained", **_row(found, entry["metrics"])})
    by_memup = next((row["saved_tensor_bytes"] for row in rows if row["method"] == "memup"), None)
    for row in rows:
        saved = row.get("saved_tensor_bytes")
        row["ratio_to_memup"] = saved / by_memup if saved and by_memup else None
    return rows


def _row(found: Predictions, trained: dict[str, Any]) -> dict[str, Any]:
    rate = trained["updates_per_second"]
    return {
        **found.metrics(),
        "interval": list(found.interval()),
        "saved_tensor_bytes": trained["saved_tensor_bytes"],
        "updates": trained["updates"],
        "minutes": trained["updates"] / rate / 60 if rate else None,  # of updates alone
    }
