"""Agents that live outside: a Python function, or a command, that talks to a model at a ``base_url``.

``agent="mine.py:run_agent?grade=mine.py:grade"`` names the function ``run_agent(base_url, api_key, task)`` and what
scores its answer, ``grade(task, answer)``; ``agent="endpoint?command=python agent.py"`` names a command. Quintain calls
it for every episode and sees nothing of it but its calls of the model, which `quintain.serve.source` records. What is
to be imitated first is played by the agent itself, with ``expert(task, messages)`` in the model's place, so that it
looks as the agent's own requests do; without one, it is written by the harness that fits the environment.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from quintain.agents.protocol import Agent, Brief, Session
from quintain.environments.catalog import file_member
from quintain.environments.protocol import check_claim, check_reward
from quintain.environments.tools import GraderFault, OwnedFault
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.processes.tree import below, send
from quintain.safety.guard import Guard
from quintain.safety.policy import Policy, read_order_of, read_policy
from quintain.text.chat import Chat
from quintain.types import Action, Score, Task, ToolCall
from quintain.types.json_text import load_json

Run = Callable[[str, str, Task], object]
Grade = Callable[[Task, Any], object]
Expert = Callable[[Task, list[dict[str, Any]]], object]
"""(task, messages as OpenAI writes them) → what the model is to answer."""
LONGEST_TOLD = 300
"""Characters of what a command wrote to its standard error that an error repeats."""
LONGEST_KEPT = 1 << 20
"""Bytes of what a program writes that are kept: its answer is the last line."""
LAUNCH = (
    "import json, os, sys\n"
    "given = json.loads(sys.stdin.buffer.readline())\n"
    "os.environ.update(given['variables'])\n"
    "os.execvp(given['command'][0], given['command'])\n"
)
"""Becomes the command, with variables that no list of processes shows."""


class AgentFault(OwnedFault):
    """An agent that lives outside broke: ``AgentFault("agent mine.py:run_agent: got exit status 1; …")``."""

    kind: str = "agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """An agent that talks to the recording endpoint: ``Outside(chat=chat, agent=inner, run="mine.py:run_agent")``."""

    chat: Chat
    agent: Agent
    """The harness that writes demonstrations."""
    temperature: float = 1.0
    max_tokens: int = 128
    """Tokens of an answer."""
    run: str = ""
    """``file.py:function`` or ``package.module:function``, called as ``run_agent(base_url, api_key, task)``."""
    command: str = ""
    """A command that is run instead; the last line of its output is its answer."""
    grade: str = ""
    """``file.py:function`` (the name alone: of the file of `run`), called as ``grade(task, answer)``; without one the
    answer itself is the score."""
    expert: str = ""
    """``file.py:function`` (the name alone: of the file of `run`), called as ``expert(task, messages)`` with messages
    as OpenAI writes them: answers for the model in demonstrations, with a text or ``{"name": …, "arguments": {…}}``."""
    guard: str = ""
    """A policy, a .json file: calls that it refuses are taken out of answers, which are then not trained."""
    deadline: float = 600.0
    """Seconds of an episode."""
    max_calls: int = 256
    """Calls of the model in an episode, unless it has a limit of turns."""

    def __post_init__(self) -> None:
        """Refuse an agent that is none, or two.

        Raises:
            UsageError: `run` or `command` is not given, or both are; or a deadline or limit is not positive.
        """
        if bool(self.run) == bool(self.command):
            raise UsageError(
                f"agent endpoint: got run={self.run!r} and command={self.command!r}; give one of the two"
            )
        if not 0 < self.deadline < float("inf") or self.max_calls < 1:
            raise UsageError(
                f"agent endpoint: got deadline={self.deadline}, max_calls={self.max_calls}; give numbers above 0"
            )

    @property
    def name(self) -> str:
        """What the agent is called in errors."""
        return self.run or self.command

    def open(self, brief: Brief) -> Session:
        """Return the session of a demonstration."""
        return self.agent.open(brief)

    def prepare_player(self) -> Callable[[str, str, Task], Score]:
        """Return what plays an episode, ``play(base_url, api_key, task)``, and returns its score.

        Raises:
            UsageError: there is no such function, file or program.
        """
        if self.command:
            run = command_runner(self.command, self.deadline)
        else:
            run = taking(member(self.run, "agent"), self.run, ("base_url", "api_key", "task"))
        grade: Grade | None = self._load_beside_run(self.grade, ("task", "answer"))

        def play(base_url: str, api_key: str, task: Task) -> Score:
            answer = run(base_url, api_key, task)
            if inspect.iscoroutine(answer):
                answer = LOOP.result(answer, self.deadline)
            return (
                as_score(answer, self.name)
                if grade is None
                else grade_answer(grade, task, answer, self.grade)
            )

        return play

    def read_guard(self) -> Callable[[], Guard] | None:
        """Return what makes the guard of an answer, if there is one; which tools the agent has is not known here.

        Raises:
            UsageError: there is no such file.
            ConfigError: it is no policy.
        """
        if not self.guard:
            return None
        return partial(Policy, read_policy(self.guard), read_order_of(self.guard))

    def find_expert(self) -> Expert | None:
        """Return who answers for the model in demonstrations, if anybody does.

        Raises:
            UsageError: there is no such function.
        """
        return self._load_beside_run(self.expert, ("task", "messages"))

    def _load_beside_run(self, name: str, takes: Sequence[str]) -> Callable[..., Any] | None:
        """Return the function `name`, which is in the file of `run` where it names none; None for no name."""
        if not name:
            return None
        place = name if ":" in name or not self.run else f"{self.run.rpartition(':')[0]}:{name}"
        return taking(member(place), place, takes)


class AgentLoop:
    """One event loop for the coroutines of all agents, so that episodes may share a client; begun when first needed."""

    def __init__(self) -> None:
        """Begin nothing yet."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def result(self, coroutine: Coroutine[Any, Any, object], seconds: float) -> object:
        """Return what `coroutine` returns, which runs beside those of other episodes; called from another thread.

        Raises:
            TimeoutError: it took longer than `seconds`, and was cancelled.
        """
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="quintain-agent-loop", daemon=True
                ).start()
        running = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return running.result(timeout=seconds)
        finally:
            running.cancel()


