"""The Berkeley function calling leaderboard, version 4: one-turn categories, graded by the package's AST checker.

Questions, functions, possible answers and checkers are those in the wheel of ``bfcl-eval``. For evaluation only:
training on them is refused. `bfcl_turns` holds the categories of several turns.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from quintain.environments.bfcl_package import checker, data_folder
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, Split, StepResult, Task, ToolCall, ToolSpec, derive_seed

ONE_TURN = (
    "simple_python",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
)
SEVERAL_TURNS = ("multi_turn_base", "multi_turn_long_context")
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
Row = dict[str, Any]


class Bfcl(Environment):
    """Call the functions that answer the request, with the right arguments; if none fits, say so without a call."""

    tags: ClassVar[frozenset[str]] = frozenset({"tools"})
    evaluation_only = True
    max_turns = 1

    def __new__(cls, category: str = "simple_python") -> Self:
        """Return the environment of a category of one turn, or of several."""
        if cls is Bfcl and category in SEVERAL_TURNS:
            from quintain.environments.bfcl_turns import BfclTurns

            return super().__new__(cast("type[Self]", BfclTurns))
        return super().__new__(cls)

    def __init__(self, category: str = "simple_python") -> None:
        """Take the questions of `category`.

        Raises:
            MissingExtra: bfcl-eval is not installed.
            UsageError: there is no such category here.
        """
        known = (*ONE_TURN, *SEVERAL_TURNS)
        if category not in known:
            raise UsageError(f"category of bfcl: got {category!r}; {suggestion(category, known)}")
        self.name, self.category = f"bfcl/{category}", category
        self.questions, self.answers = questions(data_folder(), category)
        self._row: Row = self.questions[0]

    def task(self, split: Split, index: int) -> Task:
        """Return question number `index`, around and around; the splits have the same ones."""
        row = self.questions[index % len(self.questions)]
        seed = derive_seed(self.name, index) % (1 << 52) << 1 | (split == "eval")
        data = {"question": row["id"]}
        return Task(
            id=f"{self.name}/{split}/{index}",
            environment=self.name,
            seed=seed,
            split=split,
            data=data,
            tags=self.tags,
        )

    def reset(self, task: Task) -> str:
        """Ask the question that the task names."""
        wanted = task.data["question"]
        self._row = next(row for row in self.questions if row["id"] == wanted)
        return told(self._row["question"][0])

    def step(self, action: Action) -> StepResult:
        """Grade the calls; the episode is over."""
        if action.error is not None:
            return StepResult(
                observation=f"Error: {action.error}", is_terminated=True, is_success=False, is_valid=False
            )
        calls = [{call.name: dict(call.arguments)} for call in action.tool_calls]
        if "irrelevance" in self.category:
            is_right, said = not calls, "no function fits"
        else:
            verdict = checker()(self._row["function"], calls, self.answers[self._row["id"]], self.category)
            is_right, said = bool(verdict["valid"]), "; ".join(map(str, verdict.get("error", [])))
        return StepResult(
            observation="correct" if is_right else f"wrong: {said}",
            reward=float(is_right),
            is_terminated=True,
            is_success=is_right,
        )

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the functions of the question."""
        return tuple(spec_of_function(function) for function in self._row["function"])

    def expert_action(self) -> Action:
        """Return calls with the first of the possible answers; a few of those the checker itself refuses."""
        if "irrelevance" in self.category:
            return Action(text="None of the functions fits.")
        calls: list[ToolCall] = []
        for call in self.answers[self._row["id"]]:
            ((name, arguments),) = call.items()
            described = {f["name"]: f["parameters"]["properties"] for f in self._row["function"]}[name]
            found = {
                key: first_of(values, described.get(key, {}))
                for key, values in arguments.items()
                if values[:1] != [""]
            }
            calls.append(ToolCall(name=name, arguments=found))
        return Action(tool_calls=tuple(calls))


@cache
def questions(folder: Path, category: str) -> tuple[list[Row], dict[str, list[Any]]]:
    """Return the questions of `category`, and the possible answers by question.

    Raises:
        EnvironmentFault: the package has other files than it should.
    """
    name = f"BFCL_v4_{category}.json"
    try:
        rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
        known = folder / "possible_answer" / name
        lines = known.read_text("utf-8").splitlines() if known.exists() else []
        return rows, {row["id"]: row["ground_truth"] for row in map(json.loads, lines)}
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentFault(
            f"questions of bfcl: got {error!r} from {folder / name}; install bfcl-eval==2026.3.23"
        ) from error


def told(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the messages of a turn as text."""
    return "\n".join(message["content"] for message in messages)


def spec_of_function(function: Mapping[str, Any]) -> ToolSpec:
    """Return a function of the leaderboard as a tool; the names of its types become those of JSON schema."""
    return ToolSpec(
        name=function["name"], description=function["description"], parameters=_schema(function["parameters"])
    )


def first_of(values: Sequence[Any], schema: Mapping[str, Any]) -> Any:
    """Return the first of the possible `values`; in a described object, each of its own values is a list of them."""
    return _unwrapped(values[0], schema) if values else []


def _unwrapped(value: Any, schema: Mapping[str, Any]) -> Any:
    """Return a possible value as an argument."""
    if isinstance(value, dict) and schema.get("type") == "dict":
        inner = schema.get("properties", {})
        items = cast("dict[str, Any]", value).items()
        return {
            key: first_of(each, inner.get(key, {})) if isinstance(each, list) else each
            for key, each in items
            if each != [""] and not (isinstance(each, list) and each and each[0] == "")
        }
    if isinstance(value, list):
        return [_unwrapped(each, schema.get("items", {})) for each in cast("list[Any]", value)]
    return value


def _schema(value: Any) -> Any:
    """Return `value` with JSON's names of types."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {
            key: JSON_TYPES.get(each, each) if key == "type" and isinstance(each, str) else _schema(each)
            for key, each in items
        }
    return [_schema(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value
