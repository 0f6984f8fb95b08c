"""The calls of `api`: what each takes and gives, how its document says so, and what it answers.

Names say nothing, and documents are written by several people: of the three words for a kind of thing each uses two,
so that documents of one kind share a word, and now and then they speak of other things besides. Which result fits which
argument is decided by kinds, which only calls reveal. Frozen data and pure functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from quintain.types import ToolSpec, derive_seed

KINDS = (
    ("order", "purchase", "sale"), ("parcel", "package", "box"), ("guest", "visitor", "caller"),
    ("driver", "courier", "rider"), ("bill", "invoice", "receipt"), ("truck", "van", "lorry"),
    ("shelf", "rack", "slot"), ("ticket", "pass", "voucher"),
)  # fmt: skip
"""kinds of things, with the words for each"""
RELATIONS = (
    "owner", "sender", "holder", "maker", "partner", "source", "target", "twin", "heir", "guard", "keeper", "mate",
)  # fmt: skip
FILLERS = ("number", "code", "key", "mark")
SYLLABLES = ("zor", "mip", "tak", "luv", "bex", "nid", "gop", "fen", "ruk", "sil")
ARGUMENTS = ("x", "y")
NUM_VALUES, NUM_EXAMPLES = 12, 5
MAX_CALLS = len(RELATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """What a call takes: ``Argument(name="x", kind=2, told="guest or visitor code", examples=(301, 655, …))``."""

    name: str
    kind: int
    told: str
    """its document"""
    examples: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that can be made, with its document."""

    name: str
    relation: str
    """what it gives, in a word of its own"""
    kind: int
    """of what it gives"""
    told: str
    arguments: tuple[Argument, ...]
    is_stateful: bool
    """whether it takes a value once only, until everything is reset"""

    def spec(self) -> ToolSpec:
        """Return it as a tool."""
        properties = {
            argument.name: {
                "type": "integer",
                "description": argument.told,
                "examples": list(argument.examples),
            }
            for argument in self.arguments
        }
        schema = {
            "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False,
        }  # fmt: skip
        return ToolSpec(name=self.name, description=self.told, parameters=schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All calls and the tables behind them: ``draw_registry(8, overlap=0.2, stateful=0.25, seed=0)``."""

    calls: tuple[Call, ...]
    values: tuple[tuple[int, ...], ...]
    """of each kind"""
    overlap: float
    """share of the values of other kinds that an argument takes as well"""
    seed: int

    def call(self, name: str) -> Call | None:
        """Return the call `name`, None where there is none."""
        return next((call for call in self.calls if call.name == name), None)

    def takes(self, call: Call, argument: Argument, value: int) -> bool:
        """Return whether `argument` takes `value`: one of its kind, or one of those that it takes by chance."""
        if value in self.values[argument.kind]:
            return True
        drawn = derive_seed("overlap", self.seed, call.name, argument.name, value)
        return any(value in own for own in self.values) and drawn < self.overlap * 2**63

    def result(self, call: Call, arguments: Mapping[str, int]) -> int:
        """Return what `call` gives, the same for the same arguments."""
        told = [arguments[argument.name] for argument in call.arguments]
        own = self.values[call.kind]
        return own[derive_seed("result", self.seed, call.name, *told) % len(own)]

    def edges(self) -> frozenset[tuple[str, str, str]]:
        """Return what fits what by kind: (call, other call, argument of the other that takes what the first gives)."""
        return frozenset(
            (first.name, other.name, argument.name)
            for first in self.calls
            for other in self.calls
            for argument in other.arguments
            if first is not other and first.kind == argument.kind
        )


def draw_registry(num_calls: int, *, overlap: float, stateful: float, seed: int) -> Registry:
    """Return `num_calls` calls over half as many kinds of things, at least two."""
    rng = Random(derive_seed("registry", seed))
    kinds = rng.sample(KINDS, max(2, min(len(KINDS), num_calls // 2)))
    drawn = rng.sample(range(100, 1000), NUM_VALUES * len(kinds))
    values = tuple(tuple(drawn[k * NUM_VALUES : (k + 1) * NUM_VALUES]) for k in range(len(kinds)))
    names = rng.sample([a + b for a in SYLLABLES for b in SYLLABLES if a != b], num_calls)
    relations = rng.sample(RELATIONS, num_calls)
    calls: list[Call] = []
    for number, (name, relation) in enumerate(zip(names, relations, strict=True)):
        arguments = [
            Argument(
                name=own,
                kind=kind,
                told=_words(kinds[kind], rng),
                examples=tuple(rng.sample(values[kind], NUM_EXAMPLES)),
            )
            for own in ARGUMENTS[: 1 + (rng.random() < 0.4)]
            for kind in [rng.randrange(len(kinds))]
        ]
        kind = number % len(kinds)
        taken = " and ".join(f"a {argument.told.split()[0]}" for argument in arguments)
        aside = f" Not for a {rng.choice(rng.choice(kinds))}." if rng.random() < 0.5 else ""
        calls.append(
            Call(
                name=name, relation=relation, kind=kind, arguments=tuple(arguments),
                told=f"Gives the {relation} of {taken}: {_words(kinds[kind], rng)}.{aside}",
                is_stateful=rng.random() < stateful,
            )
        )  # fmt: skip
    return Registry(calls=tuple(rng.sample(calls, num_calls)), values=values, overlap=overlap, seed=seed)


def _words(kind: Sequence[str], rng: Random) -> str:
    """Return two of the words for a kind and a word that says nothing: ``guest or visitor code``."""
    first, second = rng.sample(kind, 2)
    return f"{first} or {second} {rng.choice(FILLERS)}"
