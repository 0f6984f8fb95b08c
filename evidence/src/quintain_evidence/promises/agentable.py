"""Agentable on agents of others: every file of four packages is read, and defects put into them are found.

Sources are those of smolagents, LangGraph, mini-swe-agent and the Agents SDK, as their wheels have them. A defect is
put into one place of a file at a time, places that are found without the lint: a request whose sampling is
out of range, a handler that swallows every error, a tool whose description is gone, a message with a place that nothing
fills. Found is what the lint says more often than before.
"""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random

from quintain.errors import MissingExtra
from quintain.safety.lint import lint_agent, lint_source
from quintain_evidence.layers.verdict import Check

MODEL = "smolagents, langgraph, mini-swe-agent, openai-agents"
PACKAGES = {
    "smolagents": "smolagents",
    "langgraph": "langgraph",
    "minisweagent": "mini-swe-agent",
    "agents": "openai-agents",
}
"""module → the name that it is installed by"""
MARKS = ("tool", "function_tool")
MOST_OF_A_KIND = 40
LEAST_FOUND = 0.9


def keep(_runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Return what is found in the packages that are installed.

    Raises:
        MissingExtra: one of them is not installed.
    """
    files = [file for module, name in PACKAGES.items() for file in find_sources(module, name)]
    before = [finding for file in files for finding in lint_agent(file)]
    unread = [finding for finding in before if finding.name == "source"]
    trees = {file: ast.parse(file.read_bytes()) for file in files}
    places: dict[str, list[tuple[Path, int]]] = {}
    for file, tree in trees.items():
        for kind, number in find_places(tree):
            places.setdefault(kind, []).append((file, number))
    rng = Random(0)
    found: dict[str, list[bool]] = {}
    for kind, known in sorted(places.items()):
        for file, number in rng.sample(known, min(MOST_OF_A_KIND, len(known))):
            tree = trees[file]
            found.setdefault(kind, []).append(
                count(put_defect(tree, number, kind), RULES[kind]) > count(tree, RULES[kind])
            )
    hits = [hit for own in found.values() for hit in own]
    checks = (
        Check(
            name="every source is read",
            has_passed=not unread and len(files) > 0,
            detail=f"{len(files)} files, {len(unread)} of them not read",
        ),
        Check(
            name="defects put into them are found",
            has_passed=len(found) == len(RULES)
            and all(sum(own) >= LEAST_FOUND * len(own) for own in found.values()),
            detail=", ".join(f"{kind} {sum(own)} of {len(own)}" for kind, own in found.items()),
        ),
    )
    failed = [finding for finding in before if finding.state == "fail"]
    return checks, {
        "files": len(files),
        "defects": len(hits),
        "found": sum(hits),
        "failed before": len(failed),
    }


def find_sources(module: str, name: str) -> list[Path]:
    """Return the Python files of an installed package, of which nothing is imported."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra(
            f"the promise of agentable reads the sources of {name}: they are not installed; pip install {name}"
        )
    return sorted(file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*.py"))


RULES = {
    "range": "model interface",
    "swallowed": "fault tolerance",
    "no description": "tool description",
    "unfilled": "prompt",
}
"""kind of defect → the rule that is about it"""


def find_places(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield where which defect could be put, by the place of the node in a walk."""
    for number, node in enumerate(ast.walk(tree)):
        if isinstance(node, ast.Call) and asks_model(node):
            yield "range", number
        if isinstance(node, ast.ExceptHandler) and not is_wide(node):
            yield "swallowed", number
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
            marks = {ast.unparse(each).partition("(")[0] for each in node.decorator_list}
            if marks & {*MARKS}:
                yield "no description", number
        if isinstance(node, ast.Dict) and content_of(node) is not None:
            yield "unfilled", number


def asks_model(call: ast.Call) -> bool:
    """Whether `call` is a request; a function of the file itself, with a name that says so, prepares one."""
    words = {word.arg for word in call.keywords}
    return {"model", "messages"} <= words and not ast.unparse(call.func).rpartition(".")[2].startswith("_")


def is_wide(handler: ast.ExceptHandler) -> bool:
    """Whether `handler` catches every error already."""
    return handler.type is None or ast.unparse(handler.type) in ("Exception", "BaseException")


def content_of(row: ast.Dict) -> ast.Constant | None:
    """Return the text of a message; None where it is no message, or no plain text."""
    keys = [key.value if isinstance(key, ast.Constant) else None for key in row.keys]
    if "role" not in keys or "content" not in keys:
        return None
    value = row.values[keys.index("content")]
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return value if is_text and isinstance(value, ast.Constant) else None


def put_defect(tree: ast.Module, number: int, kind: str) -> ast.Module:
    """Return a copy of `tree` with the defect in it."""
    made = copy.deepcopy(tree)
    node = list(ast.walk(made))[number]
    if isinstance(node, ast.Call):
        node.keywords = [word for word in node.keywords if word.arg != "temperature"]
        node.keywords.append(ast.keyword(arg="temperature", value=ast.Constant(7)))
    elif isinstance(node, ast.ExceptHandler):
        node.type, node.body = ast.Name(id="Exception", ctx=ast.Load()), [ast.Pass()]
    elif isinstance(node, ast.FunctionDef):
        node.body = [*node.body[1:], ast.Pass()]
    elif isinstance(node, ast.Dict) and (content := content_of(node)) is not None:
        content.value = f"{content.value} {{name}}"
    assert kind in RULES, "one of ours"
    return ast.fix_missing_locations(made)


def count(tree: ast.Module, rule: str) -> int:
    """Return how often the lint says `rule` of `tree`."""
    return sum(finding.name == rule for finding in lint_source(ast.unparse(tree), "source.py"))
