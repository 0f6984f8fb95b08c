"""Agent RFT: penalties that never turn right into wrong, items of the pre-flight, and endpoints that break."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from quintain.errors import ConfigError, UsageError
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.toolrl import agent_rft
from quintain.methods.toolrl.agent_rft import Flight, conduct, item_of, variance
from quintain.rewards.terms import apply
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Failure, Group, Score, Task, ToolCall, Trajectory


def episode(score: float, *, calls: int = 0, tokens: int = 1, task: str = "t") -> Trajectory:
    turn = turn_of(action=Action(tool_calls=(ToolCall(name="add"),) * calls))
    said = replace(turn.completion, token_ids=(2,) * tokens, logprobs=(-0.5,) * tokens)
    shown = episode_of([replace(turn, completion=said, reward=score)], is_success=score > 0)
    return replace(
        shown, task=Task(id=task, environment="e", seed=0), outcome=Score(value=score, is_success=score > 0)
    )


BROKEN = Failure(owner="tool", kind="tool_unavailable", message="down")


def group(*scores: float | None, task: str = "t") -> Group:
    episodes = [
        replace(episode(0.0, task=task), outcome=BROKEN) if score is None else episode(score, task=task)
        for score in scores
    ]
    return Group(task=episodes[0].task, trajectories=tuple(episodes))


def test_no_penalty_puts_a_right_answer_below_a_wrong_one() -> None:
    rng = Random(0)
    terms = agent_rft.rewards(
        agent_rft.Config(token_penalty=0.05, call_penalty=0.05, token_budget=4, call_budget=1)
    )
    for _ in range(500):
        right, wrong = (
            apply(episode(score, calls=rng.randint(0, 60), tokens=rng.randint(1, 200)), terms).outcome
            for score in (1.0, 0.0)
        )
        assert isinstance(right, Score) and isinstance(wrong, Score)
        assert right.value >= 0.5 > wrong.value == 0.0
    paid = apply(episode(1.0, calls=3, tokens=6), terms).outcome
    assert isinstance(paid, Score) and paid.value == pytest.approx(1 - 0.05 * 2 - 0.05 * 0.5)
    with pytest.raises(ConfigError, match=r"call_penalty: got 0.1; give at most 0.05"):
        agent_rft.Config(call_penalty=0.1).check()
    with pytest.raises(ConfigError, match="probes: got 1, and one score does not vary"):
        agent_rft.Config(probes=1).check()


def test_the_variance_of_repeated_scores_is_that_by_hand() -> None:
    found = variance([group(0, 0, 0, None), group(1, 1, 1, 1), group(0, 1, 1, 0), group(None, None)])
    assert found == {
        "preflight/variance": pytest.approx(0.25 / 3),
        "preflight/always_0": 0.25,
        "preflight/always_1": 0.25,
        "preflight/differ": 0.25,
        "preflight/broken": 0.25,
    }
    assert variance([]) == dict.fromkeys(found, 0.0)


class Collector:
    """Gives groups by hand, and tasks in turn."""

    def __init__(self, *groups: Group) -> None:
        self.groups, self.sampled = list(groups), list[str]()

    def starting_groups(self, *, tasks: int, size: int) -> list[Group]:
        return self.groups

    def tasks(self, step: int, count: int) -> list[Task]:
        return [self.groups[(step + k) % len(self.groups)].task for k in range(count)]

    def sample(self, step: int, tasks: list[Task], *, size: int) -> list[Group]:
        self.sampled = [task.id for task in tasks]
        return []


def test_items_whose_scores_never_differ_are_left_out() -> None:
    collector: Any = Collector(
        group(0, 0, task="a"), group(0, 1, task="b"), group(1, 1, task="c"), group(None, task="d")
    )
    flight = Flight(items=4, probes=2)
    flight.prepare(collector)
    assert flight.constant == {"a", "c"} and flight.report["preflight/differ"] == 0.25
    flight.collect(collector, 0, tasks=3, size=2)
    assert collector.sampled == ["b", "d", "b"], "what endpoints broke may be tried again"
    hopeless: Any = Collector(group(0, 0, task="a"))
    flight.prepare(hopeless)
    with pytest.raises(UsageError, match=r"items to learn from: got none, for on all 1 of them"):
        flight.collect(hopeless, 0, tasks=3, size=2)
    untried = Flight(items=0, probes=2)
    untried.prepare(hopeless)
    untried.collect(hopeless, 0, tasks=1, size=2)
    assert hopeless.sampled == ["a"] and untried.report == {}
    assert item_of(Task(id="x/7", environment="e", seed=0, data={"row": 3})) == "row 3"


def test_what_broke_is_excluded_and_counted_by_its_owner() -> None:
    judged = replace(episode(1.0), outcome=replace(BROKEN, owner="judge"))
    whole = Group(task=judged.task, trajectories=(episode(1.0, calls=2), episode(0.0, calls=4), judged))
    found = conduct([whole])
    assert found["agent_rft/calls"] == 3 and found["agent_rft/tokens"] == 1
    assert found["agent_rft/excluded_judge"] == pytest.approx(1 / 3) and found["agent_rft/excluded_tool"] == 0
    method = agent_rft.method(agent_rft.Config())
    credit = method.credit(method.reward([whole]), Estimates())
    assert [round(float(turns[0][0]), 3) for turns in credit.advantages] == [0.707, -0.707]
    assert conduct([])["agent_rft/calls"] == 0.0


@pytest.mark.slow
def test_it_trains_in_a_world_of_ours(train: Callable[..., list[dict[str, Any]]]) -> None:
    rows = train("agent_rft", probe_items=2, probes=2, tasks=1, demonstrations=4)
    assert {"preflight/variance", "agent_rft/excluded_judge"} <= rows[-1].keys()
