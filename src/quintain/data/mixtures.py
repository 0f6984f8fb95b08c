"""Mixtures: how much of the data each of its parts is, by shares that are said.

Concatenating data sets mixes them as they happen to be large. Here shares are said, ``{"agent": 0.2, "general": 0.8}``,
and within a part all examples are alike. `odds` is how likely an example is to be drawn for a step, which never repeats
a draw more often than chance does; `mixture` is the stage that draws a data set once, to be written or looked at.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from quintain.data.pipeline import Stage, num_trained
from quintain.errors import DataError, UsageError, suggestion
from quintain.types import Example, derive_seed

Count = Literal["samples", "tokens"]
PartOf = Callable[[Example], str]


def odds(
    examples: Sequence[Example], part_of: PartOf, shares: Mapping[str, float], count: Count = "samples"
) -> list[float]:
    """Return how likely each of `examples` is to be drawn; they sum to 1.

    `shares` are relative, of the parts by name; a part that it does not name is not drawn. With ``count="tokens"`` they
    are shares of the tokens that count: a part of long examples is drawn more rarely.

    Raises:
        UsageError: a share is negative, or all are 0.
        DataError: a part that is to be drawn has no example.
    """
    _check(shares)
    parts = [part_of(example) for example in examples]
    sizes = {part: parts.count(part) for part in shares}
    _check_sizes(shares, sizes, len(examples))
    weights = {part: share for part, share in shares.items() if share}
    if count == "tokens":
        tokens = dict.fromkeys(weights, 0)
        for example, part in zip(examples, parts, strict=True):
            if part in tokens:
                tokens[part] += num_trained(example)
        weights = {part: share * sizes[part] / tokens[part] for part, share in weights.items()}
    total = sum(weights.values())
    return [weights.get(part, 0.0) / total / sizes.get(part, 1) for part in parts]


def mixture(shares: Mapping[str, float], part_of: PartOf, *, seed: int = 0, name: str = "mixture") -> Stage:
    """Draw as many samples as there are, of each part its share: ``mixture({"agent": 0.2, "general": 0.8}, part)``.

    A share is one of samples, not of tokens (AgentTuning's η, arXiv 2310.12823): long episodes have more of the tokens,
    see `measure_shares`. Of each part all are taken before one is taken again, in an order drawn from `seed`.

    Raises:
        UsageError: a share is negative, or all are 0.
        DataError: a part with a share has no examples, or a part has no share, when the stage is applied.
    """
    _check(shares)
    whole = sum(shares.values())

    def apply(examples: Sequence[Example]) -> list[Example]:
        parts: dict[str, list[Example]] = {part: [] for part in shares}
        for example in examples:
            part = part_of(example)
            if part not in parts:
                raise DataError(
                    f"mixture of {', '.join(shares)}: got an example of {part!r}, which has no share; "
                    f"{suggestion(part, shares)}"
                )
            parts[part].append(example)
        _check_sizes(shares, {part: len(own) for part, own in parts.items()}, len(examples))
        found: list[Example] = []
        for part, count in apportion(
            {p: share / whole for p, share in shares.items()}, len(examples)
        ).items():
            own = parts[part]
            rng = np.random.default_rng(derive_seed("mixture", seed, part))
            while count > 0:
                found += [own[place] for place in rng.permutation(len(own))[:count].tolist()]
                count -= len(own)
        order = np.random.default_rng(derive_seed("mixture", seed)).permutation(len(found))
        return [found[place] for place in order.tolist()]

    return Stage(name=name, says="was not drawn", apply=apply)


def apportion(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """Return how many of `total` each part has, by largest remainders; of equal ones the first is rounded up.

    `shares` add up to 1.
    """
    found = {part: int(share * total + 1e-9) for part, share in shares.items()}
    rest = sorted(shares, key=lambda part: found[part] - shares[part] * total)
    for part in rest[: total - sum(found.values())]:
        found[part] += 1
    return found


def measure_shares(
    examples: Sequence[Example], part_of: PartOf, drawn: Sequence[float] | None = None
) -> dict[str, tuple[float, float]]:
    """Return for each part which share of the samples and of the tokens is of it, where examples are `drawn` so.

    Without `drawn`, all are drawn alike.
    """
    odds = [1 / max(1, len(examples))] * len(examples) if drawn is None else drawn
    found: dict[str, tuple[float, float]] = {}
    total = sum(p * num_trained(e) for p, e in zip(odds, examples, strict=True)) or 1.0
    for chance, example in zip(odds, examples, strict=True):
        samples, tokens = found.get(part_of(example), (0.0, 0.0))
        found[part_of(example)] = samples + chance, tokens + chance * num_trained(example) / total
    return found


def _check(shares: Mapping[str, float]) -> None:
    """Raise where `shares` are none."""
    if not all(0 <= share < math.inf for share in shares.values()) or not any(shares.values()):
        raise UsageError(f"shares of a mixture: got {dict(shares)}; give numbers from 0, one of them above")


def _check_sizes(shares: Mapping[str, float], sizes: Mapping[str, int], total: int) -> None:
    """Raise where a part that is to be drawn has no example."""
    for part, share in shares.items():
        if share and not sizes[part]:
            raise DataError(
                f"a mixture with a share {share:g} of {part}: got none among {total} examples; collect some"
            )
