"""Shares of a mixture: as chances of a draw, and as a data set that is drawn once."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from quintain.data.mixtures import apportion, measure_shares, mixture, odds
from quintain.data.pipeline import Pipeline, as_example
from quintain.errors import DataError, UsageError
from quintain.types import Example, Trajectory

Make = Callable[..., Trajectory]
Build = Callable[..., list[Trajectory]]


@pytest.mark.slow
def test_a_mixture_has_its_shares_of_samples_and_says_those_of_tokens(episodes: Build) -> None:
    agent, general = episodes([1] * 2, [9, 9]), episodes([1] * 8, task="g")

    def part(example: Example) -> str:
        return {"t": "agent", "g": "general"}[example.trajectory.task.id]

    both = [as_example(t) for t in agent + general]
    stage = mixture({"agent": 0.5, "general": 0.5}, part)
    made = Pipeline(stage).run(both).examples
    drawn_agent = [e.trajectory.id for e in made if part(e) == "agent"]
    assert sorted(drawn_agent.count(name) for name in ("t0", "t1")) == [2, 3]
    assert len({e.trajectory.id for e in made if part(e) == "general"}) == 5
    assert measure_shares(made, part) == {
        "agent": (0.5, pytest.approx(0.9)),
        "general": (0.5, pytest.approx(0.1)),
    }
    assert [e.trajectory.id for e in Pipeline(stage).run(both).examples] == [e.trajectory.id for e in made]
    other = mixture({"agent": 0.5, "general": 0.5}, part, seed=1)
    assert [e.trajectory.id for e in Pipeline(other).run(both).examples] != [e.trajectory.id for e in made]
    alone = Pipeline(mixture({"agent": 1, "general": 0}, part)).run(both)
    assert {part(e) for e in alone.examples} == {"agent"} and len(alone.examples) == 10
    large = [as_example(t) for t in agent] + [as_example(replace(t)) for t in general * 1250]
    drawn = Pipeline(mixture({"agent": 0.2, "general": 0.8}, part)).run(large).examples
    assert sum(part(e) == "agent" for e in drawn) / len(drawn) == pytest.approx(0.2, abs=1e-4)


def test_shares_of_a_mixture_are_whole_and_their_parts_are_there(episodes: Build) -> None:
    assert apportion({"a": 0.5, "b": 0.3, "c": 0.2}, 9) == {"a": 4, "b": 3, "c": 2}
    assert apportion({"a": 0.5, "b": 0.5}, 3) == {"a": 2, "b": 1}
    for shares in ({"a": 0.5, "b": -0.5}, {"a": 0.0}, {}):
        with pytest.raises(
            UsageError, match=r"shares of a mixture: got .*; give numbers from 0, one of them above"
        ):
            mixture(shares, lambda e: "a")
    with pytest.raises(
        DataError, match="got an example of 'genral', which has no share; did you mean 'general'"
    ):
        Pipeline(mixture({"general": 1.0}, lambda e: "genral")).run(list(map(as_example, episodes([1]))))
    with pytest.raises(
        DataError, match=r"a mixture with a share 0\.5 of b: got none among 2 examples; collect some"
    ):
        Pipeline(mixture({"a": 0.5, "b": 0.5}, lambda e: "a")).run(list(map(as_example, episodes([1, 1]))))


def test_a_data_set_that_is_drawn_once_has_the_shares_of_the_draws(episodes: Build) -> None:
    both = [as_example(t) for t in episodes([1] * 3, [4] * 3) + episodes([1] * 17, task="g")]

    def part(example: Example) -> str:
        return example.trajectory.task.id

    for shares in ({"t": 1.0, "g": 4.0}, {"t": 0.2, "g": 0.8}):
        drawn = measure_shares(both, part, odds(both, part, shares))
        once = measure_shares(Pipeline(mixture(shares, part)).run(both).examples, part)
        assert {name: found for name, (found, _) in drawn.items()} == pytest.approx({"t": 0.2, "g": 0.8})
        assert {name: found for name, (found, _) in once.items()} == pytest.approx({"t": 0.2, "g": 0.8})
        assert drawn["t"][1] == pytest.approx(once["t"][1]) == pytest.approx(0.5)
