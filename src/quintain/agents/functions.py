"""Functions in Python text, and what each of them stands on, found without running anything."""

import ast
import builtins
import symtable
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import cast

BUILTINS = frozenset({*dir(builtins), "ToolError"})
Function = ast.FunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A function that stands on nothing but what is listed: ``Definition(name="area", source="def area(a): …", …)``."""

    name: str
    source: str
    signature: str
    description: str
    """first line of its docstring"""
    setup: tuple[str, ...]
    """imports and constants it stands on, as statements"""
    depends: tuple[str, ...]
    """other functions that it calls"""
    tools: tuple[str, ...]
    """tools of the environment that it calls"""


def functions_of(
    cells: Sequence[str], tools: Collection[str], kept: Collection[str]
) -> tuple[list[Definition], set[str]]:
    """Return the functions that `cells` define at their top level, and all names that they call.

    Of a name that is bound twice the last counts, and what the cells bind counts before a tool, a builtin or a function
    that was `kept`. A function that stands on a name that is none of the `tools`, nor one of the functions `kept`, nor
    imported, nor bound to a literal, nor such a function itself, is left out; so is one that is called like a tool or a
    builtin, which it would hide from others, and one that binds names outside itself (``global``).
    """
    functions: dict[str, Function] = {}
    setup: dict[str, str] = {}
    called: set[str] = set()
    for cell in cells:
        try:
            tree = ast.parse(cell)
        except (SyntaxError, ValueError):
            continue  # a cell that does not parse defined nothing
        for node in tree.body:
            if isinstance(node, Function):
                functions[node.name] = node
                setup.pop(node.name, None)
            else:
                bound = _bound(node)
                setup.update(bound)
                for name in bound:
                    functions.pop(name, None)
        called |= {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
    bound = {*functions, *setup}
    given = BUILTINS - bound
    needs = {
        name: _globals(node) - given - {name}
        for name, node in functions.items()
        if name not in BUILTINS | set(tools) and not any(isinstance(n, ast.Global) for n in ast.walk(node))
    }
    others = {*tools, *kept} - bound
    while lost := {name for name, found in needs.items() if found - {*needs, *setup, *others}}:
        for name in lost:
            del needs[name]
    known = {*needs, *(set(kept) - bound)}
    return [_definition(functions[name], found, setup, known) for name, found in needs.items()], called


def rename(found: Definition, names: dict[str, str]) -> Definition:
    """Return `found` with functions called by the new `names`; itself as well."""
    if not names.keys() & {found.name, *found.depends}:
        return found
    tree = _Renaming(names).visit(ast.parse(found.source))
    node = cast(Function, tree.body[0])
    return replace(
        found,
        name=names.get(found.name, found.name),
        source=ast.unparse(node),
        signature=_signature(node),
        depends=tuple(names.get(name, name) for name in found.depends),
    )


class _Renaming(ast.NodeTransformer):
    """Gives functions other names, where they are defined and where they are used."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Rename a use."""
        return ast.copy_location(ast.Name(self.names.get(node.id, node.id), node.ctx), node)

    def visit_FunctionDef(self, node: Function) -> ast.AST:
        """Rename a definition, and go on within."""
        node.name = self.names.get(node.name, node.name)
        return self.generic_visit(node)


def _definition(node: Function, needs: set[str], setup: dict[str, str], functions: set[str]) -> Definition:
    """Return what is kept of `node`, which stands on the names `needs`."""
    return Definition(
        name=node.name,
        source=ast.unparse(node),
        signature=_signature(node),
        description=(ast.get_docstring(node) or "").partition("\n")[0].strip(),
        setup=tuple(sorted({setup[name] for name in needs if name in setup})),
        depends=tuple(sorted(needs & functions)),
        tools=tuple(sorted(needs - functions - setup.keys())),
    )


def _signature(node: Function) -> str:
    """Return the head of `node` as it is shown to an agent."""
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{node.name}({ast.unparse(node.args)}){result}"


def _bound(node: ast.stmt) -> dict[str, str]:
    """Return the names that an import or a literal assignment binds, each with a statement that does."""
    if isinstance(node, ast.Import):
        return {
            alias.asname or alias.name.partition(".")[0]: ast.unparse(ast.Import([alias]))
            for alias in node.names
        }
    if isinstance(node, ast.ImportFrom):
        return {
            alias.asname or alias.name: ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
            for alias in node.names
            if alias.name != "*"
        }
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        try:
            ast.literal_eval(node.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            return {}
        return {node.targets[0].id: ast.unparse(node)}
    return {}


def _globals(node: Function) -> set[str]:
    """Return the global names that `node` reads."""
    table = symtable.symtable(ast.unparse(node), "<function>", "exec")
    found = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_referenced()}
    pending = list(table.get_children())
    for child in pending:
        found |= {symbol.get_name() for symbol in child.get_symbols() if symbol.is_global()}
        pending.extend(child.get_children())
    return found
