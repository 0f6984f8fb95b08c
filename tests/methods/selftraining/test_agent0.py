"""Agent0: pay of proposals, labels of the majority, scale and bound of each episode; traps of the released code."""

import pytest

from quintain.errors import ConfigError
from quintain.methods.selftraining.agent0 import (
    Config,
    proposal_value,
    trust,
    upper_clip,
)


@pytest.mark.parametrize(
    ("p", "calls", "share", "value"),
    [(0.5, 0, 0.1, 0.9), (0.5, 9, 0.0, 1.2), (1.0, 0, 0.1, 0.0), (0.0, 0, 0.5, 0.0), (0.3, 1, 0.25, 0.4)],
)
def test_a_proposal_is_paid_for_uncertainty_and_calls_and_pays_for_repetition(
    p: float, calls: float, share: float, value: float
) -> None:
    assert proposal_value(p, calls, share) == pytest.approx(value)
    assert proposal_value(p, calls, share, is_valid=False) == 0.0, "the gate; and max(0, ·) above"


def test_trust_and_bound_go_from_end_to_end() -> None:
    assert [trust(p, 0.6) for p in (0.3, 0.55, 0.8)] == pytest.approx([0.6, 0.8, 1.0])
    assert [upper_clip(p, 0.2) for p in (0.3, 0.55, 0.8)] == pytest.approx([0.3, 0.25, 0.2])


def test_settings_that_keep_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="give low < high"):
        Config(low=0.8, high=0.3).check()


def test_a_proposer_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="proposer: got 'policy'; give world"):
        Config(proposer="policy").check()
    with pytest.raises(ConfigError, match="proposer: got 'world' with max_staleness 1"):
        Config(proposer="world", rollout="async", max_staleness=1).check()
