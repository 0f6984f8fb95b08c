"""AgentTuning: shares of samples and of tokens, thresholds of environments, and what stands in a test."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quintain.data.mixtures import measure_shares, odds
from quintain.data.pipeline import as_example
from quintain.data.stages import runs_of_words
from quintain.errors import ConfigError, DataError, UsageError
from quintain.methods.imitation import agent_tuning
from quintain.methods.loops.offline import choose, odds_of
from quintain.types import Example, Score, Trajectory

Make = Callable[..., Trajectory]


@pytest.fixture
def examples(trajectory: Make) -> list[Example]:
    """Ten agents' episodes of six tokens each, and thirty general ones of two."""
    agents = [trajectory([((1,), (7, 7, 2))] * 2, environment="guess") for _ in range(10)]
    return [as_example(t) for t in (*agents, *[trajectory([((1,), (8, 2))], environment="sums")] * 30)]


def test_eta_is_a_share_of_samples_and_not_of_what_there_is(examples: list[Example]) -> None:
    chances = np.array(agent_tuning.mixture(examples, ("sums",), 0.2))
    drawn = np.random.default_rng(0).choice(40, 10_000, p=chances)
    assert (drawn < 10).mean() == pytest.approx(0.2, abs=0.01)
    config = agent_tuning.Config()
    told = agent_tuning.shares(examples, config)
    # A fifth of the samples is 43 % of the tokens, for agents' episodes are thrice as long.
    assert told["agent_tuning/samples"] == pytest.approx(0.2)
    assert told["agent_tuning/tokens"] == pytest.approx(1.2 / 2.8)
    by_tokens = agent_tuning.shares(examples, replace(config, count="tokens"))
    assert by_tokens["agent_tuning/tokens"] == pytest.approx(0.2)
    assert by_tokens["agent_tuning/samples"] == pytest.approx(1 / 13)


def test_the_ends_are_imitation_of_one_set(examples: list[Example]) -> None:
    for share, own, alone in ((1.0, range(10), examples[:10]), (0.0, range(10, 40), examples[10:])):
        config = agent_tuning.Config(agent_fraction=share, batch_size=64)
        method = agent_tuning.method(config)
        drawn = choose(method, 40, 1, 5, 5, odds_of(method, examples))
        single = choose(method, len(alone), 1, 5, 5, odds_of(method, alone))
        assert set(drawn) <= set(own) and [k - own.start for k in drawn] == single
        assert Counter(drawn).most_common(1)[0][1] > 1, "samples repeat"


def test_a_part_that_is_missing_is_refused(examples: list[Example]) -> None:
    with pytest.raises(DataError, match="none among 10 examples"):
        agent_tuning.mixture(examples[:10], ("sums",), 0.2)
    with pytest.raises(UsageError, match="shares of a mixture"):
        odds(examples, lambda _: "a", {"a": 0.0})
    assert odds(examples[:10], lambda _: "b", {"b": 1.0, "a": 0.0}) == pytest.approx([0.1] * 10)
    shares = measure_shares(examples, lambda e: e.trajectory.task.environment, [1 / 40] * 40)
    assert shares["guess"] == (pytest.approx(0.25), pytest.approx(0.5))


def test_thresholds_are_those_of_environments(trajectory: Make) -> None:
    config = agent_tuning.Config(thresholds={"web": "0.6666666"})
    limits = agent_tuning.limits(config)
    for environment, value, wanted in (
        ("guess", 1.0, True),
        ("guess", 0.99, False),
        ("web?depth=2", 2 / 3, True),
        ("web", 0.6, False),
        ("sums", 0.0, True),
        ("collab", 0.96, False),
    ):
        made = replace(
            trajectory([((1,), (2,))], environment=environment), outcome=Score(value=value, is_success=False)
        )
        assert agent_tuning.reaches(made, limits, 1.0, ("sums",)) is wanted, (environment, value)
    cheap = trajectory([((1,), (2,))], environment="collab")
    cheap = replace(cheap, outcome=Score(value=0.96, is_success=True))
    assert agent_tuning.reaches(cheap, limits, None, ()) and not agent_tuning.reaches(cheap, limits, 1.0, ())
    with pytest.raises(ConfigError, match="give numbers"):
        agent_tuning.Config(thresholds={"web": "much"}).check()
    with pytest.raises(ConfigError, match="general"):
        agent_tuning.Config(general=()).check()


def test_planted_overlaps_are_found_and_nothing_else() -> None:
    words = [f"w{k}" for k in range(4000)]
    tests = [" ".join(words[60 * k : 60 * k + 30]) for k in range(50)]
    known = {run for text in tests for run in runs_of_words(text, 11)}

    def is_found(text: str) -> bool:
        return not known.isdisjoint(runs_of_words(text, 11))

    assert all(
        is_found(f"before {' '.join(words[60 * k + 5 : 60 * k + 16]).upper()} after") for k in range(50)
    )
    assert not any(is_found(f"before {' '.join(words[60 * k + 5 : 60 * k + 15])} after") for k in range(50))
    rng = np.random.default_rng(0)
    assert not any(is_found(" ".join(rng.permutation(words[:60]))) for _ in range(1000))


def test_what_shares_a_run_with_a_test_goes(trajectory: Make, shows: Any, tmp_path: Path) -> None:
    tests = tmp_path / "tests.txt"
    tests.write_text(" ".join(map(str, range(10, 25))) + "\n\n", encoding="utf-8")
    one = trajectory([(tuple(range(10, 20)), (20, 21))], environment="guess")
    other = trajectory([(tuple(range(10, 20)), (5, 6))], environment="guess")
    config = agent_tuning.Config(tests=str(tests), agent_fraction=1.0)
    made = agent_tuning.method(config).data(shows([one, other]))
    assert [e.trajectory for e in made.examples] == [other]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="give a file of texts"):
        agent_tuning.method(replace(config, tests=str(tmp_path / "none"))).data(shows([one]))


def test_it_trains_on_a_mixture(train: Any) -> None:
    rows = train("agent_tuning", environment="mix:collab,sums?slips=0", demonstrations=12)
    assert rows[-1]["data/enough"] == 12
    assert rows[-1]["agent_tuning/samples"] == pytest.approx(0.2)
