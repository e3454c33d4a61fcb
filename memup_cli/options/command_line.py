"""Typer options from config models. Precedence: flags > MEMUP_* variables > --config TOML > defaults."""

import inspect
import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from ..errors import UsageProblem
from ..ranks import rank
from ..registry import in_words
from .choices import OneOf
from .common import STAGES, StageOptions
from .old_names import refuse_old

Options = TypeVar("Options", bound=BaseModel)

SHORT = {"verbose": "-v"}
SHARED = ("train-memory",)  # stages that torchrun can start
PLACEHOLDERS = {bool: "", int: "N", float: "X", Path: "PATH", str: "TEXT"}  # short: the help must fit 80 columns


def flowing(text: str) -> str:
    """A help text without the line breaks of the source inside its paragraphs."""
    return re.sub(r"(?<!\n)\n(?!\n)", " ", text)


def variable(command: str, name: str) -> str:
    """The MEMUP_ variable of a command's option; those of every stage have no command."""
    return "_".join(["MEMUP", *command.split(), name]).replace("-", "_").upper()


def command_function(
    command: str, models: dict[str, type[BaseModel]], body: Callable[..., None], panels: dict[str, str] | None = None
) -> Callable[..., None]:
    """A function whose signature Typer turns into options; it calls body(**{name: validated model}).

    command: such as "score" or "evaluate memory". An option's box in the help is its own, that of its model, or else
    that of `panels`. --help shows those that are not rare, --help-all shows all.
    """
    stage = command.split()[0]
    fields = {
        name: (key, field)
        for key, model in models.items()
        for name, field in model.model_fields.items()
        if not _extra(field).get("no option")
    }

    def run(**given: Any) -> None:
        if rank().size > 1 and stage not in SHARED:
            raise UsageProblem(
                f"{stage} runs in one process; start it without torchrun. On several: {', '.join(SHARED)}"
            )
        flags = {name: value for name, value in given.items() if value is not None and value != []}
        from_file = _read_toml(flags.get("config"), stage, {_option(n, f): (n, f) for n, (_, f) in fields.items()})
        values = {**from_file, **flags}
        body(**{key: build(model, values) for key, model in models.items()})

    def parameter(name: str, key: str, field: FieldInfo) -> inspect.Parameter:
        model = models[key]
        return _parameter(
            name,
            field,
            "" if model is StageOptions else command,
            _extra(field).get("panel") or getattr(model, "panel", None) or (panels or {}).get(key),
        )

    parameters = [parameter(name, key, field) for name, (key, field) in fields.items()]
    parameters.append(_help_all())

    def call(help_all: bool = False, **given: Any) -> None:
        run(**given)

    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _show_all(context: typer.Context, wanted: bool) -> None:
    """The help with every option."""
    if wanted:
        for parameter in context.command.params:
            parameter.hidden = False  # type: ignore[attr-defined]
        print(context.get_help())
        raise typer.Exit


def _help_all() -> inspect.Parameter:
    option = typer.Option(
        "--help-all",
        metavar="",
        callback=_show_all,
        is_eager=True,
        help="Show all options.",
        show_default=False,
    )
    return inspect.Parameter(
        "help_all", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option]
    )


def _option(name: str, field: FieldInfo) -> str:
    return (field.alias or name).replace("_", "-")


def _extra(field: FieldInfo) -> dict[str, Any]:
    """What a field says of itself as an option: the box of the help, and the like."""
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


