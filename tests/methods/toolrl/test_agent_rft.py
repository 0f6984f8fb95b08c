"""Agent RFT: penalties that never turn right into wrong, items of the pre-flight, and endpoints that break."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from quintain_evidence.experiments.toolrl import agent_rft as experiment
from quintain_evidence.experiments.toolrl.agent_rft import KEY, STEP

from quintain.adapters.http_tools.environment import HttpTools
from quintain.environments.protocol import begin, tool_action
from quintain.errors import ConfigError, UsageError
from quintain.methods.method import Estimates
from quintain.methods.toolrl import agent_rft
from quintain.methods.toolrl.agent_rft import Flight, conduct, item_of, variance
from quintain.processes import http_json
from quintain.rewards.terms import apply
from quintain.rollout.stepper import guarded
from quintain.serve.json_app import Refusal, Request, json_app
from quintain.serve.listener import Listener
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


class Endpoints(Listener):
    """Two tools, of which one is down, and a grader that answers `score`."""

    def __init__(self) -> None:
        self.score: Any = 1.0
        super().__init__(json_app(self.answer), token=KEY)

    def answer(self, request: Request) -> Any:
        if request.path == "/down":
            raise Refusal(503, "down")
        return {"score": self.score} if request.path == "/grade" else {"output": "done"}


@pytest.fixture
def endpoints(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoints]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    server = Endpoints()
    server.start()
    yield server
    server.close()


@pytest.fixture
def file(endpoints: Endpoints, tmp_path: Path) -> Path:
    tools = [
        {"name": name, "description": name, "parameters": STEP, "url": f"{endpoints.url}/{name}"}
        for name in ("up", "down")
    ]
    path = tmp_path / "service.json"
    headers = {"Authorization": f"Bearer {KEY}"}
    rows = [{"prompt": f"Go {k}.", "solution": [{"tool": "up"}, "done"]} for k in range(8)]
    settings = {"tools": tools, "grader": f"{endpoints.url}/grade", "headers": headers, "tasks": rows}
    path.write_text(json.dumps(settings))
    return path


def test_a_grader_that_returns_text_is_a_failure_of_the_judge_and_never_a_score(
    endpoints: Endpoints, file: Path
) -> None:
    for score in ("good", None, [1.0], float("nan"), 7.0):
        endpoints.score = score
        world = HttpTools(str(file))
        begin(world, world.task("train", 0))
        found = guarded(lambda world=world: world.step(Action(text="done")))
        assert isinstance(found, Failure) and found.owner == "judge", score
        world.close()


def test_one_endpoint_that_is_down_breaks_the_episodes_that_call_it_alone(
    endpoints: Endpoints, file: Path
) -> None:
    owners: list[str] = []
    for name in ("up", "down", "up"):
        world = HttpTools(str(file))
        begin(world, world.task("train", 0))
        found = guarded(lambda world=world, name=name: world.step(tool_action(name)))
        owners.append(
            f"{found.owner}: {found.message[:9]}" if isinstance(found, Failure) else str(found.observation)
        )
        world.close()
    assert owners == ["done", "tool: tool down", "done"]


@pytest.mark.slow
def test_a_service_that_fails_now_and_then_punishes_calls_only_where_failures_are_scored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    (row,) = experiment.measure({"seeds": 1, "tasks": 4, "rate": 0.3}, 3)
    assert abs(row["method"]) < 0.1 < row["method"] - row["control"]
    assert row["null_method"] == row["null_control"] == row["extra.unjoined"] == row["extra.foreign"] == 0.0
    assert row["extra.covered_without_retry"] < row["extra.covered"]


@pytest.mark.slow
def test_it_trains(train: Callable[..., list[dict[str, Any]]], file: Path) -> None:
    rows = train("agent_rft", environment=f"http-tools/{file}", probe_items=0, tasks=2, demonstrations=4)
    assert {"reward/environment", "reward/efficiency_num_calls", "agent_rft/calls"} <= rows[-1].keys()


@pytest.mark.slow
def test_it_trains_in_a_world_of_ours(train: Callable[..., list[dict[str, Any]]]) -> None:
    rows = train("agent_rft", probe_items=2, probes=2, tasks=1, demonstrations=4)
    assert {"preflight/variance", "agent_rft/excluded_judge"} <= rows[-1].keys()
