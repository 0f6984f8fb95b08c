"""The knobs of a recipe: the fields of its `Config` with their types in words and their documents.

A knob's document is the string under the field. The one rule: help, errors and flags are all made from here,
so they cannot disagree.
"""

import ast
import inspect
import textwrap
import types
from collections.abc import Collection, Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One field of a `Config`: ``Knob(name="group_size", annotation=int, default=8, document="…")``."""

    name: str
    annotation: Any
    default: Any
    """`dataclasses.MISSING` when it must be given"""
    document: str

    @property
    def flag(self) -> str:
        """The flag that sets it: ``--group-size``."""
        return "--" + self.name.replace("_", "-")

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING


def knobs(config_class: type[Any]) -> tuple[Knob, ...]:
    """Return the knobs of a configuration dataclass, in order."""
    hints = get_type_hints(config_class, include_extras=True)
    documents = field_documents(config_class)
    return tuple(
        Knob(
            name=field.name,
            annotation=hints[field.name],
            default=field.default if field.default_factory is MISSING else field.default_factory(),
            document=documents.get(field.name, ""),
        )
        for field in fields(config_class)
        if field.init
    )


def field_documents(config_class: type[Any]) -> dict[str, str]:
    """Return the string under each field, as one line; {} where the source is not at hand."""
    documents: dict[str, str] = {}
    for kind in reversed(config_class.__mro__[:-1]):
        try:
            source = textwrap.dedent(inspect.getsource(kind))
        except (OSError, TypeError):
            continue
        body = cast(ast.ClassDef, ast.parse(source).body[0]).body
        for node, below in pairwise(body):
            match node, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    documents[name] = " ".join(text.split())
                case _:
                    pass
    return documents


def parts_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation alone; notes of `Annotated` are dropped."""
    if get_origin(annotation) is Annotated:
        return parts_of(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return tuple(part for member in get_args(annotation) for part in parts_of(member))
    return (annotation,)


def choices_of(annotation: Any) -> tuple[Any, ...]:
    """Return the values that the `Literal` parts of `annotation` admit."""
    return tuple(v for part in parts_of(annotation) if get_origin(part) is Literal for v in get_args(part))


def is_list(part: Any) -> bool:
    """Whether `part` is a list, tuple or set of something."""
    origin = get_origin(part) or part
    return (
        isinstance(origin, type) and issubclass(origin, Collection) and not issubclass(origin, (str, Mapping))
    )
