"""The evaluate stage: the memory and the baselines of a run, on test episodes; each leaves a JSON file."""

import json
from typing import Any

import torch

from stores.files import make_folder, to_json, write_durably
from stores.manifest import Manifest

from ..errors import StageMissing
from ..evaluation.predictions import summary
from ..evaluation.timeline import timelines
from ..interrupts import StopFlag
from ..learning.weights import load_model
from ..options.common import StageOptions
from ..options.evaluate_options import EvaluateBaselinesOptions, EvaluateOptions
from ..options.until import Goal, parse
from ..records.opening import digests, open_run, require, require_test, spec_of
from ..records.runs import quoted, recorded_config
from ..tasks.spec import PREVIOUS_ACTION, TaskSpec
from .comparison import compare, trained_methods
from .lifecycle import continue_command, record
from .memory.memory_job import recorded_job
from .memory.memoryless import Comparison, train_without

FIGURES = ("rmse", "accuracy", "nll", "mse", "right", "interval", "explained", "explained_interval")


def evaluate_memory(options: EvaluateOptions, stage: StageOptions, device: torch.device) -> dict[str, Any]:
    """How well the memory predicts the steps that matter, beside a predictor without one and the best constant."""
    manifest = open_run(stage.run)
    require(manifest, "train-memory")
    config = recorded_config(manifest, "train-memory")
    spec = spec_of(manifest)
    model = load_model(manifest, options.checkpoint).to(device)
    require_test(manifest)
    if stage.dry_run:
        return {"run": str(manifest.run), "config": options.model_dump()}
    job = recorded_job(manifest, device, stage.quiet)
    with StopFlag() as stop:
        if not train_without(job, stop):
            raise stop.error("the predictor without a memory is saved in part", continue_command())
    compared = Comparison(job)
    found = compared.predict(model, "test", options.episodes)
    after = "train-agent" if PREVIOUS_ACTION in spec.memory_input else "report"
    data = {
        "run": str(manifest.run),
        **summary(found, compared.without("test", options.episodes), options.bins),
        "checkpoint": options.checkpoint,
        "matters": compared.by,
        "cue_at_start": spec.cue_at_start,
        "next": f"memup {after} --run {quoted(manifest.run)}",
        **_verdict(found.metrics(), config, spec),
    }
    write_result(manifest, "memory", data)
    if options.timelines:
        drawn = timelines(model, manifest, spec, config, options.timelines)
        shown = {"checkpoint": options.checkpoint, **drawn}
        path = manifest.run / "evaluation" / "timeline.json"
        write_durably(path, json.dumps(shown, allow_nan=False).encode())
    metrics = {name: data[name] for name in data if name in FIGURES}
    inputs = digests(manifest, "test", "memory")
    record(manifest, "evaluate", "complete", config=options.model_dump(), inputs=inputs, metrics=metrics)
    return data


def _verdict(found: dict[str, float], config: dict[str, Any], spec: TaskSpec) -> dict[str, Any]:
    """Whether it is solved, if the user (in train-memory) or the task gave a threshold."""
    goal = parse(config["until"]) if config.get("until") else _solved(spec)
    if goal is None or goal.metric not in found:
        return {"solved": None}
    return {"solved": goal.reached(found), "goal": str(goal), "threshold": {goal.metric: goal.bound}}


def _solved(spec: TaskSpec) -> Goal | None:
    """What the task calls solved."""
    if spec.solved is None:
        return None
    return Goal("accuracy", ">=", spec.solved) if spec.target_kind == "classes" else Goal("rmse", "<", spec.solved)


def evaluate_baselines(options: EvaluateBaselinesOptions, stage: StageOptions, device: torch.device) -> dict[str, Any]:
    """The memory and all baselines of a run side by side."""
    manifest = open_run(stage.run)
    require_test(manifest)
    methods = trained_methods(manifest)
    if methods in ([], ["train-memory"]):
        raise StageMissing(
            f"{manifest.run} has no trained baseline; run `memup train-baseline --run {quoted(manifest.run)}` first"
        )
    if stage.dry_run:
        return {"run": str(manifest.run), "methods": methods, "config": options.model_dump()}
    rows = compare(manifest, options.checkpoint, options.episodes, device)
    data = {"run": str(manifest.run), "rows": rows, "checkpoint": options.checkpoint}
    write_result(manifest, "baselines", data)
    made = [name for method in methods for name in manifest.stages[method]["outputs"]]
    inputs = digests(manifest, "test", *made)
    metrics = {row["method"]: row.get("accuracy", row.get("rmse", row["outcome"])) for row in rows}
    record(manifest, "evaluate/baselines", "complete", config=options.model_dump(), inputs=inputs, metrics=metrics)
    return data


def write_result(manifest: Manifest, name: str, data: dict[str, Any]) -> None:
    make_folder(manifest.run / "evaluation")
    write_durably(manifest.run / "evaluation" / f"{name}.json", to_json(data))
