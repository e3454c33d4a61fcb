"""Everything a report shows of one run, from its manifest, logs and evaluation files alone, as plain JSON values."""

import base64
import io
import math
from datetime import datetime
from pathlib import Path
from typing import Any

from stores.errors import DamagedData, StoreError
from stores.files import inside, read_file, read_json
from stores.manifest import Manifest

from ..errors import UsageProblem
from ..extras import needs
from ..options.common import STAGES
from ..options.old_names import renewed
from ..records.runs import again, collect_command, quoted, refresh_collect, refresh_stage
from ..records.stage_files import log_path, logged
from .figures import key_figures

POINTS = 600  # of a curve; more are averaged
FILM, FILM_WIDTH, FILM_BYTES, FILM_PIXELS = "play.png", 1280, 1_200_000, 50_000_000
DIGEST = 10  # digits of a digest that are shown


def gather_run(path: Path) -> dict[str, Any]:
    """One run. What is missing or unreadable is named in `hints`, with the command that makes it."""
    manifest = Manifest.load(path)
    try:
        return clean(_gather(manifest))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedData(f"{path / 'manifest.json'} lacks what memup writes into it: {error!r}") from error


def _gather(manifest: Manifest) -> dict[str, Any]:
    run, task, problems = manifest.run, manifest.task, []
    names = sorted(manifest.stages, key=lambda s: (STAGES.index(s.partition("/")[0]), s))
    stages = [_stage(manifest, name) for name in names]
    found: dict[str, dict[str, Any]] = {}
    for file in ("memory", "timeline", "baselines", *(f"agent-{n.partition('/')[2]}" for n in _agents(names))):
        try:
            if (place := inside(run, f"evaluation/{file}.json", "evaluation")).exists():
                found[file] = read_json(place)
        except StoreError as error:
            problems.append(f"evaluation/{file}.json cannot be read: {error}")
    curves = {}
    for name in names:
        if not name.startswith("train-"):
            continue
        rows, unread = logged(run, name)
        if rows:
            curves[name] = _curves(rows, "steps" if name.startswith("train-agent") else "update")
        problems += _log_problems(manifest, name, unread)
    film, trouble = _film(run)
    problems += [trouble] if trouble else []
    data = {
        "name": run.resolve().name,
        "path": str(run),
        "id": manifest.data.get("run", ""),
        "task": {"name": task["name"], "options": task["options"], "target_kind": task["spec"]["target_kind"]},
        "seed": manifest.stages.get("train-memory", manifest.stages.get("collect", {})).get("config", {}).get("seed"),
        "stages": stages,
        "curves": curves,
        "memory": found.get("memory"),
        "timeline": found.get("timeline"),
        "baselines": found.get("baselines"),
        "agents": {name[6:]: value for name, value in found.items() if name.startswith("agent-")},
        "film": film,
        "problems": problems,
    }
    data["figures"] = key_figures(data)
    data["hints"] = _hints(manifest, data)
    return data


def _agents(names: list[str]) -> list[str]:
    return [name for name in names if name.startswith("train-agent/")]


def _log_problems(manifest: Manifest, name: str, unread: int) -> list[str]:
    """What is wrong with the log of a training; one that is under way or did not fit may have none."""
    path, entry = log_path(manifest.run, name), manifest.stages[name]
    place = path.relative_to(manifest.run)
    if unread:
        return [f"{unread:,} line{'s' * (unread > 1)} of {place} could not be read"]
    if path.exists() or entry["status"] != "complete" or entry.get("metrics", {}).get("outcome") == "out of memory":
        return []
    return [f"{name}: there are no curves: {place if path.parent.exists() else place.parent} is missing"]


def _stage(manifest: Manifest, name: str) -> dict[str, Any]:
    entry = refresh_collect(manifest) if name == "collect" else refresh_stage(manifest, name)
    attempt, stale = entry.get("attempt", {}), manifest.stale(name)
    room = entry.get("metrics", {}).get("outcome") == "out of memory"
    status = "stale" if stale else "out of memory" if room else entry["status"]
    outputs = {key: value["digest"][:DIGEST] for key, value in entry.get("outputs", {}).items()}
    return {
        "name": name,
        "status": status,
        "stale": stale,
        "done": entry.get("progress", {}).get("done"),
        "total": entry.get("progress", {}).get("total"),
        "started": entry.get("started"),
        "finished": entry.get("finished"),
        "seconds": _seconds(entry),
        "host": attempt.get("host", ""),
        "job": attempt.get("job", ""),
        "command": attempt.get("command", ""),
        "versions": attempt.get("versions", {}),
        "config": renewed(entry.get("config", {})),
        "inputs": {key: str(value)[:DIGEST] for key, value in entry.get("inputs", {}).items()},
        "outputs": outputs,
        "metrics": entry.get("metrics", {}),
        "problem": entry.get("problem", ""),
        "missing": [f"{m['path']}: {m['problem']}" for m in entry.get("missing", [])],
    }


def _seconds(entry: dict[str, Any]) -> float | None:
    """From the last start to the end; None if it was stopped in between or has not ended."""
    try:
        began, ended = (datetime.fromisoformat(entry[key]) for key in ("started", "finished"))
    except (KeyError, ValueError):
        return None
    return max(0.0, (ended - began).total_seconds()) if entry["status"] == "complete" else None


