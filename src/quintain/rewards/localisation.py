"""Where a change was made, by file and by function, beside where the right one is (AgentIssue-Bench, arXiv 2505.20749).

A function counts as changed where its code differs, not its layout or comments; what stands outside of functions is one
place of its own in each file. A file that cannot be read as Python is one place.
"""

import ast
from collections.abc import Mapping, Set
from dataclasses import dataclass

OUTSIDE = ""
"""What stands for the code of a file outside of functions."""
Place = tuple[str, str]
"""(file, function)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Localisation:
    """``Localisation(file=True, function=True, num_others=0)``."""

    file: bool
    """every file that the right change touches was changed"""
    function: bool
    """every function that it touches was"""
    num_others: int
    """functions that were changed beside those"""


def find_changed_places(before: Mapping[str, str], after: Mapping[str, str]) -> frozenset[Place]:
    """Return the functions that differ between two states of files."""
    return frozenset(
        (name, function)
        for name in before.keys() | after.keys()
        for function in _differing(_functions(before.get(name, "")), _functions(after.get(name, "")))
    )


def localise(changed: Set[Place], right: Set[Place]) -> Localisation:
    """Return how the places that were `changed` lie to the `right` ones."""
    return Localisation(
        file={name for name, _ in right} <= {name for name, _ in changed},
        function=set(right) <= set(changed),
        num_others=len(set(changed) - set(right)),
    )


def _functions(text: str) -> dict[str, str]:
    """Return the code of each function of `text` by its name, and of the rest; texts that are no Python as they are."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return {OUTSIDE: text}
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {node.name: ast.dump(node) for node in tree.body if isinstance(node, kinds)}
    rest = [ast.dump(node) for node in tree.body if not isinstance(node, kinds)]
    return {**found, **({OUTSIDE: "\n".join(rest)} if rest else {})}


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the names whose code differs."""
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]
