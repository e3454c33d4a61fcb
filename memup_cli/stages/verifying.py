"""Whether a run's data, scores, weights and checkpoints are intact; what is damaged can be set aside."""

from pathlib import Path
from typing import Any

from stores.files import make_folder, move, to_json, write_durably
from stores.integrity import Check, Damage, check_shard, quarantine
from stores.manifest import Manifest, turn
from stores.reader import Shard, shard_exists
from stores.scores import check_scores, score_path, set_scores_aside

from .. import console
from ..records.runs import STORED, again, altered_weights, find_readable, find_run, refresh_collect, shard_path
from ..records.stage_files import altered_descriptions, damaged_checkpoints, not_a_file, quarantine_place


def verify_run(run: Path | None, repair: bool, quiet: bool) -> dict[str, Any]:
    """What is damaged; with `repair` it is set aside, so that it can be made again."""
    manifest = Manifest.load(find_run(run) if repair else find_readable(run))
    entry = refresh_collect(manifest)
    count, damages = Check(), []
    recorded = manifest.stages.get("collect", {})
    parts = range(recorded.get("config", {}).get("shards", 0))
    shards = [p for split in STORED for i in parts if shard_exists(p := shard_path(manifest.run, split, i))]
    total = entry.get("progress", {}).get("done", 0)
    with console.Progress("verify", "episode", total, quiet=quiet) as bar:
        for path in shards:
            damages += check_shard(path, count, bar.advance)
    if recorded.get("status") == "complete":
        gone = [m for m in entry["missing"] if m["problem"] == "not collected"]
        damages += [Damage(manifest.run / m["path"], None, "", None, (0, 0), "the shard is gone") for m in gone]
    hurt = {d.shard for d in damages}
    scores = _check_scores(manifest, [path for path in shards if path not in hurt], count)
    weights = _check_weights(manifest)
    others = _check_others(manifest)
    places = quarantine(manifest.run, damages) + set_scores_aside(manifest.run, scores) if repair else []
    places += _mend_others(manifest) if repair else []
    if repair and damages:
        with turn(manifest.run):
            manifest = Manifest.load(manifest.run)
            manifest.stages["collect"] = refresh_collect(manifest)
            manifest.save()
    data: dict[str, Any] = {
        "run": str(manifest.run),
        "ok": not (damages or scores or weights or others),
        "mended": repair and not weights,
        "damaged": [
            {
                "path": str(d.shard.relative_to(manifest.run)),
                "array": d.array,
                "chunk": d.chunk,
                "group": d.group,
                "episodes": list(d.episodes),
                "problem": d.problem,
            }
            for d in damages + scores + weights + others
        ],
        "remake": _remake([*scores, *weights], manifest) if scores or weights else [],
        "quarantined": [str(place.relative_to(manifest.run)) for place in places],
        "checked": {
            "shards": len(shards),
            "episodes": count.episodes,
            "chunks": count.chunks,
            "bytes": count.bytes,
        },
        "missing": refresh_collect(manifest).get("missing", []),
    }
    return data


def _check_scores(manifest: Manifest, shards: list[Path], count: Check) -> list[Damage]:
    """Scores of a finished score stage, of the shards that are themselves intact."""
    entry = manifest.stages.get("score", {})
    if entry.get("status") != "complete" or manifest.stale("score"):  # of fewer episodes, or of others
        return []
    paths = [
        (score_path(manifest.run, name, shard), shard) for shard in map(Shard, shards) for name in entry["weights"]
    ]
    return [damage for path, shard in paths for damage in check_scores(path, shard, count)]


def _check_weights(manifest: Manifest) -> list[Damage]:
    found = dict.fromkeys(path for stage in manifest.stages for path in altered_weights(manifest, stage))
    return [Damage(path, None, "", None, (0, 0), "missing, damaged or not what was trained") for path in found]


def _check_others(manifest: Manifest) -> list[Damage]:
    """Checkpoints, config.json, the old manifest: nothing is lost with them, but whoever looks should know."""
    found = dict.fromkeys(damaged_checkpoints(manifest.run), "damaged; its stage goes on from the one before it")
    found |= dict.fromkeys(altered_descriptions(manifest), "missing, damaged or not what was recorded")
    found |= dict.fromkeys(not_a_file(manifest.run), "no file, where one is kept")
    return [Damage(path, None, "", None, (0, 0), problem) for path, problem in found.items()]


def _mend_others(manifest: Manifest) -> list[Path]:
    """Set aside damaged checkpoints and what must be a file but is none; write config.json again as recorded."""
    places = []
    for path in damaged_checkpoints(manifest.run) + not_a_file(manifest.run):
        places.append(quarantine_place(manifest.run, path))
        move(path, places[-1])
    for path, content in altered_descriptions(manifest).items():
        make_folder(path.parent)
        write_durably(path, to_json(content))
    return places


def _remake(damages: list[Damage], manifest: Manifest) -> list[str]:
    """The commands that make what is damaged again, in the order in which to run them."""
    parts = [damage.shard.relative_to(manifest.run).parts for damage in damages]
    agents = [part[1] for part in parts if part[0] in ("agent", "rounds")]
    commands = []
    if any(part[0] in ("scores", "detector") for part in parts):
        commands.append(again(manifest, "score", restart=False))
    if any(part[0] == "memory" for part in parts):
        commands.append(again(manifest, "train-memory", restart=True))
    baselines = [part[1] for part in parts if part[0] == "baseline"]
    commands += [again(manifest, f"train-baseline/{name}", restart=True) for name in dict.fromkeys(baselines)]
    commands += [again(manifest, f"train-agent/{agent}", restart=True) for agent in dict.fromkeys(agents)]
    return commands
