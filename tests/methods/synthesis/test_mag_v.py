import pytest

from quintain.errors import DataError
from quintain.methods.synthesis.mag_v import Asked, choose_questions, fit, keep_verified, split_by_seed
from quintain.rewards.trajectory_features import Told
from quintain.rewards.verifier import Verifier


def pair(seed: str, order: int, *, back: int, label: bool | None = None) -> Asked:
    first, second = (
        Told(
            question=f"refund order {n}",
            calls=(("show", {"order": n}), ("refund", {"order": n})),
            answer="done",
        )
        for n in (order, back)
    )
    return Asked(seed=seed, first=first, back=second, label=label)


def test_questions_that_differ_are_chosen() -> None:
    assert choose_questions(["a b", "a b", "c d"], 2) == [0, 2]
    assert choose_questions(["a b", "a c", "d e", "d f"], 3) == [0, 2, 1]
    with pytest.raises(DataError, match="got 1, of which 2 are to be chosen"):
        choose_questions(["a"], 2)


def test_no_seed_is_on_both_sides() -> None:
    asked = [pair(seed, 1, back=1) for seed in "aabbccdd"]
    ours, theirs = split_by_seed(asked)
    assert {each.seed for each in ours} == {"a", "b"} and {each.seed for each in theirs} == {"c", "d"}


def test_who_did_something_else_is_found() -> None:
    asked = [pair(str(n), n, back=n if n % 2 else n + 40, label=bool(n % 2)) for n in range(20)]
    held_out = [pair("x", 60, back=60), pair("y", 61, back=17)]
    assert [each.seed for each in keep_verified(held_out, fit(asked))] == ["x"]
    assert keep_verified([], Verifier(weights=(0.0,) * 5, bias=0.0)) == []


def test_labels_must_be_known_to_fit() -> None:
    with pytest.raises(DataError, match="got 1 trajectories without a label"):
        fit([pair("a", 1, back=1)])
