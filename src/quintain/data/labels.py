"""Comparisons of two sides by people: the questions, who answered them when, and what can be learned from it.

A labels file is JSON lines that are only ever added to, so that it can be cut off, taken up again and put behind
another one. A line is a question, whose sides are conversations as `quintain.data.messages` writes them, or an answer:

    {"query": "5f…", "first": {"messages": […]}, "second": {"messages": […]}, "sources": ["…", "…"]}
    {"query": "5f…", "choice": "first", "labeller": "ann", "time": "2026-11-23T10:31:07+00:00"}

A question is named after what its sides say, and its name settles which of them stands first: the same two sides are
the same question, whoever asks it, and which is shown first says nothing about them. ``tie`` says that both are as
good, ``skip`` that they cannot be compared, ``undo`` takes the labeller's last answer to that question back.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, takewhile, zip_longest
from pathlib import Path
from typing import Any, Literal, cast

from quintain.data.files import FileValue, decode, read_lines
from quintain.data.records import read_record
from quintain.errors import DataError
from quintain.types import Message, as_content, derive_seed

Choice = Literal["first", "second", "tie", "skip"]
CHOICES: tuple[Choice, ...] = ("first", "second", "tie", "skip")
UNDO = "undo"
LEVELS = ("episode", "step")
"""What is compared of a run: two episodes, or the turn in which they part."""
USUAL_COUNT = 50
"""Questions of a file that asks none yet."""
SHARES: Mapping[str, float] = {"first": 1.0, "second": 0.0, "tie": 0.5}
"""The share of the preference that the first side gets (μ of arXiv 1706.03741); of what was skipped there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A question: ``Query.of({"messages": […]}, {"messages": […]})``; which side is first follows from both."""

    id: str
    first: Mapping[str, Any]
    """a conversation: ``messages``, and where it has them ``tools``, ``task`` and ``end``, what was seen last"""
    second: Mapping[str, Any]
    sources: tuple[str, str] = ("", "")
    """where both sides came from, such as names of episodes"""
    note: str = ""
    """when and for what it was asked, as whoever asks wants to find it again"""

    @classmethod
    def of(
        cls,
        one: Mapping[str, Any],
        other: Mapping[str, Any],
        sources: tuple[str, str] = ("", ""),
        *,
        note: str = "",
    ) -> Query:
        """Return the question which of two conversations is better, whatever the order in which they are given.

        Raises:
            DataError: they say the same.
        """
        names = [_digest(json.dumps(side["messages"], sort_keys=True)) for side in (one, other)]
        if names[0] == names[1]:
            raise DataError(
                f"sides of a comparison: got the same messages twice ({' and '.join(sources)}); compare others"
            )
        id = _digest("".join(sorted(names)))
        order = [0, 1] if _digest(id + names[0]) < _digest(id + names[1]) else [1, 0]
        sides = [(one, other)[k] for k in order]
        named = (sources[order[0]], sources[order[1]])
        return cls(id=id, first=sides[0], second=sides[1], sources=named, note=note)

    @property
    def parts(self) -> tuple[tuple[Message, ...], tuple[Message, ...], tuple[Message, ...]]:
        """What both sides begin with, and how the first and the second go on from there."""
        one, other = (_messages(side) for side in (self.first, self.second))
        count = sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))
        return one[:count], one[count:], other[count:]

    def line(self) -> str:
        """Return it as a line of a labels file."""
        told = {"query": self.id, "first": dict(self.first), "second": dict(self.second)}
        note = {"note": self.note} if self.note else {}
        return json.dumps({**told, "sources": list(self.sources), **note}, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """An answer: ``Label(query="5f…", choice="tie", labeller="ann", time="2026-11-23T10:31:07+00:00")``."""

    query: str
    choice: Choice
    labeller: str
    time: str
    """ISO 8601, with its offset from UTC"""
    remark: str = ""
    """what the labeller says to whoever acted"""

    def line(self, *, is_undone: bool = False) -> str:
        """Return it as a line of a labels file, or the line that takes it back."""
        choice = UNDO if is_undone else self.choice
        told = {"query": self.query, "choice": choice, "labeller": self.labeller, "time": self.time}
        remark = {"remark": self.remark} if self.remark and not is_undone else {}
        return json.dumps({**told, **remark}, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """What a labels file says: ``Labels(queries={"5f…": query}, given=(label,))``."""

    queries: Mapping[str, Query]
    """by their names, in the order in which they were asked"""
    given: tuple[Label, ...]
    """in the order in which they were given, without those that were taken back"""

    def of(self, labeller: str) -> dict[str, Label]:
        """Return the answers of `labeller` by question, in order; of several to one question the last."""
        found: dict[str, Label] = {}
        for label in self.given:
            if label.labeller == labeller:
                found.pop(label.query, None)
                found[label.query] = label
        return found

    def open_queries(self, labeller: str) -> list[Query]:
        """Return the questions that `labeller` has not answered, in order."""
        known = self.of(labeller)
        return [query for id, query in self.queries.items() if id not in known]

    @property
    def contradicting(self) -> tuple[str, ...]:
        """The questions to which both sides were answered, by several labellers or by one."""
        said: dict[str, set[str]] = {}
        for label in self.given:
            said.setdefault(label.query, set()).add(label.choice)
        return tuple(id for id in self.queries if {"first", "second"} <= said.get(id, set()))

    @property
    def shares(self) -> dict[str, float]:
        """The share of the preference that the first side of each question gets, in the order of the questions.

        The mean over its answers, a tie being a half; questions that were skipped only, were not answered or are
        `contradicting` have none.
        """
        said: dict[str, list[float]] = {}
        for label in self.given:
            if label.choice in SHARES:
                said.setdefault(label.query, []).append(SHARES[label.choice])
        refused = set(self.contradicting)
        return {id: sum(said[id]) / len(said[id]) for id in self.queries if id in said and id not in refused}


def _messages(side: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return what a person reads of a side: its messages, and what was seen last."""
    told = read_record(side, FileValue(file="query", line=1, value=side), keeps_text=True).messages
    end = side.get("end")
    return (*told, Message(role="user", content=as_content(end))) if isinstance(end, str) and end else told


