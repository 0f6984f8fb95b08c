"""Each alarm: a curve on which it comes within five steps, and clean curves on which none comes."""

import random
from collections.abc import Callable
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
import pytest

from quintain.learning.thresholds import Thresholds
from quintain.runs.monitors.alarms import alarms, warn_of_hacking
from quintain.runs.monitors.watch import Monitors

BOUNDS = Thresholds()
Bend = Callable[[int], dict[str, Any]]
"""Steps since the trouble began → what it changes in a row"""


def clean(step: int, rng: random.Random) -> dict[str, Any]:
    """A run that learns: success rises, the policy becomes surer and shorter."""
    learned = min(1.0, 0.2 + 0.02 * step)
    row: dict[str, Any] = {
        "step": step,
        "train/success": learned + rng.uniform(-0.02, 0.02),
        "train/reward": learned + rng.uniform(-0.02, 0.02),
        "train/tokens": 40 - 20 * learned + rng.uniform(-2, 2),
        "monitor/failures": 0.0,
        "monitor/retries": 0.05,
        "monitor/retries/environment": 0.05,
        "monitor/zero_variance": 0.2 + 0.8 * (learned > 0.9),
        "monitor/solved": 0.1 + 0.85 * (learned > 0.9),
        "monitor/beyond": 0.1 * (learned < 0.9),
        "monitor/unreadable": 0.05,
        "monitor/entropy": 1.2 - learned + rng.uniform(-0.05, 0.05),
        "monitor/repeated_ngrams": 0.05,
        "monitor/prompt_information": 0.3 - 0.1 * learned,
        "monitor/length_advantage": rng.uniform(-0.3, 0.3),
        "monitor/tool_coverage": 1.0,
        "monitor/share/goal": 0.8,
        "monitor/share/format": 0.2,
        "tools/guess/calls": 100.0,
        "tools/guess/invalid_call": 4.0,
        "reward_model/score": 3 * learned + rng.uniform(-0.1, 0.1),
        "reward_model/gold": learned + rng.uniform(-0.02, 0.02),
    }
    if step % 2 == 0:
        row |= {"eval/success": learned, "canary/empty": 0.0, "canary/injection": 0.0}
    return row


def stuck(step: int, rng: random.Random) -> dict[str, Any]:
    """A run that neither learns nor breaks."""
    flat = {"train/success": 0.3, "train/reward": 0.3 + rng.uniform(-0.05, 0.05), "train/tokens": 36.0}
    held_out = {"eval/success": 0.3} if step % 2 == 0 else {}
    return {**clean(10, rng), "step": step, **flat, **held_out}


@pytest.mark.parametrize(
    ("count", "message"), [(60.0, None), (150.0, "60% of calls are of a tool that is not there")]
)
def test_calls_of_no_tool_are_a_share_of_all(count: float, message: str | None) -> None:
    rows: list[dict[str, Any]] = [
        {
            "step": step,
            "monitor/failures": 0.0,
            "tools/guess/calls": 100.0,
            "tools/guess/invalid_call": 0.0,
            "tools/unknown/calls": count,
            "tools/unknown/invalid_call": count,
        }
        for step in range(10)
    ]
    found = [each.message for each in alarms(rows, BOUNDS) if each.name == "invalid_calls"]
    assert [each[: len(message or "")] for each in found] == ([] if message is None else [message])


def raised(bend: Bend, *, onset: int, steps: int = 5) -> dict[str, int]:
    """Return the steps after `onset` at which alarms begin on a stuck run that `bend` spoils from there on."""
    rng = random.Random(0)
    monitors = Monitors(BOUNDS, [{"step": 0, "eval/success": 0.3}])
    found: dict[str, int] = {}
    for step in range(1, onset + steps + 1):
        row = stuck(step, rng)
        row |= bend(step - onset) if step > onset else {}
        monitors.judge(row)
        found |= {alarm.name: step - onset for alarm in monitors.new}
    return found


