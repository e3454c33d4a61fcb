"""memup score: train the detector, write one uncertainty score per step."""

from typing import Any

from .. import console
from ..options.command_line import command_function
from ..options.common import StageOptions
from ..options.score_options import ScoreOptions

HELP = """Train the detector and write one uncertainty score per step.

The summary shows at once whether it found the surprises: how the scores are spread, and where in an episode the highest
ones lie.

Example: memup score --run runs/tmaze-1000"""


def _score(options: ScoreOptions, stage: StageOptions) -> None:
    from ..compute.devices import prepare_device
    from ..detector.detection import ScoreConfig
    from ..detector.detector_checks import check_detector
    from ..records.opening import check_window, open_run, spec_of
    from ..stages.scoring import score
    from ..tasks.spec import default_detector

    manifest = open_run(stage.run)
    spec, asked = spec_of(manifest), options.model_fields_set
    begun = {} if stage.restart else manifest.stages.get("score", {}).get("config", {})  # goes on as it was
    begun = {name: value for name, value in begun.items() if name in ScoreOptions.model_fields}
    hints = begun or spec.recipes.get("score", {})
    options = ScoreOptions(**{**hints, **options.model_dump(exclude_unset=True)})
    detector = options.detector or default_detector(spec)
    check_detector(detector, spec, stage.quiet)
    if "window" in asked:
        check_window(manifest, options.window or 1)
    config = ScoreConfig(
        detector=detector,
        gamma=_gamma(spec, options),
        window=options.window or (1 if spec.target_kind == "return" else 8),
        hidden=options.hidden,
        updates=options.updates,
        score=options.score,
        seed=stage.seed,
    )
    device = prepare_device(stage.device, stage.threads)
    if stage.dry_run:
        data = {"run": str(manifest.run), "config": vars(config)}
        console.result(
            data, stage.json_, lambda: f"Would score {manifest.run} with {vars(config)}. Nothing was written."
        )
        return
    summary = score(manifest.run, config, device, stage.restart, stage.quiet)
    console.result(summary, stage.json_, lambda: _text(summary))


def _gamma(spec: Any, options: ScoreOptions) -> float | None:
    """None: it is to be chosen. What is no return has no discount."""
    if spec.target_kind != "return":
        return 0.0
    found: float | None = spec.gamma if options.gamma is None else options.gamma
    return found


score = command_function("score", {"options": ScoreOptions, "stage": StageOptions}, _score)


def _text(summary: dict[str, Any]) -> str:
    from ..records.runs import quoted

    run = summary["run"]
    if summary["outcome"] == "up to date":
        return f"{run}: up to date"
    edges, counts = summary["histogram"]["edges"], summary["histogram"]["counts"]
    lines = [f"{run}: scored. {_counted(summary)}"]
    widest = max(counts) or 1
    for i, (edge, count) in enumerate(zip(edges, counts, strict=True)):
        upper = f"{edges[i + 1]:g}" if i + 1 < len(edges) else "more"
        bar = "#" * (max(1, round(40 * count / widest)) if count else 0)
        lines.append(f"  {edge:>6g} to {upper:<5} {count:>12,} {bar}")
    top = summary["top_steps_from_end"]
    lines.append(
        f"The most uncertain step of an episode (mean score {summary['top_score_mean']:.3g}) lies {top['median']:.0f} "
        f"steps before its end in the median, {top['p10']:.0f} to {top['p90']:.0f} in most; it is the last one in "
        f"{top['at_end_share']:.0%} of episodes."
    )
    lines += _gamma_text(summary)
    lines.append(_separation_text(summary))
    if "probe" in summary:
        lines.append(_probe_text(summary["probe"]))
    lines.append(_next(summary, quoted(run)))
    return "\n".join(lines)


def _gamma_text(summary: dict[str, Any]) -> list[str]:
    """Which gamma was chosen, and why."""
    tried = summary.get("gammas", [])
    if not tried:
        return []
    lines = [f"Gamma {summary['gamma']:g} was chosen on validation episodes{_why(summary)}:"]
    for row in tried:
        known = "too few episodes to say"
        if "useful" in row:
            known = f"what came before, in whatever order, explains {row['worth']:.0%}"
        known = known if row["uncertain"] else "hardly anything is uncertain"
        lines.append(f"  gamma {row['gamma']:<4g} {_few(row)} of what is drawn; {known}")
    return lines


def _why(summary: dict[str, Any]) -> str:
    rows = summary["gammas"]
    uncertain = [row["gamma"] for row in rows if row["uncertain"]]
    if not uncertain:
        return "; with none of them is anything uncertain"
    if summary["gamma"] != uncertain[0]:
        return ", with which the past explains nearly all"
    return ", the smallest with which anything is uncertain"


def _few(row: dict[str, Any]) -> str:
    steps = round(row["mass_steps"])
    return "one step of an episode holds 90%" if steps == 1 else f"{steps:,} steps of an episode hold 90%"


def _separation_text(summary: dict[str, Any]) -> str:
    verdict = "separates" if summary["separates"] else "does NOT separate"
    return (
        f"Check on validation episodes: the detector {verdict} surprising steps from others; {_few(summary)} of what "
        f"is drawn. What is drawn deviates {summary['separation']:.3g} times as much as steps do on average."
    )


def _next(summary: dict[str, Any], run: str) -> str:
    if summary["separates"]:
        return f"Next: memup train-memory --run {run}"
    tried = ", ".join(f"{row['gamma']:g}" for row in summary.get("gammas", [])) or f"{summary['gamma']:g}"
    if not summary["uncertain"]:
        return (
            f"With gamma {tried} everything can be predicted from the step itself: there is nothing for a memory to "
            "explain. Check what is observed and rewarded, collect with another policy, or try another --gamma with "
            "--restart."
        )
    return (
        f"Tried: gamma {tried}. No step stands out: each is about as uncertain as any other, and targets are drawn "
        f"from all of them. If that is so in your task, go on: memup train-memory --run {run}. If only some "
        "steps should be uncertain, try another --gamma, a longer --window or more --updates (with --restart), or more "
        f"episodes: memup collect --run {run} --episodes N."
    )


def _counted(summary: dict[str, Any]) -> str:
    """What the histogram counts: of many episodes, the first ones."""
    seen, every = summary["summarised"]["episodes"], summary["summarised"]["of"]
    which = f"{every:,} training episodes" if seen == every else f"first {seen:,} of {every:,} training episodes"
    return f"How many of the {sum(summary['histogram']['counts']):,} steps of the {which} have which uncertainty:"


def _probe_text(found: dict[str, Any]) -> str:
    """What the pooled past is good for."""
    if found["tells"]:
        return (
            f"Probe: inputs of the past explain {found['explained']:.0%} of what is uncertain of the events that gain "
            "most from them; train-memory will prefer those to what only looks surprising (--select utility)."
        )
    return (
        f"Probe: without their order, inputs of the past explain only {max(found['explained'], 0):.0%} of what is "
        "uncertain at best. That is too little to tell what memory is useful for: train-memory will select by "
        "surprise. Either the order matters, or there are too few episodes or --updates to learn it from."
    )
