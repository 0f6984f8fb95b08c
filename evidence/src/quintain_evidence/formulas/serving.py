"""What agents who serve users are judged and verified by, each beside a plain second version."""

import math
import re
from itertools import combinations
from types import ModuleType

from quintain_evidence.formulas.formula import Formula, Rng

OUTPUTS = ("10", "54.0", "54.04", "1000", "red lamp", "W23", "0.5")
TEXTS = (
    "That is 100.",
    "That is 10, sir.",
    "It costs $1,000.",
    "Pay 54",
    "54.04 it is",
    "the Red Lamp!",
    "a red, old lamp",
    "order #W23",
    "order #W234",
    "0.50",
    "red",
    "lamp",
    "",
)


def _pass_hat() -> Formula:
    """Return pass^k and pass@k of a task, which go through all subsets of its trials."""

    def draw(rng: Rng) -> tuple[int, int, int]:
        num = int(rng.integers(1, 8))
        return num, int(rng.integers(0, num + 1)), int(rng.integers(1, num + 1))

    def ours(module: ModuleType, case: tuple[int, int, int]) -> list[float]:
        return [module.pass_hat_k(*case), module.pass_at_k(*case)]

    def reference(case: tuple[int, int, int]) -> list[float]:
        num, wins, k = case
        drawn = list(combinations([True] * wins + [False] * (num - wins), k))
        return [sum(map(all, drawn)) / len(drawn), sum(map(any, drawn)) / len(drawn)]

    return Formula("serving.pass_hat", "eval.statistics", ("pass_hat_k", "pass_at_k"), draw, ours, reference)


def _basis() -> Formula:
    """Return the product over a task's basis."""

    def draw(rng: Rng) -> dict[str, bool]:
        names = ("database", "assertions", "actions", "outputs")
        num = int(rng.integers(1, 5))
        return {name: bool(rng.random() < 0.7) for name in names[:num]}

    def ours(module: ModuleType, case: dict[str, bool]) -> list[float]:
        return [module.basis_reward(case)]

    def reference(case: dict[str, bool]) -> list[float]:
        product = 1.0
        for holds in case.values():
            product *= 1.0 if holds else 0.0
        return [product]

    return Formula("serving.basis", "rewards.execution", ("basis_reward",), draw, ours, reference)


def _check_stated() -> Formula:
    """Return whether an output was said, as whole words."""

    def draw(rng: Rng) -> tuple[str, list[str]]:
        texts = [str(rng.choice(TEXTS)) for _ in range(int(rng.integers(1, 4)))]
        return str(rng.choice(OUTPUTS)), texts

    def ours(module: ModuleType, case: tuple[str, list[str]]) -> list[float]:
        return [float(module.is_stated(*case))]

    def reference(case: tuple[str, list[str]]) -> list[float]:
        output, texts = case
        for text in texts:
            plain = text.lower().replace("1,000", "1000")
            if re.fullmatch(r"[\d.]+", output):
                numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w])", plain)
                if any(float(number) == float(output) for number in numbers):
                    return [1.0]
            elif re.search(rf"(?<!\w){output.lower()}(?!\w)", plain):
                return [1.0]
        return [0.0]

    return Formula("serving.stated", "rewards.execution", ("is_stated",), draw, ours, reference)


Calls = list[tuple[str, dict[str, int]]]


def draw_calls(rng: Rng) -> tuple[Calls, Calls]:
    """Return two lists of up to five calls of three tools with up to two arguments."""

    def draw_list() -> Calls:
        return [
            (
                str(rng.choice(list("abc"))),
                {key: int(rng.integers(0, 3)) for key in "xy"[: int(rng.integers(0, 3))]},
            )
            for _ in range(int(rng.integers(0, 6)))
        ]

    return draw_list(), draw_list()


def _compare() -> Formula:
    """Return how alike two trajectories are, by recursion and by counting."""

    def ours(module: ModuleType, case: tuple[Calls, Calls]) -> list[float]:
        one, other = (module.Told(question="q", calls=tuple(calls), answer="a") for calls in case)
        return list(module.compare_trajectories(one, other, likeness=lambda *_: 0.5))

    def distance(one: str, other: str) -> int:
        if not one or not other:
            return len(one) + len(other)
        if one[0] == other[0]:
            return distance(one[1:], other[1:])
        return 1 + min(distance(one[1:], other), distance(one, other[1:]), distance(one[1:], other[1:]))

    def share(one: list[str], other: list[str]) -> float:
        either = {*one, *other}
        return sum(part in one and part in other for part in either) / len(either) if either else 1.0

    def reference(case: tuple[Calls, Calls]) -> list[float]:
        names = ["".join(name for name, _ in calls) for calls in case]
        longest = max(len(names[0]), len(names[1]), 1)
        arguments = [
            [f"{name}.{key}={value}" for name, given in calls for key, value in (given or {"": 0}).items()]
            for calls in case
        ]
        pairs = [[text[place : place + 2] for place in range(len(text) - 1)] for text in names]
        return [1 - distance(*names) / longest, share(*arguments), share(*pairs), 0.5, 0.5]

    return Formula(
        "synthesis.trajectory_features", "rewards.trajectory_features", ("compare_trajectories", "overlap"),
        draw_calls, ours, reference,
    )  # fmt: skip


def _verifier() -> Formula:
    """Return a logistic regression by gradient descent, its scores, and the area under ROC by counting."""

    def draw(rng: Rng) -> tuple[list[list[float]], list[bool]]:
        x = rng.normal(size=(12, 2))
        y = x[:, 0] + rng.normal(size=12) > 0
        y[:2] = (True, False)
        return x.tolist(), [bool(each) for each in y]

    def ours(module: ModuleType, case: tuple[list[list[float]], list[bool]]) -> list[float]:
        found = module.fit_verifier(*case)
        scores = found.score(case[0]).tolist()
        return [*found.weights, found.bias, *scores, module.area_under_roc(scores, case[1])]

    def reference(case: tuple[list[list[float]], list[bool]]) -> list[float]:
        from scipy.optimize import minimize

        x, y = case

        def loss(theta: list[float]) -> float:
            logits = [theta[0] * a + theta[1] * b + theta[2] for a, b in x]
            signs = [1 if label else -1 for label in y]
            fit = sum(math.log1p(math.exp(-sign * each)) for sign, each in zip(signs, logits, strict=True))
            return fit + (theta[0] ** 2 + theta[1] ** 2) / 2

        theta = minimize(loss, [0.0] * 3, method="BFGS", options={"gtol": 1e-10}).x
        theta = minimize(
            loss, theta, method="Nelder-Mead", options={"xatol": 1e-11, "fatol": 1e-15, "maxiter": 9000}
        ).x
        scores = [1 / (1 + math.exp(-(theta[0] * a + theta[1] * b + theta[2]))) for a, b in x]
        right = [score for score, label in zip(scores, y, strict=True) if label]
        wrong = [score for score, label in zip(scores, y, strict=True) if not label]
        area = sum((a > b) + (a == b) / 2 for a in right for b in wrong) / (len(right) * len(wrong))
        return [*theta.tolist(), *scores, area]

    return Formula(
        "synthesis.verifier",
        "rewards.verifier",
        ("fit_verifier", "Verifier", "area_under_roc"),
        draw,
        ours,
        reference,
    )


FORMULAS: tuple[Formula, ...] = (_pass_hat(), _basis(), _check_stated(), _compare(), _verifier())
