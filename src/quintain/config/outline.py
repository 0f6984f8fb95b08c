"""The knobs of a recipe, read from its source without running it: its help needs no torch.

A `Config` is plain: fields with a type, a literal or a named constant as default, and a document below, on top
of those of its base. The one rule: what is read is what `knobs` of the imported class says, or nothing.
"""

import ast
import importlib.util
from collections.abc import Mapping
from dataclasses import MISSING, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from quintain.config.knobs import Knob

PLAIN: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "Path": Path,
    "tuple": tuple,
}


class UnreadableError(Exception):
    """The source is not as plain as it must be; import the recipe instead."""


def outline(home: str) -> tuple[Knob, ...] | None:
    """Return the knobs of the `Config` in module `home`, or None where its source is too clever to be read."""
    try:
        return tuple(_class_knobs(home, "Config").values())
    except UnreadableError:
        return None


def _class_knobs(home: str, name: str) -> dict[str, Knob]:
    """Return the knobs of class `name` of module `home` by name, those of its base first."""
    node = _found(home, name)
    if not isinstance(node, ast.ClassDef) or len(node.bases) > 1:
        raise UnreadableError(name)
    knobs = _class_knobs(*_origin(home, node.bases[0])) if node.bases else {}
    for field, below in pairwise([*node.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            found = _knob(home, field.target.id, field, below)
            before = knobs.get(found.name)
            inherits = before is not None and not found.document
            knobs[found.name] = replace(found, document=before.document) if before and inherits else found
    return knobs


def _knob(home: str, name: str, field: ast.AnnAssign, below: ast.stmt) -> Knob:
    """Return the knob that `field` declares, with the document `below` it."""
    match below:
        case ast.Expr(value=ast.Constant(value=str(text))):
            document = " ".join(text.split())
        case _:
            document = ""
    default = MISSING if field.value is None else _value(home, field.value)
    return Knob(name=name, annotation=_type(home, field.annotation), default=default, document=document)


def _type(home: str, node: ast.expr) -> Any:
    """Return the type that `node` writes."""
    match node:
        case ast.Constant(value=None):
            return None
        case ast.Name(id=name) if name in PLAIN:
            return PLAIN[name]
        case ast.Name():
            where, name = _origin(home, node)
            return _type(where, _assigned(where, name))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _type(home, left) | _type(home, right)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            return Literal[ast.literal_eval(values)]
        case ast.Subscript(
            value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[first, ast.Constant(value=last)])
        ):
            return tuple.__class_getitem__((_type(home, first), last))
        case _:
            raise UnreadableError(ast.unparse(node))


def _value(home: str, node: ast.expr) -> Any:
    """Return the value that `node` writes: a literal, or a constant of a module."""
    if isinstance(node, ast.Name):
        where, name = _origin(home, node)
        return _value(where, _assigned(where, name))
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise UnreadableError(ast.unparse(node)) from error


def _origin(home: str, node: ast.expr) -> tuple[str, str]:
    """Return the module and the name that `node`, which is written in `home`, comes from."""
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            package, last = _imported(home).get(module, ("", ""))
            return f"{package}.{last}", name
        case ast.Name(id=name):
            return _imported(home).get(name, (home, name))
        case _:
            raise UnreadableError(ast.unparse(node))


def _assigned(home: str, name: str) -> ast.expr:
    """Return what the module `home` assigns to `name`."""
    match _found(home, name):
        case ast.Assign(value=value):
            return value
        case ast.AnnAssign(value=ast.expr() as value):
            return value
        case _:
            raise UnreadableError(name)


def _found(home: str, name: str) -> ast.stmt:
    """Return the statement of module `home` that defines `name`."""
    for node in _tree(home).body:
        match node:
            case ast.ClassDef(name=found) if found == name:
                return node
            case ast.Assign(targets=[ast.Name(id=found)]) if found == name:
                return node
            case ast.AnnAssign(target=ast.Name(id=found)) if found == name:
                return node
            case _:
                pass
    raise UnreadableError(f"{home} has no {name}")


def _imported(home: str) -> dict[str, tuple[str, str]]:
    """Return what `home` imports by name: name → (module, name there)."""
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in _tree(home).body
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


@cache
def _tree(home: str) -> ast.Module:
    """Return the syntax tree of module `home`."""
    try:
        found = importlib.util.find_spec(home)
        source = Path(found.origin or "").read_text(encoding="utf-8") if found is not None else ""
    except (ImportError, ValueError, OSError) as error:
        raise UnreadableError(home) from error
    return ast.parse(source)
