"""Questions, answers, what they come to, and labellers who err as often as they are told."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from quintain.data.files import FileValue
from quintain.data.labels import (
    Label,
    Labels,
    Query,
    agreements,
    cohen_kappa,
    draw_pairs,
    export_preferences,
    is_labels,
    read_labels,
)
from quintain.data.records import read_preferences
from quintain.errors import DataError
from quintain.types import as_text

CALL = {"type": "function", "function": {"name": "go", "arguments": '{"to": "north"}'}}


def side(*said: str, task: str = "t", **fields: Any) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Where to?"}]
    for text in said:
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "and now?"}]
    return {"messages": messages[:-1], "task": task, **fields}


def label(query: Query, choice: Any, by: str = "ann", second: int = 0) -> Label:
    return Label(query=query.id, choice=choice, labeller=by, time=f"2026-11-23T10:00:{second:02d}+00:00")


def labels(queries: list[Query], *given: Label) -> Labels:
    return Labels(queries={query.id: query for query in queries}, given=given)


QUERIES = [Query.of(side("north", f"{k}"), side("north", f"{k + 10}"), (f"a{k}", f"b{k}")) for k in range(6)]


def test_a_question_is_the_same_from_both_sides() -> None:
    one, other = side("north", "west"), side("north", "east")
    query, again = Query.of(one, other, ("a", "b")), Query.of(other, one, ("b", "a"))
    assert query == again
    assert {query.sources.index("a"), query.sources.index("b")} == {0, 1}
    shared, first, second = query.parts
    assert [as_text(message.content) for message in shared] == ["Where to?", "north", "and now?"]
    assert {as_text(first[0].content), as_text(second[0].content)} == {"west", "east"}
    firsts = [query.sources[0][0] for query in QUERIES]
    assert set(firsts) == {"a", "b"}, "neither side is always first"
    with pytest.raises(DataError, match=r"got the same messages twice \(a and b\)"):
        Query.of(one, side("north", "west", task="u"), ("a", "b"))


def test_what_was_seen_last_is_shown_and_is_no_part_of_the_name() -> None:
    plain, ended = Query.of(side("a"), side("b")), Query.of(side("a", end="Fell."), side("b", end=""))
    assert plain.id == ended.id
    assert sorted(len(part) for part in ended.parts[1:]) == [1, 2]


def test_a_file_says_who_answered_what_when(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    assert read_labels(file) == Labels(queries={}, given=())
    ann, bob = label(QUERIES[0], "first"), label(QUERIES[0], "tie", "bob", 1)
    back = label(QUERIES[1], "second", "ann", 2)
    lines = [*(query.line() for query in QUERIES), ann.line(), back.line(), bob.line()]
    lines += [back.line(is_undone=True), QUERIES[0].line(), ""]
    file.write_text("\n".join(lines))
    found = read_labels(file)
    assert list(found.queries) == [query.id for query in QUERIES]
    assert found.queries[QUERIES[0].id] == QUERIES[0]
    assert found.given == (ann, bob)
    assert [query.id for query in found.open_queries("ann")] == [query.id for query in QUERIES[1:]]
    assert len(found.open_queries("eve")) == 6
    assert found.shares == {QUERIES[0].id: 0.75}
    assert is_labels(FileValue(file="f", line=1, value=json.loads(lines[0])))
    assert not is_labels(FileValue(file="f", line=1, value={"messages": []}))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"query": "ab', r"labels.jsonl line 2: got no JSON .*; take a line that was cut off out"),
        ("[1]", r"line 2: got \[1\]; give an object with the name of a query"),
        ('{"query": "ab", "choice": "tie", "labeller": "ann", "time": "t"}', "which no line asks"),
        (
            '{"query": "ab", "choice": "both", "labeller": "ann", "time": "t"}',
            "got the choice 'both'; choose from",
        ),
        ('{"query": "ab", "choice": "tie", "labeller": "", "time": "t"}', "say who answered when"),
        (
            '{"query": "ab", "choice": "undo", "labeller": "ann", "time": "t"}',
            "by ann, who has not answered it",
        ),
        ('{"query": "ab", "first": {}, "second": {}}', r"got first \{\}; give a conversation"),
        (
            '{"query": "ab", "first": {"messages": [{"role": "user", "content": "x"}]}}',
            "no assistant message",
        ),
    ],
)
def test_broken_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(f"{QUERIES[0].line()}\n{line}\n")
    with pytest.raises(DataError, match=message):
        read_labels(file)


def test_a_line_that_is_being_written_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    line = label(QUERIES[0], "tie").line()
    file.write_text(f"{QUERIES[0].line()}\n{line[:20]}")
    assert read_labels(file).given == ()
    file.write_text(f"{QUERIES[0].line()}\n{line}")
    assert len(read_labels(file).given) == 1


def test_a_question_that_was_changed_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text(QUERIES[0].line().replace("north", "south"))
    with pytest.raises(DataError, match="bring the line back as it was"):
        read_labels(file)
    told = json.loads(QUERIES[0].line()) | {"sources": ["a"]}
    file.write_text(json.dumps(told))
    with pytest.raises(DataError, match=r"got the sources \['a'\]; give one for each side"):
        read_labels(file)


def test_agreement_by_hand() -> None:
    assert cohen_kappa("aab", "abb") == pytest.approx(0.4)
    assert cohen_kappa("ab", "ab") == 1
    assert cohen_kappa("ab", "ba") == -1
    assert math.isnan(cohen_kappa("aa", "aa"))
    said = zip(QUERIES, "aabbts", "abbbts", strict=True)
    names = {"a": "first", "b": "second", "t": "tie", "s": "skip"}
    given = [
        label(query, names[choice], by)
        for query, one, other in said
        for by, choice in (("ann", one), ("bob", other))
    ]
    (found,) = agreements(labels(QUERIES, *given, label(QUERIES[0], "skip", "eve")))
    assert (found.labellers, found.num, found.share) == (("ann", "bob"), 5, 0.8)
    assert found.kappa == pytest.approx((0.8 - 9 / 25) / (1 - 9 / 25)), "2·1 + 2·3 + 1·1 of 25 by chance"


def test_preferences_that_are_read_back_and_what_is_none() -> None:
    other_task = Query.of(side("x", task="t"), side("y", task="u"))
    call = {"role": "assistant", "content": "", "tool_calls": [CALL]}
    tools = [{"type": "function", "function": {"name": "go", "description": "", "parameters": {}}}]
    long = side("north", "west")["messages"]
    quiet = {"role": "assistant", "content": "no", "weight": 0}
    whole = Query.of(
        {"messages": [*long, long[0], call], "tools": tools, "task": "t"},
        {"messages": [*long[:-1], quiet, long[0], call], "tools": tools, "task": "t"},
    )
    given = [
        label(whole, "second"),
        label(QUERIES[0], "first"),
        label(QUERIES[0], "second", "bob"),
        label(QUERIES[1], "tie"),
        label(QUERIES[2], "skip"),
        label(other_task, "first"),
        label(QUERIES[4], "first"),
        label(QUERIES[4], "tie", "bob"),
    ]
    found = export_preferences(labels([*QUERIES[:5], other_task, whole], *given))
    assert found.contradicting == (QUERIES[0].id,)
    assert found.refused == {"contradicting": 1, "tie": 1, "skip": 1, "unanswered": 1, "other_task": 1}
    assert str(found).startswith("2 preferences; 1 with opposite answers; 1 as good as each other")
    short, full = found.lines
    assert short["sources"] == list(QUERIES[4].sources)
    assert [each["labeller"] for each in short["labels"]] == ["ann", "bob"]
    assert full["chosen"] == whole.second["messages"] and full["rejected"] == whole.first["messages"]
    lines = [json.loads(json.dumps(line)) for line in found.lines]
    read = list(read_preferences(FileValue(file="f", line=k, value=line) for k, line in enumerate(lines, 1)))
    assert read[1].chosen.tools[0].name == "go"
    assert [len(each.chosen.messages) for each in read] == [4, len(whole.second["messages"])]


def test_pairs_are_drawn_group_by_group() -> None:
    groups = [["a", "b", "c"], ["d"], ["e", "f"]]
    all_of_them = list(draw_pairs(groups, seed=1))
    assert len(all_of_them) == 4 and len(set(all_of_them)) == 4
    assert {pair[0] in "ef" for pair in all_of_them[:2]} == {True, False}, "one of each group first"
    assert list(draw_pairs(groups, seed=1)) == all_of_them
    assert {tuple(draw_pairs(groups, seed=seed)) for seed in range(5)} != {tuple(all_of_them)}