def _curves(rows: list[dict[str, Any]], axis: str) -> dict[str, Any]:
    """{"axis": ..., "each": lines to a point, "series": {name: {"x": [...], "y": [...]}}} of all numbers logged."""
    names = dict.fromkeys(key for row in rows for key in row if key not in ("update", "steps"))
    series = {}
    for name in names:
        pairs = [(row.get(axis), row[name]) for row in rows if name in row]
        points: list[tuple[Any, Any]] = [(x, y) for x, y in pairs if is_number(x) and is_number(y)]
        if points:
            series[name] = _thinned(points)
    return {"axis": axis, "each": -(-len(rows) // POINTS), "series": series}


def is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _thinned(points: list[tuple[float, float]]) -> dict[str, list[float]]:
    size = -(-len(points) // POINTS)
    parts = [points[i : i + size] for i in range(0, len(points), size)]
    return {"x": [part[-1][0] for part in parts], "y": [sum(y for _, y in part) / len(part) for part in parts]}


def _film(run: Path) -> tuple[str | None, str]:
    """The strip of pictures of an episode as a data URI, made smaller if need be; or why there is none."""
    path = inside(run, FILM, FILM)
    if not path.exists():
        return None, ""
    try:
        with needs("film"):
            from PIL import Image
    except UsageProblem as problem:
        return None, f"{FILM} is not shown: {problem}"
    try:
        with Image.open(io.BytesIO(read_file(path)), formats=["PNG"]) as picture:
            if picture.width * picture.height > FILM_PIXELS:
                return None, f"{FILM} is too large to show: {picture.width} x {picture.height}"
            small = picture.convert("RGB")
            small.thumbnail((FILM_WIDTH, 4 * FILM_WIDTH))
            for quality in (82, 60, 35):
                out = io.BytesIO()
                small.save(out, "JPEG", quality=quality, optimize=True)
                if out.tell() <= FILM_BYTES:
                    break
    except Exception as error:  # whatever a broken picture makes Pillow raise
        return None, f"{FILM} is no picture that can be shown: {error}"
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode(), ""


def _hints(manifest: Manifest, data: dict[str, Any]) -> list[dict[str, str]]:
    """What the report lacks, and the commands that make it, in the order in which to run them."""
    run, hints = quoted(data["path"]), []
    status = {stage["name"]: stage["status"] for stage in data["stages"]}

    def hint(what: str, command: str) -> None:
        hints.append({"what": what, "command": command})

    def lost(stage: str, file: str, otherwise: str) -> str:
        """What to say of a file that an evaluation wrote, if it did."""
        return f"evaluation/{file}.json is missing or unusable." if status.get(stage) == "complete" else otherwise

    for stage, what in (("collect", "episodes"), ("score", "uncertainty scores"), ("train-memory", "trained memory")):
        if status.get(stage) == "stale":
            hint(
                f"The {stage} stage is stale: what it was made from has changed.", again(manifest, stage, restart=True)
            )
        elif stage == "score" and status.get("train-memory") == "complete":
            continue  # it was trained without
        elif status.get(stage) != "complete":
            state = "has not been run" if stage not in status else f"is {status[stage]}"
            hint(f"No {what} yet: {stage} {state}.", _command(manifest, stage))
    measured = manifest.stages.get("collect", {}).get("config", {}).get("test_episodes")
    if status.get("train-memory") == "complete" and not measured:
        hint("There are no test episodes to evaluate with.", f"memup collect --run {run} --test-episodes 100")
    elif status.get("train-memory") == "complete":
        if status.get("evaluate") == "stale":
            hint("The memory was trained again since it was evaluated.", f"memup evaluate memory --run {run}")
        elif not data["memory"]:
            hint(lost("evaluate", "memory", "The memory has not been evaluated."), f"memup evaluate memory --run {run}")
        elif not data["timeline"]:
            drew = manifest.stages.get("evaluate", {}).get("config", {}).get("timelines")
            none = "the evaluation drew none."
            what = lost("evaluate", "timeline", none) if drew else none
            hint(f"No timeline: {what}", f"memup evaluate memory --run {run}")
    trained = [s for s in status if s.startswith("train-baseline/") and status[s] in ("complete", "out of memory")]
    if trained and (not data["baselines"] or status.get("evaluate/baselines") == "stale"):
        what = lost("evaluate/baselines", "baselines", "The baselines have not been compared.")
        hint(what, f"memup evaluate baselines --run {run}")
    for stage in data["stages"]:
        if (
            "/" in stage["name"]
            and stage["name"].startswith("train-")
            and stage["status"] not in ("complete", "out of memory")
        ):
            restart = stage["status"] == "stale"
            hint(f"{stage['name']} is {stage['status']}.", again(manifest, stage["name"], restart))
    images = any(len(field["shape"]) == 3 for field in manifest.task["spec"]["fields"])
    for name in _agents(list(status)):
        agent = name.partition("/")[2]
        record = f" --record {quoted(Path(data['path']) / FILM)}" if images else ""
        command = f"memup evaluate agent --agent {agent} --run {run}{record}"
        if status[name] == "complete" and (agent not in data["agents"] or status.get(f"evaluate/{agent}") == "stale"):
            what = lost(f"evaluate/{agent}", f"agent-{agent}", f"The {agent} agent has not been evaluated.")
            hint(what, command)
        elif status[name] == "complete" and images and not data["film"]:
            hint(f"No pictures of the {agent} agent playing.", command)
    return hints


def _command(manifest: Manifest, stage: str) -> str:
    """What runs or continues a stage, with the options that it was run with; collecting finds its own."""
    if stage != "collect":
        return again(manifest, stage, restart=False)
    entry = refresh_collect(manifest)
    return collect_command(manifest.run, entry) if entry else f"memup collect TASK --run {quoted(manifest.run)}"


def clean(value: Any) -> Any:
    """The same with None for numbers that JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): clean(item) for key, item in value.items()}
    return [clean(item) for item in value] if isinstance(value, list | tuple) else value
