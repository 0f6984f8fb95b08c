"""Multipliers of bounded costs: by hand, in a whole step, killed and resumed, and what cannot be bounded."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn

from quintain.errors import ConfigError
from quintain.methods.rl import policy_gradient
from quintain.methods.rl.parts.constraints import Multipliers, measure_cost, read_constraints
from quintain.rewards.conduct import ILLEGAL
from quintain.types import Failure, Group, Score, Task, ToolError, Trajectory

Rows = Callable[[Path], list[dict[str, Any]]]
TASK = Task(id="t", environment="office", seed=0)


def episode(refused: int, *, illegal: float = 0.0, value: float = 1.0) -> Trajectory:
    """Return an episode of two turns with so many refused calls in the first, and unlawful acts in the last."""
    errors = tuple(ToolError(tool="send", cause="refused") for _ in range(refused))
    first = make_turn((1, 2), tool_errors=(*errors, ToolError(tool="send", cause="tool_error")))
    last = make_turn((3, 4), reward=value, reward_terms={ILLEGAL: illegal})
    return make_episode(first, last, task=TASK, outcome=Score(value=value, is_success=True), group="t")


def groups_of(*episodes: Trajectory) -> list[Group]:
    return [Group(task=TASK, trajectories=episodes)]


def test_a_cost_is_counted_over_the_episode() -> None:
    assert measure_cost("refused", episode(3)) == 3 and measure_cost("refused", episode(0)) == 0
    assert measure_cost("illegal", episode(1, illegal=2.0)) == 2
    assert measure_cost("format", episode(3)) == 0


def test_a_multiplier_follows_the_mean_above_its_bound_and_is_never_negative() -> None:
    found = Multipliers({"refused": 0.5, "illegal": 1.0}, rate=0.2)
    assert found.values == {"refused": 0.0, "illegal": 0.0}
    found.update(groups_of(episode(2), episode(1, illegal=1.0)))  # means 1.5 and .5
    assert found.values == pytest.approx({"refused": 0.2, "illegal": 0.0})
    found.update(groups_of(episode(0), episode(0, illegal=5.0)))  # 0 and 2.5
    assert found.values == pytest.approx({"refused": 0.1, "illegal": 0.3})
    broken = Failure(owner="environment", kind="x", message="broken")
    lost = make_episode(make_turn((1, 2)), task=TASK, outcome=broken, group="t")
    found.update(groups_of(lost))
    assert found.values == pytest.approx({"refused": 0.1, "illegal": 0.3}), "nothing was seen"
    assert found.measure((), None) == pytest.approx(
        {
            "constraint/refused/cost": 0.0,
            "constraint/refused/multiplier": 0.1,
            "constraint/illegal/cost": 2.5,
            "constraint/illegal/multiplier": 0.3,
        }
    )


def test_episodes_pay_for_their_costs_at_the_multiplier_of_the_step() -> None:
    config = policy_gradient.Config(constraints="refused<=0.5", multiplier_rate=0.4, group_size=2)
    method = policy_gradient.method(config)
    cheap, dear = episode(0), episode(2)
    assert [t.outcome for t in method.reward(groups_of(cheap, dear))[0].trajectories] == [
        cheap.outcome,
        dear.outcome,
    ], "multipliers begin at 0"
    method.state.update(groups_of(cheap, dear))  # the mean is 1: λ = .2
    paid = method.reward(groups_of(cheap, dear))[0].trajectories
    assert [t.outcome.value for t in paid if isinstance(t.outcome, Score)] == pytest.approx([1.0, 0.6])
    assert paid[1].turns[0].reward == pytest.approx(-0.4), "where the calls were made"
    assert method.measure((), lambda _: "")["constraint/refused/multiplier"] == pytest.approx(0.2)


def test_without_constraints_the_method_is_what_it_was() -> None:
    groups = groups_of(episode(2))
    assert policy_gradient.method(policy_gradient.Config()).reward(groups) is groups


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"constraints": "refused<0.1"}, "write cost<=bound"),
        ({"constraints": "refuse<=0.1"}, "refused"),
        ({"constraints": "refused<=-1"}, "write cost<=bound"),
        ({"constraints": "refused<=1, refused<=2"}, "twice"),
        ({"constraints": "refused<=1", "rewards": "success, refused=0.1@success"}, "leave it out of one"),
        ({"multiplier_rate": 0.5}, "without constraints"),
    ],
)
def test_what_cannot_be_bounded_is_refused(fields: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        policy_gradient.Config(**fields).check()


def test_a_name_within_another_is_no_weight_of_it() -> None:
    assert read_constraints("format<=0.5", "success, well_formed") == {"format": 0.5}
    assert read_constraints("", "success") == {}


def test_a_killed_run_goes_on_with_the_multipliers_that_it_had(
    runner: Any, rows: Rows, weights: Callable[[Path], str], interrupt: Callable[[int], None]
) -> None:
    fields: dict[str, Any] = {
        "tasks": 2, "group_size": 3, "steps": 3, "constraints": "format<=0.01, invalid<=0.01", "multiplier_rate": 0.7,
    }  # fmt: skip
    whole = runner.train("policy_gradient", **fields)
    interrupt(2)
    stopped = runner.train("policy_gradient", **fields)
    interrupt(-1)
    runner.resume(stopped)
    assert rows(stopped) == rows(whole) and weights(stopped / "model") == weights(whole / "model")
    curve: Sequence[float] = [
        sum(row[f"constraint/{cost}/multiplier"] for cost in ("format", "invalid"))
        for row in rows(whole)[-3:]
    ]
    assert curve[-1] > curve[0] > 0, "an untrained policy breaks them, and they are priced"
