"""The nouns: what their defaults promise, and the seeds."""

from dataclasses import replace

import pytest

from quintain.types import (
    NOTHING,
    Action,
    Completion,
    Failure,
    Group,
    Image,
    Outcome,
    Score,
    Stop,
    Task,
    Text,
    Trajectory,
    Turn,
    as_content,
    as_text,
    derive_seed,
    flatten_scored,
    is_constant,
)

TASK = Task(id="t/train/0", environment="t", seed=7)


def trajectory(outcome: Outcome, *sampled: tuple[int, ...]) -> Trajectory:
    turns = tuple(
        Turn(
            observation=(),
            prompt_ids=(1,),
            completion=Completion(token_ids=ids, logprobs=(), stop="stop"),
            action=Action(),
        )
        for ids in sampled
    )
    return Trajectory(
        task=TASK, turns=turns, outcome=outcome, stop=Stop.TERMINATED, seed=0, group="g", index=0
    )


def test_the_empty_default_is_closed_and_hashable() -> None:
    assert dict(NOTHING) == {}
    assert hash(NOTHING) == hash(NOTHING)
    with pytest.raises(TypeError, match="the empty default is shared"):
        NOTHING["a"] = 1  # type: ignore[index] # pyright: ignore[reportIndexIssue]
    assert not NOTHING


def test_seeds_are_their_coordinates() -> None:
    assert derive_seed("run", 1) == derive_seed("run", 1)
    assert len({derive_seed(1), derive_seed("1"), derive_seed(1, 1), derive_seed(11)}) == 4
    assert all(0 <= derive_seed(n) < 1 << 63 for n in range(100))


def test_only_limits_are_truncations() -> None:
    assert [stop for stop in Stop if stop.is_truncation] == [
        Stop.MAX_TURNS,
        Stop.CUT,
        Stop.MAX_TOKENS,
        Stop.TIMEOUT,
    ]
    assert [stop for stop in Stop if stop.is_cut] == [Stop.CUT, Stop.MAX_TOKENS, Stop.TIMEOUT]


def test_observations_are_text_or_parts() -> None:
    parts = [Text(text="a"), Image(data=b"", media_type="image/png"), Text(text="b")]
    assert as_content("a") == (Text(text="a"),)
    assert as_content(parts) == tuple(parts)
    assert as_text("a") == "a"
    assert as_text(parts) == "ab"


def test_a_copy_of_a_task_has_its_randomness_unread() -> None:
    drawn = [TASK.rng.random() for _ in range(3)]
    again = replace(TASK)
    assert [again.rng.random() for _ in range(3)] == drawn
    assert again == TASK


def test_what_may_be_trained_on() -> None:
    score = Score(value=1.0, is_success=True)
    whole = trajectory(score, (4, 5), (6,))
    failed = trajectory(Failure(owner="tool", kind="k", message="m"), (4,))
    assert whole.num_sampled == 3
    group = Group(task=TASK, trajectories=(trajectory(score), failed, whole))
    assert group.scored == (whole,)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((), True),
        ((1.0,), True),
        ((0.5, 0.5), True),
        ((0.0, 1.0), False),
        ((1.0, 1.0 + 1e-12), True),
        ((1e9, 1e9 + 1), True),
        ((1e9, 1e9 + 100), False),
        ((0.0, 1e-7), False),
    ],
)
def test_values_are_constant_up_to_rounding(values: tuple[float, ...], expected: bool) -> None:
    assert is_constant(values) is expected


def test_success_and_returns_are_of_scored_episodes() -> None:
    won = trajectory(Score(value=2.0, is_success=True), (1,))
    lost = trajectory(Score(value=0.5, is_success=False), (1,))
    broken = trajectory(Failure(owner="tool", kind="crash", message=""), (1,))
    assert [t.is_success for t in (won, lost, broken)] == [True, False, False]
    group = Group(task=TASK, trajectories=(broken, won, lost))
    assert group.returns == [2.0, 0.5]
    assert flatten_scored([group, group]) == (won, lost, won, lost)
