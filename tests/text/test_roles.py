"""Roles in one text: written and read again as they were, and in their order."""

import random

import pytest

from quintain.text.parse import UnreadableError
from quintain.text.roles import (
    ACT,
    CHECK,
    PLAN,
    ROLES,
    SUGGEST,
    THINK,
    Activation,
    find_broken_rule,
    read_roles,
    score_of,
    write_roles,
)

PIECES = (
    "</think>",
    "<action>",
    "a < b",
    "&lt;",
    "&amp;",
    "&",
    " ",
    "\n",
    "12",
    "ü",
    "",
    "<double_check>5</double_check>",
)
GOOD = (
    (THINK, "hm"), (SUGGEST, "12"), (CHECK, "2"), (PLAN, "again"),
    (THINK, ""), (SUGGEST, "13"), (CHECK, "3"), (ACT, "13"),
)  # fmt: skip


def made(*roles: tuple[str, str]) -> list[Activation]:
    return [Activation(*role) for role in roles]


def test_a_thousand_transcripts_are_read_as_they_were_written() -> None:
    rng = random.Random(0)
    for _ in range(1000):
        told = [
            Activation(rng.choice(ROLES), "".join(rng.choices(PIECES, k=rng.randrange(4))))
            for _ in range(rng.randint(1, 8))
        ]
        assert list(read_roles(write_roles(told))) == told
    assert write_roles(made((THINK, "a<b&c"))) == "<think>a&lt;b&amp;c</think>"
    assert read_roles(" <think>x</think>\n<action>y</action> ") == tuple(made((THINK, "x"), (ACT, "y")))


@pytest.mark.parametrize("text", ["", "12", "<think>x", "<think>x</plan>", "hm <think>x</think>", "<think>x</think> hm",
                                  "<think>x</think> hm <plan>y</plan>", "<joke>x</joke>"])  # fmt: skip
def test_what_is_no_transcript_is_refused(text: str) -> None:
    with pytest.raises(UnreadableError, match="expected roles, each as <think>"):
        read_roles(text)


def test_roles_in_their_order() -> None:
    assert find_broken_rule(made(*GOOD)) == ""
    assert find_broken_rule(made(*GOOD[4:])) == ""
    assert find_broken_rule(made((SUGGEST, "1"), (CHECK, "5"), (ACT, "1"))) == ""
    assert [score_of(text) for text in ("1", "5", "0", "6", "3.5", "")] == [1, 5, None, None, None, None]


def test_the_threshold_is_three() -> None:
    for score in (1, 2):
        assert "may not follow double_check of" in find_broken_rule(
            made((SUGGEST, "1"), (CHECK, str(score)), (ACT, "1"))
        )
    for score in (3, 4, 5):
        assert find_broken_rule(made((SUGGEST, "1"), (CHECK, str(score)), (PLAN, "x"))) == (
            f"plan may not follow double_check of {score}"
        )


VIOLATIONS = [
    *(made(*GOOD[:k], *GOOD[k + 1 :]) for k in (1, 2, 3, 5, 6)),
    *(made(*GOOD[:k], GOOD[k], *GOOD[k:]) for k in range(8)),
    made(*GOOD[:-1]),
    made(*GOOD[:-1], (ACT, "14")),
    made(*GOOD[:2], (CHECK, "none"), *GOOD[3:]),
    made(*GOOD[:2], (CHECK, "4"), *GOOD[3:]),
    made(*GOOD[:6], (CHECK, "1"), *GOOD[7:]),
    made((PLAN, "first"), *GOOD),
    made((CHECK, "4"), *GOOD),
]


@pytest.mark.parametrize("roles", VIOLATIONS)
def test_planted_violations_are_found(roles: list[Activation]) -> None:
    assert find_broken_rule(roles)


def test_twenty_were_planted() -> None:
    assert len(VIOLATIONS) == 20
    assert find_broken_rule([]) == "nothing is done at the end"
    assert (
        find_broken_rule(made((SUGGEST, "1"), (CHECK, "no")))
        == "double_check gives no score from 1 to 5: 'no'"
    )
