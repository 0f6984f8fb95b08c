"""p = max(0, n - b)/b: tokens, calls or turns over a budget cost something, but only where the answer is right.

Agent RFT's budget penalty, and OTC's tool economy cos(m·π/(2m + c)) (arXiv 2504.14870), where c is the fewest calls
of any right answer to the task that the run has seen (`FewestCalls`). Both are a factor on the term that says
"right": a wrong answer gains nothing by being brief, teaches nothing about the fewest calls, and never comes out
above a right one. Overlong shaping is DAPO's (arXiv 2503.14476).
"""

import math
from collections.abc import Callable, Sequence

from quintain.errors import UsageError
from quintain.rewards.terms import Term, acts
from quintain.types import Failure, Group, Trajectory, flatten_scored

Count = Callable[[Trajectory], int]


def num_tokens(trajectory: Trajectory) -> int:
    """Count the sampled tokens."""
    return trajectory.num_sampled


def num_calls(trajectory: Trajectory) -> int:
    """Count the tool calls that were made but for the one that answers, in turns that the environment calls answers.

    It says so by the reward term ``answer``; what else such a turn calls counts. Example: ``search`` and ``answer`` in
    one turn are one call.
    """
    return sum(max(len(turn.action.tool_calls) - turn.is_answer, 0) for turn in acts(trajectory))


def num_turns(trajectory: Trajectory) -> int:
    """Count the turns in which something was done."""
    return len(acts(trajectory))


def over_budget(number: float, budget: float) -> float:
    """Return the share by which `number` is over `budget`, 0 below. Example: 15 of 10 → 0.5."""
    return max(0.0, number - budget) / budget


def tool_economy(num: int, fewest: int | None = None, *, smoothing: float = 4.0) -> float:
    """Return OTC's factor in [0, 1] for `num` calls, `fewest` the fewest of any right answer known so far.

    Unknown or 0: cos(m·π/(2m + c)), c = `smoothing`. Else sin(f·π/(2n)), f = 2nm/(m + n), highest at m = n.
    Example: n 2: m 1, 2, 4 → .866, 1, .866. n 0, c 4: m 0, 1, 2, 4 → 1, .866, .707, .5.
    """
    if num == fewest == 0:
        return 1.0
    if not fewest:
        return math.cos(num * math.pi / (2 * num + smoothing))
    mapped = 2 * fewest * num / (num + fewest)
    return math.sin(mapped * math.pi / (2 * fewest))


def efficiency(
    right: Term, count: Count, *, budget: float, strength: float = 0.05, limit: float = 0.5
) -> Term:
    """Return the term that takes `strength` · p of `right` away, at most the share `limit` of it, below 1.

    Its name is "efficiency_" and the name of `count`. A right answer keeps at least
    1 - `limit` of its reward; keep the limits of several such terms below 1 together.
    """
    if not 0 < limit < 1 or budget <= 0 or strength < 0:
        got = (budget, strength, limit)
        raise UsageError(
            f"budget, strength, limit of an efficiency term: got {got}; give > 0, >= 0 and between 0 and 1"
        )

    def factor(trajectory: Trajectory) -> float:
        return 1 - min(strength * over_budget(count(trajectory), budget), limit)

    return scale(right, factor, name=f"efficiency_{count.__name__}")


def fewest_calls(right: Term, *, smoothing: float = 4.0) -> Term:
    """Return the term that turns `right` into `right` times `tool_economy` (OTC-PPO), "efficiency_calls"."""
    return scale(right, lambda t: tool_economy(num_calls(t), smoothing=smoothing), name="efficiency_calls")


def scale(right: Term, factor: Callable[[Trajectory], float], *, name: str) -> Term:
    """Return the term that, added to `right`, multiplies it by `factor` where it is above 0."""

    def measure(trajectory: Trajectory) -> float | Failure:
        found = right.measure(trajectory)
        if isinstance(found, Failure):
            return found
        total = sum(found) if not isinstance(found, float | int) else found
        return total * (factor(trajectory) - 1)

    return Term(name=name, measure=measure, weight=right.weight, gate=right.name)


def overlong_penalty(limit: int, *, buffer: int, weight: float = 1.0) -> Term:
    """Return the term "overlong": 0 up to `limit` - `buffer` sampled tokens, falling to -1 at `limit`.

    It is not gated: it tells the policy about the limit that would cut it (arXiv 2503.14476, equation 13).
    """
    if not 0 < buffer <= limit:
        raise UsageError(f"buffer of an overlong penalty: got {buffer} of {limit} tokens; give 1 to {limit}")

    def measure(trajectory: Trajectory) -> float:
        return -min(1.0, max(0.0, (trajectory.num_sampled - (limit - buffer)) / buffer))

    return Term(name="overlong", measure=measure, weight=weight)


class FewestCalls:
    """The fewest calls that each task was solved with: ``fewest.update(groups)``, then ``fewest.term(success())``."""

    def __init__(self, count: Count = num_calls) -> None:
        self.count = count
        self.known: dict[str, int] = {}

    def update(self, groups: Sequence[Group]) -> None:
        """Learn from the right answers among `groups`."""
        for group in groups:
            for trajectory in group.scored:
                if trajectory.is_success:
                    name, num = trajectory.task.id, self.count(trajectory)
                    self.known[name] = min(num, self.known.get(name, num))

    def term(self, right: Term, *, smoothing: float = 4.0) -> Term:
        """Return the term that, added to `right`, multiplies it by the economy of the episode's calls."""

        def factor(trajectory: Trajectory) -> float:
            fewest = self.known.get(trajectory.task.id)
            return tool_economy(self.count(trajectory), fewest, smoothing=smoothing)

        return scale(right, factor, name="economy")


def productivity(groups: Sequence[Group], count: Count = num_calls) -> float:
    """Return right answers per call over all scored episodes of `groups`; the right answers where no call was made."""
    episodes = flatten_scored(groups)
    return sum(t.is_success for t in episodes) / max(sum(count(t) for t in episodes), 1)