LEVELS: dict[str, Bend] = {
    "tool_failures": lambda since: {"tools/guess/timeout": 20.0},
    "invalid_calls": lambda since: {"tools/guess/invalid_call": 60.0},
    "zero_variance": lambda since: {"monitor/zero_variance": 1.0},
    "ngrams": lambda since: {"monitor/repeated_ngrams": 0.7},
    "length_advantage": lambda since: {"monitor/length_advantage": 0.95},
    "reward_share": lambda since: {"monitor/share/goal": 0.99, "monitor/share/format": 0.01},
    "unread": lambda since: {"verdicts/unread": 0.03},
    "lost_branches": lambda since: {"branch/lost": 0.5},
    "failures": lambda since: {"monitor/failures": 0.04, "monitor/failures/environment": 0.04},
    "stop_failures": lambda since: {"monitor/failures": 0.1, "monitor/failures/judge": 0.1},
    "retries": lambda since: {"monitor/retries": 0.2, "monitor/retries/tool": 0.2, "monitor/retry_bias": 0.5},
    "canaries": lambda since: {"canary/injection": 1.0},
    "hacking": lambda since: {"train/reward": 0.4 + 0.2 * since, "eval/success": 0.3},
    "chosen": lambda since: {
        "preference/chosen_log_ratio": -8.0,
        "preference/rejected_log_ratio": -20.0,
        "eval/success": 0.3,
    },
}
CHANGES: dict[str, Bend] = {
    "tool_coverage": lambda since: {"monitor/tool_coverage": 0.2},
    "overoptimised": lambda since: {"reward_model/score": 2.0 + since, "reward_model/gold": 0.1},
    "judge": lambda since: {"judge/agreement": 1 - 0.1 * since},
    "boundary": lambda since: {"monitor/beyond": 0.6},
    "entropy": lambda since: {"monitor/entropy": 0.02},
    "diversity": lambda since: {"monitor/prompt_information": 0.001},
    "length": lambda since: {"train/tokens": 80.0},
    "unreadable": lambda since: {"monitor/unreadable": 0.4},
    "cost": lambda since: {"train/success": 0.02},
}


@pytest.mark.parametrize("name", LEVELS)
def test_a_run_that_is_bad_from_the_start_raises_within_five_steps(name: str) -> None:
    found = raised(LEVELS[name], onset=0)
    assert set(found) == {name}
    assert found[name] <= 5


@pytest.mark.parametrize("name", CHANGES)
def test_a_run_that_goes_bad_raises_within_five_steps(name: str) -> None:
    found = raised(CHANGES[name], onset=8)
    assert set(found) == {name}
    assert found[name] <= 5


def test_preferred_sides_may_fall_while_success_rises_and_need_no_episodes() -> None:
    def fallen(*held_out: float) -> list[str]:
        rows = [{"eval/success": share, "preference/chosen_log_ratio": -8.0} for share in held_out]
        return [str(alarm) for alarm in alarms(rows, Thresholds(window=2))]

    assert fallen(0.3) == fallen(0.3, 0.4) == []
    (told,) = fallen(0.3, 0.31)
    assert told.startswith("preferred sides are 8.0 nats less likely than under the reference")


@pytest.mark.parametrize(("error", "is_alarming"), [(0.0, True), (0.02, True), (0.04, False)])
def test_an_evaluator_that_agrees_less_is_told_from_the_luck_of_the_draw(
    error: float, is_alarming: bool
) -> None:
    rows = [
        {"step": n, "monitor/failures": 0.0, "evaluator/agreement": share, "evaluator/error": error}
        for n, share in enumerate((0.95, 0.9, 0.8))
    ]
    found = [str(each) for each in alarms(rows, BOUNDS) if each.name == "judge"]
    assert bool(found) == is_alarming
    assert not found or found[0].startswith(
        "the agreement of the evaluator's verdicts with the truth fell from 0.95"
    )


def test_every_threshold_has_its_alarm() -> None:
    assert set(LEVELS) | set(CHANGES) | {"window"} == set(Thresholds.__slots__)


@pytest.mark.parametrize("curve", [clean, stuck])
@pytest.mark.parametrize("seed", range(3))
def test_a_clean_run_raises_nothing(curve: Callable[[int, random.Random], dict[str, Any]], seed: int) -> None:
    rng = random.Random(seed)
    monitors = Monitors(BOUNDS, [])
    notes: list[str] = []
    for step in range(60):
        assert monitors.judge(curve(step, rng)) == {}
        assert [alarm for alarm in monitors.new if not alarm.is_note] == []
        notes += [alarm.subject for alarm in monitors.new]
    assert notes == (["learned"] if curve is clean else [])


def test_all_solved_is_a_note_and_all_failed_an_alarm() -> None:
    rng = random.Random(0)

    def said(solved: float) -> list[tuple[str, str]]:
        bend = {"monitor/zero_variance": 0.95, "monitor/solved": solved}
        return [(a.kind, a.name) for a in alarms([stuck(n, rng) | bend for n in range(1, 8)], BOUNDS)]

    assert said(0.9) == said(0.75) == [("note", "zero_variance")]
    assert said(0.0) == said(0.6) == [("alarm", "zero_variance")]


