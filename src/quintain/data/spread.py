"""Numbers 0, 1, 2, … dealt to streams in proportion to weights, evenly and without randomness.

Each of two streams is always within half a number of its share, each of k streams within (k - 1) / 2. Every stream
gets its own numbers in order, with no gaps.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import floor

from quintain.errors import UsageError

LARGEST_DENOMINATOR = 1_000_000


class Spread:
    """Deals numbers by `weights`, which are positive and need not add up to 1: ``Spread([3.0, 1.0])``.

    Raises:
        UsageError: there is no weight, or one that is not positive.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        """Compute the shares."""
        parts = [Fraction(weight).limit_denominator(LARGEST_DENOMINATOR) for weight in weights]
        if not parts or min(parts) <= 0:
            raise UsageError(
                f"weights of a mixture must be positive: got {list(weights)}; leave out what should not be drawn"
            )
        self.shares = tuple(part / sum(parts[place:]) for place, part in enumerate(parts))
        """Share of each stream in what the streams before it left over; the last one is 1."""

    def counts(self, num: int) -> tuple[int, ...]:
        """Return how many of the first `num` numbers go to each stream; they add up to `num`."""
        counts: list[int] = []
        for share in self.shares:
            counts.append(floor(num * share + Fraction(1, 2)))
            num -= counts[-1]
        return tuple(counts)

    def deal(self, number: int) -> tuple[int, int]:
        """Return the stream that `number` goes to, and the place that it has there.

        Example: with weights 3 and 1 the numbers 0 to 4 go to (0, 0), (0, 1), (1, 0), (0, 2), (0, 3).
        """
        before, after = self.counts(number), self.counts(number + 1)
        stream = next(
            place for place, pair in enumerate(zip(before, after, strict=True)) if pair[0] != pair[1]
        )
        return stream, before[stream]
