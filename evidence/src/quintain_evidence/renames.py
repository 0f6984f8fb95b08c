"""Carries results over renames: an experiment that computes the same under other names is not measured again.

A line of the layer ``rename`` in the results of a row says that the code whose digest was `before` has the digest
`after`. It is written only where the two files are equal once the names are mapped, so nobody's word is taken for it.
"""

import ast
import hashlib
import re
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

from quintain.errors import DataError

LAYER = "rename"
ROOTS = ("evidence/src", "src")
"""Where modules stand in a checkout."""
GIT_SECONDS = 60


def digest_of(source: str) -> str:
    """Return a short digest of what `source` computes: its syntax without docstrings and comments."""
    return hashlib.sha256(ast.dump(without_docstrings(source)).encode()).hexdigest()[:12]


def without_docstrings(source: str) -> ast.Module:
    """Return the syntax of `source`, whose docstrings are left out."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and ast.get_docstring(node) is not None
        ):
            del node.body[0]
    return tree


def normalize(source: str, names: Mapping[str, str]) -> str:
    """Return what `source` computes after `names` (old → new), whatever the order of its imports.

    A name with dots is a module or a member of one, and stands for all below it; one that begins with a dot is a
    method where it is called; one without is an identifier. A member that is imported has its new name where the name
    stands alone: attributes of other things keep theirs.
    """
    tree = without_docstrings(source)
    imported, places = dict[str, str](), dict[str, str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                places[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                member = rename(f"{node.module}.{alias.name}", names).rpartition(".")[2]
                if member != alias.name and alias.asname is None:
                    imported[alias.name] = member
    tree = _Renaming(imported, places, names).visit(tree)
    for node in ast.walk(tree):
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(body, list):
                body[:] = sort_imports(body)
    return ast.dump(tree)


def unify_options(source: str, options: Mapping[str, Sequence[str]], *, before: str) -> str:
    """Return `source` in which every option has its earlier name, as `options` have it: earlier name → later ones.

    The tables of a configuration that say what was renamed are left out, with what they import, and so are texts that
    stand alone, such as the help of an option. A later name that stood in the file `before` already is another thing's,
    and stays.
    """
    words = set(re.findall(r"\w+", ast.dump(ast.parse(before))))
    earlier = {later: old for old, found in options.items() for later in found if later not in words}
    texts = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, earlier))})(?![\w-])") if earlier else None
    tree = without_docstrings(source)
    for node in ast.walk(tree):
        for field in ("attr", "arg", "name", "id"):
            if isinstance(found := getattr(node, field, None), str):
                setattr(node, field, earlier.get(found, found))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and texts is not None:
            node.value = texts.sub(lambda found: earlier[found[0]], node.value)
        if isinstance(node, ast.ClassDef):
            node.body = [
                each for each in node.body if not _is_table_of_renames(each) and not _is_text(each)
            ] or [ast.Pass()]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in ("typing", "collections.abc"):
            node.names = [alias for alias in node.names if alias.name not in ("ClassVar", "Mapping")]
    tree.body = [each for each in tree.body if not isinstance(each, ast.ImportFrom) or each.names]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _is_table_of_renames(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "renamed"
    )


def rename(dotted: str, names: Mapping[str, str]) -> str:
    """Return `dotted` after the longest of `names` that it is, or is below."""
    for old in sorted((name for name in names if "." in name), key=len, reverse=True):
        if dotted == old or dotted.startswith(f"{old}."):
            return names[old] + dotted[len(old) :]
    return dotted


class _Renaming(ast.NodeTransformer):
    """Puts new names in the place of old ones: in imports, identifiers and texts."""

    def __init__(
        self, imported: Mapping[str, str], places: Mapping[str, str], names: Mapping[str, str]
    ) -> None:
        self.imported, self.places, self.names = imported, places, names
        self.identifiers = {old: new for old, new in names.items() if "." not in old}
        dotted = sorted((re.escape(name) for name in names if "." in name[1:]), key=len, reverse=True)
        self.inside = re.compile(rf"(?<![\w.])({'|'.join(dotted)})(?!\w)") if dotted else None

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Rename what any kind of node holds as an identifier."""
        for field in ("attr", "arg", "name"):
            found = getattr(node, field, None)
            if isinstance(found, str) and not isinstance(node, ast.alias):
                setattr(node, field, self.identifiers.get(found, found))
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """Rename a name that stands alone: one that is imported, or any identifier."""
        node.id = self.imported.get(node.id, self.identifiers.get(node.id, node.id))
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rename a method that is called."""
        if isinstance(node.func, ast.Attribute):
            node.func.attr = self.names.get(f".{node.func.attr}", node.func.attr)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Rename a member of a module that is imported."""
        if isinstance(node.value, ast.Name) and node.value.id in self.places:
            node.attr = rename(f"{self.places[node.value.id]}.{node.attr}", self.names).rpartition(".")[2]
        return self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> ast.Import:
        """Rename the modules of an import."""
        for alias in node.names:
            alias.name = rename(alias.name, self.names)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.stmt]:
        """Rename the members of an import, each an import of its own."""
        if node.level or not node.module:
            return node
        found: list[ast.stmt] = []
        for alias in node.names:
            module, _, member = rename(f"{node.module}.{alias.name}", self.names).rpartition(".")
            asname = None if alias.asname is None else self.identifiers.get(alias.asname, alias.asname)
            found.append(
                ast.ImportFrom(module=module, names=[ast.alias(name=member, asname=asname)], level=0)
            )
        return found

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        """Rename modules that a text names."""
        if isinstance(node.value, str) and self.inside is not None:
            node.value = self.inside.sub(lambda found: self.names[found[0]], node.value)
        return node


