"""Name the test files that a change can reach: python tests/reached.py --since REVISION FOLDER

A test reaches what it imports, and what that imports, wherever it does so; what is found by its name (a world, a
method, an experiment) is reached by whoever reaches the finder. A change of anything else than a module reaches
everything, pages excepted.
"""

import argparse
import ast
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = {"src": "", "evidence/src": "", "tests": "tests", "evidence/tests": "evidence.tests"}
"""folder → the package that its modules are in"""
FINDERS = {
    "quintain.worlds": "quintain.environments.specs",
    "quintain.adapters": "quintain.environments.specs",
    "quintain.methods": "quintain.methods.find",
    "quintain.agents": "quintain.agents.catalog",
    "quintain_evidence.experiments": "quintain_evidence.layers.runner",
    "quintain_evidence.formulas": "quintain_evidence.layers.formulas",
}
"""package → who imports its modules by their names"""
PAGES = (".md", ".svg", ".png")


def name_of(path: Path, root: Path) -> str:
    """Return the dotted name of the module in `path`; empty where it is in none of the trees."""
    for folder, package in TREES.items():
        if path.is_relative_to(root / folder):
            parts = [*filter(None, [package]), *path.relative_to(root / folder).with_suffix("").parts]
            return ".".join(parts).removesuffix(".__init__")
    return ""


def list_statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield what stands in `body` and in its blocks, and nothing of what expressions are made of."""
    for node in body:
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from list_statements(getattr(node, block, ()))


def imports_of(path: Path) -> set[str]:
    """Return the names that a file imports, those of members included."""
    found: set[str] = set()
    for node in list_statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def graph(root: Path) -> dict[str, set[str]]:
    """Return which modules each module imports; a test imports the conftest files above it, too."""
    files = {name_of(path, root): path for folder in TREES for path in sorted((root / folder).rglob("*.py"))}
    edges = {name: imports_of(path) & files.keys() for name, path in files.items()}
    for package, finder in FINDERS.items():
        if finder in edges:
            edges[finder] |= {name for name in files if name.startswith(f"{package}.")}
    for name in files:
        *packages, last = name.split(".")
        if not last.startswith("test_"):
            continue
        above = {".".join([*packages[:number], "conftest"]) for number in range(len(packages) + 1)}
        edges[name] |= above & files.keys() - {name}
    return edges


def reached_from(start: str, edges: dict[str, set[str]]) -> set[str]:
    """Return all modules that `start` imports, directly or not, and itself."""
    found, waiting = {start}, [start]
    while waiting:
        new = edges[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def reached(changed: Iterable[str], folder: str, root: Path = ROOT) -> list[str]:
    """Return the test files below `folder` that a change of the files `changed` reaches."""
    tests = sorted((root / folder).rglob("test_*.py"))
    modules: set[str] = set()
    for place in changed:
        if place.endswith(PAGES):
            continue
        name = name_of(root / place, root) if place.endswith(".py") else ""
        if not name:
            return [str(path.relative_to(root)) for path in tests]
        modules.add(name)
    edges = graph(root)
    return [
        str(path.relative_to(root)) for path in tests if reached_from(name_of(path, root), edges) & modules
    ]


def main() -> None:
    """Print them, one a line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--since", required=True, help="revision that the change is counted from")
    parser.add_argument("folder", help="folder of tests")
    arguments = parser.parse_args()
    told = subprocess.run(
        ["git", "diff", "--name-only", "--no-renames", arguments.since],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    print("\n".join(reached(told.stdout.split(), arguments.folder)))


if __name__ == "__main__":
    main()
