"""memup inspect: what is in a store."""

from typing import Annotated, Any, Literal

import typer

from .. import console
from .status import JsonOption, RunOption

MAX_EVENTS = 24
HELP = """Show a run's fields, sizes and episode lengths, and the events of one episode.

Once the run is scored, also the most surprising steps of the episode: score, share (the chance to be drawn as a target
among all steps of the episode) and what happened there, of observations what is not zero.

Example: memup inspect --run runs/tmaze-1000 --split test --episode 3"""


def inspect(
    run: RunOption = None,
    split: Annotated[
        Literal["train", "validation", "test"],
        typer.Option(
            "--split",
            metavar="WORD",
            show_default=False,
            help="Which episodes. [dim](train, validation or test; default: train)[/dim]",
        ),
    ] = "train",
    episode: Annotated[
        int,
        typer.Option(
            "--episode",
            metavar="N",
            min=0,
            show_default=False,
            help="Show the events of this episode. [dim](default: 0)[/dim]",
        ),
    ] = 0,
    json: JsonOption = False,
) -> None:
    from stores.manifest import Manifest

    from ..errors import StageMissing, UsageProblem
    from ..evaluation.surprises import surprises
    from ..records.runs import find_readable, open_split, quoted, refresh_collect

    manifest = Manifest.load(find_readable(run))
    entry = refresh_collect(manifest)
    if entry.get("status") != "complete":
        raise StageMissing(
            f"{manifest.run} is not completely collected; see `memup status --run {quoted(manifest.run)}`"
        )
    trajectories = open_split(manifest.run, entry["config"], split)
    if not len(trajectories):
        raise UsageProblem(f"the {split} split of {manifest.run} is empty; choose the other one with --split")
    if episode >= len(trajectories):
        raise UsageProblem(f"--episode {episode}: the {split} split has episodes 0 to {len(trajectories) - 1}")
    arrays = trajectories.episode(episode)
    data = {
        "run": str(manifest.run),
        "split": split,
        **describe_split(trajectories),
        "episode": {
            "index": episode,
            **describe_episode(arrays, manifest.task["spec"]),
        },
    }
    if found := surprises(manifest, trajectories, episode, arrays):
        data["episode"]["surprises"] = found
    console.result(data, json, lambda: _tables(data))


def describe_split(trajectories: Any) -> dict[str, Any]:
    from stores.files import file_size

    lengths = trajectories.lengths
    layout = trajectories.shards[0].layout
    steps = int(lengths.sum())
    fields = []
    for field in layout.fields:
        files = [file for shard in trajectories.shards for file in _chunk_files(shard, field.name)]
        stored, raw = sum(file_size(f) for f in files), steps * field.row_bytes
        fields.append(
            {
                "name": field.name,
                "dtype": field.dtype,
                "shape": list(field.shape),
                "chunks": len(files),
                "bytes": raw,
                "stored_bytes": stored,
                "ratio": raw / max(stored, 1),
            }
        )
    return {
        "episodes": len(trajectories),
        "steps": steps,
        "shards": len(trajectories.shards),
        "lengths": {"min": int(lengths.min()), "mean": float(lengths.mean()), "max": int(lengths.max())},
        "chunk_steps": layout.chunk_steps,
        "group_episodes": layout.group_episodes,
        "bytes_per_step": sum(f["stored_bytes"] for f in fields) / steps,
        "fields": fields,
    }


