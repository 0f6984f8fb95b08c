"""Episodes whose agents live outside: functions and commands, their scores, failures, budgets and attempts."""

import asyncio
import json
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from quintain.agents.external_agent import Outside
from quintain.agents.harness import PlainText
from quintain.data.used import REFUSED, find_unused
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.errors import EngineFault, FailureRateError, UsageError
from quintain.rewards.conduct import refused_call_penalty
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.request import USUAL
from quintain.rollout.views import Prefix
from quintain.serve.source import ExternalAgents
from quintain.text.chat import Chat
from quintain.types import Action, Failure, Score, StepResult, Stop, Task, Trajectory, as_text
from quintain.types.forest import find_parents

Play = Callable[[str, str, Task], object]


class Wall(Environment):
    """Say something to a wall."""

    name = "wall"

    def reset(self, task: Task) -> str:
        return "A wall."

    def step(self, action: Action) -> StepResult:
        return StepResult(observation="", is_terminated=True)


def ask(base_url: str, key: str, text: str = "A wall.", **more: Any) -> str:
    with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
        found = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": text}], **more
        )
    return found.choices[0].message.content or ""


async def play_later(base_url: str, key: str, task: Task) -> object:
    return float(ask(base_url, key) == "go on")


def grade(task: Task, answer: Any) -> Any:
    if answer == "raise":
        raise KeyError("no such answer")
    return None if answer == "none" else answer


class Broken(Scripted):
    """An engine that fails as a whole."""

    def advance(self) -> Any:
        raise EngineFault("the engine: got no power; plug it in")


@pytest.fixture
def rollout_of(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rollout]]:
    made: list[Rollout] = []
    agents = types.ModuleType("agents_of_a_test")
    vars(agents).update(play_later=play_later, grade=grade, said_go_on=said_go_on)
    monkeypatch.setitem(sys.modules, "agents_of_a_test", agents)

    def make(
        agent: Play | None = None,
        *,
        limits: Limits | None = None,
        engine: Scripted | None = None,
        **options: Any,
    ) -> Rollout:
        if agent is not None:
            vars(agents)["play"] = agent
        if not {"run", "command"} & options.keys():
            options["run"] = "agents_of_a_test:play"

        def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
            return chat.write("go on")

        outside = Outside(chat=chat, agent=PlainText(chat), **options)
        limits = limits or Limits(max_failure_share=1.0, attempts=1)
        source = ExternalAgents(outside, is_checked=True)
        rollout = Rollout(outside, Wall, engine or Scripted(script), limits=limits, source=source)
        made.append(rollout)
        return rollout

    yield make
    for rollout in made:
        rollout.close()


def episodes(rollout: Rollout, tasks: int = 1, size: int = 2) -> list[Trajectory]:
    drawn = [Wall().task("train", number) for number in range(tasks)]
    return [t for group in rollout.groups(drawn, size=size, seed=3) for t in group.trajectories]


def test_groups_of_an_agent_outside(rollout_of: Callable[..., Rollout]) -> None:
    def agent(base_url: str, key: str, task: Task) -> float:
        first = ask(base_url, key)
        again = ask(base_url, key, f"{first}?")
        return len(first + again)

    found = episodes(rollout_of(agent), tasks=2)
    assert [(t.group.rpartition(":")[2], t.index) for t in found] == [
        ("wall/train/0", 0), ("wall/train/0", 1), ("wall/train/1", 0), ("wall/train/1", 1),
    ]  # fmt: skip
    for trajectory in found:
        assert trajectory.outcome == Score(value=10.0, is_success=True)
        assert [turn.reward for turn in trajectory.turns] == [0.0, 10.0]
        assert trajectory.stop is Stop.TERMINATED
        assert [as_text(turn.observation) for turn in trajectory.turns] == ["A wall.", "go on?"]
        assert {number for turn in trajectory.turns for number in turn.completion.logprobs} == {-1.0}
        assert find_parents(trajectory.turns) == [(None, 0), (None, 0)]
    assert len({t.seed for t in found}) == 4


