"""Scripted seats: a labeller who errs, a mind of text that errs, an executor of hints, a solver with known errors.

They stand where an experiment must know the truth: what was asked and how often the answer is wrong. Every chance is a
function of the seat's seed and of what it is asked, so the same question has the same answer in both arms.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.baselines import find_range_text, random_action
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.types import Action, Observation, Trajectory, as_text, derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Label = Literal["first", "second", "tie", "none"]
"""who is preferred; ``none``: the two cannot be compared"""


def check_share(what: str, value: float) -> None:
    """Raise a `UsageError` where `value` is no probability."""
    if not 0 <= value <= 1:
        raise UsageError(f"{what}: got {value}; give a number from 0 to 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labeller:
    """Compares two things by a score, with noise: ``Labeller(temperature=0.5, flips=0.1, seed=0).label(…)``.

    P(first) = σ((score of first - score of second) / temperature), Bradley and Terry 1952; then some labels flip.
    """

    seed: int
    temperature: float = 0.0
    """0 prefers the higher score always"""
    flips: float = 0.0
    """probability that a label is turned around"""
    band: float = 0.0
    """scores that differ by less are a tie"""
    abstains: float = 0.0
    """probability of ``none``"""

    def __post_init__(self) -> None:
        """Check the probabilities."""
        check_share("labels that flip", self.flips)
        check_share("pairs that cannot be compared", self.abstains)
        if self.temperature < 0 or self.band < 0:
            raise UsageError(
                f"labeller: got temperature {self.temperature}, band {self.band}; give numbers of 0 or more"
            )

    def label(self, first: float, second: float, *pair: int | str) -> Label:
        """Return who is preferred of two scores; `pair` names the question, and the same question has one answer."""
        rng = random.Random(derive_seed("labeller", self.seed, *pair))
        abstains, flips, drawn = rng.random(), rng.random(), rng.random()
        if abstains < self.abstains:
            return "none"
        if abs(first - second) < self.band or (first == second and not self.temperature):
            return "tie"
        if self.temperature:
            is_first = drawn < 1 / (1 + math.exp(-min(max((first - second) / self.temperature, -500), 500)))
        else:
            is_first = first > second
        return "first" if is_first != (flips < self.flips) else "second"

    def compare(self, first: Trajectory, second: Trajectory, score: Callable[[Trajectory], float]) -> Label:
        """Return who is preferred of two episodes by `score`."""
        return self.label(score(first), score(second), first.group, first.index, second.group, second.index)


def scripted_mind(
    tokenizer: PreTrainedTokenizerBase,
    answer: Callable[[str], str],
    *,
    errs: float = 0.0,
    wrong: Callable[[str, random.Random], str] | None = None,
    seed: int = 0,
    policy: str = "policy",
) -> Scripted:
    """Return an engine that answers rendered text with text: a partner, a refiner, a judge whose errors are known.

    Args:
        tokenizer: reads the stream and writes the answer.
        answer: the whole stream as text → what is said; it sees nothing else.
        errs: probability that `wrong` answers instead; the same stream errs or not in every arm.
        wrong: (stream, source of chance) → a wrong answer.
        seed: of its errors.
        policy: name of the policy that it stands for.

    Raises:
        UsageError: it errs and nothing says how.
    """
    check_share("answers that are wrong", errs)
    if errs and wrong is None:
        raise UsageError("a mind that errs: got no wrong answers; say what it says then")
    stop = cast("int | None", tokenizer.eos_token_id)

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        text = str(tokenizer.decode(list(stream)))
        rng = random.Random(derive_seed("mind", seed, text))
        said = wrong(text, rng) if wrong is not None and rng.random() < errs else answer(text)
        ids = tokenizer.encode(said, add_special_tokens=False)
        room = request.sampling.max_tokens
        end = [] if stop is None else [stop]
        return (*ids[: room - len(end)], *end)

    return Scripted(script, tokenizer, policy=policy)


Do = Callable[[Environment, str], Action | None]
"""(environment, hint) → the action that follows the hint; None where it means nothing here"""
Executor = Callable[[Environment, random.Random, Sequence[Observation]], Action]


def executor(do: Do, hint: Callable[[Sequence[Observation]], str], *, follows: float = 1.0) -> Executor:
    """Return a demonstrator that does what the newest hint says with probability `follows`, else anything valid.

    `hint` reads the hint out of what was seen; an executor with `follows` 0 is deaf.
    """
    check_share("hints that are followed", follows)

    def act(environment: Environment, rng: random.Random, seen: Sequence[Observation]) -> Action:
        drawn, seed = rng.random(), rng.getrandbits(62)
        found = do(environment, hint(seen)) if drawn < follows else None
        return found or random_action(environment, random.Random(seed), find_range_text(seen))

    return act


def last_line(seen: Sequence[Observation]) -> str:
    """Return the last line of what was seen last: where a hint usually stands."""
    lines = as_text(seen[-1]).splitlines() if seen else []
    return lines[-1] if lines else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solver:
    """Solves problems of a size, and is wrong more often the larger they are: ``Solver(slope=0.1, seed=0)``.

    P(right) = exp(-slope · (size - 1)); parts that are put together are right only if all of them are, and the
    putting together succeeds with probability `join`. Its own scores tell right from wrong with a given noise.
    """

    seed: int
    slope: float = 0.1
    join: float = 0.95
    noise: float = 1.0
    """standard deviation of a score, which is 1 for right and 0 for wrong before it"""

    def chance(self, size: int) -> float:
        """Return the probability that a problem of `size` is solved at once."""
        return math.exp(-self.slope * max(size - 1, 0))

    def solve(self, size: int, *call: int | str) -> bool:
        """Return whether the call solves a problem of `size`; `call` names it."""
        return random.Random(derive_seed("solve", self.seed, size, *call)).random() < self.chance(size)

    def merge(self, parts: Sequence[bool], *call: int | str) -> bool:
        """Return whether the solved `parts` were put together rightly."""
        return all(parts) and random.Random(derive_seed("merge", self.seed, *call)).random() < self.join

    def score(self, is_right: bool, *call: int | str) -> float:
        """Return the solver's own, noisy opinion of an answer."""
        return float(is_right) + self.noise * random.Random(derive_seed("score", self.seed, *call)).gauss(
            0, 1
        )

    def best(self, size: int, calls: int) -> float:
        """Return the probability of a right answer under the best schedule of at most `calls` calls without scores.

        A schedule solves at once (one call), or halves the problem, solves both halves and puts them together (one
        call more). By dynamic programming over size and calls.
        """
        known: dict[tuple[int, int], float] = {}

        def value(n: int, left: int) -> float:
            if left < 1:
                return 0.0
            key = (n, left)
            if key not in known:
                found = self.chance(n)
                if n > 1:
                    first, second = n // 2, n - n // 2
                    for own in range(1, left - 1):
                        found = max(found, self.join * value(first, own) * value(second, left - 1 - own))
                known[key] = found
            return known[key]

        return value(size, calls)
