"""A thought in front of each action that has none, written by a model that is told the action (STaR, FireAct).

The thought comes into the text that is trained on, in the form that the answer has (`quintain.data.thoughts`):
episodes of a run are told again through their harness, which must read the same action behind the thought. A thought
that names what its writer was told, or behind which another action would be read, is dropped and counted; its answer
stays as it was.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from quintain.data.messages import was_unusable, write_call
from quintain.data.pipeline import Stage, num_trained, weigh_turns
from quintain.data.records import Record
from quintain.data.thoughts import split, whole_text, with_thought
from quintain.engines.rationale import Rationalist
from quintain.errors import UsageError
from quintain.pipelines.episode_sources import EpisodeSet
from quintain.types import Action, Example, as_content, as_text

PROBE = "So it is."
"""A thought that no harness takes for an action, unless all that it reads is one."""


def rationales(
    given: EpisodeSet, rationalist: Rationalist, marker: re.Pattern[str], *, is_needed: bool, name: str
) -> Stage:
    """Return the stage that puts thoughts of `rationalist` in front of actions; with `is_needed` others do not count.

    Raises:
        UsageError: the harness of a run reads all that is said as the action, when the stage is applied.
        DataError: a run's episode cannot be told again exactly, or the endpoint gives no thought.
    """
    counts: Counter[str] = Counter()
    found: dict[int, Record] = {}

    def change(example: Example, _: Record) -> Record | None:
        return found.get(id(example.trajectory))

    retell = given.retelling(name, "", change)

    def apply(examples: Sequence[Example]) -> list[Example]:
        counts.clear()
        found.clear()
        unique = list({id(e.trajectory): e for e in examples}.values())
        records = [given.conversation(example) for example in unique]
        places = [
            (number, place)
            for number, (example, record) in enumerate(zip(unique, records, strict=True))
            for place in bare(given, example, record)
        ]
        first = dict(reversed(places))  # of each episode
        actions: dict[int, list[Action] | None] = {}
        for number in sorted(first):
            actions[number] = actions_of(given, unique[number], name)
            check_room(given, unique[number], records[number], first[number], actions[number], name)
        said = rationalist.thoughts([material(records[number], place) for number, place in places])
        for (number, place), thought in zip(places, said, strict=True):
            made = put(records[number], place, thought)
            if marker.search(thought):
                counts["dropped, which name what was told"] += 1
            elif made is None or not is_same(given, unique[number], made, place, actions[number]):
                counts["dropped, which change the action"] += 1
            else:
                records[number] = made
                counts["written"] += 1
        for example, record in zip(unique, records, strict=True):
            found[id(example.trajectory)] = record
        made_all = list(retell.apply(examples))
        return [weighed for e in made_all if (weighed := thinking(given, e) if is_needed else e) is not None]

    return Stage(
        name=name,
        says="has no thought in front of an action" if is_needed else "gets thoughts in front of its actions",
        apply=apply,
        counts=counts,
    )


def bare(given: EpisodeSet, example: Example, record: Record) -> list[int]:
    """Return the places in `record` of the answers that count, could be read and have no thought."""
    found: list[int] = []
    for number, place in enumerate(given.answers(example, record)):
        counts = example.weights is None or bool(example.weights[number].any())
        message = record.said[place].message
        thought, _ = split(as_text(message.content), has_calls=bool(message.tool_calls))
        thought = thought or message.reasoning
        if counts and not thought and not was_unusable(example.trajectory.turns[number]):
            found.append(place)
    return found


def put(record: Record, place: int, thought: str) -> Record | None:
    """Return `record` with `thought` in front of the answer at `place`; None where the action would be another."""
    each = record.said[place]
    text = as_text(each.message.content)
    made = with_thought(thought, text, has_calls=bool(each.message.tool_calls)) if thought else None
    if made is None:
        return None
    changed = replace(each, message=replace(each.message, content=as_content(made)))
    return replace(record, said=(*record.said[:place], changed, *record.said[place + 1 :]))


def actions_of(given: EpisodeSet, example: Example, name: str) -> list[Action] | None:
    """Return the actions that the harness of a run reads in its episode; None of a conversation, which has none.

    Raises:
        DataError: it does not write the episode's prompts again.
    """
    if given.origin(example).transcriber is not None:
        return None
    return [turn.action for turn in given.rewrite_turns(name, example)]


def is_same(
    given: EpisodeSet, example: Example, after: Record, place: int, actions: Sequence[Action] | None
) -> bool:
    """Return whether the answer at `place` is still the one of `actions` that it was; a conversation has none."""
    if actions is None:
        return True
    number = sum(each.message.role == "assistant" for each in after.said[:place])
    return given.origin(example).harness_writer().turns(after)[number].action == actions[number]


def check_room(
    given: EpisodeSet,
    example: Example,
    record: Record,
    place: int,
    actions: Sequence[Action] | None,
    name: str,
) -> None:
    """Raise where the harness of a run, which reads `actions` in an episode, has no room for a thought.

    Raises:
        UsageError: it reads another action behind a plain thought.
    """
    if actions is None:
        return
    origin = given.origin(example)
    made = put(record, place, PROBE)
    if made is None or not is_same(given, example, made, place, actions):
        raise UsageError(
            f"stage {name}: got the run {origin.name}, whose harness ({origin.harness}) reads all that is said as the "
            "action; give a run through react or tools, or write it as messages first: "
            "quintain export RUN --to messages"
        )


def material(record: Record, place: int) -> dict[str, Any]:
    """Return what the writer of a thought is told: everything before the answer at `place`, and that answer."""

    def tell(number: int) -> dict[str, Any]:
        message = record.said[number].message
        own: dict[str, Any] = {"role": message.role, "content": whole_text(message)}
        calls = [write_call(call)["function"] for call in message.tool_calls]
        return {**own, "calls": calls} if calls else own

    action = tell(place)
    return {
        "so far": [tell(number) for number in range(place)],
        "right action": json.dumps(action["calls"], ensure_ascii=False)
        if "calls" in action
        else action["content"],
    }


def thinking(given: EpisodeSet, example: Example) -> Example | None:
    """Return `example` with no weight on answers without a thought; None where none is left."""
    record = given.conversation(example)
    without = set(bare(given, example, record))
    made = weigh_turns(example, [float(place not in without) for place in given.answers(example, record)])
    return made if num_trained(made) else None
