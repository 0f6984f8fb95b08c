"""Which calls of an agent outside were used, by what a recording endpoint saw of them (`Turn.facts`).

A call is used if a used call goes on from its very tokens. One that nobody goes on from is used, unless

- the client said that it is auxiliary (a title, a probe), or it looks like it: a single call without tools, beside an
  agent that has some, whose answer is found nowhere again;
- a guard took calls out of it, so that the client was handed another answer than was sampled (``refused``);
- its answer was not read to the end: which of a call and its retry was used is told by delivery alone, and where
  neither was read, neither is trained;
- the same tokens were asked again after it was answered, and that answer was gone on from;
- it was left: after its answer came, the agent went on from before it, and what it says is found in no later prompt.
  So a summary is trained where a compacted history was built on it, and an abandoned one is not.

Parallel sub-agents, which were asked before their siblings were answered, are all used. Turns without facts are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quintain.errors import DataError
from quintain.types import Turn
from quintain.types.forest import find_parents

AUXILIARY = "an auxiliary call"
NOT_READ = "its answer was not read to the end"
REPEATED = "it was asked again, and the other answer was gone on from"
REFUSED = "a guard took calls out of it"
LEFT = "the agent went on from before it, and its answer is in no later prompt"


FACTS_VERSION = 1
"""Version of `Turn.facts` that is read; facts that name none are of version 1."""


def refuse_newer(turns: Sequence[Turn]) -> None:
    """Raise where `turns` were recorded by a version of which it is not known what it saw.

    Raises:
        DataError: their facts are of a newer version.
    """
    newest = max((turn.facts.get("version", 1) for turn in turns if turn.facts), default=1)
    if newest > FACTS_VERSION:
        raise DataError(
            f"facts of recorded calls: got version {newest}, and this Quintain reads {FACTS_VERSION}; update it"
        )


@dataclass(frozen=True, slots=True)
class CallNote:
    """What is to be known of a recorded call: ``CallNote("differs from call 3 at token 7: …", call="3")``."""

    text: str
    call: str = ""
    """another call that the text names, as ``call NAME``; empty: none"""


def call_notes(turn: Turn, unused: str | None) -> list[CallNote]:
    """Return what a recording endpoint saw of a call: why it forks, where its prompt differs, why it is not trained.

    `unused` is the reason that `find_unused` gives for it, None for a call that was used.
    """
    facts, notes = turn.facts, list[CallNote]()
    if facts.get("fork") not in (None, "root"):
        notes.append(CallNote(f"call {facts.get('call')}: {facts['fork']}"))
    differs = facts.get("differs")
    if isinstance(differs, Mapping):
        call = str(differs.get("call"))
        where = f"at token {differs.get('token')}: {differs.get('was')!r} was, {differs.get('now')!r} is"
        notes.append(CallNote(f"its prompt differs from call {call} {where}", call))
    return [*notes, *([CallNote(f"not trained: {unused}")] if unused else [])]


def find_unused(turns: Sequence[Turn]) -> dict[int, str]:
    """Return the turns that were not used, by number, each with the reason.

    Raises:
        DataError: they were recorded by a newer version.
    """
    if not any(turn.facts for turn in turns):
        return {}
    refuse_newer(turns)
    parents = [parent for parent, _ in find_parents(turns)]
    children: dict[int, list[int]] = {}
    for number, parent in enumerate(parents):
        if parent is not None:
            children.setdefault(parent, []).append(number)
    prompts = _prompts(turns, parents)
    lonely = _look_auxiliary(turns, parents, children)
    unused: dict[int, str] = {}
    for number in reversed(range(len(turns))):
        facts = turns[number].facts
        if not facts:
            continue
        if facts.get("refused"):
            unused[number] = REFUSED
        elif facts.get("kind") == "auxiliary" or number in lonely:
            unused[number] = AUXILIARY
        elif any(child not in unused for child in children.get(number, ())):
            continue
        elif facts.get("delivery") != "whole":
            unused[number] = NOT_READ
        elif (reason := _find_reason(number, turns, parents, children, prompts, unused)) is not None:
            unused[number] = reason
    return dict(sorted(unused.items()))


def _find_reason(
    number: int,
    turns: Sequence[Turn],
    parents: Sequence[int | None],
    children: dict[int, list[int]],
    prompts: Sequence[int],
    unused: dict[int, str],
) -> str | None:
    """Return why the agent left the answer of turn `number` for another, None where it did not."""
    later = [n for n in range(number + 1, len(turns)) if turns[n].facts.get("after", 0) > number]
    if any(
        prompts[n] == prompts[number] and any(child not in unused for child in children.get(n, ()))
        for n in later
    ):
        return REPEATED
    parent = parents[number]
    if parent is None or turns[number].facts.get("carried"):
        return None
    beside = [n for n in later if parents[n] == parent and prompts[n] != prompts[number]]
    return LEFT if any(n not in unused for n in beside) else None


def _prompts(turns: Sequence[Turn], parents: Sequence[int | None]) -> list[int]:
    """Return for each turn a number that equal prompts have in common."""
    known: dict[tuple[int | None, tuple[int, ...]], int] = {}
    numbers: list[int] = []
    for place, turn in enumerate(turns):
        parent = parents[place]
        given = turn.prompt_ids
        if turn.starts_segment and parent is not None:
            given = given[_length(turns, parents, parent) :]
        numbers.append(known.setdefault((parent, given), len(known)))
    return numbers


def _length(turns: Sequence[Turn], parents: Sequence[int | None], number: int) -> int:
    """Return the tokens of the walk that ends in turn `number`."""
    length = 0
    at: int | None = number
    while at is not None:
        turn = turns[at]
        length += len(turn.prompt_ids) + len(turn.completion.token_ids)
        at = None if turn.starts_segment else parents[at]
    return length


def _look_auxiliary(
    turns: Sequence[Turn], parents: Sequence[int | None], children: dict[int, list[int]]
) -> set[int]:
    """Return the single calls without tools, beside chats with tools, whose answers are found nowhere again."""
    if not any(turn.facts.get("has_tools") for turn in turns):
        return set()
    return {
        number
        for number, turn in enumerate(turns)
        if turn.facts.get("has_tools") is False
        and parents[number] is None
        and not children.get(number)
        and not turn.facts.get("carried")
    }
