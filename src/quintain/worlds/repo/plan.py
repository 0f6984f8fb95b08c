"""Repositories of the world `repo`: a few modules of small functions, some of them broken, and their tests.

A `RepoPlan` is all there is to know of a task; what the agent sees of it are the texts of `files`. The tests that
decide are not among them: `draw_hidden_cases` are arguments and results, and the results never leave this side. The
text of a right module is what the templates say, and a broken one differs by one line per bug.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from quintain.types import derive_seed
from quintain.worlds.repo.agents import AGENTS
from quintain.worlds.repo.lists import LISTS
from quintain.worlds.repo.numbers import NUMBERS
from quintain.worlds.repo.template import Arguments, Piece, Template, draw_cases, draw_piece, lines_of
from quintain.worlds.repo.texts import TEXTS

TEMPLATES: dict[str, Template] = {**NUMBERS, **LISTS, **TEXTS}
EVERY: dict[str, Template] = {**TEMPLATES, **AGENTS}
MODULES = ("shapes", "stock", "tools", "basics", "report", "scores", "parts", "ledger", "signals", "records")
NUM_HIDDEN_SETS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RepoPlan:
    """A repository: ``RepoPlan(modules=(("stock", (piece, ...)),), seed=7)``."""

    modules: tuple[tuple[str, tuple[Piece, ...]], ...]
    seed: int
    """names the arguments that tests call the functions with"""

    @property
    def broken(self) -> tuple[tuple[str, Piece], ...]:
        """The functions with a bug, with the names of their modules."""
        return tuple((name, piece) for name, pieces in self.modules for piece in pieces if piece.bug >= 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A call and what it should return: ``Case(module="stock", function="clamp", arguments=[9, 0, 5], result=5)``."""

    module: str
    function: str
    arguments: Arguments
    result: Any
    was_broken: bool


def draw_plan(
    rng: Random, *, modules: int, functions: int, bugs: int, templates: Mapping[str, Template] = TEMPLATES
) -> RepoPlan:
    """Draw a repository of `modules` modules of `functions` functions each of `templates`, `bugs` of them broken."""
    keys = rng.sample(sorted(templates), modules * functions)
    broken = set(rng.sample(keys, bugs))
    names: set[str] = set()
    pieces: list[Piece] = []
    for key in keys:
        piece = draw_piece(key, templates[key], rng, is_broken=key in broken)
        while piece.name in names:
            piece = replace(piece, name=f"{piece.name}_{len(names)}")
        names.add(piece.name)
        pieces.append(piece)
    chosen = rng.sample(MODULES, modules)
    parts = [tuple(pieces[place * functions : (place + 1) * functions]) for place in range(modules)]
    return RepoPlan(modules=tuple(zip(chosen, parts, strict=True)), seed=rng.getrandbits(40))


def module_text(pieces: tuple[Piece, ...], *, is_right: bool) -> str:
    """Return a module of `pieces`, broken as they are or right."""
    texts = [
        "\n".join(lines_of(EVERY[piece.template], piece, -1 if is_right else piece.bug)) for piece in pieces
    ]
    return "\n\n\n".join(texts) + "\n"


def tests_text(plan: RepoPlan, name: str, pieces: tuple[Piece, ...]) -> str:
    """Return the tests of module `name` that the agent may see."""
    functions: list[str] = []
    for piece in pieces:
        template = EVERY[piece.template]
        cases = draw_cases(template, piece, Random(derive_seed(plan.seed, piece.name, "seen")), is_seen=True)
        lines = [
            f"    assert {piece.name}({', '.join(map(repr, given))}) == {result!r}" for given, result in cases
        ]
        functions.append("\n".join((f"def test_{piece.name}():", *lines)))
    imports = f"from {name} import {', '.join(piece.name for piece in pieces)}"
    return "\n\n\n".join((imports, *functions)) + "\n"


def files(plan: RepoPlan) -> dict[str, str]:
    """Return the files of the repository as the agent finds them, by name."""
    found: dict[str, str] = {}
    for name, pieces in plan.modules:
        found[f"{name}.py"] = module_text(pieces, is_right=False)
        found[f"test_{name}.py"] = tests_text(plan, name, pieces)
    return found


def right_files(plan: RepoPlan) -> dict[str, str]:
    """Return the modules without bugs, by the names of their files."""
    return {f"{name}.py": module_text(pieces, is_right=True) for name, pieces in plan.modules}


def draw_hidden_cases(plan: RepoPlan) -> tuple[Case, ...]:
    """Return the calls that decide; they are drawn like those of the tests that the agent may see, and anew."""
    cases: list[Case] = []
    for name, pieces in plan.modules:
        for piece in pieces:
            template = EVERY[piece.template]
            for number in range(NUM_HIDDEN_SETS):
                rng = Random(derive_seed(plan.seed, piece.name, "hidden", number))
                for given, result in draw_cases(template, piece, rng):
                    cases.append(
                        Case(
                            module=name,
                            function=piece.name,
                            arguments=given,
                            result=result,
                            was_broken=piece.bug >= 0,
                        )
                    )
    return tuple(cases)


def repair(text: str, plan: RepoPlan, module: str) -> tuple[str, str] | None:
    """Return what to replace in `text` of `module`, and by what, to mend its next bug; None where none shows.

    The first is a piece of text that stands there once: the broken line, with as many lines before it as that
    takes.
    """
    for name, piece in plan.broken:
        if name != module:
            continue
        template = EVERY[piece.template]
        right, wrong = lines_of(template, piece, -1), lines_of(template, piece, piece.bug)
        place = next(i for i, (bad, good) in enumerate(zip(wrong, right, strict=True)) if bad != good)
        for start in range(place, -1, -1):
            old, new = ("\n".join(lines[start : place + 1]) for lines in (wrong, right))
            if text.count(old) == 1:
                return old, new
    return None