def sort_imports(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return `body`, in which imports that follow each other stand in the order of their names."""
    found: list[ast.stmt] = []
    for is_import, group in groupby(body, lambda node: isinstance(node, (ast.Import, ast.ImportFrom))):
        run = list(group)
        found += sorted(run, key=ast.dump) if is_import else run
    return found


def earlier_digests(renames: Sequence[Mapping[str, str]], digest: str) -> set[str]:
    """Return the digests that the code of `digest` had under other names, by lines of renames, and its own."""
    found, before = {digest}, set[str]()
    while found != before:
        before = set(found)
        found |= {line["before"] for line in renames if line["after"] in found}
    return found


def read_options(file: Path) -> dict[str, list[str]]:
    """Return the table ``[options]`` of a TOML file: what an option was called, and what it may be called now."""
    found = tomllib.loads(file.read_text(encoding="utf-8")).get("options", {})
    return {old: [new] if isinstance(new, str) else list(new) for old, new in found.items()}


def read_names(file: Path) -> dict[str, str]:
    """Return the table ``[names]`` of a TOML file: names as they were, and as they are; none beside ``[options]``.

    Raises:
        DataError: there is neither, or a new name is no text.
    """
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    found = tables.get("names", {} if "options" in tables else None)
    if not isinstance(found, dict) or not all(isinstance(new, str) for new in found.values()):
        raise DataError(
            f'{file}: got no table of names; write [names] and lines such as "old.module" = "new.module", or '
            'after [options] lines such as old_option = "new_option"'
        )
    return found


def find_source(module: str, names: Mapping[str, str], revision: str, root: Path) -> str:
    """Return the text of `module` as it stood at `revision` of the checkout `root`, before `names`.

    Raises:
        DataError: there was no such file.
    """
    before = [old + module[len(new) :] for old, new in names.items() if f"{module}.".startswith(f"{new}.")]
    for name in [*before, module]:
        for folder in ROOTS:
            place = f"{folder}/{name.replace('.', '/')}.py"
            done = subprocess.run(
                ["git", "show", f"{revision}:{place}"],
                cwd=root, capture_output=True, text=True, check=False, timeout=GIT_SECONDS,
            )  # fmt: skip
            if done.returncode == 0:
                return done.stdout
    raise DataError(
        f"{module} at {revision}: got no file of it or of {', '.join(before) or 'another name'}; "
        "name a revision that has it"
    )