def test_answers_that_cannot_be_read_come_first_and_hide_what_they_set_off() -> None:
    rng = random.Random(0)

    def said(*bends: dict[str, float]) -> list[tuple[str, str]]:
        rows = [stuck(n, rng) | bends[min(n // 6, len(bends) - 1)] for n in range(1, 12)]
        return [(alarm.name, alarm.message) for alarm in alarms(rows, BOUNDS)]

    broken = {"monitor/zero_variance": 1.0, "train/success": 0.001, "train/tokens": 120.0}
    assert [name for name, _ in said({}, broken)] == ["zero_variance", "length", "cost"]
    lost = {**broken, "monitor/unreadable": 0.9, "monitor/beyond": 0.9}
    names, messages = zip(*said({}, lost), strict=True)
    assert names == ("unreadable", "boundary")
    assert messages[0] == "90% of answers cannot be read as an action, 5% at first"
    assert said({"monitor/unreadable": 0.6}) == [("unreadable", "60% of answers cannot be read as an action")]
    assert said({"monitor/unreadable": 0.3}) == said({}, {"monitor/unreadable": 0.29}) == []
    learned = {**broken, "monitor/solved": 1.0, "monitor/unreadable": 0.9}
    assert [name for name, _ in said({}, learned)] == ["unreadable", "zero_variance"], "a note stays"


def test_an_audit_that_does_not_rise_counts_more_than_success_that_does() -> None:
    rng = random.Random(0)

    def row(step: int, audit: float) -> dict[str, Any]:
        held_out = {"eval/success": 0.1 * step, "eval/audit": audit} if step % 2 == 0 else {}
        return stuck(step, rng) | {"train/reward": 0.1 * step, **held_out}

    flat = [row(step, 0.3) for step in range(12)]
    assert [alarm.name for alarm in alarms(flat, BOUNDS)] == ["hacking"]
    assert alarms([row(step, 0.05 * step) for step in range(12)], BOUNDS) == []


@pytest.mark.parametrize("num_steps", [3, 4, 5, 6, 8, 12])
def test_luck_rarely_sets_off_the_alarm_for_hacking_and_hacking_does(num_steps: int) -> None:
    def share(rise: float, count: int) -> float:
        """Return how many of `count` runs are called hacked, whose reward rises and whose held-out success stays."""
        rng, found = np.random.default_rng(num_steps), 0
        for _ in range(count):
            rows = list[dict[str, float | None]]()
            for step in range(num_steps):
                reward = rng.binomial(64, 0.15 + rise * step / (num_steps - 1)) / 64
                error = sqrt(reward * (1 - reward) / 63)
                rows.append({"train/reward": reward, "train/reward_error": error})
            first, last = rng.binomial(512, 0.15, size=2) / 512
            ends = [round(part * num_steps / 3) for part in range(4)]
            parts = [rows[a:b] for a, b in pairwise(ends)]
            found += bool(list(warn_of_hacking(rows, parts, (first, last), BOUNDS)))
        return found / count

    assert share(0.0, 1000) <= 0.01
    assert share(0.6, 100) >= 0.7


def test_an_alarm_is_said_once_and_shown_as_long_as_it_holds() -> None:
    monitors = Monitors(BOUNDS, [])
    rng = random.Random(0)
    shown = [monitors.judge(stuck(n, rng) | {"monitor/repeated_ngrams": 0.9}) for n in range(1, 8)]
    assert shown == [{}] * 4 + [{"alarm/ngrams": 1.0}] * 3
    assert monitors.new == []


def test_a_resumed_run_raises_what_the_uninterrupted_one_raises() -> None:
    rng = random.Random(1)
    rows = [stuck(n, rng) | ({"monitor/entropy": 0.01} if n > 8 else {}) for n in range(16)]
    whole = Monitors(BOUNDS, [])
    expected = [(whole.judge(row), whole.new) for row in rows]
    for cut in range(len(rows)):
        resumed = Monitors(BOUNDS, rows[:cut])
        assert [(resumed.judge(row), resumed.new) for row in rows[cut:]] == expected[cut:]


def test_a_policy_that_learns_may_become_sure_short_and_uniform() -> None:
    rng = random.Random(0)
    rows = [stuck(n, rng) for n in range(1, 6)]
    surer = {
        "train/success": 0.9,
        "monitor/entropy": 0.01,
        "train/tokens": 9.0,
        "monitor/prompt_information": 0.0,
    }
    assert alarms([*rows, *(stuck(n, rng) | surer for n in range(6, 11))], BOUNDS) == []


def test_a_value_that_is_unknown_is_no_alarm() -> None:
    rng = random.Random(0)
    assert alarms([stuck(n, rng) | {"monitor/entropy": None} for n in range(9)], BOUNDS) == []
    assert alarms([], BOUNDS) == []


def test_an_alarm_of_retries_names_who_broke_most_and_whom_it_flatters() -> None:
    rng = random.Random(0)
    broken = {"monitor/retries": 0.3, "monitor/retries/tool": 0.2, "monitor/retries/environment": 0.1}

    def said(bend: dict[str, Any]) -> list[str]:
        return [alarm.message for alarm in alarms([stuck(n, rng) | broken | bend for n in range(5)], BOUNDS)]

    assert said({}) == ["30% of attempts broke and were begun anew, most by the tool"]
    assert said({"monitor/retry_bias": 0.5}) == [
        "30% of attempts broke and were begun anew, most by the tool; those score +0.50 against the others"
    ]
