"""Two cards of facts, a question that neither answers alone, and how a seat that wants the answer would talk.

A seat knows its own card and what was said to it, nothing else; the expert's talk is computed from just that.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Literal

from quintain.environments.words import KEYS

Facts = tuple[tuple[str, str], ...]
"""Pairs of a key and its value, a number, or another key."""
Message = tuple[int, str]
"""The number of a seat and what it said."""
PADDING = " as far as I can see on my card"
CLAIM = re.compile(rf"(?:say )?(?!say |ask |answer )(\w+) (\w+)(?:{PADDING})?\W*")
"""A fact that is told: short ``say red 4``, padded with words that say nothing, or cryptic ``red 4``."""
REQUEST = re.compile(r"ask (\w+)\W*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How much is on the cards: ``Shape(facts=2, terms=2, hops=1, values=10, ...)``."""

    facts: int
    """facts on each card"""
    terms: int
    """keys whose values are added up"""
    hops: int
    """facts that lead from a key to its value"""
    values: int
    """values are 0 to `values` - 1"""
    keys: int
    """different keys that facts are about"""
    informed: Literal["both", "one"]
    """whether the second seat is told the question"""
    alone: float = 0.0
    """share of deals in which one card holds all that is needed"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """``Deal(cards=((("red", "4"),), (("blue", "7"),)), question=("red", "blue"), answer=11)``."""

    cards: tuple[Facts, Facts]
    question: tuple[str, ...]
    answer: int
    needed: Facts
    """the facts the answer follows from, in no order"""


def draw_deal(rng: Random, shape: Shape) -> Deal:
    """Draw cards of which both are needed, or, in a share of the deals, one alone."""
    is_alone = shape.alone > 0 and rng.random() < shape.alone
    keys = rng.sample(KEYS[: shape.keys], 2 * shape.facts + shape.terms * shape.hops)
    question: list[str] = []
    needed: list[tuple[str, str]] = []
    answer = 0
    for _ in range(shape.terms):
        chain = [keys.pop() for _ in range(shape.hops)]
        value = rng.randrange(shape.values)
        needed += zip(chain, [*chain[1:], str(value)], strict=True)
        question.append(chain[0])
        answer += value
    cards: tuple[list[tuple[str, str]], list[tuple[str, str]]] = ([], [])
    order = rng.sample(needed, len(needed))
    for place, fact in enumerate(order):
        # The first two facts go to different seats, the others where there is room.
        open_seats = [seat for seat in (0, 1) if len(cards[seat]) < shape.facts]
        owner = place if place < 2 else rng.choice(open_seats)
        cards[0 if is_alone else owner].append(fact)
    for card in cards:
        while len(card) < shape.facts:
            card.append((keys.pop(), str(rng.randrange(shape.values))))
        rng.shuffle(card)
    first = rng.randrange(2)
    return Deal(
        cards=(tuple(cards[first]), tuple(cards[1 - first])),
        question=tuple(question),
        answer=answer,
        needed=tuple(sorted(needed)),
    )


def claims(messages: Iterable[Message], seat: int) -> dict[str, str]:
    """Return what the other seat has told `seat`; the last word on a key counts."""
    found = (CLAIM.fullmatch(text) for speaker, text in messages if speaker != seat)
    return {match[1]: match[2] for match in found if match}


def resolve(key: str, known: Mapping[str, str]) -> tuple[list[str], str]:
    """Follow `known` from `key`; return the keys on the way and where it ends: a number, or an unknown key."""
    path: list[str] = []
    while key in known and key not in path:
        path.append(key)
        key = known[key]
    return path, key


def answer_from(question: tuple[str, ...], known: Mapping[str, str]) -> int | None:
    """Return the answer to `question` if `known` is enough for it."""
    ends = [resolve(key, known)[1] for key in question]
    return sum(map(int, ends)) if all(map(is_number, ends)) else None


def is_number(word: str) -> bool:
    """Whether `word` is a number such as the cards hold."""
    return word.isdecimal() and len(word) <= 9


def expert_talk(deal: Deal, messages: tuple[Message, ...], seat: int, informed: tuple[bool, bool]) -> str:
    """Return what a helpful `seat` does: answer, reply, tell what the question needs of its card, or ask.

    `informed` says which seats were told the question.
    """
    own = dict(deal.cards[seat])
    known = {**claims(messages, seat), **own}
    is_informed, partner_is_informed = informed[seat], informed[1 - seat]
    answer = answer_from(deal.question, known) if is_informed else None
    if answer is not None:
        return f"answer {answer}"
    told = claims(messages, 1 - seat)
    asked = REQUEST.fullmatch(messages[-1][1]) if messages else None
    if asked and asked[1] in own:
        return f"say {asked[1]} {own[asked[1]]}"
    if is_informed:
        paths = [resolve(key, known) for key in deal.question]
        mine = [key for path, _ in paths for key in path if key in own and key not in told]
        if mine and partner_is_informed:
            return f"say {mine[0]} {own[mine[0]]}"
        missing = [end for _, end in paths if not is_number(end)]
        return f"ask {missing[0]}" if missing else "pass"
    return "pass"


def style_message(said: str, style: int) -> str:
    """Return a message that tells a fact in a style: 0 short, 1 padded, 2 cryptic; others stay as they are."""
    if not said.startswith("say "):
        return said
    return (said, said + PADDING, said.removeprefix("say "))[style]


def progress(deal: Deal, messages: tuple[Message, ...]) -> float:
    """Return the share of the needed facts that the seat that knows more of them knows, 0 to 1."""
    needed = dict(deal.needed)
    shares: list[float] = []
    for seat in (0, 1):
        known = {**claims(messages, seat), **dict(deal.cards[seat])}
        shares.append(sum(known.get(key) == value for key, value in needed.items()) / len(needed))
    return max(shares)
