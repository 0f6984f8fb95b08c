"""What a function of the world `repo` is made from: text, ways to break it, and what it should return.

A template is drawn into a `Piece`: names and constants chosen, perhaps one line broken. What is right is computed
here by a second implementation that does not read the text. Every way to break a function shows in each set of cases
that `Template.cases` draws.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from string import Template as Text
from typing import Any

from quintain.types import NOTHING

Arguments = list[Any]
Constants = Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A function to write down: ``$f`` is its name, ``$a``, ``$b``, … its arguments, other names constants."""

    says: str
    """What it returns, for its docstring."""
    names: tuple[str, ...]
    arguments: tuple[tuple[str, ...], ...]
    """Names of the arguments, in several versions."""
    body: tuple[str, ...]
    """Its lines; the first level is not indented."""
    bugs: tuple[tuple[str, str], ...]
    """(fragment of one line, what breaks it)"""
    solve: Callable[..., Any]
    """(constants, *arguments) → what it should return"""
    cases: Callable[[Random, Constants], Sequence[Arguments]]
    """Arguments that show every bug, drawn anew each time."""
    constants: Mapping[str, tuple[int, ...]] = NOTHING
    issue: str = ""
    """What a user says who sees it fail."""
    seen: Callable[[Random, Constants], Sequence[Arguments]] | None = None
    """Arguments of the tests that may be seen; None: as those that are hidden."""
    plausible: tuple[str, ...] = ()
    """A body that the tests that may be seen pass, and hidden ones do not."""
    rewrite: tuple[str, ...] = ()
    """A body that does the same in other words."""

    @property
    def visible(self) -> Callable[[Random, Constants], Sequence[Arguments]]:
        """What draws the arguments of tests that may be seen."""
        return self.seen or self.cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A function as it stands in a repository; `bug` is -1 where it is right."""

    template: str
    name: str
    arguments: tuple[str, ...]
    constants: tuple[tuple[str, int], ...]
    bug: int = -1


def draw_piece(key: str, template: Template, rng: Random, *, is_broken: bool) -> Piece:
    """Return a piece of `template`, which `key` names."""
    return Piece(
        template=key,
        name=rng.choice(template.names),
        arguments=rng.choice(template.arguments),
        constants=tuple((name, rng.choice(values)) for name, values in template.constants.items()),
        bug=rng.randrange(len(template.bugs)) if is_broken else -1,
    )


def lines_of(template: Template, piece: Piece, bug: int) -> tuple[str, ...]:
    """Return the lines of `piece` with bug number `bug`, or none for -1."""
    right, wrong = template.bugs[bug] if bug >= 0 else ("", "")
    return write_lines(
        template, piece, [line.replace(right, wrong) if right else line for line in template.body]
    )


def write_lines(template: Template, piece: Piece, body: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of `piece` with another `body` of its template."""
    names = {"f": piece.name, **dict(zip("abcd", piece.arguments, strict=False)), **dict(piece.constants)}
    head = (
        f"def $f({', '.join(f'${letter}' for letter, _ in zip('abcd', piece.arguments, strict=False))}):",
    )
    texts = (*head, f'    """{template.says}"""', *(f"    {line}" for line in body))
    return tuple(Text(text).substitute(names) for text in texts)


def draw_cases(
    template: Template, piece: Piece, rng: Random, *, is_seen: bool = False
) -> tuple[tuple[Arguments, Any], ...]:
    """Return arguments and what `piece` should return for them, of tests that may be seen or of those that decide."""
    constants = dict(piece.constants)
    drawn = (template.visible if is_seen else template.cases)(rng, constants)
    return tuple((given, template.solve(constants, *given)) for given in drawn)
