"""Packages that only some commands need, and a plain install leaves out: the extras of pyproject.toml."""

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import UsageProblem

EXTRAS = {
    "arrays": "reading HDF5 and Parquet files, LeRobot data sets among them",
    "doom": "two-colors",
    "film": "--record",
    "minari": "reading or writing Minari data sets",
    "mlflow": "`memup export mlflow`",
    "plots": "drawing the figures of examples/experiments",
    "remote": "reading runs at http and https",
    "tensorboard": "looking at logs/ with TensorBoard",
    "trackio": "`memup export trackio`",
    "wandb": "`memup export wandb`",
}


def install(extra: str) -> str:
    return f"pip install 'memup[{extra}]'"


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around imports of packages of this extra: one that is missing is told with the command that installs it."""
    try:
        yield
    except ImportError as error:
        raise UsageProblem(
            f"{EXTRAS[extra]} needs a package that is not installed or does not load ({error}). To install what it "
            f"needs: {install(extra)}"
        ) from error
