"""What agents who serve users are judged by, each beside a plain second version."""

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


FORMULAS: tuple[Formula, ...] = (_pass_hat(), _basis(), _check_stated())
