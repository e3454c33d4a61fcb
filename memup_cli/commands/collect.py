"""memup collect TASK: episodes or data sets -> chunked Zarr arrays."""

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from .. import console
from ..errors import StageMissing, UsageProblem
from ..options.collect_options import CollectOptions
from ..options.command_line import build, command_function
from ..options.common import StageOptions
from .status import QuietOption

IMPORTED = {"arrays", "lerobot", "minari"}  # tasks that are data sets of other programs: `memup import` brings them in
ABOUT = (
    "Episodes go to runs/<task>-<size> unless --run names another folder. The same command again continues an "
    "interrupted collection, and does nothing if it is complete; with more --episodes it adds those that are missing."
)


class TaskGroup(TyperGroup):
    """Sub-commands are the registered tasks, loaded when they are asked for."""

    verb: ClassVar[str] = "collect"

    def list_commands(self, ctx: Any) -> list[str]:
        from ..tasks import task_names

        return [name for name in task_names() if (name in IMPORTED) == (self.verb == "import")]

    def get_command(self, ctx: Any, name: str) -> Any:
        from ..tasks import does_not_load, load_task, task_names

        if name in task_names() and name not in self.list_commands(ctx):
            right = "import" if name in IMPORTED else "collect"
            raise UsageProblem(f"that is `memup {right} {name}`; `memup {right} {name} --help` shows how")
        try:
            return self._command(name, load_task(name))
        except UsageProblem as problem:
            if name not in task_names():
                raise
            return _broken(name, problem)
        except Exception as error:  # options of a plug-in that no command line can have
            return _broken(name, does_not_load(name, repr(error)))

    def _command(self, name: str, task: Any) -> Any:
        def body(task: Any, options: CollectOptions, stage: StageOptions) -> None:
            collect(name, task, options, stage)

        models: dict[str, type[BaseModel]] = {"task": task.Options, "options": CollectOptions, "stage": StageOptions}
        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        function = command_function("collect", models, body, {"task": f"Task {name}"})
        single.command(name, help=f"{task.summary}\n\n{ABOUT}\n\nExample: memup {self.verb} {task.example}")(function)
        return typer.main.get_command(single)


def _broken(name: str, problem: UsageProblem) -> Any:
    """A plug-in that does not load: listed as such, and explained when it is asked for."""

    def explain(ctx: typer.Context) -> None:
        raise problem

    single = typer.Typer(add_completion=False)
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    single.command(name, help="(does not load)", context_settings=settings)(explain)
    return typer.main.get_command(single)


app = typer.Typer(cls=TaskGroup, rich_markup_mode="rich", invoke_without_command=True)


