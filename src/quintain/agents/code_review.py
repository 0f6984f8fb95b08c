"""A review of code before it runs: its syntax, what it calls, and with which arguments. Nothing of it is carried out.

PoAct's reviewer (arXiv 2501.07054) is a prompt; this one is a rule. It says what is certain to fail: code that does not
parse, a call of a name that nothing has bound, and a call of an environment's function that its schema refuses. Of
arguments only literals are looked at, and a name that is bound anywhere, or stands anywhere as a text, counts as bound
everywhere, so that code that might run is let go. Branches are not followed: a wrong call is refused also where it
would not have been reached.
"""

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from quintain.agents.functions import BUILTINS
from quintain.environments.schema import complaint
from quintain.errors import suggestion
from quintain.safety.python import function_of
from quintain.types import ToolSpec

ANYTHING = "*"
"""Stands among bound names for those that cannot be read off the code."""
BINDERS = frozenset({"exec", "globals", "locals", "vars"})
"""Builtins by which code binds names that are nowhere written."""
MOST = 3
"""Faults that are told at once."""


def review_code(code: str, tools: Sequence[ToolSpec], bound: Collection[str] = ()) -> str:
    """Return what is wrong with `code`, where it is; an empty text where nothing is.

    `tools` are functions that it can call; `bound` are names that earlier code has bound (`find_bound`).

    Example: ``review_code("print(ad(1))", (add,))`` is ``"line 1: nothing is called ad; did you mean 'add'?"``.
    """
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return f"line {error.lineno or 1}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"line 1: {error or type(error).__name__}"
    own = {*bound, *_names_of(tree)}
    known = {tool.name: tool for tool in tools if tool.name not in own}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    faults: dict[str, None] = {}
    for node in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        if not isinstance(node.func, ast.Name):
            continue
        name, fault = node.func.id, ""
        if name in known:
            fault = _find_fault(known[name], node)
        elif ANYTHING not in own and name not in {*own, *named, *BUILTINS}:
            fault = f"nothing is called {name}; {suggestion(name, known)}"
        if fault:
            faults[f"line {node.lineno}: {fault}"] = None
    return "; ".join([*faults][:MOST])


def find_bound(code: str) -> frozenset[str]:
    """Return the names that `code` binds, and `ANYTHING` where it may bind others; nothing of code that is none."""
    try:
        return _names_of(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()


def _names_of(tree: ast.AST) -> frozenset[str]:
    """Return the names that are bound anywhere in `tree`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in BINDERS:
                found.add(ANYTHING)
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.MatchMapping(rest=str(name)):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or (ANYTHING if name == "*" else name.partition(".")[0]))
            case (
                _
            ):  # what else has a name binds it: functions, classes, exceptions, patterns, type parameters
                name: object = getattr(node, "name", None)
                found |= {name} if isinstance(name, str) else set()
    return frozenset(found)


def _find_fault(tool: ToolSpec, call: ast.Call) -> str:
    """Return why `call` of `tool` will fail; an empty text where that is not certain."""
    parameters: Sequence[str] = function_of(tool)["parameters"]
    has_more = any(isinstance(each, ast.Starred) for each in call.args)
    named = [(each.arg, each.value) for each in call.keywords if each.arg is not None]
    is_whole = not has_more and len(named) == len(call.keywords)
    if not has_more and len(call.args) > len(parameters):
        return f"{tool.name} takes {len(parameters)} arguments: got {len(call.args)}"
    given = [] if has_more else list(zip(parameters, call.args, strict=False))
    twice = {name for name, _ in given} & {name for name, _ in named}
    if twice:
        return f"{tool.name} got two values for {', '.join(sorted(twice))}"
    strange = [name for name, _ in named if name not in parameters]
    if strange and not tool.parameters.get("additionalProperties"):
        return f"{tool.name} has no argument {strange[0]}; {suggestion(strange[0], parameters)}"
    literals, unread = dict[str, Any](), set[str]()
    for name, value in (*given, *named):
        try:
            literals[name] = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            unread.add(name)
    schema = dict(tool.parameters)
    required = cast("Sequence[str]", schema.get("required", ()))
    schema["required"] = [name for name in required if name not in unread] if is_whole else []
    properties = cast("Mapping[str, Any]", schema.get("properties", {}))
    schema["properties"] = {name: rule for name, rule in properties.items() if name not in unread}
    return complaint(tool.name, schema, literals)
