"""ReST: thresholds, what each improve step begins with, and its limits."""

import numpy as np
import pytest

from quintain.credit.layout import outcome_of
from quintain.data.pipeline import PipelineResult
from quintain.errors import ConfigError
from quintain.methods.selftraining.rest import Config, improve_steps, method
from quintain.testing.episodes import Lived, record_cases
from quintain.types import Group


def worth(*values: float) -> list[Group]:
    return record_cases([Lived(task=0, value=value, is_success=value > 0.5, num_turns=1) for value in values])


def kept(groups: list[Group], *thresholds: float) -> list[list[float]]:
    made = [step.build(groups) for step in improve_steps(thresholds, 0.5)]
    return [
        [outcome_of(e.trajectory) for e in one.examples] for one in made if isinstance(one, PipelineResult)
    ]


def test_a_higher_threshold_keeps_fewer_and_none_that_only_reaches_it() -> None:
    assert list(map(len, kept(worth(0.1, 0.5, 0.7, 0.9), 0.4, 0.6, 0.8))) == [3, 2, 1]
    assert kept(worth(0.5, 0.75), 0.5) == [[0.75]]


def test_what_is_kept_is_worth_no_less_at_a_higher_threshold() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        means = [
            np.mean(own) for own in kept(worth(*rng.normal(size=12)), *np.sort(rng.normal(size=3))) if own
        ]
        assert means == sorted(means)


def test_rates_fall_and_each_step_begins_with_the_one_before() -> None:
    made = method(Config(thresholds=(0.0, 0.25, 0.5), lr_decay=0.5))
    assert [improve.rate for improve in made.improves] == [1.0, 0.5, 0.25]
    assert not made.starts_over and made.memory == 1


@pytest.mark.parametrize("thresholds", [(), (0.5, 0.5), (0.5, 0.2)])
def test_thresholds_rise(thresholds: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="one or more that rise"):
        Config(thresholds=thresholds).check()


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="only the first improve step learns"):
        Config(lr_decay=0.0).check()
