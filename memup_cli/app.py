"""The memup command: sub-commands, and errors turned into one paragraph and an exit code. Imports no torch."""

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from stores.errors import DamagedData

from . import __version__, console
from .commands import (
    collect,
    doctor,
    evaluate,
    inspect_run,
    interchange,
    report,
    score,
    status,
    train_agent,
    train_baseline,
    train_memory,
    verify,
)
from .commands.variables import refuse_unknown
from .errors import MemupError, exit_code
from .invocation import take_variables
from .options.command_line import flowing
from .options.old_names import refuse_old_options
from .ranks import rank

ORDER = ("collect", "score", "train-memory", "train-baseline", "train-agent", "evaluate", "report")


class InOrder(TyperGroup):
    """Commands in the order in which they are run, not in that of registration."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*ORDER, *(name for name in self.commands if name not in ORDER)]


PATIENCE = 10.0  # seconds
ADVICE = ("memup ", "Run ", "--restart", "copy it over")  # a message with one of these says what to do
CTRL_C = 128 + signal.SIGINT
HELP_FLAGS = ("-h", "--help")

app = typer.Typer(
    name="memup",
    cls=InOrder,
    help="Train long-term memory on very long sequences with MemUP: find the few surprising steps, and train a "
    "recurrent memory whose state explains them, however far ahead.\n\n"
    "The stages, in their order: collect, score, train-memory, train-agent, evaluate, report. Each runs on one run "
    "folder, continues where it was stopped, and does nothing if it is complete.\n\n"
    "Example: memup collect tmaze --length 1000 && memup score && memup train-memory && memup evaluate memory",
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": [*HELP_FLAGS]},
)
app.add_typer(collect.app, name="collect")
app.command("score", help=flowing(score.HELP))(score.score)
app.command("train-memory", help=flowing(train_memory.HELP))(train_memory.train_memory)
app.command("train-baseline", help=flowing(train_baseline.HELP))(train_baseline.train_baseline)
app.command("train-agent", help=flowing(train_agent.HELP))(train_agent.train_agent)
app.add_typer(evaluate.app, name="evaluate")
app.command("report", help=flowing(report.HELP))(report.report)
app.add_typer(interchange.importing, name="import")
app.add_typer(interchange.exporting, name="export")
app.command("status", help=flowing(status.HELP))(status.status)
app.command("inspect", help=flowing(inspect_run.HELP))(inspect_run.inspect)
app.command("verify", help=flowing(verify.HELP))(verify.verify)
app.command("doctor", help=flowing(doctor.HELP))(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"memup {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", metavar="", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if not set(HELP_FLAGS) & set(sys.argv):  # which is how one finds the right name
        refuse_unknown(context.command, context)
        refuse_old_options(context.invoked_subcommand, sys.argv)
    commands: dict[str, Any] = getattr(context.command, "commands", {})
    if command := commands.get(context.invoked_subcommand or ""):
        take_variables(command.params)


def main() -> None:
    """Entry point: every error that is the user's to mend becomes one paragraph on stderr."""
    if rank().number:
        console.hush()
    said = False
    try:
        code = app(standalone_mode=False)
    except (TyperException, typer.Exit, typer.Abort) as error:
        if isinstance(error, TyperException) and error.format_message().strip():
            _complain(error.format_message())
        code = getattr(error, "exit_code", CTRL_C)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the last flush complains again
        code = 128 + signal.SIGPIPE
    except Exception as error:
        found = exit_code(error)
        if rank().number and not isinstance(error, MemupError):  # those the first process has said
            console.stderr.quiet = False
            console.note(f"process {rank().number} of {rank().size}:")
        if found is None or {"-v", "--verbose"} & set(sys.argv):
            console.stderr.print_exception()
        if found is None:
            _complain(f"this is a bug in memup: {error!r}. Please report it with the lines above.")
        elif isinstance(error, OSError):
            _complain(f"the file system refused: {error}. Check the path, its permissions and the space left.")
        else:
            _complain(_advised(error))
        if rank().number and isinstance(error, MemupError):
            _let_the_first_say_it()
        code, said = found or 1, True
    if code == CTRL_C and not said:  # Typer made that of a Ctrl-C outside of a stage's work
        raise KeyboardInterrupt
    _leave(code or 0)


def _let_the_first_say_it() -> None:
    """torchrun ends all processes as soon as one is gone: wait for that, or the first might not come to say why."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    signal.sigtimedwait({signal.SIGTERM}, PATIENCE)


def _leave(code: int) -> NoReturn:
    """One of several processes leaves at once: a thread of gloo that still lets go of a tensor while the interpreter
    is taken down would abort it, and with it the whole training."""
    if rank().size > 1:
        with suppress(BrokenPipeError):
            sys.stdout.flush()
        os._exit(code)
    gc.freeze()  # the interpreter's last look for garbage would go through all of torch: a tenth of a second
    sys.exit(code)


def _advised(error: Exception) -> str:
    """The message; whoever found bytes damaged deep in the store cannot know the command that mends them."""
    message = str(error)
    if isinstance(error, DamagedData) and not any(word in message for word in ADVICE):
        message = message.rstrip(".") + ". `memup verify` with the same --run lists all that is damaged; with --repair "
        message += "it is set aside."
    return message


def _complain(message: str) -> None:
    console.stderr.print(f"memup: {message}", markup=False, style="red" if console.stderr.is_terminal else None)
