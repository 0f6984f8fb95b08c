import numpy as np
import pytest

from quintain.errors import DataError
from quintain.rewards.trajectory_features import Told, compare_trajectories, overlap
from quintain.rewards.verifier import Verifier, area_under_roc, fit_verifier

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 3))
Y = [bool(value) for value in X @ np.array([1.0, -2.0, 0.5]) + RNG.normal(size=60) > 0.3]


def tell(*calls: str, question: str = "", answer: str = "") -> Told:
    return Told(question=question, calls=tuple((call, {}) for call in calls), answer=answer)


def test_features_by_hand() -> None:
    same = lambda one, other: float(one == other)  # noqa: E731
    found = compare_trajectories(tell("a", "b"), tell("a", "c"), likeness=same)
    assert found == (0.5, pytest.approx(1 / 3), 0.0, 1.0, 1.0)
    one = Told(question="q", calls=(("a", {"x": 1, "y": 2}), ("b", {})), answer="z")
    other = Told(question="r", calls=(("a", {"x": 1, "y": "2"}), ("b", {}), ("b", {})), answer="z")
    assert compare_trajectories(one, other, likeness=same) == (pytest.approx(2 / 3), 0.5, 0.5, 0.0, 1.0)
    assert compare_trajectories(one, one, likeness=same) == (1.0,) * 5
    assert overlap([], []) == 1.0 and overlap([1], []) == 0.0


def test_the_gradient_is_0_at_the_fit() -> None:
    found = fit_verifier(X, Y, inverse_penalty=2.0)
    error = found.score(X) - np.array(Y, float)
    assert np.allclose(X.T @ error + np.array(found.weights) / 2.0, 0.0, atol=1e-8)
    assert abs(float(error.sum())) < 1e-8, "the bias is not shrunk"


def test_it_is_scikit_learns() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    theirs = linear.LogisticRegression(C=0.5, tol=1e-12, max_iter=10_000).fit(X, Y)
    ours = fit_verifier(X, Y, inverse_penalty=0.5)
    assert np.allclose(ours.weights, theirs.coef_[0], atol=1e-6) and ours.bias == pytest.approx(
        theirs.intercept_[0]
    )


def test_parted_classes_have_a_fit() -> None:
    found = fit_verifier(
        [[0.0], [0.1], [0.9], [1.0]] * 50, [False, False, True, True] * 50, inverse_penalty=1e4
    )
    assert np.all((found.score([[0.0], [1.0]]) > 0.5) == [False, True])


def test_area_by_hand() -> None:
    assert area_under_roc([0.9, 0.4, 0.4, 0.1], [True, True, False, False]) == 0.875
    assert area_under_roc([1.0, 2.0], [True, False]) == 0.0
    with pytest.raises(DataError, match="got 2 right and 0 wrong"):
        area_under_roc([0.1, 0.2], [True, True])


def test_scores_are_probabilities() -> None:
    assert Verifier(weights=(2.0,), bias=-1.0).score([[0.5], [1e9]]).tolist() == [0.5, 1.0]


@pytest.mark.parametrize(("x", "y"), [([[1.0]], [True, False]), ([[1.0], [2.0]], [True, True])])
def test_bad_labels_are_refused(x: list[list[float]], y: list[bool]) -> None:
    with pytest.raises(DataError, match="one label for each row, and both kinds"):
        fit_verifier(x, y)
