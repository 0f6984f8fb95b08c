"""Names of agents outside, how functions, commands and graders are found, and what is a score."""

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from quintain.agents import external_agent
from quintain.agents.catalog import Layer, build, check, engine_needs, is_outside
from quintain.agents.external_agent import (
    AgentFault,
    LastWords,
    Outside,
    as_score,
    ask_expert,
    command_runner,
    grade_answer,
    member,
    task_text,
)
from quintain.agents.harness import Choice, JsonTools
from quintain.environments.tools import GraderFault
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Score, Task, ToolCall
from quintain.worlds.guess.game import Guess
from quintain.worlds.keydoor.game import KeyDoor


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(train_tokenizer(["<|system|>Go.<|user|>A wall.<|assistant|>left<|end|>"], 300))


TASK = Task(id="wall/1", environment="wall", seed=7, prompt="Go.", data={"n": 1})


def test_names() -> None:
    assert check("mine.py:run_agent?grade=grade&deadline=5") == (
        Layer("endpoint", {"run": "mine.py:run_agent", "grade": "grade", "deadline": "5"}),
    )
    assert check("endpoint?command=python -m agent --n 3") == (
        Layer("endpoint", {"command": "python -m agent --n 3"}),
    )
    assert [is_outside(spec) for spec in ("a.b:c", "endpoint?command=x", "tools?calls=llama", "window+react")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert engine_needs("mine.py:run_agent") == frozenset()
    for spec, told in (
        ("window+endpoint?command=x", "which?|wraps an agent that keeps its own history"),
        ("mine.py:run_agent?size=3", "option of endpoint in the agent .*: got 'size'"),
        ("mine.py:run_agent?deadline=x", "deadline of endpoint"),
    ):
        with pytest.raises(UsageError, match=told):
            check(spec)


def test_demonstrations_are_written_by_what_fits_the_environment(chat: Chat) -> None:
    for world, kind in ((Guess(), JsonTools), (KeyDoor(), Choice)):
        agent = build("mine.py:run_agent", chat, world, temperature=0.5, max_tokens=9)
        assert isinstance(agent, Outside) and isinstance(agent.agent, kind)
        assert (agent.temperature, agent.max_tokens, agent.name) == (0.5, 9, "mine.py:run_agent")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "give one of the two"),
        ({"run": "a:b", "command": "c"}, "give one of the two"),
        ({"run": "a:b", "deadline": 0}, "got deadline=0"),
        ({"run": "a:b", "max_calls": 0}, "max_calls=0"),
    ],
)
def test_an_agent_that_is_none(chat: Chat, options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Outside(chat=chat, agent=JsonTools(chat), **options)


def test_functions_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def run_agent(base_url, key, task):\n    return 3\n\n\nnumber = 3\n")
    assert member(f"{file}:run_agent")("", "", TASK) == 3
    module = types.ModuleType("my_agents")
    vars(module)["play"] = len
    monkeypatch.setitem(sys.modules, "my_agents", module)
    assert member("my_agents:play") is len
    for place, told in (
        ("run_agent", "write it as file.py:function"),
        (f"{file}:absent", "has no absent"),
        (f"{file}:number", "which is a int; name a function"),
        ("no_such_module:play", "there is no module no_such_module"),
        ("my_agents:plya", "my_agents has no plya; .*play"),
    ):
        with pytest.raises(UsageError, match=told):
            member(place)


def test_what_a_file_imports_may_lie_beside_it_and_what_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "beside_the_agent.py").write_text("NUMBER = 5\n")
    file, broken = tmp_path / "mine.py", tmp_path / "broken.py"
    file.write_text("from beside_the_agent import NUMBER\n\n\ndef run_agent(*given):\n    return NUMBER\n")
    before = list(sys.path)
    assert member(f"{file}:run_agent")("", "", TASK) == 5
    broken.write_text("\nimport beside_no_agent\n")
    told = r"ModuleNotFoundError: No module named 'beside_no_agent' \(broken.py, line 2\); mend the file"
    with pytest.raises(UsageError, match=told):
        member(f"{broken}:run_agent")
    assert sys.path == before
    del sys.modules["beside_the_agent"]


def test_the_name_alone_of_a_grader_is_in_the_file_of_the_agent(chat: Chat, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "def run_agent(base_url, key, task):\n    return 3\n\n\ndef grade(task, answer):\n    return answer / 2\n"
    )
    agent = Outside(chat=chat, agent=JsonTools(chat), run=f"{file}:run_agent", grade="grade")
    assert agent.prepare_player()("", "", TASK) == Score(value=1.5, is_success=True)


