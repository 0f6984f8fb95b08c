"""The options of a configuration class: what help, error messages and flags are all made from."""

import ast
import inspect
import re
import types
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

NAME = "NAME"
"""Stands in the name of an option for any name in a table: ``policies.NAME.device``."""
READING = Lock()
"""Held while source is parsed: before Python 3.11.8 and 3.12.2 threads that parse at once end with a SystemError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a configuration: ``Option(name="policy.device", annotation=str, default="cpu", help="…")``."""

    name: str
    """where it stands: names of fields joined by dots, with `NAME` for any name in a table"""
    annotation: Any
    default: Any
    """`dataclasses.MISSING` when it must be given"""
    help: str
    section: str = ""
    """which section of the configuration it stands in; empty: it is the method's own"""
    old_names: tuple[str, ...] = ()
    """what it was called earlier"""

    @property
    def flag(self) -> str:
        """The flag that sets it: ``--group-size``, ``--policy.device``."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    def matches(self, name: str) -> bool:
        """Whether `name` is what the option is or was called, with a name of a table in the place of `NAME`."""
        return any(_fits(own, name) for own in (self.name, *self.old_names))

    def is_named(self, name: str) -> bool:
        """Whether `name` is what the option is called now."""
        return _fits(self.name, name)


def _fits(pattern: str, name: str) -> bool:
    """Whether `name` is `pattern`, with a name of a table in the place of `NAME`."""
    return re.fullmatch(re.escape(pattern).replace(NAME, r"[\w/]+"), name) is not None


def options(config_class: type[Any]) -> tuple[Option, ...]:
    """Return the options of a configuration dataclass in order, those of nested configurations in their place."""
    moved = [(old, new) for old, new in renames(config_class).items() if "." in new]
    return tuple(
        replace(leaf, old_names=(*leaf.old_names, *(old for old, new in moved if new == leaf.name)))
        for option in own_options(config_class)
        for leaf in leaves(option)
    )


def leaves(option: Option) -> tuple[Option, ...]:
    """Return the options inside `option`: itself, or those of the configuration or the table that it holds."""
    entry, nested = entry_of(option.annotation), config_of(option.annotation)
    if entry is not None:
        return leaves(replace(option, name=f"{option.name}.{NAME}", annotation=entry, default=MISSING))
    if nested is None:
        return (option,)
    default = option.default
    inner = (
        replace(
            field,
            name=f"{option.name}.{field.name}",
            default=getattr(default, field.name) if isinstance(default, nested) else field.default,
            section=option.section,
            old_names=tuple(f"{option.name}.{old}" for old in field.old_names),
        )
        for field in own_options(nested)
    )
    return tuple(leaf for field in inner for leaf in leaves(field))


def own_options(config_class: type[Any]) -> tuple[Option, ...]:
    """Return an option for each field of `config_class`, also for those that hold a configuration or a table."""
    annotations, helps = limit_annotations(config_class), field_helps(config_class)
    renamed, found = renames(config_class), sections(config_class)
    return tuple(
        Option(
            name=field.name,
            annotation=annotations[field.name],
            default=field.default if field.default_factory is MISSING else field.default_factory(),
            help=helps.get(field.name, ""),
            section=next(
                (name for name, each in found.items() if field.name in each.__dataclass_fields__), ""
            ),
            old_names=tuple(old for old, new in renamed.items() if new == field.name),
        )
        for field in fields(config_class)
        if field.init
    )


def sections(config_class: type[Any]) -> dict[str, type[Any]]:
    """Return the sections that `config_class` inherits by name, the first base first."""
    return {vars(base)["section"]: base for base in dataclasses_of(config_class) if "section" in vars(base)}


def dataclasses_of(config_class: type[Any]) -> list[type[Any]]:
    """Return `config_class` and those of its bases that are dataclasses, the root last."""
    return [base for base in config_class.__mro__ if is_dataclass(base)]


@cache
def limit_annotations(config_class: type[Any]) -> dict[str, Any]:
    """Return the annotation of each field of `config_class`, with the limits that a base sets to it."""
    found: dict[str, Any] = {}
    for base in dataclasses_of(config_class):
        plain, full = _hints_of(base)
        for name, annotation in full.items():
            if found.get(name, plain[name]) == plain[name]:
                found[name] = annotation
    return found


@cache
def _hints_of(config_class: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the annotations of the fields of `config_class` without their limits, and with them."""
    return get_type_hints(config_class), get_type_hints(config_class, include_extras=True)


@cache
def field_helps(config_class: type[Any]) -> dict[str, str]:
    """Return the string under each field of `config_class` and its bases, as one line, where the source is at hand."""
    helps: dict[str, str] = {}
    for base in reversed(dataclasses_of(config_class)):
        helps |= _own_helps(base)
    return helps


@cache
def _own_helps(config_class: type[Any]) -> dict[str, str]:
    """Return what `field_helps` does, of the fields that `config_class` itself declares."""
    try:
        with READING:
            lines, _ = inspect.findsource(inspect.getmodule(config_class) or config_class)
            body = _classes_of("".join(lines))[config_class.__qualname__]
    except (OSError, TypeError, KeyError, SyntaxError):
        return {}
    return {
        node.target.id: " ".join(below.value.value.split())
        for node, below in pairwise(body)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }


@cache
def _classes_of(source: str) -> dict[str, list[ast.stmt]]:
    """Return the bodies of the classes that a module of this `source` defines, by qualified name."""
    found: dict[str, list[ast.stmt]] = {}

    def look(node: ast.AST, where: str) -> None:
        for child in ast.iter_child_nodes(node):
            match child:
                case ast.ClassDef(name=name, body=body):
                    found[where + name] = body
                    look(child, f"{where}{name}.")
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    look(child, f"{where}{name}.<locals>.")
                case ast.expr():
                    pass
                case _:
                    look(child, where)

    look(ast.parse(source), "")
    return found


def renames(config_class: type[Any]) -> dict[str, str]:
    """Return the old names of options with their new ones, of `config_class` and its bases.

    A name that a field of the class has is no old one.
    """
    fields = config_class.__dataclass_fields__
    return {old: new for old, new in attribute_of(config_class, "renamed").items() if old not in fields}


def attribute_of(config_class: type[Any], name: str) -> dict[str, Any]:
    """Return the tables that `config_class` and its bases have as the class attribute `name`, as one."""
    found: dict[str, Any] = {}
    for base in reversed(config_class.__mro__):
        found |= vars(base).get(name, {})
    return found


def parts_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation alone; limits are dropped."""
    if get_origin(annotation) is Annotated:
        return parts_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(part for member in get_args(annotation) for part in parts_of(member))
    return (annotation,)


def config_of(annotation: Any) -> type[Any] | None:
    """Return the configuration class that `annotation` admits, or None."""
    return next(
        (part for part in parts_of(annotation) if isinstance(part, type) and is_dataclass(part)), None
    )


def entry_of(annotation: Any) -> Any:
    """Return what the entries of a table of names are annotated with, or None if `annotation` is no such table."""
    for part in parts_of(annotation):
        match get_origin(part), get_args(part):
            case type() as origin, (key, entry) if key is str and issubclass(origin, Mapping):
                return entry
            case _:
                pass
    return None


def is_list(part: Any) -> bool:
    """Whether `part` is a list, tuple or set of something."""
    origin = get_origin(part) or part
    return (
        isinstance(origin, type) and issubclass(origin, Collection) and not issubclass(origin, (str, Mapping))
    )
