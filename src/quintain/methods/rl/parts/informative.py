"""Leaves out the streams whose advantages are all zero: they have no gradient and would only cost time."""

from collections.abc import Sequence

from quintain.types import Sample


def informative(samples: Sequence[Sample]) -> list[Sample]:
    """Return the streams with an advantage other than 0.

    The mean over tokens is then over these only, as when uninformative groups are sampled again (DAPO).
    """
    return [sample for sample in samples if sample.advantages.any()]
