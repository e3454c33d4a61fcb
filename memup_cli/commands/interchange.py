"""memup import and memup export: data sets of other programs -> runs, and runs -> such data sets."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer

from .. import console
from ..options.command_line import flowing
from .collect import TaskGroup
from .status import JsonOption, QuietOption, RunOption

HELP = """Write the episodes of a run as a Minari data set (HDF5, images as they are).

For runs of tasks with an environment, such as tmaze, gym and two-colors. Minari has one observation more than there are
steps in an episode; a run does not keep it, so the last one is repeated.

Example: memup export minari --run runs/tmaze-20000 --id tmaze/random-v0"""


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
    help="Write the episodes of a run as a data set for other programs.\n\n"
    "Example: memup export minari --run runs/tmaze-20000 --id tmaze/random-v0"
)
def _export() -> None:
    pass


@exporting.command("minari", help=flowing(HELP))
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