def _parameter(name: str, field: FieldInfo, command: str, panel: str | None) -> inspect.Parameter:
    flag, extra = _option(name, field), _extra(field)
    if "argument" in extra:
        argument = typer.Argument(help=field.description, metavar=str(extra["argument"]), show_default=False)
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[field.annotation, argument])
    both = extra.get("both")  # a plan may switch it on
    flags = [f"--{flag}/--no-{flag}" if both else f"--{flag}"] + ([SHORT[name]] if name in SHORT else [])
    choices, kind = _choices(field)
    several = _is_several(kind)
    option = typer.Option(
        *flags,
        help=f"{field.description}{_remark(field, choices, bool(extra.get('planned')))}",
        metavar=str(extra.get("value") or ("WORD" if choices else PLACEHOLDERS[str if several else kind])),
        callback=_lines if several else None,
        envvar=variable(command, _option(name, field)),
        show_envvar=False,
        show_default=False,
        rich_help_panel=panel,
        hidden=bool(extra.get("rare")),
    )
    taken: Any = Literal[choices] if choices else list[str] if several else field.annotation
    annotation: Any = Annotated[taken | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _lines(context: typer.Context, parameter: typer.CallbackParam, value: list[str] | None) -> list[str] | None:
    """Values of an option that can be given several times. In a variable there is one a line: they may have spaces."""
    source = context.get_parameter_source(str(parameter.name))
    if source and source.name == "ENVIRONMENT":
        return [line for line in os.environ[str(parameter.envvar)].splitlines() if line.strip()]
    return value


def _choices(field: FieldInfo) -> tuple[tuple[str, ...], Any]:
    """The words that an option takes, if it takes only some, and the type of its value."""
    if named := [part for part in _parts(field) if isinstance(part, OneOf)]:
        return named[0].names, str
    kind: Any = field.annotation
    if get_origin(kind) is UnionType or type(None) in get_args(kind):
        kind = next(part for part in get_args(kind) if part is not type(None))
    return (get_args(kind), str) if get_origin(kind) is Literal else ((), kind)


def _is_several(kind: Any) -> bool:
    """Whether an option can be given several times: tuple[str, ...]."""
    return get_origin(kind) is tuple and get_args(kind)[1:] == (...,)


def _parts(field: FieldInfo) -> list[Any]:
    """What the type of a field is made of: Annotated[str, OneOf(...)], or that or None."""
    return [*field.metadata, *(part for kind in get_args(field.annotation) for part in get_args(kind))]


def _remark(field: FieldInfo, choices: tuple[str, ...], planned: bool) -> str:
    """What the help says after the description: the words to choose from, and the default."""
    parts = [in_words(choices)] if choices else []
    default: Any = field.default
    if _is_several(_choices(field)[1]):
        parts.append("may be given several times")
        default = ", ".join(map(str, default or ())) or None
    if planned:
        parts.append("default: planned")
    elif not (default is None or default is False or default is PydanticUndefined):
        parts.append(f"default: {default}")
    return f" [dim]({'; '.join(parts)})[/dim]" if parts else ""


def build(model: type[Options], values: dict[str, Any]) -> Options:
    """UsageProblem, which names the option, if a value is not one of those it can have."""
    own = {field.alias or name: values[name] for name, field in model.model_fields.items() if name in values}
    try:
        return model(**own)
    except ValidationError as error:
        raise UsageProblem("; ".join(_describe(e) for e in error.errors())) from None


def _describe(error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return message[:1].upper() + message[1:]
    option = "--" + str(error["loc"][0]).replace("_", "-")
    if error["type"] == "missing":
        return f"{option} is required"
    given = error["input"]
    shown = " ".join(map(str, given)) if isinstance(given, list | tuple) else given
    return f"{option} {shown}: {message[:1].lower()}{message[1:]}"


def _read_toml(path: Path | None, stage: str, known: dict[str, tuple[str, FieldInfo]]) -> dict[str, Any]:
    """Options of a stage from a TOML file: plain keys at the top are for every stage, [stage] for this one."""
    if path is None:
        return {}
    try:
        data = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise UsageProblem(f"--config {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageProblem(f"--config {path} is not valid TOML: {error}") from None
    shared = {key: value for key, value in data.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in data.items() if isinstance(value, dict)}
    common = {_option(name, field) for name, field in StageOptions.model_fields.items()}
    for key in shared:
        if key.replace("_", "-") not in common:
            raise UsageProblem(
                f"--config {path}: {key!r} is no option of every stage; put it into a table such as [{stage}]. At the "
                f"top there can be: {', '.join(sorted(common))}."
            )
    for key in tables:
        if key not in STAGES:
            raise UsageProblem(f"--config {path}: there is no stage [{key}]. Stages: {', '.join(STAGES)}.")
    own = tables.get(stage, {})
    for key, value in own.items():
        if key.replace("_", "-") not in known:
            refuse_old(stage, key.replace("_", "-"), value, file=f"--config {path}: ")
    unknown = [key for key in own if key.replace("_", "-") not in known]
    if unknown:
        raise UsageProblem(
            f"--config {path}: [{stage}] has no option {', '.join(map(repr, unknown))}. It takes: "
            f"{', '.join(sorted(known))}."
        )
    found = {}
    for key, value in {**shared, **own}.items():
        name, field = known[key.replace("_", "-")]
        if isinstance(value, bool) and field.annotation is not bool:
            raise UsageProblem(f"--config {path}: {key} takes no true or false")
        if _is_several(_choices(field)[1]) and not isinstance(value, list):
            raise UsageProblem(f'--config {path}: {key} takes a list, such as ["{value}"]')
        found[name] = value
    return found