def read_labels(file: Path) -> Labels:
    """Return what the labels file `file` says; one that is not there says nothing.

    A last line without its end, which is no JSON, is just being written by somebody, and not read.

    Raises:
        DataError: a line that is neither a question nor an answer, or an answer to what nobody asks: with the line.
    """
    if not file.exists():
        return Labels(queries={}, given=())
    *lines, last = decode(file.read_bytes(), file.name).split("\n")
    found = list(read_lines([*lines, last], file.name))
    if last.strip() and isinstance(found[-1].value, DataError):
        del found[-1]
    return parse_labels(found)


def parse_labels(lines: Iterable[FileValue]) -> Labels:
    """Return what the `lines` of a labels file say; see `read_labels`."""
    queries: dict[str, Query] = {}
    given: list[tuple[Label, str]] = []
    for found in lines:
        value = _object(found)
        if "choice" not in value:
            query = _query(value, found)
            queries.setdefault(query.id, query)
            continue
        label, is_undone = _label(value, found.place)
        if not is_undone:
            given.append((label, found.place))
            continue
        own = [
            k
            for k, (each, _) in enumerate(given)
            if (each.query, each.labeller) == (label.query, label.labeller)
        ]
        if not own:
            raise DataError(
                f"{found.place}: got undo of the query {label.query} by {label.labeller}, who has not answered it; "
                "take the line out"
            )
        del given[own[-1]]
    for label, place in given:
        if label.query not in queries:
            raise DataError(
                f"{place}: got an answer to the query {label.query}, which no line asks; bring its line back"
            )
    return Labels(queries=queries, given=tuple(label for label, _ in given))


