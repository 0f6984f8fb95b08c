"""A small classifier of trajectories by their features: logistic regression (MAG-V, arXiv 2412.04494, section 4).

p = σ(w · x + b) minimises Σ log(1 + exp(-y (w · x + b))) + ‖w‖²/(2C), y = ±1; b is not shrunk. It is convex, and
solved by Newton's steps until the gradient is 0, so it is scikit-learn's ``LogisticRegression(C)``. Split what it is
fitted and tried on by seed question: variants of one question on both sides are learned by heart.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from quintain.errors import DataError

MAX_STEPS = 100
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """A fitted classifier: ``Verifier(weights=(2.0, -1.0), bias=.5)``."""

    weights: tuple[float, ...]
    bias: float

    def score(self, features: ArrayLike) -> NDArray[np.float64]:
        """Return the probability [N] that each trajectory of `features` [N, F] is right."""
        logits = np.asarray(features, np.float64) @ np.array(self.weights) + self.bias
        return _sigmoid(logits)


def fit_verifier(features: ArrayLike, labels: Sequence[bool], *, inverse_penalty: float = 1.0) -> Verifier:
    """Return the classifier that fits `labels` [N] to `features` [N, F]; `inverse_penalty` is C.

    Raises:
        DataError: there are not as many of both, or only one label.
    """
    x = np.asarray(features, np.float64)
    y = np.array(labels, np.float64)
    if x.ndim != 2 or len(x) != len(y) or len(set(y.tolist())) != 2:
        raise DataError(
            f"verifier: got features of shape {x.shape} and {len(y)} labels, {int(y.sum())} of them true; give one "
            "label for each row, and both kinds"
        )
    design = np.hstack([x, np.ones((len(x), 1))])
    shrink = np.full(design.shape[1], 1.0 / inverse_penalty)
    shrink[-1] = 0.0
    theta = np.zeros(design.shape[1])
    for _ in range(MAX_STEPS):
        p = _sigmoid(design @ theta)
        gradient = design.T @ (p - y) + shrink * theta
        if np.abs(gradient).max() < TOLERANCE:
            break
        curvature = design.T @ (design * (p * (1 - p))[:, None]) + np.diag(shrink)
        theta = theta - _shorten(
            design, y, shrink, theta, np.linalg.solve(curvature, gradient).astype(np.float64)
        )
    return Verifier(weights=tuple(theta[:-1].tolist()), bias=float(theta[-1]))


def area_under_roc(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the chance that a right trajectory scores above a wrong one; ties count half.

    Raises:
        DataError: there is only one label.
    """
    right = np.array([s for s, label in zip(scores, labels, strict=True) if label])
    wrong = np.array([s for s, label in zip(scores, labels, strict=True) if not label])
    if not len(right) or not len(wrong):
        raise DataError(f"area under ROC: got {len(right)} right and {len(wrong)} wrong; give both")
    gaps = right[:, None] - wrong[None, :]
    return float((gaps > 0).mean() + (gaps == 0).mean() / 2)


def _sigmoid(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1.0 / (1.0 + np.exp(-np.clip(logits, -500, 500)))


def _shorten(
    design: NDArray[np.float64],
    y: NDArray[np.float64],
    shrink: NDArray[np.float64],
    theta: NDArray[np.float64],
    step: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return `step`, halved until the loss does not rise: where classes part, Newton's own may be too long."""

    def loss(at: NDArray[np.float64]) -> float:
        logits = design @ at
        return float(np.logaddexp(0.0, logits).sum() - y @ logits + (shrink * at * at).sum() / 2)

    before = loss(theta)
    for _ in range(30):
        if loss(theta - step) <= before + 1e-12 * abs(before):
            break
        step = step / 2
    return step
