"""How likely an example is to be drawn, so that each part of the data has its share of samples, or of tokens.

Concatenating data sets mixes them as they happen to be large. Here shares are said: ``odds(examples, part_of,
{"agent": 0.2, "general": 0.8})``, and within a part all examples are alike.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from quintain.data.pipeline import num_trained
from quintain.errors import DataError, UsageError
from quintain.types import Example

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
    if any(share < 0 for share in shares.values()) or not any(shares.values()):
        raise UsageError(f"shares of a mixture: got {dict(shares)}; give numbers from 0, one of them above")
    parts = [part_of(example) for example in examples]
    sizes = {part: parts.count(part) for part in shares}
    for part, share in shares.items():
        if share and not sizes[part]:
            raise DataError(
                f"a mixture with a share {share:g} of {part}: got none among {len(examples)} examples; collect some"
            )
    weights = {part: share for part, share in shares.items() if share}
    if count == "tokens":
        tokens = dict.fromkeys(weights, 0)
        for example, part in zip(examples, parts, strict=True):
            if part in tokens:
                tokens[part] += num_trained(example)
        weights = {part: share * sizes[part] / tokens[part] for part, share in weights.items()}
    total = sum(weights.values())
    return [weights.get(part, 0.0) / total / sizes.get(part, 1) for part in parts]


def drawn_shares(
    examples: Sequence[Example], part_of: PartOf, drawn: Sequence[float]
) -> dict[str, tuple[float, float]]:
    """Return for each part which share of the samples and of the tokens is of it, where examples are `drawn` so."""
    found: dict[str, tuple[float, float]] = {}
    total = sum(p * num_trained(e) for p, e in zip(drawn, examples, strict=True))
    for chance, example in zip(drawn, examples, strict=True):
        samples, tokens = found.get(part_of(example), (0.0, 0.0))
        found[part_of(example)] = samples + chance, tokens + chance * num_trained(example) / total
    return found
