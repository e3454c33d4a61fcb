"""memup import and memup export: data sets of other programs, and what other programs show or load of a run."""

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from .. import console
from ..options.command_line import flowing
from .collect import TaskGroup
from .status import JsonOption, QuietOption, RunOption

MINARI = """Write the episodes of a run as a Minari data set (HDF5, images as they are).

For runs of tasks with an environment, such as tmaze, gym and two-colors. Minari has one observation more than there are
steps in an episode; a run does not keep it, so the last one is repeated.

Example: memup export minari --run runs/tmaze-20000 --id tmaze/random-v0"""


SHARED = """Curves come from the logs of all stages, options and figures from the manifest and the evaluations. Names
begin with the stage. Export again after more training: there is one tracked run for a run folder, every point once."""

MLFLOW = f"""Bring the curves, options and figures of a run into an MLflow store.

{SHARED} If a stage was trained anew, a new MLflow run takes the place of the old one.

Example: memup export mlflow --run runs/tmaze-1000 --to mlflow.db"""

WANDB = f"""Write the curves, options and figures of a run as an offline run of Weights & Biases.

{SHARED} Nothing is uploaded: the last line says what does it.

Example: memup export wandb --run runs/tmaze-1000"""

TRACKIO = f"""Bring the curves, options and figures of a run into a local store of Trackio.

{SHARED}

Example: memup export trackio --run runs/tmaze-1000"""

HUB = """Write the trained memory, and the agents on it, as a model folder that any hub client can upload.

It holds the best weights (safetensors), config.json, and README.md: what it is, how it was trained, its figures with
their intervals, and how to load it. The licence is yours to add. Look through the folder before you publish it.

Example: memup export hub --run runs/tmaze-1000 tmaze-memory"""


class ImportGroup(TaskGroup):
    """Importing is collecting from a data set: it continues, shares out and records in the same way."""

    verb: ClassVar[str] = "import"


importing = typer.Typer(cls=ImportGroup, rich_markup_mode="rich", no_args_is_help=True)
exporting = typer.Typer(rich_markup_mode="rich", no_args_is_help=True)


@importing.callback(
    help="Bring arrays of your own, or the data set of another program, into a run, for the other stages.\n\n"
    "Example: memup import arrays --inputs X.npy --targets y.npy --classes --run runs/mine"
)
def _import() -> None:
    pass


@exporting.callback(
    help="Bring a run to other programs: its episodes as a data set, its curves and figures into an experiment "
    "tracker, its memory and agents into a folder for a model hub.\n\n"
    "Example: memup export minari --run runs/tmaze-20000 --id tmaze/random-v0"
)
def _export() -> None:
    pass


@exporting.command("minari", help=flowing(MINARI))
def export_minari(
    name: Annotated[str, typer.Option("--id", metavar="TEXT", help="Id of the new data set, e.g. tmaze/random-v0.")],
    run: RunOption = None,
    split: Annotated[
        Literal["train", "test"],
        typer.Option(
            "--split",
            metavar="WORD",
            show_default=False,
            help="Which episodes. [dim](train or test; default: train)[/dim]",
        ),
    ] = "train",
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="PATH", help="Folder of the new data set (default: Minari's own, below its id)."),
    ] = None,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    from ..stages.exporting import export

    summary = export(run, name, split, to, quiet)
    console.result(
        summary,
        json,
        lambda: (
            f"{summary['dataset']}: {summary['id']}, {summary['episodes']:,} episodes, {summary['steps']:,} steps, "
            f"{console.human_bytes(summary['bytes'])}"
        ),
    )


def _to(metavar: str, help: str) -> Any:
    return typer.Option("--to", metavar=metavar, help=help)


@exporting.command("mlflow", help=flowing(MLFLOW))
def export_mlflow(
    run: RunOption = None,
    to: Annotated[
        str | None,
        _to("TEXT", "A database file or a tracking URI (default: MLFLOW_TRACKING_URI, or mlflow.db beside the run)."),
    ] = None,
    json: JsonOption = False,
) -> None:
    _track("mlflow", run, to, json)


@exporting.command("wandb", help=flowing(WANDB))
def export_wandb(
    run: RunOption = None,
    to: Annotated[str | None, _to("PATH", "Folder that gets wandb/ (default: WANDB_DIR, or beside the run).")] = None,
    json: JsonOption = False,
) -> None:
    _track("wandb", run, to, json)


@exporting.command("trackio", help=flowing(TRACKIO))
def export_trackio(
    run: RunOption = None,
    to: Annotated[str | None, _to("PATH", "Folder of the store (default: TRACKIO_DIR, or Trackio's own).")] = None,
    json: JsonOption = False,
) -> None:
    _track("trackio", run, to, json)


@exporting.command("hub", help=flowing(HUB))
def export_hub(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The new folder.", show_default=False)],
    run: RunOption = None,
    json: JsonOption = False,
) -> None:
    from ..publishing.model_folder import export_folder

    summary = export_folder(run, folder)
    console.result(summary, json, lambda: _listed(summary))


def _track(tracker: str, run: Path | None, to: str | None, json: bool) -> None:
    from ..publishing.tracked import tracked
    from ..records.runs import find_run

    export = getattr(import_module(f"..publishing.{tracker}_tracker", __package__), f"export_{tracker}")
    found = tracked(find_run(run))
    summary = {"run": str(found.folder), **export(found, to), "figures": len(found.figures), "problems": found.problems}
    console.result(summary, json, lambda: _tracked(summary))


def _tracked(summary: dict[str, Any]) -> str:
    lines = [
        f"{summary['store']}: run {summary['id']} of {summary['experiment']}, {summary['points']:,} points "
        f"({summary['added']:,} of them new), {summary['figures']:,} figures",
        *(f"  {problem}" for problem in summary["problems"]),
    ]
    return "\n".join([*lines, *([f"Next: {summary['next']}"] if summary["next"] else [])])


def _listed(summary: dict[str, Any]) -> str:
    files = [f"{name} ({console.human_bytes(size)})" for name, size in summary["files"].items()]
    lines = [f"{summary['folder']}: {', '.join(files)}", *(f"  {problem}" for problem in summary["problems"])]
    return "\n".join([*lines, "Next: read README.md, add a licence, and upload the folder with the client of your hub"])
