"""Agent RFT: penalties that never turn right into wrong, items of the pre-flight, and endpoints that break."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from quintain.adapters.http_tools.environment import HttpTools
from quintain.environments.protocol import begin, tool_action
from quintain.processes import http_json
from quintain.rollout.stepper import guard_call
from quintain.serve.json_app import Refusal, Request, json_app
from quintain.serve.listener import Listener
from quintain.types import Action, Failure
from quintain_evidence.experiments.toolrl import agent_rft as experiment
from quintain_evidence.experiments.toolrl.agent_rft import KEY, STEP


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
        found = guard_call(lambda world=world: world.step(Action(text="done")))
        assert isinstance(found, Failure) and found.owner == "judge", score
        world.close()


def test_one_endpoint_that_is_down_breaks_the_episodes_that_call_it_alone(
    endpoints: Endpoints, file: Path
) -> None:
    owners: list[str] = []
    for name in ("up", "down", "up"):
        world = HttpTools(str(file))
        begin(world, world.task("train", 0))
        found = guard_call(lambda world=world, name=name: world.step(tool_action(name)))
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
