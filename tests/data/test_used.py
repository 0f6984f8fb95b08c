"""Which calls of an agent outside were used, by hand."""

from dataclasses import replace
from typing import Any

import pytest

from quintain.data.leaves import choose_leaves, keep_leaves
from quintain.data.samples import imitation_samples
from quintain.data.used import AUXILIARY, LEFT, NOT_READ, REPEATED, CallNote, call_notes, find_unused
from quintain.errors import DataError
from quintain.types import Action, Completion, Score, Stop, Task, Trajectory, Turn, as_content

Call = tuple[tuple[int, ...], tuple[int, ...], bool, dict[str, Any]]


def turns_of(*calls: Call) -> tuple[Turn, ...]:
    """Return the turns of calls (given, sampled, whether it starts a segment, facts); read to the end unless said."""
    return tuple(
        Turn(
            observation=as_content("x"),
            prompt_ids=given,
            completion=Completion(token_ids=sampled, logprobs=(-0.5,) * len(sampled), stop="stop"),
            action=Action(text="go"),
            starts_segment=starts,
            facts={"call": number, "after": number, "delivery": "whole", **facts},
        )
        for number, (given, sampled, starts, facts) in enumerate(calls)
    )


ROOT: Call = ((5,), (1,), True, {})
CASES: dict[str, tuple[tuple[Call, ...], dict[int, str]]] = {
    "a line": ((ROOT, ((6,), (2,), False, {})), {}),
    "the last was not read": ((ROOT, ((6,), (2,), False, {"delivery": "broken"})), {1: NOT_READ}),
    "not read, but gone on from": ((((5,), (1,), True, {"delivery": "broken"}), ((6,), (2,), False, {})), {}),
    "neither was read": (
        (((5,), (1,), True, {"delivery": "broken"}), ((5,), (2,), True, {"delivery": "broken"})),
        {0: NOT_READ, 1: NOT_READ},
    ),
    "both were read": ((ROOT, ((5,), (2,), True, {})), {}),
    "the second was gone on from": ((ROOT, ((5,), (2,), True, {}), ((7,), (3,), False, {})), {0: REPEATED}),
    "left for another question": (
        (ROOT, ((6,), (2,), False, {}), ((5, 1, 7), (3,), True, {})),
        {1: LEFT},
    ),
    "found again": ((ROOT, ((6,), (2,), False, {"carried": True}), ((5, 1, 7), (3,), True, {})), {}),
    "at the same time": ((ROOT, ((6,), (2,), False, {}), ((5, 1, 7), (3,), True, {"after": 1})), {}),
    "left for one that was not read": (
        (ROOT, ((6,), (2,), False, {}), ((5, 1, 7), (3,), True, {"delivery": "broken"})),
        {2: NOT_READ},
    ),
    "an auxiliary chain": (
        (((5,), (1,), True, {"kind": "auxiliary"}), ((6,), (2,), False, {"kind": "auxiliary"})),
        {0: AUXILIARY, 1: AUXILIARY},
    ),
    "a title": (
        (((5,), (1,), True, {"has_tools": False}), ((8,), (2,), True, {"has_tools": True})),
        {0: AUXILIARY},
    ),
    "a title that is shown": (
        (((5,), (1,), True, {"has_tools": False, "carried": True}), ((8,), (2,), True, {"has_tools": True})),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_by_hand(name: str) -> None:
    calls, unused = CASES[name]
    assert find_unused(turns_of(*calls)) == unused


def test_a_harness_of_ours_uses_everything() -> None:
    bare = [
        Turn(
            observation=(),
            prompt_ids=(5,),
            completion=turn.completion,
            action=turn.action,
            starts_segment=True,
        )
        for turn in turns_of(ROOT, ROOT)
    ]
    assert find_unused(bare) == {}
    mixed = [bare[0], *turns_of(ROOT)]
    assert find_unused(mixed) == {}


def test_facts_of_a_newer_version_are_refused() -> None:
    assert find_unused(turns_of((*ROOT[:3], {"version": 1}))) == {}
    with pytest.raises(DataError, match="got version 2, and this Quintain reads 1; update it"):
        find_unused(turns_of(ROOT, (*ROOT[:3], {"version": 2})))


def test_the_rule_of_leaves() -> None:
    calls, _ = CASES["left for another question"]
    trajectory = Trajectory(
        task=Task(id="t", environment="e", seed=0), turns=turns_of(*calls), outcome=Score(value=1.0, is_success=True),
        stop=Stop.TERMINATED, seed=0, group="g", index=0,
    )  # fmt: skip
    leaves = choose_leaves(trajectory.turns, "used")
    assert (leaves.trained, leaves.turns, dict(leaves.left_out)) == ((2,), frozenset({0, 2}), {1: LEFT})
    samples = imitation_samples([trajectory])
    kept, reasons = keep_leaves(samples, [trajectory], "used")
    assert [int(sample.loss_weight.sum()) for sample in kept] == [1, 1]
    assert reasons == {(0, 1): LEFT}


def test_what_is_told_of_a_call() -> None:
    """Why it forks, where its prompt differs and from which call, why it is not trained; of one as always nothing."""
    differs = {"call": 3, "token": 7, "was": "a", "now": "b"}
    forked = replace(
        turns_of(((1,), (2,), True, {}))[0], facts={"call": 4, "fork": "rewrite", "differs": differs}
    )
    assert call_notes(forked, LEFT) == [
        CallNote("call 4: rewrite"),
        CallNote("its prompt differs from call 3 at token 7: 'a' was, 'b' is", "3"),
        CallNote(f"not trained: {LEFT}"),
    ]
    assert call_notes(replace(forked, facts={"call": 4, "fork": "root"}), None) == []
