"""The metrics of the monitors, by value."""

import math
from typing import Any

import pytest
from tests.build import make_episode, make_group, make_turn

from quintain.runs.monitors.measures import measures
from quintain.types import (
    Action,
    Failure,
    Group,
    Outcome,
    Score,
    ToolCall,
    Trajectory,
)


def episode(
    outcome: Outcome | float, *turns: tuple[int, ...], task: str = "a", index: int = 0, **more: Any
) -> Trajectory:
    is_number = isinstance(outcome, (int, float))
    scored = Score(value=outcome, is_success=outcome > 0) if is_number else outcome
    logprob = more.pop("logprob", -0.5)
    return make_episode(
        *(
            make_turn(
                ids,
                logprob=logprob,
                action=Action(text="x", tool_calls=more.get("calls", ())),
                reward_terms=more.get("terms", {}),
            )
            for ids in turns
        ),
        task=task,
        outcome=scored,
        seed=index,
        group=task,
        index=index,
    )


def test_nothing_is_measured_of_nothing() -> None:
    assert measures([]) == {}


def test_failures_are_shares_of_all_episodes_by_owner() -> None:
    broken = Failure(owner="tool", kind="k", message="m")
    found = measures([make_group(episode(1.0, (1,)), episode(broken), episode(broken), episode(0.0, (1,)))])
    assert found.get("monitor/failures") == found.get("monitor/failures/tool") == 0.5
    assert "monitor/failures/judge" not in found


def test_retries_are_shares_of_all_attempts_and_may_flatter() -> None:
    tool, world = (Failure(owner=owner, kind="k", message="m") for owner in ("tool", "environment"))
    groups = [
        make_group(episode(1.0, (1,), task="a"), episode(0.0, (1,), task="a", index=1)),
        make_group(episode(0.0, (1,), task="b"), episode(tool, task="b", index=1)),
    ]
    found = measures(groups, retries=[("a", 0, tool), ("a", 0, tool), ("b", 1, world)])
    assert (found["monitor/retries"], found["monitor/retried_groups"]) == (3 / 7, 1.0)
    assert (found["monitor/retries/tool"], found["monitor/retries/environment"]) == (2 / 7, 1 / 7)
    assert found["monitor/retry_bias"] == 1.0, "the one that was scored after a retry against the two others"
    found = measures(groups)
    assert (found["monitor/retries"], found["monitor/retried_groups"]) == (0.0, 0.0)
    assert "monitor/retry_bias" not in found


def test_zero_variance_is_over_groups_that_could_differ() -> None:
    differs = make_group(episode(1.0, (1,)), episode(0.0, (1,)))
    equal = make_group(episode(1.0, (1,)), episode(1.0, (1,)))
    alone = make_group(episode(1.0, (1,)))
    assert measures([differs, equal, equal, alone])["monitor/zero_variance"] == pytest.approx(2 / 3)
    assert "monitor/zero_variance" not in measures([alone])


def test_tasks_are_solved_always_sometimes_or_never() -> None:
    always, never = (
        make_group(episode(1.0, (1,)), episode(1.0, (1,))),
        make_group(episode(0.0, (1,)), episode(0.0, (1,))),
    )
    sometimes, alone = make_group(episode(1.0, (1,)), episode(0.0, (1,))), make_group(episode(1.0, (1,)))
    found = measures([always, never, sometimes, sometimes, alone])
    assert [found[f"monitor/{name}"] for name in ("solved", "boundary", "beyond")] == [0.25, 0.5, 0.25]
    assert "monitor/solved" not in measures([alone])


def test_entropy_is_minus_the_mean_log_prob_of_tokens() -> None:
    sure, unsure = episode(1.0, (1, 2, 3), logprob=-0.1), episode(0.0, (1,), logprob=-1.7)
    assert measures([make_group(sure, unsure)])["monitor/entropy"] == pytest.approx(0.5)