def test_what_is_a_score() -> None:
    assert as_score(0.5, "it") == Score(value=0.5, is_success=True)
    assert as_score(False, "it") == Score(value=0.0, is_success=False)
    own = Score(value=0.3, is_success=False)
    assert as_score(own, "it") == own
    for value in (None, "1", float("inf"), [1]):
        with pytest.raises(GraderFault, match="it: score must be a finite number"):
            as_score(value, "it")

    def raises(task: Task, answer: object) -> float:
        raise ValueError("no")

    with pytest.raises(GraderFault, match="grader g: got ValueError: no; mend it"):
        grade_answer(raises, TASK, 1, "g")
    assert GraderFault("x").owner == "judge"


def test_what_an_expert_says() -> None:
    messages = [{"role": "user", "content": "Go."}]

    def echoes(task: Task, told: list[dict[str, Any]]) -> object:
        return f"{task.prompt} {told[0]['content']}"

    assert ask_expert(echoes, TASK, messages, "e") == Action(text="Go. Go.")
    call = {"name": "guess", "arguments": {"number": 3}}
    guess = ToolCall(name="guess", arguments={"number": 3})
    for said, calls in ((call, (guess,)), ([call, {"name": "look"}], (guess, ToolCall(name="look")))):
        assert ask_expert(lambda task, told, said=said: said, TASK, messages, "e") == Action(tool_calls=calls)
    for wrong in (3, None, {"name": 3}, {"name": "guess", "arguments": "3"}, ["guess"]):
        with pytest.raises(AgentFault, match=r"expert e: got .*; answer with a text, or {"):
            ask_expert(lambda task, told, said=wrong: said, TASK, messages, "e")
    with pytest.raises(AgentFault, match=r"expert e: got ZeroDivisionError: .*; mend it"):
        ask_expert(lambda task, told: 1 / 0, TASK, messages, "e")


def test_commands() -> None:
    program = "import json, os; print('noise'); print(os.environ['OPENAI_BASE_URL'], os.environ['ANTHROPIC_BASE_URL'])"
    run = command_runner(f'{sys.executable} -c "{program}"', 20.0)
    assert run("http://h/e/a/v1", "k", TASK) == "http://h/e/a/v1 http://h/e/a"
    program = "import os; print(os.environ['QUINTAIN_TASK'])"
    assert command_runner(f'{sys.executable} -c "{program}"', 20.0)("u", "k", TASK) == json.loads(
        task_text(TASK)
    )
    assert json.loads(task_text(TASK)) == {
        "id": "wall/1", "environment": "wall", "seed": 7, "split": "train", "prompt": "Go.", "data": {"n": 1},
    }  # fmt: skip
    assert command_runner("true", 20.0)("u", "k", TASK) == ""
    with pytest.raises(AgentFault, match=r"got no end within 0\.5 s") as found:
        command_runner("sleep 60", 0.5)("u", "k", TASK)
    assert found.value.kind == "timeout"
    with pytest.raises(UsageError, match="close its quotes"):
        command_runner("echo 'a", 1.0)
    with pytest.raises(UsageError, match="there is no program 'no-such-program'; check the name"):
        command_runner("no-such-program --fast", 1.0)
    with pytest.raises(UsageError, match="got an empty one"):
        command_runner(" ", 1.0)


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        (
            "def run(base_url, api_key): ...",
            "",
            r"got run\(base_url, api_key\); it is called with base_url, api_key, task",
        ),
        ("def run(base_url, api_key, task, *, model): ...", "", "it is called with base_url, api_key, task"),
        (
            "def run(*a): ...\ndef grade(answer): ...",
            "grade",
            r"got grade\(answer\); it is called with task, answer",
        ),
    ],
)
def test_functions_that_cannot_be_called_are_refused_before_they_are(
    chat: Chat, lines: str, options: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(lines + "\n")
    found = Outside(chat=chat, agent=JsonTools(chat), run=f"{tmp_path}/mine.py:run", grade=options)
    with pytest.raises(UsageError, match=said):
        found.prepare_player()


def test_an_expert_that_cannot_be_called_is_refused(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def run(a, b, c): ...\ndef expert(task): ...\n")
    with pytest.raises(UsageError, match="it is called with task, messages"):
        Outside(
            chat=chat, agent=JsonTools(chat), run=f"{tmp_path}/mine.py:run", expert="expert"
        ).find_expert()


def test_a_command_that_writes_for_ever_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_agent, "LONGEST_KEPT", 10_000)
    program = "import sys; [sys.stdout.write('x' * 999 + chr(10)) for _ in range(2000)]; print(0.5)"
    run = command_runner(f'{sys.executable} -c "{program}"', 60.0)
    kept: list[int] = []
    text = LastWords.text
    monkeypatch.setattr(LastWords, "text", lambda self: kept.append(len(self._kept)) or text(self))
    assert run("u", "k", TASK) == 0.5 and kept[0] <= 30_000