def test_a_guard_takes_calls_out_of_what_an_agent_outside_is_handed(
    rollout_of: Callable[..., Rollout], chat: Chat, tmp_path: Path
) -> None:
    policy = tmp_path / "p.json"
    policy.write_text(json.dumps({"pay": [{"when": {"to": {"said_by": ["task"]}}}]}))
    tools: Any = [{"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}]
    said = iter(("eve", "ann"))

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        call = json.dumps({"name": "pay", "arguments": {"to": next(said)}})
        return chat.write(f"<tool_call>{call}</tool_call>")

    def play(base_url: str, key: str, task: Task) -> float:
        messages: Any = [{"role": "user", "content": "Pay ann."}]
        with openai.OpenAI(base_url=base_url, api_key=key, max_retries=0) as client:
            handed = [
                client.chat.completions.create(model="m", messages=messages, tools=tools).choices[0].message
                for _ in range(2)
            ]
        assert handed[0].tool_calls is None and "eve" in str(handed[0].content)
        return float(len(handed[1].tool_calls or ()))

    rollout = rollout_of(play, guard=str(policy), engine=Scripted(script))
    (episode,) = episodes(rollout, size=1)
    assert isinstance(episode.outcome, Score) and episode.outcome.value == 1.0
    assert [turn.facts.get("refused") for turn in episode.turns] == [["pay"], None]
    assert [[(e.tool, e.cause) for e in turn.tool_errors] for turn in episode.turns] == [
        [("pay", "refused")],
        [],
    ]
    assert find_unused(episode.turns) == {0: REFUSED}
    assert refused_call_penalty().measure(episode) == [-1.0, 0.0]
    with pytest.raises(UsageError, match=r"guard: got|got .*missing.json"):
        rollout_of(play, guard=str(tmp_path / "missing.json"))


def test_a_function_that_is_awaited(rollout_of: Callable[..., Rollout]) -> None:
    (found,) = episodes(rollout_of(run="agents_of_a_test:play_later"), size=1)
    assert found.outcome == Score(value=1.0, is_success=True)


@pytest.mark.slow
def test_a_command(rollout_of: Callable[..., Rollout], tmp_path: Path) -> None:
    program = tmp_path / "agent.py"
    program.write_text(
        "import json, os, openai, sys\n"
        "task = json.loads(os.environ['QUINTAIN_TASK'])\n"
        "c = openai.OpenAI()\n"
        "said = c.chat.completions.create(model='m', messages=[{'role': 'user', 'content': task['id']}])\n"
        "print('noise')\n"
        "print(json.dumps({'said': said.choices[0].message.content}))\n"
    )

    command = f"{sys.executable} {program}"
    (found,) = episodes(rollout_of(command=command, grade="agents_of_a_test:said_go_on"), size=1)
    assert found.outcome == Score(value=1.0, is_success=True)
    assert as_text(found.turns[0].observation) == "wall/train/0"
    command = f"{sys.executable} -c 'import sys; sys.exit(\"no luck\")'"
    (found,) = episodes(rollout_of(command=command), size=1)
    assert found.outcome == Failure(
        owner="environment", kind="agent", message=f"agent {command}: got exit status 1; it wrote: no luck"
    )


def said_go_on(task: Task, answer: Any) -> float:
    return float(answer == {"said": "go on"})


@pytest.mark.parametrize(
    ("answer", "owner", "kind", "told"),
    [
        ("none", "judge", "grader", "must be a finite number: got None"),
        ("raise", "judge", "grader", "got KeyError: 'no such answer'"),
        (float("nan"), "judge", "grader", "must be a finite number: got nan"),
    ],
)
def test_a_grader_that_breaks_gives_no_score(
    rollout_of: Callable[..., Rollout], answer: object, owner: str, kind: str, told: str
) -> None:
    def agent(base_url: str, key: str, task: Task) -> object:
        ask(base_url, key)
        return answer

    (found,) = episodes(rollout_of(agent, grade="grade"), size=1)
    assert isinstance(found.outcome, Failure)
    assert (found.outcome.owner, found.outcome.kind) == (owner, kind)
    assert told in found.outcome.message
    assert found.stop is Stop.FAILURE


def test_what_fails_is_tried_again_in_a_new_episode(rollout_of: Callable[..., Rollout]) -> None:
    keys: list[str] = []

    def agent(base_url: str, key: str, task: Task) -> float:
        keys.append(key)
        ask(base_url, key)
        if len(keys) == 1:
            raise RuntimeError("a tool broke")
        return 1.0

    rollout = rollout_of(agent, limits=Limits(attempts=2))
    (found,) = episodes(rollout, size=1)
    assert found.is_success and len(found.turns) == 1
    assert len(set(keys)) == 2
    assert ["a tool broke" in failure.message for _, _, failure in rollout.retries] == [True]


def test_too_many_failures_end_the_rollout(rollout_of: Callable[..., Rollout]) -> None:
    played: list[str] = []

    def agent(base_url: str, key: str, task: Task) -> float:
        played.append(key)
        if len(played) == 1:
            ask(base_url, key)
            return 1.0
        raise RuntimeError("a tool broke")

    with pytest.raises(FailureRateError, match="failures, more than 5%; the first, by the environment"):
        episodes(rollout_of(agent, limits=Limits(attempts=1)), size=4)
    with pytest.raises(FailureRateError, match="attempts at an episode broke"):
        limits = Limits(attempts=1, max_failure_share=1.0, max_broken_share=0.01)
        episodes(rollout_of(agent, limits=limits), size=6)


def test_an_agent_that_cannot_play_at_all_costs_one_episode(rollout_of: Callable[..., Rollout]) -> None:
    played: list[str] = []

    def agent(base_url: str, key: str, task: Task) -> float:
        played.append(key)
        raise RuntimeError("a tool broke")

    with pytest.raises(
        FailureRateError, match=r"the first episode of agent .* failed by the environment: a tool broke"
    ):
        episodes(rollout_of(agent, limits=Limits(attempts=2)), size=64)
    assert len(played) == 2  # the attempts of one episode


def test_coroutines_of_all_episodes_share_a_loop(rollout_of: Callable[..., Rollout]) -> None:
    loops: set[int] = set()

    async def agent(base_url: str, key: str, task: Task) -> float:
        loops.add(id(asyncio.get_running_loop()))
        await asyncio.to_thread(ask, base_url, key)
        return 1.0

    assert all(found.is_success for found in episodes(rollout_of(agent), size=4))
    assert len(loops) == 1


def test_an_agent_that_never_asks_has_no_score(rollout_of: Callable[..., Rollout]) -> None:
    (found,) = episodes(rollout_of(lambda *_: 1.0), size=1)
    assert isinstance(found.outcome, Failure) and found.outcome.kind == "no_calls"


@pytest.mark.slow
def test_an_agent_that_does_not_end(rollout_of: Callable[..., Rollout]) -> None:
    may_end = threading.Event()
    refused: list[int] = []

    def agent(base_url: str, key: str, task: Task) -> float:
        try:
            ask(base_url, key)  # on a busy machine the deadline may be over before this one
            may_end.wait(30)
            ask(base_url, key)
        except openai.APIStatusError as error:
            refused.append(error.status_code)
        return 1.0

    rollout = rollout_of(agent, deadline=0.1)
    (found,) = episodes(rollout, size=1)
    may_end.set()
    assert isinstance(found.outcome, Failure) and found.outcome.kind == "timeout"
    until = time.monotonic() + 10
    while not refused and time.monotonic() < until:
        time.sleep(0.01)
    assert refused == [401]


def test_a_budget_of_calls(rollout_of: Callable[..., Rollout]) -> None:
    def stubborn(base_url: str, key: str, task: Task) -> float:
        while True:
            ask(base_url, key)

    def polite(base_url: str, key: str, task: Task) -> float:
        try:
            stubborn(base_url, key, task)
        except openai.PermissionDeniedError:
            return 0.5
        raise AssertionError("it has no end")

    (found,) = episodes(rollout_of(stubborn, max_calls=3), size=1)
    assert (found.outcome, found.stop) == (Score(value=0.0, is_success=False), Stop.CUT)
    assert len(found.turns) == 3
    (found,) = episodes(rollout_of(polite, max_calls=3), size=1)
    assert (found.outcome, found.stop) == (Score(value=0.5, is_success=True), Stop.CUT)


def test_the_same_seed_gives_the_same_requests(chat: Chat, rollout_of: Callable[..., Rollout]) -> None:
    seeds: list[list[int]] = []

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        seeds[-1].append(request.seed)
        return chat.write("go on")

    def agent(base_url: str, key: str, task: Task) -> float:
        ask(base_url, key)
        ask(base_url, key)
        ask(base_url, key, "again")
        return 1.0

    for _ in range(2):
        seeds.append([])
        episodes(rollout_of(agent, engine=Scripted(script)), size=1)
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3


def test_an_engine_that_fails(rollout_of: Callable[..., Rollout]) -> None:
    fault = Failure(owner="engine", kind="broken", message="no power")

    def agent(base_url: str, key: str, task: Task) -> float:
        ask(base_url, key)
        return 1.0

    (found,) = episodes(rollout_of(agent, engine=Scripted(lambda request, stream: fault)), size=1)
    assert found.outcome == fault
    with pytest.raises(EngineFault, match="plug it in"):
        episodes(rollout_of(agent, engine=Broken(lambda request, stream: fault)), size=1)


def test_what_a_rollout_gives_up_ends(rollout_of: Callable[..., Rollout]) -> None:
    def agent(base_url: str, key: str, task: Task) -> float:
        ask(base_url, key)
        return 1.0

    rollout = rollout_of(agent, limits=Limits(concurrency=1))
    tasks = [Wall().task("train", number) for number in range(3)]
    requests = [request for task in tasks for request in rollout.requests([task], 1, 3, options=USUAL)]
    with closing(rollout.play(requests)) as found:
        assert next(found).is_success
    (prefixed,) = requests[:1]
    prefix = Prefix(task=tasks[0], turns=(), views=())
    with pytest.raises(UsageError, match="begins at its own"):
        list(rollout.play([replace(prefixed, prefix=prefix)]))
