"""memup verify: whether a run's data are intact."""

from typing import Annotated, Any

import typer

from .. import console
from .status import JsonOption, RunOption


def verify(
    run: RunOption = None,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Set damaged commit groups aside, so that they can be collected again."),
    ] = False,
    json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, no notes.")] = False,
) -> None:
    """Check every chunk and row of a run against its checksums; exit 65 if anything is damaged."""
    from stores.integrity import Check, Damage, check_shard, quarantine
    from stores.manifest import Manifest
    from stores.reader import shard_exists

    from ..runs import SPLITS, find_run, refresh_collect, shard_path

    manifest = Manifest.load(find_run(run))
    entry = refresh_collect(manifest)
    count, damages = Check(), []
    recorded = manifest.stages.get("collect", {})
    parts = range(recorded.get("config", {}).get("shards", 0))
    shards = [p for split in SPLITS for i in parts if shard_exists(p := shard_path(manifest.run, split, i))]
    total = entry.get("progress", {}).get("done", 0)
    with console.Progress("verify", "episode", total, quiet=quiet) as bar:
        for path in shards:
            damages += check_shard(path, count, bar.advance)
    if recorded.get("status") == "complete":
        gone = [m for m in entry["missing"] if m["problem"] == "not collected"]
        damages += [Damage(manifest.run / m["path"], None, "", None, (0, 0), "the shard is gone") for m in gone]
    places = quarantine(manifest.run, damages) if repair and damages else []
    if repair and damages:
        manifest.stages["collect"] = refresh_collect(manifest)
        manifest.save()
    data: dict[str, Any] = {
        "ok": not damages,
        "damaged": [
            {
                "path": str(d.shard.relative_to(manifest.run)),
                "array": d.array,
                "chunk": d.chunk,
                "group": d.group,
                "episodes": list(d.episodes),
                "problem": d.problem,
            }
            for d in damages
        ],
        "quarantined": [str(place.relative_to(manifest.run)) for place in places],
        "checked": {
            "shards": len(shards),
            "episodes": count.episodes,
            "chunks": count.chunks,
            "bytes": count.bytes,
        },
        "missing": refresh_collect(manifest).get("missing", []),
    }
    console.result(data, json, lambda: _text(data, str(manifest.run)))
    if damages and not repair:
        raise typer.Exit(65)


def _text(data: dict[str, Any], run: str) -> str:
    from ..runs import quoted

    checked = data["checked"]
    lines = [
        f"{run}: checked {checked['episodes']:,} episodes in {checked['chunks']:,} chunks "
        f"({console.human_bytes(checked['bytes'])} decoded): {'intact' if data['ok'] else 'DAMAGED'}"
    ]
    for damage in data["damaged"]:
        first, stop = damage["episodes"]
        place = f"episodes {first} to {stop - 1}" if stop > first else "the whole shard"
        lines.append(f"  {damage['path']}: {place}: {damage['problem']}")
    if data["quarantined"]:
        lines.append(f"Set aside: {', '.join(data['quarantined'])}")
    elif not data["ok"]:
        lines.append(f"To set the damaged groups aside: memup verify --run {quoted(run)} --repair")
    shards = sorted({shard["shard"] for shard in data["missing"]})
    if shards:
        flag = "" if shards == ["0/1"] else f" --shard {shards[0]}"
        lines.append(f"Episodes are missing; to collect them: memup collect --run {quoted(run)}{flag}")
    return "\n".join(lines)
