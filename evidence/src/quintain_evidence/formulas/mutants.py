"""Mutants: copies of a module with one small mistake each, of the kinds that formulas suffer from.

A sign is turned, a factor or a mask dropped, a divisor dropped, an axis or a number off by one, a bound strict or not,
the larger taken for the smaller, a sum for a mean, "and" for "or". A check that does not notice one proves little.

A short formula has few such places, but more mistakes can be made in it (`is_short`): a number is taken twice or off by
one, the first factor dropped, a comparison taken as true or as false, a condition of a list left out, or two ways are
exchanged.
"""

import ast
import importlib.util
import inspect
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], str]] = {
    ast.Add: (ast.Sub, "+ turned to -"),
    ast.Sub: (ast.Add, "- turned to +"),
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
CALLS = {
    "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "mean": "sum", "sum": "mean",
    "fmean": "sum", "cos": "sin", "sin": "cos", "exp": "log1p", "std": "var", "cumsum": "cumprod",
}  # fmt: skip
DROPPED = {"where", "clamp", "detach", "exp", "square"}
"""Methods whose result can be taken for what they are called on."""
MODULES = {"math", "np", "torch"}
"""What is read of these is no number of the formula."""
REPORTED = {"metrics", "terms", "kept", "shared", "num_turns", "measured"}
"""Names of what is logged: a mistake there changes no formula."""


class _Mutator(ast.NodeTransformer):
    """Makes the mistake number `wanted`, and counts the places where one can be made."""

    def __init__(self, functions: set[str], wanted: int) -> None:
        self.functions, self.wanted = functions, wanted
        self.count, self.told = 0, ""
        self._depth = 0

    def _is_here(self, node: ast.expr, what: str) -> bool:
        if not self._depth:
            return False
        self.count += 1
        if self.count - 1 != self.wanted:
            return False
        self.told = f"line {node.lineno}: {what}"
        return True

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Go into the functions that compute the formula, past their annotations."""
        if not self._depth and node.name not in self.functions:
            return node
        self._depth += 1
        start = 1 if ast.get_docstring(node) is not None else 0
        node.body = [*node.body[:start], *(self.visit(part) for part in node.body[start:])]
        self._depth -= 1
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Go into methods of classes that are named."""
        if node.name in self.functions:
            self._depth += 1
            self.generic_visit(node)
            self._depth -= 1
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        """Leave errors alone."""
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        """Leave alone what only raises."""
        return node if all(isinstance(part, ast.Raise) for part in node.body) else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Leave annotations alone."""
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Leave alone what is logged."""
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if not names & REPORTED:
            node.value = self.visit(node.value)
        return node

    def visit_keyword(self, node: ast.keyword) -> ast.AST:
        """Leave alone what is logged and what only checks lengths."""
        return node if node.arg in (*REPORTED, "strict") else self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Turn a sign, drop a factor or a divisor."""
        if isinstance(node.left, (ast.List, ast.Tuple)):
            if not all(isinstance(part, ast.Constant) for part in node.left.elts):
                node.left = self.visit(node.left)
            return node  # a list repeated is no arithmetic, and one of zeros is filled later
        if (found := OPERATORS.get(type(node.op))) and self._is_here(node, found[1]):
            return ast.copy_location(ast.BinOp(left=node.left, op=found[0](), right=node.right), node)
        if isinstance(node.op, (ast.Mult, ast.Div)) and self._is_here(
            node, f"{ast.unparse(node.right)} dropped"
        ):
            return node.left
        return self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """Drop a minus or a "not"."""
        for kind, word in ((ast.USub, "minus"), (ast.Not, "not")):
            if isinstance(node.op, kind) and self._is_here(node, f"{word} dropped"):
                return node.operand
        return self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """Take "and" for "or"."""
        is_and = isinstance(node.op, ast.And)
        if self._is_here(node, "and taken for or" if is_and else "or taken for and"):
            return ast.copy_location(
                ast.BoolOp(op=ast.Or() if is_and else ast.And(), values=node.values), node
            )
        return self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Turn a bound."""
        other = COMPARISONS.get(type(node.ops[0]))
        if other is not None and self._is_here(node, "comparison turned"):
            return ast.copy_location(
                ast.Compare(left=node.left, ops=[other(), *node.ops[1:]], comparators=node.comparators), node
            )
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """Put a number or an axis off by one."""
        if type(node.value) in (int, float) and self._is_here(node, f"{node.value} off by one"):
            assert isinstance(node.value, (int, float)), "asked above"
            return ast.copy_location(ast.Constant(value=node.value + 1), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Take one function for another, or drop a mask."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            name = node.func.id
        if (other := CALLS.get(name)) and self._is_here(node, f"{name} taken for {other}"):
            if isinstance(node.func, ast.Attribute):
                node.func.attr = other
            elif isinstance(node.func, ast.Name):
                node.func.id = other
            return node
        if (
            name in DROPPED
            and isinstance(node.func, ast.Attribute)
            and self._is_here(node, f"{name} dropped")
        ):
            return node.func.value
        return self.generic_visit(node)


class _ShortMutator(_Mutator):
    """Makes the mistakes of short formulas: the usual ones are not among them."""

    def _is_here(self, node: ast.expr, what: str) -> bool:
        return False

    def _is_chosen(self, node: ast.expr, what: str) -> bool:
        return super()._is_here(node, what)

    def visit(self, node: ast.AST) -> ast.AST:
        """Take a number that is computed, or read of an object, twice or off by one."""
        is_number = (
            isinstance(node, ast.BinOp)
            or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub))
            or (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and isinstance(node.value, ast.Name)
                and node.value.id not in MODULES
                and not node.attr.startswith(("is_", "has_"))
            )
        )
        if isinstance(node, ast.expr) and is_number:
            for number, operator, word in ((2, ast.Mult(), "twice"), (1, ast.Add(), "and one")):
                if self._is_chosen(node, f"{ast.unparse(node)} {word}"):
                    return ast.copy_location(
                        ast.BinOp(left=node, op=operator, right=ast.Constant(number)), node
                    )
        return super().visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """Drop the first factor."""
        if isinstance(node.op, ast.Mult) and self._is_chosen(node, f"{ast.unparse(node.left)} dropped"):
            return node.right
        return super().visit_BinOp(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Go into what is given, not into what is called."""
        node.args = [cast("ast.expr", self.visit(part)) for part in node.args]
        for keyword in node.keywords:
            self.visit(keyword)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Take a comparison as true, or as false."""
        for value in (True, False):
            if self._is_chosen(node, f"{ast.unparse(node)} taken as {str(value).lower()}"):
                return ast.copy_location(ast.Constant(value), node)
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Exchange the two ways."""
        if self._is_chosen(node, f"{ast.unparse(node.body)} and {ast.unparse(node.orelse)} exchanged"):
            return ast.copy_location(ast.IfExp(test=node.test, body=node.orelse, orelse=node.body), node)
        return self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        """Leave out the conditions."""
        if node.ifs and self._is_chosen(node.ifs[0], f"if {ast.unparse(node.ifs[0])} left out"):
            node.ifs = []
            return node
        return self.generic_visit(node)


def called_by(tree: ast.Module, functions: tuple[str, ...], aside: tuple[str, ...]) -> set[str]:
    """Return `functions` and what they call in the same module, over and over, without those `aside`."""
    known = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    found, waiting = set[str](), list(functions)
    while waiting:
        name = waiting.pop()
        if name in known and name not in found and name not in aside:
            found.add(name)
            waiting += [node.id for node in ast.walk(known[name]) if isinstance(node, ast.Name)]
    return found


def num_mutants(
    module: ModuleType, functions: tuple[str, ...], aside: tuple[str, ...] = (), *, is_short: bool = False
) -> int:
    """Return how many mistakes can be made; of a short formula how many more."""
    tree = ast.parse(inspect.getsource(module))
    mutator = (_ShortMutator if is_short else _Mutator)(called_by(tree, functions, aside), -1)
    mutator.visit(tree)
    return mutator.count


@contextmanager
def mutant(
    module: ModuleType,
    functions: tuple[str, ...],
    number: int,
    aside: tuple[str, ...] = (),
    *,
    is_short: bool = False,
) -> Generator[tuple[ModuleType, str]]:
    """Give the module with mistake `number` in it, and what that is; the real one is left as it is."""
    tree = ast.parse(inspect.getsource(module))
    mutator = (_ShortMutator if is_short else _Mutator)(called_by(tree, functions, aside), number)
    changed = ast.fix_missing_locations(mutator.visit(tree))
    name = f"quintain_mutant_{module.__name__.replace('.', '_')}_{number}"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.py"
        file.write_text(ast.unparse(changed), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None, "a file can be imported"
        made = importlib.util.module_from_spec(spec)
        sys.modules[name] = made  # dataclasses look there for their module
        try:
            spec.loader.exec_module(made)
            yield made, mutator.told
        finally:
            del sys.modules[name]