LOOP = AgentLoop()


def taking(function: Callable[..., Any], place: str, names: Sequence[str]) -> Callable[..., Any]:
    """Return `function` if it can be called with as many arguments as there are `names`.

    Raises:
        UsageError: it cannot.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return function  # written in C: nobody knows
    try:
        signature.bind(*names)
    except TypeError as error:
        name = place.rpartition(":")[2]
        raise UsageError(
            f"function {place}: got {name}{signature}; it is called with {', '.join(names)}: write "
            f"def {name}({', '.join(names)})"
        ) from error
    return function


def member(place: str, what: str = "function") -> Callable[..., Any]:
    """Return the function at ``file.py:function`` or ``package.module:function``, which is asked for as `what`.

    Raises:
        UsageError: there is none.
    """
    where, _, name = place.rpartition(":")
    if not where or not name:
        raise UsageError(f"{what}: got {place!r}; write it as file.py:function or package.module:function")
    if where.endswith(".py"):
        found = file_member(Path(where), name, place, what)
    else:
        try:
            members = vars(importlib.import_module(where))
        except ModuleNotFoundError as error:
            raise UsageError(
                f"{what}: got {place!r}, but there is no module {error.name}; check its name"
            ) from error
        if name not in members:
            raise UsageError(
                f"{what}: got {place!r}, but {where} has no {name}; {suggestion(name, list(members))}"
            )
        found = members[name]
    if not callable(found):
        raise UsageError(f"{what}: got {place!r}, which is a {type(found).__name__}; name a function")
    return found


def grade_answer(grade: Grade, task: Task, answer: object, name: str) -> Score:
    """Return the score that `grade` gives to `answer`.

    Raises:
        GraderFault: it raised, or gave something that is no score.
    """
    try:
        given = grade(task, answer)
    except Exception as error:
        raise GraderFault(f"grader {name}: got {type(error).__name__}: {error}; mend it") from error
    return as_score(given, f"grader {name}")


def as_score(value: object, who: str) -> Score:
    """Return `value`, a finite number or a `Score`, as a score; a task is solved by more than 0.

    Raises:
        GraderFault: it is something else, such as None, which is not 0.
    """
    given = value.value if isinstance(value, Score) else value
    try:
        number = check_reward(who, "score", given)
        is_success = (
            check_claim(who, "is_success", value.is_success) if isinstance(value, Score) else number > 0
        )
    except EnvironmentFault as fault:
        raise GraderFault(f"{fault}, or name a grader with grade=file.py:function") from fault
    return Score(value=number, is_success=is_success)


def ask_expert(expert: Expert, task: Task, messages: list[dict[str, Any]], name: str) -> Action:
    """Return what `expert` says after `messages`: a text, or calls of tools.

    Raises:
        AgentFault: it raised, or says something else.
    """
    try:
        said = expert(task, messages)
    except Exception as error:
        raise AgentFault(f"expert {name}: got {type(error).__name__}: {error}; mend it") from error
    if isinstance(said, str):
        return Action(text=said)
    calls: list[ToolCall] = []
    for row in cast("list[object]", said if isinstance(said, list) else [said]):
        call = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        called, arguments = call.get("name"), call.get("arguments", {})
        if not isinstance(called, str) or not isinstance(arguments, dict):
            raise AgentFault(
                f'expert {name}: got {said!r:.80}; answer with a text, or {{"name": ..., "arguments": {{...}}}}'
            )
        calls.append(ToolCall(name=called, arguments=cast("dict[str, Any]", arguments)))
    return Action(tool_calls=tuple(calls))


class LastWords:
    """Reads a stream to its end in a thread, and keeps its last `LONGEST_KEPT` bytes: a program may write for ever."""

    def __init__(self, stream: IO[bytes] | None) -> None:
        """Begin to read."""
        assert stream is not None, "it is a pipe"
        self._stream, self._kept = stream, bytearray()
        self._thread = threading.Thread(target=self._read, name="quintain-agent-words", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait for the end of the stream.

        Raises:
            TimeoutExpired: it does not come in so many seconds.
        """
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            raise subprocess.TimeoutExpired("an agent", seconds)

    def text(self) -> str:
        """Return what is kept."""
        return self._kept[-LONGEST_KEPT:].decode(errors="replace")

    def _read(self) -> None:
        with suppress(OSError, ValueError):  # it was closed meanwhile
            while piece := os.read(self._stream.fileno(), 1 << 16):
                self._kept += piece
                if len(self._kept) > 2 * LONGEST_KEPT:
                    del self._kept[:-LONGEST_KEPT]


