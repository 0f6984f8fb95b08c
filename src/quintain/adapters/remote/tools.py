"""Tools that live elsewhere as an environment: tasks and a grader of the user's, the tools of a server.

A task is a row: ``{"prompt": "What is 17 + 25?", "answer": "42"}``, and whatever else the grader reads. The agent calls
tools; a reply without a call is its answer, which is graded and ends the episode. Only the grader gives a reward; a
tool, server or grader that breaks is a `Failure` of its own and never a score.
"""

import json
import math
import threading
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, cast
from weakref import WeakValueDictionary

from quintain.data.messages import MARKUP, write_call
from quintain.engines.judge import Judge
from quintain.environments.catalog import file_member
from quintain.environments.protocol import Environment, environment_name
from quintain.environments.schema import complaint
from quintain.environments.sizes import cut_text
from quintain.environments.tools import GraderFault, OwnedFault
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.rewards.answers import exact_match, token_f1
from quintain.rewards.execution import share_passed
from quintain.types import (
    UNKNOWN_TOOL,
    Action,
    Failure,
    Split,
    StepResult,
    Task,
    ToolCall,
    ToolError,
    ToolSpec,
)
from quintain.types.json_text import load_json
from quintain.types.plain import MAX_AMOUNT, as_number

Row = Mapping[str, Any]
HELD_OUT = 4
"""Where rows name no split, every fourth one is eval's."""
LONGEST_REPLY = 20_000
"""Characters of a tool's answer that are shown; more are cut, and counted in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a tool elsewhere answered: ``Reply(text="42")``; `is_error`: the tool says that it failed."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCall:
    """A call that was carried out: ``FinishedCall(name="add", arguments={"a": 1}, reply=Reply(...))``."""

    name: str
    arguments: Row
    reply: Reply


class RemoteTools(Environment):
    """Do what you are asked. Call tools as you need them; a reply without a call is your answer."""

    tags: ClassVar[frozenset[str]] = frozenset({"tools"})
    rows: Sequence[Row] = ()
    """The tasks; each has a ``prompt``, may have a ``split`` and a ``solution`` (calls, then the answer)."""
    parallel = 16
    _graded_by: Callable[..., object] | None = None
    _judge: Judge | None = None
    _pass_at: float | None = None
    """score from which an answer is a success; None: above 0"""

    def __init__(self, *, file: str = "") -> None:
        """Take what this kind of environment needs from the JSON or TOML file at `file`, else from the class.

        Raises:
            UsageError: there are no tasks, or what is there cannot be used.
        """
        self.settings: dict[str, Any] = self._settings(file)
        self.rows = check_rows(self.settings.get("tasks", self.rows), file or type(self).__name__)
        self.max_turns = int(self.settings.get("max_turns", self.max_turns))
        self._grades_limit = bool(self.settings.get("grade_at_limit", False))
        self._splits = splits(self.rows)
        self._row: Row = self.rows[0]
        self.calls: list[FinishedCall] = []
        """The calls of this episode so far."""
        self.messages: list[dict[str, Any]] = []
        """What was said in this episode so far, as OpenAI messages; a grader finds the answer as the last."""
        self._num_actions = 0
        if all("solution" in row for row in self.rows):
            self.expert_action = self._next_of_solution

    @property
    def judge(self) -> Judge | None:
        """The model that grades, where the file names one."""
        return self._judge

    def list_offered(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the server."""
        raise NotImplementedError

    def carry_out(self, name: str, arguments: Row) -> Reply:
        """Call tool `name` of the server.

        Raises:
            OwnedFault: the tool or the server broke.
        """
        raise NotImplementedError

    def begin_episode(self, task: Task) -> None:
        """Prepare the server for an episode of `task`."""

    def grade(self, row: Row, answer: str) -> float:
        """Return the reward of `answer`, 0 to 1; `self.calls` and `self.call` say what else happened.

        Unless overridden, the ``judge`` of the file (`quintain.engines.judge`), or its ``grade``: a name in `GRADERS`,
        or ``file.py:function``, which is called with this environment, the row and the answer; without one, whether
        the answer is the row's.
        """
        if self._graded_by is not None:
            return cast(float, self._graded_by(self, row, answer))
        return float(answer.strip() == str(row["answer"]).strip())

    def call(self, name: str, **arguments: Any) -> str:
        """Call a tool for the grader and return its text; the agent does not see it."""
        return self.carry_out(name, arguments).text

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index`: rows of the split in their order, over and over."""
        rows = self._splits[split]
        return replace(super().task(split, index), data={"row": rows[index % len(rows)]})

    def reset(self, task: Task) -> str:
        """Start the episode of the task's row and return its prompt."""
        rows = self._splits[task.split]
        number = task.data.get("row", rows[(task.seed >> 1) % len(rows)])
        self._row, self.calls, self._num_actions = self.rows[number], [], 0
        prompt = str(self._row["prompt"])
        self.messages = [
            {"role": "system", "content": self.instructions()},
            {"role": "user", "content": prompt},
        ]
        self.begin_episode(task)
        return prompt

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the server."""
        return self.list_offered()

    def instructions(self) -> str:
        """Return the ``instructions`` of the file, else the class docstring."""
        return str(self.settings.get("instructions") or super().instructions())

    def step(self, action: Action) -> StepResult:
        """Carry out the calls in `action`; without any, grade its text and end the episode."""
        self._num_actions += 1
        words = MARKUP.sub("", action.text).strip() if action.tool_calls else action.text
        said: dict[str, Any] = {"role": "assistant", "content": words}
        self.messages.append(said)
        if action.error is not None:
            told = f"Error: {action.error}"
            self.messages.append({"role": "user", "content": told})
            return self._at_limit(StepResult(observation=told, is_valid=False))
        if not action.tool_calls:
            return self._end_episode(action.text)
        texts: list[str] = []
        errors: list[ToolError] = []
        names = [f"call_{self._num_actions}_{place}" for place in range(len(action.tool_calls))]
        said["tool_calls"] = [
            {"id": name, **write_call(call)} for name, call in zip(names, action.tool_calls, strict=True)
        ]
        for name, call in zip(names, action.tool_calls, strict=True):
            reply, error = self._call_tool(call)
            texts.append(cut_text(reply.text, LONGEST_REPLY))
            self.messages.append({"role": "tool", "tool_call_id": name, "content": texts[-1]})
            errors += [error] if error is not None else []
        is_valid = not any(error.cause == "invalid_call" for error in errors)
        text = "\n".join(texts)
        return self._at_limit(StepResult(observation=text, is_valid=is_valid, tool_errors=tuple(errors)))

    def _at_limit(self, result: StepResult) -> StepResult:
        """Return `result`, graded without an answer if it is of the last turn and such episodes are graded."""
        if not self._grades_limit or self._num_actions < self.max_turns:
            return result
        ended = self._end_episode("")
        return replace(result, reward=ended.reward, is_truncated=True, is_success=ended.is_success)

    def _call_tool(self, call: ToolCall) -> tuple[Reply, ToolError | None]:
        """Carry out `call` if it is right; return what to tell the agent, and what went wrong."""
        specs = {spec.name: spec for spec in self.list_offered()}
        if call.name not in specs:
            near = suggestion(call.name, specs) if specs else "there are no tools"
            text = f"Error: no tool is called {json.dumps(call.name[:60])}; {near}"
            return Reply(text=text, is_error=True), ToolError(tool=UNKNOWN_TOOL, cause="invalid_call")
        wrong = complaint(call.name, specs[call.name].parameters, call.arguments)
        if wrong:
            return Reply(text=f"Error: {wrong}", is_error=True), ToolError(
                tool=call.name, cause="invalid_call"
            )
        reply = self.carry_out(call.name, call.arguments)
        self.calls.append(FinishedCall(name=call.name, arguments=dict(call.arguments), reply=reply))
        if reply.is_error:
            return replace(reply, text=f"Error: {reply.text}"), ToolError(tool=call.name, cause="tool_error")
        return reply, None

    def probe_grader(self) -> None:
        """See `quintain.environments.protocol.AsksGrader`."""
        if self._judge is not None:
            self._judge.probe()

    def _end_episode(self, answer: str) -> StepResult:
        """Return the end of the episode with `answer`."""
        try:
            reward: object = self.grade(self._row, answer)
        except OwnedFault:
            raise
        except Exception as error:
            raise GraderFault(
                f"grader of {environment_name(self)}: got {type(error).__name__}: {error}; mend it"
            ) from error
        score = check_score(reward, environment_name(self), self.return_range)
        least = self._pass_at
        is_success = score > 0 if least is None else score >= least
        return StepResult(observation="", reward=score, is_terminated=True, is_success=is_success)

    def _next_of_solution(self) -> Action:
        """Return the next action of the row's solution: a call for each of its entries, the last a text."""
        steps: Sequence[Any] = self._row["solution"]
        if self._num_actions >= len(steps):
            raise EnvironmentFault(
                f"expert of {self.name}: got a solution of {len(steps)} steps, which does not end the episode; "
                "let its last entry be the answer, a text"
            )
        step: Any = steps[self._num_actions]
        if isinstance(step, str):
            return Action(text=step)
        call = ToolCall(name=str(step["tool"]), arguments=cast(Row, step.get("arguments", {})))
        return Action(tool_calls=(call,))

    def _settings(self, file: str) -> dict[str, Any]:
        """Return what the file says; nothing where there is none."""
        if not file:
            return {}
        self.name = self.name or Path(file).stem
        settings = read_settings(file, self.keys())
        grade = str(settings.get("grade") or "")
        if "judge" in settings:
            if grade:
                refuse(file, f"grade={grade!r} beside a judge", "give one of them")
            self._judge = share_judge(str(settings["judge"]), Path(file).parent)
            self._graded_by, self._pass_at = ask_judge, 0.5
        elif grade in GRADERS:
            self._graded_by, self._pass_at = GRADERS[grade], 1.0
            refuse_ungraded(settings.get("tasks", self.rows), file, grade)
        elif grade:
            path, _, function = grade.partition(":")
            found = file_member(Path(file).parent / path, function, grade) if function else None
            if not callable(found):
                names = ", ".join(GRADERS)
                refuse(file, f"grade={grade!r}", f"choose {names}, or name a function as file.py:function")
            self._graded_by = found
        if "pass_at" in settings:
            self._pass_at = check_share(settings["pass_at"], file)
        return settings

    def keys(self) -> frozenset[str]:
        """Return the keys that a file may have."""
        return frozenset(
            {"tasks", "grade", "instructions", "max_turns", "pass_at", "judge", "grade_at_limit"}
        )


def golds(row: Row) -> list[str]:
    """Return the right answers of `row`: its ``answers``, or its one ``answer``."""
    return [str(gold) for gold in row.get("answers", [row.get("answer")])]


def checks_passed(world: RemoteTools, row: Row, _: str) -> float:
    """Return the share of the ``checks`` of `row` that hold at the end, whatever the answer was.

    A check is ``{"tool": "read", "arguments": {"id": 7}, "equals": "sent"}``: what the tool says then, up to blanks.
    """
    checks: Sequence[Row] = row["checks"]
    found = [world.call(str(check["tool"]), **check.get("arguments", {})) for check in checks]
    pairs = zip(found, checks, strict=True)
    return share_passed([text.strip() == str(check["equals"]).strip() for text, check in pairs])


def ask_judge(world: RemoteTools, row: Row, answer: str) -> float:
    """Return what the judge of `world` gives.

    Raises:
        GraderFault: it gives no score.
    """
    assert world.judge is not None, "graded so only where there is one"
    task = {key: value for key, value in row.items() if key != "solution"}
    found = world.judge.score({"task": task, "messages": world.messages, "answer": answer})
    if isinstance(found, Failure):
        fault = GraderFault(found.message)
        fault.kind = found.kind
        raise fault
    return found


_judges: WeakValueDictionary[tuple[str, Path], Judge] = WeakValueDictionary()
_judges_lock = threading.Lock()


def share_judge(spec: str, folder: Path) -> Judge:
    """Return the judge that `spec` names; all environments of it that live have one, with one budget and one tape."""
    name = (spec, folder.resolve())
    with _judges_lock:
        found = _judges.get(name)
        if found is None:
            found = _judges[name] = Judge(spec, folder=folder)
        return found


GRADERS: Mapping[str, Callable[[RemoteTools, Row, str], float]] = {
    "exact_match": lambda _, row, answer: exact_match(answer, golds(row)),
    "f1": lambda _, row, answer: token_f1(answer, golds(row)),
    "checks": checks_passed,
}
"""Graders that a file names; an episode is a success where they give 1."""


def refuse_ungraded(rows: Sequence[Row], file: str, grade: str) -> None:
    """Raise where a task has not what the grader called `grade` compares with.

    Raises:
        UsageError: a row has no ``checks``, or no ``answer`` and no ``answers``.
    """
    wanted = ("checks",) if grade == "checks" else ("answers", "answer")
    for row in rows:
        if not any(row.get(key) for key in wanted):
            refuse(file, f"the task {row!r:.60} with grade={grade}", f"give it {' or '.join(wanted)}")


def read_settings(file: str, known: frozenset[str]) -> dict[str, Any]:
    """Return the object in `file`, which is JSON or TOML; ``tasks`` may name a file of JSON lines beside it.

    Raises:
        UsageError: it cannot be read, or has a key that is not `known`.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
        found: object = tomllib.loads(text) if file.endswith(".toml") else load_json(text)
    except (OSError, ValueError) as error:
        refuse(
            file, f"{type(error).__name__}: {error}", "give a file of JSON, or of TOML, which ends in .toml"
        )
    if not isinstance(found, dict):
        refuse(file, type(found).__name__, "give a JSON object")
    settings = cast("dict[str, Any]", found)
    for key in settings:
        if key not in known:
            refuse(file, f"the key {key!r}", suggestion(key, known))
    if isinstance(settings.get("tasks"), str):
        path = Path(file).parent / settings["tasks"]
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            settings["tasks"] = [load_json(line) for line in lines if line.strip()]
        except (OSError, ValueError) as error:
            refuse(str(path), f"{type(error).__name__}: {error}", "give a JSON object on each line")
    turns = settings.get("max_turns", 1)
    if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
        refuse(file, f"max_turns={turns!r}", "give a positive integer")
    if not isinstance(settings.get("grade_at_limit", False), bool):
        refuse(file, f"grade_at_limit={settings['grade_at_limit']!r:.40}", "give true or false")
    return settings


def check_share(value: object, who: str) -> float:
    """Return the score from which an answer is a success.

    Raises:
        UsageError: it is no number above 0 and up to 1.
    """
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
        refuse(who, f"pass_at={value!r:.40}", "give a score above 0 and up to 1")
    return float(value)


def check_rows(rows: object, who: str) -> tuple[Row, ...]:
    """Return `rows` if they are tasks: at least one, each with a prompt.

    Raises:
        UsageError: they are not.
    """
    if not isinstance(rows, (list, tuple)) or not rows:
        refuse(who, "no tasks", 'give tasks such as [{"prompt": "What is 17 + 25?", "answer": "42"}]')
    for row in cast("Sequence[object]", rows):
        if not isinstance(row, Mapping) or not isinstance(cast(Row, row).get("prompt"), str):
            refuse(who, f"the task {row!r:.60}", "give it a prompt, a text")
        if cast(Row, row).get("split", "train") not in ("train", "eval"):
            refuse(who, f"the split {cast(Row, row)['split']!r}", "choose train or eval")
    return tuple(cast("Sequence[Row]", rows))


def splits(rows: Sequence[Row]) -> Mapping[Split, tuple[int, ...]]:
    """Return the numbers of the rows of each split; a split without any has those of the other one."""
    found: dict[Literal["train", "eval"], list[int]] = {"train": [], "eval": []}
    for number, row in enumerate(rows):
        usual = "eval" if number % HELD_OUT == HELD_OUT - 1 else "train"
        found[row.get("split", usual)].append(number)
    train, held_out = tuple(found["train"]), tuple(found["eval"])
    return {"train": train or held_out, "eval": held_out or train}


def check_score(value: object, who: str, bounds: tuple[float, float]) -> float:
    """Return what a grader gave as a float.

    Raises:
        GraderFault: it is no finite number within `bounds`.
    """
    low, high = bounds
    number = as_number(value)
    score = math.nan if number is None else number
    if not low <= score <= high or abs(score) > MAX_AMOUNT:
        raise GraderFault(
            f"grader of {who}: got the score {value!r:.60}; let it give a number from {low:g} to {high:g}"
        )
    return score


def refuse(who: str, got: str, advice: str) -> NoReturn:
    """Raise what is wrong with the settings of an environment of tools.

    Raises:
        UsageError: always.
    """
    raise UsageError(f"tools of {who}: got {got}; {advice}")