def is_labels(found: FileValue) -> bool:
    """Whether the first value of a file is a line of a labels file."""
    return isinstance(found.value, dict) and "query" in found.value


def _object(found: FileValue) -> dict[str, Any]:
    if isinstance(found.value, DataError):
        raise DataError(
            f"{str(found.value).partition(';')[0]}; take a line that was cut off out, what stands before it holds"
        )
    if not isinstance(found.value, dict) or not isinstance(found.value.get("query"), str):
        raise DataError(f"{found.place}: got {found.value!r:.80}; give an object with the name of a query")
    return cast("dict[str, Any]", found.value)


def _query(value: Mapping[str, Any], found: FileValue) -> Query:
    place = found.place
    sides: list[dict[str, Any]] = []
    for name in ("first", "second"):
        side: object = value.get(name)
        if not isinstance(side, dict) or not isinstance(cast("dict[str, Any]", side).get("messages"), list):
            raise DataError(f'{place}: got {name} {side!r:.80}; give a conversation, {{"messages": […]}}')
        sides.append(cast("dict[str, Any]", side))
        read_record(sides[-1], found, keeps_text=True)
    told = value.get("sources", ["", ""])
    if not isinstance(told, list) or len(told) != 2:
        raise DataError(f"{place}: got the sources {told!r:.80}; give one for each side")
    query = Query.of(sides[0], sides[1], (str(told[0]), str(told[1])), note=str(value.get("note", "")))
    if query.id != value["query"]:
        raise DataError(
            f"{place}: got the query {value['query']}, and what its sides say is {query.id}; bring the line back as "
            "it was"
        )
    return query


def _label(value: Mapping[str, Any], place: str) -> tuple[Label, bool]:
    choice, labeller, time = value["choice"], value.get("labeller"), value.get("time")
    if choice not in (*CHOICES, UNDO):
        raise DataError(f"{place}: got the choice {choice!r:.80}; choose from {', '.join((*CHOICES, UNDO))}")
    if not isinstance(labeller, str) or not labeller or not isinstance(time, str):
        raise DataError(f"{place}: got the labeller {labeller!r:.80} at {time!r:.80}; say who answered when")
    remark = value.get("remark", "")
    if not isinstance(remark, str):
        raise DataError(f"{place}: got the remark {remark!r:.80}; write it as text")
    is_undone = choice == UNDO
    return Label(
        query=value["query"],
        choice="skip" if is_undone else choice,
        labeller=labeller,
        time=time,
        remark=remark,
    ), is_undone


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """How far two labellers agree: ``Agreement(labellers=("ann", "bob"), num=40, share=0.85, kappa=0.7)``."""

    labellers: tuple[str, str]
    num: int
    """questions that both answered and neither skipped"""
    share: float
    """of these to which they gave the same answer"""
    kappa: float
    """Cohen's; nan where chance alone would make them agree on all"""


def agreements(labels: Labels) -> list[Agreement]:
    """Return how far every two labellers agree who answered some of the same questions."""
    names = dict.fromkeys(label.labeller for label in labels.given)
    by = {
        name: {id: label.choice for id, label in labels.of(name).items() if label.choice != "skip"}
        for name in names
    }
    found: list[Agreement] = []
    for one, other in combinations(names, 2):
        both = [id for id in by[one] if id in by[other]]
        if both:
            said = [by[one][id] for id in both], [by[other][id] for id in both]
            share = sum(a == b for a, b in zip(*said, strict=True)) / len(both)
            found.append(
                Agreement(labellers=(one, other), num=len(both), share=share, kappa=cohen_kappa(*said))
            )
    return found