def command_runner(command: str, deadline: float) -> Run:
    """Return what runs `command` and returns the last line that it writes, read as JSON where it is JSON.

    The command finds the address in ``OPENAI_BASE_URL`` and ``ANTHROPIC_BASE_URL``, the key in ``OPENAI_API_KEY`` and
    ``ANTHROPIC_API_KEY``, and the task as JSON in ``QUINTAIN_TASK``.

    Raises:
        UsageError: it is empty, its quotes are open, or there is no such program.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"command of the agent: got {command!r} ({error}); close its quotes") from error
    if not words:
        raise UsageError("command of the agent: got an empty one; write it as command=python agent.py")
    if shutil.which(words[0]) is None:
        raise UsageError(
            f"command of the agent: got {command!r}, and there is no program {words[0]!r}; check the name, or give its "
            "path"
        )

    def run(base_url: str, api_key: str, task: Task) -> object:
        variables = {
            "OPENAI_BASE_URL": base_url, "OPENAI_API_KEY": api_key,
            "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"), "ANTHROPIC_API_KEY": api_key,
            "QUINTAIN_TASK": task_text(task),
        }  # fmt: skip
        given = json.dumps({"variables": variables, "command": words}).encode() + b"\n"
        with subprocess.Popen(
            [sys.executable, "-I", "-c", LAUNCH],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        ) as process:  # fmt: skip
            out, err = LastWords(process.stdout), LastWords(process.stderr)
            try:
                ends = time.monotonic() + deadline
                assert process.stdin is not None, "it has pipes"
                with suppress(BrokenPipeError), process.stdin as stdin:
                    stdin.write(given)
                for stream in (out, err):
                    stream.wait(ends - time.monotonic())
                process.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                fault = AgentFault(
                    f"agent {command}: got no end within {deadline:g} s; raise deadline, or mend it"
                )
                fault.kind = "timeout"
                raise fault from None
            finally:
                if process.poll() is None:
                    send([*below(process.pid), process.pid], signal.SIGKILL)
        if process.returncode:
            told = " ".join(err.text().split())[-LONGEST_TOLD:]
            raise AgentFault(f"agent {command}: got exit status {process.returncode}; it wrote: {told}")
        lines = out.text().strip().splitlines()
        last = lines[-1] if lines else ""
        try:
            return load_json(last)
        except ValueError:
            return last

    return run


def task_text(task: Task) -> str:
    """Return `task` as JSON for a command."""
    row = {
        "id": task.id, "environment": task.environment, "seed": task.seed, "split": task.split,
        "prompt": task.prompt, "data": dict(task.data),
    }  # fmt: skip
    return json.dumps(row, default=dict)