def _chunk_files(shard: Any, field: str) -> list[Any]:
    """The chunks that the episodes of a shard, or of the part of it that is read, lie in."""
    from stores.layout import LENGTH, START

    rows = [row for group in shard.available_groups() for row in shard.rows(group)[[0, -1]]]
    if not rows:
        return []
    size, last = shard.layout.chunk_steps, rows[-1]
    numbers = range(int(rows[0][START]) // size, -(-int(last[START] + last[LENGTH]) // size))
    return [f for f in (shard.path / "steps" / field).glob("c.*") if int(f.name.split(".")[1]) in numbers]


def describe_episode(arrays: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    """Length and events: the first and last step, the steps that matter, those with a target or reward, rare inputs."""
    import numpy as np

    from ..tasks.spec import StepRule

    target = arrays[spec["target"]]
    classes = [arrays[n] for n in spec["memory_input"] if n in arrays and arrays[n].dtype.kind == "u"]
    unusual = [values != np.bincount(values).argmax() for values in classes if values.ndim == 1]
    interesting = np.zeros(len(target), bool)
    for found in (target != 0, *unusual):
        if found.mean() < 0.5:  # else they are no events
            interesting |= found
    if spec["evaluate"]:
        interesting |= StepRule(**spec["evaluate"])(arrays)
    interesting[[0, -1]] = True
    steps = np.flatnonzero(interesting)
    shown = steps if len(steps) <= MAX_EVENTS else np.concatenate([steps[: MAX_EVENTS - 4], steps[-4:]])
    events = [{"step": int(k), **{name: values[k].tolist() for name, values in arrays.items()}} for k in shown]
    return {"length": len(target), "event_count": len(steps), "events": events}


def _tables(data: dict[str, Any]) -> Any:
    from rich.console import Group
    from rich.table import Table

    lengths = data["lengths"]
    fields = Table(
        title=f"{data['run']}, {data['split']}: {data['episodes']:,} episodes, {data['steps']:,} steps "
        f"({lengths['min']:,} to {lengths['max']:,} each), {data['bytes_per_step']:.3g} bytes a step",
        title_justify="left",
    )
    for column in ("field", "dtype", "row", "chunks", "raw", "stored", "ratio"):
        fields.add_column(column, justify="left" if column in ("field", "dtype") else "right")
    for f in data["fields"]:
        row = "x".join(map(str, f["shape"])) or "1"
        sizes = (
            console.human_bytes(f["bytes"]),
            console.human_bytes(f["stored_bytes"]),
            f"{f['ratio']:.1f}x",
        )
        fields.add_row(f["name"], f["dtype"], row, str(f["chunks"]), *sizes)
    episode = data["episode"]
    events = Table(
        title=f"Episode {episode['index']}: {episode['length']:,} steps, {episode['event_count']:,} events",
        title_justify="left",
    )
    names = [name for name in episode["events"][0] if name != "step"]
    for name in ("step", *names):
        events.add_column(name, justify="right")
    for event in episode["events"]:
        events.add_row(f"{event['step']:,}", *(_short(event[name]) for name in names))
    found = episode.get("surprises")
    return Group(fields, "", events, *(["", _surprises(found)] if found else []))


def _surprises(found: dict[str, Any]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=f"Most surprising steps ({found['detector']}; share at temperature {found['temperature']:g})",
        title_justify="left",
    )
    values = [name for name in found["steps"][0] if name not in ("step", "score", "share")]
    names = sorted(values, key=lambda name: isinstance(found["steps"][0][name], dict))  # rows, which are wide, last
    for name in ("step", "score", "share", *names):
        table.add_column(name, justify="left" if isinstance(found["steps"][0][name], dict) else "right")
    for step in found["steps"]:
        first = (f"{step['step']:,}", f"{step['score']:.3g}", f"{step['share']:.1%}")
        table.add_row(*first, *(Text(_short(step[name])) for name in names))
    return table


def _short(value: Any) -> str:
    """A row of an array in a table cell: numbers, with their names if they have some, cut if there are many."""
    if isinstance(value, dict):
        text = ", ".join(f"{name} {_short(v)}" for name, v in list(value.items())[:8])
        return text + (", ..." if len(value) > 8 else "")
    if not isinstance(value, list):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    if value and isinstance(value[0], list):
        return f"array of {len(value)} rows"
    text = ", ".join(_short(v) for v in value[:8])
    return f"[{text}{', ...' if len(value) > 8 else ''}]"