def cohen_kappa(one: Sequence[str], other: Sequence[str]) -> float:
    """Return (p - e)/(1 - e), p the share of equal answers, e that of two who answer as often at random.

    Cohen (1960), A Coefficient of Agreement for Nominal Scales, Educational and Psychological Measurement 20(1). nan
    where both always give one and the same answer. Example: "aab" and "abb" → p 2/3, e 4/9, kappa .4.
    """
    num = len(one)
    counts = Counter(one), Counter(other)
    same = sum(a == b for a, b in zip(one, other, strict=True)) / num
    by_chance = sum(count * counts[1][name] for name, count in counts[0].items()) / num**2
    return (same - by_chance) / (1 - by_chance) if by_chance < 1 else math.nan


@dataclass(frozen=True, slots=True)
class Export:
    """Preferences out of labels, and what gave none: ``Export(({"chosen": […], "rejected": […]},), {"tie": 3})``."""

    lines: tuple[dict[str, Any], ...]
    refused: Mapping[str, int]
    """why a question gave no preference → how many: contradicting, tie, skip, unanswered, other_task"""
    contradicting: tuple[str, ...] = ()
    """names of the questions with opposite answers"""

    def __str__(self) -> str:
        """Return how many there are, and why there are not more."""
        told = [f"{count} {EXPORT_REFUSALS[reason]}" for reason, count in self.refused.items()]
        return "; ".join([f"{len(self.lines)} preferences", *told])


EXPORT_REFUSALS: Mapping[str, str] = {
    "contradicting": "with opposite answers",
    "tie": "as good as each other",
    "skip": "that could not be compared",
    "unanswered": "without an answer",
    "other_task": "with sides of different tasks",
}


def export_preferences(labels: Labels) -> Export:
    """Return the preferences that `labels` say, as objects that `quintain.data.records.read_preferences` reads.

    Messages, tools and weights stand in them as they are in the questions; a tie between labellers (one each, or a tie
    by word) prefers nothing.
    """
    shares, opposite = labels.shares, labels.contradicting
    answered = {label.query for label in labels.given}
    counts, lines = Counter[str](), list[dict[str, Any]]()
    for id, query in labels.queries.items():
        share = shares.get(id)
        if id in opposite:
            counts["contradicting"] += 1
        elif id not in answered:
            counts["unanswered"] += 1
        elif share is None:
            counts["skip"] += 1
        elif share == 0.5:
            counts["tie"] += 1
        elif query.first.get("task") != query.second.get("task"):
            counts["other_task"] += 1
        else:
            lines.append(_preference(query, labels, is_first=share > 0.5))
    refused = {reason: counts[reason] for reason in EXPORT_REFUSALS if counts[reason]}
    return Export(tuple(lines), refused, opposite)


def _preference(query: Query, labels: Labels, *, is_first: bool) -> dict[str, Any]:
    sides = (query.first, query.second) if is_first else (query.second, query.first)
    sources = query.sources if is_first else query.sources[::-1]
    beside = {key: sides[0][key] for key in ("tools", "task") if key in sides[0]}
    said = [label for label in labels.given if label.query == query.id]
    return {
        "chosen": sides[0]["messages"],
        "rejected": sides[1]["messages"],
        **beside,
        "sources": list(sources),
        "labels": [{"labeller": each.labeller, "choice": each.choice, "time": each.time} for each in said],
    }


def draw_pairs(groups: Sequence[Sequence[str]], *, seed: int) -> Iterator[tuple[str, str]]:
    """Yield all pairs of names out of each of `groups`, drawn by `seed`: one of every group in turn, then another."""
    waiting: list[list[tuple[str, str]]] = []
    for names in groups:
        own = list(combinations(dict.fromkeys(names), 2))
        random.Random(derive_seed("pairs", seed, *sorted(names))).shuffle(own)
        waiting.append(own)
    random.Random(derive_seed("groups", seed)).shuffle(waiting)
    for turn in zip_longest(*waiting):
        yield from (pair for pair in turn if pair is not None)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=10).hexdigest()