@app.callback(
    help="Generate episodes or data sets into the trajectory store.\n\n"
    "[bold]memup collect TASK[/bold] starts a run or continues it; [bold]memup collect --run DIR[/bold] continues "
    f"the run in DIR with the options it was started with, or with more episodes. {ABOUT}\n\n"
    "Example: memup collect tmaze --length 1000"
)
def continue_run(
    ctx: typer.Context,
    run: Annotated[Path | None, typer.Option("--run", metavar="PATH", help="Continue this run.")] = None,
    shard: Annotated[
        str | None, typer.Option("--shard", metavar="I/N", help="The part I/N to continue, if there are several.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option("--episodes", metavar="N", help="More training episodes than the run has.")
    ] = None,
    validation_episodes: Annotated[
        int | None,
        typer.Option("--validation-episodes", metavar="N", help="How many of them, if the run grows."),
    ] = None,
    test_episodes: Annotated[
        int | None, typer.Option("--test-episodes", metavar="N", help="More test episodes than the run has.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", metavar="", help="Say what would be done, do nothing.")] = False,
    json: Annotated[bool, typer.Option("--json", metavar="", help="Print the result as one JSON object.")] = False,
    quiet: QuietOption = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        counts = (episodes, validation_episodes, test_episodes)
        if run or shard or any(count is not None for count in counts) or dry_run or json or quiet:
            raise UsageProblem("options come after the task: memup collect TASK --run DIR ...")
        return
    run = run or (Path(os.environ["MEMUP_RUN"]) if os.environ.get("MEMUP_RUN") else None)
    if run is None:
        raise UsageProblem("name a task, or a run to continue with --run; `memup collect --help` lists the tasks")
    from stores.manifest import Manifest

    from ..records.runs import find_run, quoted
    from ..tasks import load_task

    manifest = Manifest.load(find_run(run))
    config = manifest.stages.get("collect", {}).get("config")
    if not config:
        raise StageMissing(f"{run} was never collected into; use `memup collect TASK --run {quoted(run)}`")
    shards = config["shards"]
    if shards > 1 and not (shard and shard.endswith(f"/{shards}")):
        raise UsageProblem(f"{run} is collected in {shards} parts; say which one with --shard I/{shards}")
    places = manifest.stages["collect"].get("places", {})
    task_options = load_task(manifest.task["name"]).Options(**manifest.task["options"], **places)
    asked = {"episodes": episodes, "validation_episodes": validation_episodes, "test_episodes": test_episodes}
    sizes = {name: config.get(name) if size is None else size for name, size in asked.items()}
    options = build(CollectOptions, {**sizes, "shard": shard or "0/1"})
    stage = StageOptions(run=run, seed=config["seed"], dry_run=dry_run, json=json, quiet=quiet)
    collect(manifest.task["name"], task_options, options, stage)


def collect(name: str, task_options: Any, options: CollectOptions, stage: StageOptions) -> None:
    from ..limits import available_cpus
    from ..records.runs import HOME, follow, validation_count
    from ..stages.collect.collection import Collection
    from ..stages.collect.collection import collect as run_stage
    from ..tasks import load_task, unused
    from ..tasks.checks import make_task, run_folder

    with console.results_only():
        task = make_task(name, load_task(name), task_options)
    if others := unused(name):
        console.note(others, stage.quiet)
    part, parts = options.part
    run = follow(stage.run or run_folder(HOME, name, task))
    train, test = _default_sizes(run, task, stage.restart)
    config = {
        "episodes": train if options.episodes is None else options.episodes,
        "test_episodes": test if options.test_episodes is None else options.test_episodes,
        "seed": stage.seed,
        "shards": parts,
    }
    validation = options.validation_episodes
    if validation is None:
        validation = getattr(task, "default_validation", None)
    if validation is not None:
        if validation >= config["episodes"]:
            raise UsageProblem(
                f"--validation-episodes {validation}: they are some of the {config['episodes']} "
                "training episodes; leave some to train on"
            )
        if validation != validation_count(config):
            config["validation_episodes"] = validation
    if parts > config["episodes"]:
        raise UsageProblem(f"--shard {options.shard}: there are only {config['episodes']} episodes to share out")
    collection = Collection(
        task_name=name,
        task=task,
        task_options=task_options.model_dump(by_alias=True, mode="json", exclude=task_options.places),
        places=task_options.model_dump(by_alias=True, mode="json", include=task_options.places),
        run=run,
        config=config,
        part=part,
        workers=options.workers or available_cpus(),
        commit_every=options.commit_every,
        restart=stage.restart,
        quiet=stage.quiet,
    )
    if stage.dry_run:
        _dry_run(collection, stage)
        return
    with console.results_only():
        summary = run_stage(collection)
    console.result(summary, stage.json_, lambda: _table(summary))


def _default_sizes(run: Path, task: Any, restart: bool) -> tuple[int, int]:
    """Episodes to train on and to test with, unless they are given: those of the run, also if it grew."""
    from stores.manifest import Manifest

    if not restart and Manifest.exists(run) and (config := Manifest.load(run).stages.get("collect", {}).get("config")):
        return config["episodes"], config["test_episodes"]
    train, test = task.default_episodes
    return train, test


def _dry_run(collection: Any, stage: StageOptions) -> None:
    from ..records.runs import validation_count
    from ..stages.collect.collection import preview

    state = preview(collection)
    length = collection.task.typical_length(collection.config["seed"])
    steps = length * (collection.config["episodes"] + collection.config["test_episodes"])
    size = steps * sum(field.row_bytes for field in collection.task.spec.fields)
    data = {
        "run": str(collection.run),
        "task": {"name": collection.task_name, "options": collection.task_options},
        "config": collection.config,
        "state": state,
        "steps": steps,
        "raw_bytes": size,
    }
    config, exists = (
        collection.config,
        "" if state == "new" else f"The run exists; {'it is' if state == 'up to date' else 'it would'} {state}. ",
    )
    text = (
        f"Would collect {config['episodes']:,} training episodes ({validation_count(config):,} of them for validation) "
        f"and {config['test_episodes']:,} test episodes of about {length:,} steps into {collection.run}: {steps:,} "
        f"steps, {console.human_bytes(size)} before compression. {exists}Nothing was written."
    )
    console.result(data, stage.json_, lambda: text)


def _table(summary: dict[str, Any]) -> str:
    from ..records.runs import quoted

    run = summary["run"]
    if summary["missing"]:
        parts = sorted({shard["shard"] for shard in summary["missing"]})
        return f"{run}: this part is complete; still to be collected: shard {', '.join(parts)}"
    if not summary["steps"]:
        return f"{run}: up to date, {summary['total']:,} episodes"
    rate = summary["steps"] / summary["seconds"]
    speed = f"{rate / 1e6:.2f}M" if rate > 1e5 else f"{rate:,.0f}"
    lines = [
        f"{run}: {summary['total']:,} episode{'s' * (summary['total'] != 1)}, "
        f"{console.human_bytes(summary['bytes'])} on disk; "
        f"{summary['steps']:,} steps in {summary['seconds']:.1f} s ({speed} steps/s)",
        f"Look at it with: memup inspect --run {quoted(run)}",
    ]
    again = " --restart" if summary["again"] else ""
    if summary["again"]:
        lines.append(f"The run grew: {', '.join(summary['again'])} saw fewer episodes, and can be run again.")
    return "\n".join([*lines, f"Next: memup score --run {quoted(run)}{again}"])