def test_ngrams_repeat_within_a_completion_only() -> None:
    # 7 tokens have 4 four-grams, of which 1212 comes twice and 2121 twice.
    looping, short = episode(0.0, (1, 2, 1, 2, 1, 2, 1)), episode(0.0, (1, 2), (1, 2))
    assert measures([make_group(looping)])["monitor/repeated_ngrams"] == 0.5
    assert measures([make_group(short)])["monitor/repeated_ngrams"] == 0.0
    twice = episode(0.0, (1, 2, 3, 4), (1, 2, 3, 4))
    assert measures([make_group(twice)])["monitor/repeated_ngrams"] == 0.0
    assert measures([make_group(*[episode(0.0, tuple(range(9000)))] * 4)])["monitor/repeated_ngrams"] == 0.0


def test_answers_that_name_their_task_hold_log_2_nats_and_equal_ones_none() -> None:
    apart = [make_group(episode(0.0, (5, 5), task="a")), make_group(episode(0.0, (7, 7), task="b"))]
    same = [make_group(episode(0.0, (5, 7), task="a")), make_group(episode(0.0, (7, 5), task="b"))]
    assert measures(apart)["monitor/prompt_information"] == pytest.approx(math.log(2))
    assert measures(same)["monitor/prompt_information"] == pytest.approx(0.0, abs=1e-12)
    assert "monitor/prompt_information" not in measures(apart[:1])


def test_length_goes_with_reward_within_groups() -> None:
    def pair(long: float, short: float, task: str) -> Group:
        return make_group(episode(long, (1, 2, 3), task=task), episode(short, (1,), task=task))

    assert measures([pair(1.0, 0.0, "a")])["monitor/length_advantage"] == pytest.approx(1.0)
    assert measures([pair(0.0, 1.0, "a")])["monitor/length_advantage"] == pytest.approx(-1.0)
    assert measures([pair(1.0, 0.0, "a"), pair(0.0, 1.0, "b")])["monitor/length_advantage"] == pytest.approx(
        0.0
    )
    assert "monitor/length_advantage" not in measures([pair(1.0, 1.0, "a")])


@pytest.mark.parametrize(("num_whole", "is_told"), [(7, True), (95, False)])
def test_the_one_answer_that_broke_off_is_no_advantage_of_length(num_whole: int, is_told: bool) -> None:
    whole = [episode(1.0, tuple(range(22)), task="a") for _ in range(num_whole)]
    broken = episode(0.0, tuple(range(16)), task="a")
    assert ("monitor/length_advantage" in measures([make_group(*whole, broken)])) == is_told


def test_coverage_counts_tools_that_exist_and_files_that_were_named() -> None:
    calls = (ToolCall(name="read", arguments={"path": "a.py"}), ToolCall(name="made_up"))
    found = measures([make_group(episode(0.0, (1,), calls=calls))], tools=["read", "write"])
    assert (found["monitor/tool_coverage"], found["monitor/files"]) == (0.5, 1.0)
    assert "monitor/tool_coverage" not in measures([make_group(episode(0.0, (1,)))])


def test_a_term_has_its_share_of_the_size_of_all() -> None:
    terms = {"goal": 3.0, "length": -1.0}
    found = measures([make_group(episode(0.0, (1,), terms=terms))])
    assert (found["monitor/share/goal"], found["monitor/share/length"]) == (0.75, 0.25)


def test_what_a_guard_counts_is_no_reward_and_what_is_taken_for_it_is() -> None:
    for refused, share in ((2.0, None), (-1.0, 0.25)):
        found = measures([make_group(episode(0.0, (1,), terms={"goal": 3.0, "refused": refused}))])
        assert found.get("monitor/share/refused") == share


def test_cost_is_of_all_episodes_for_each_that_succeeded() -> None:
    found = measures([make_group(episode(1.0, (1, 2), (3,)), episode(0.0, (1, 2, 3)))])
    assert (found["monitor/tokens_per_success"], found["monitor/turns_per_success"]) == (6.0, 3.0)
    assert "monitor/tokens_per_success" not in measures([make_group(episode(0.0, (1,)))])
