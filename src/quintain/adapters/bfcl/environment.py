"""The Berkeley function calling leaderboard, version 4: graded by the package's own checkers.

Questions, functions, possible answers and checkers are those in the wheel of ``bfcl-eval``. For evaluation only:
training on them is refused. In the categories of several turns a user asks several things, the agent calls functions
and ends a turn by speaking without a call; an episode has simulated systems of its own.
"""

import ast
import itertools
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from quintain.adapters.bfcl.package import checker, data_folder, file_names, turns
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError, suggestion
from quintain.types import Action, Split, StepResult, Task, ToolCall, ToolSpec, derive_seed
from quintain.types.json_text import load_json

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
MAX_STEPS = 20
"""Steps of a turn after which the package ends it."""
_numbers = itertools.count()


class Bfcl(Environment):
    """Call the functions that answer the request, with the right arguments; if none fits, say so without a call."""

    tags: ClassVar[frozenset[str]] = frozenset({"tools"})
    evaluation_only = True
    max_turns = 1

    def __new__(cls, category: str = "simple_python") -> Self:
        """Return the environment of a category of one turn, or of several."""
        if cls is Bfcl and category in SEVERAL_TURNS:
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
        return describe_question(self._row["question"][0])

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


class BfclTurns(Bfcl):
    """Do what the user asks by calling functions. When a request is done, answer without a call."""

    max_turns = 100

    def __init__(self, category: str = "multi_turn_base") -> None:
        """Take the questions of `category`."""
        super().__init__(category)
        self._owner = ""

    def reset(self, task: Task) -> str:
        """Ask the first thing of the task's question."""
        self.close()
        self._owner = f"quintain{next(_numbers)}"
        first = super().reset(task)
        self._steps: list[list[list[str]]] = [[]]
        self._known = {spec.name for spec in self.tools()}
        self._gold: list[str] = list(self.answers[self._row["id"]][0])
        return first

    def step(self, action: Action) -> StepResult:
        """Carry out calls, or go on to what is asked next; at the end, compare."""
        if action.error is not None:
            return StepResult(observation=f"Error: {action.error}", is_valid=False)
        unknown = [call.name for call in action.tool_calls if call.name not in self._known]
        if unknown:
            return StepResult(observation=f"Error: there is no function {unknown[0]}", is_valid=False)
        if action.tool_calls:
            calls = [write_call(call) for call in action.tool_calls]
            self._steps[-1].append(calls)
            replies, _ = turns()[1].execute_multi_turn_func_call(
                calls, *self._place(), self._owner, self._row["id"]
            )
            if len(self._steps[-1]) < MAX_STEPS:
                return StepResult(observation="\n".join(map(str, replies)))
        number = len(self._steps)
        if number < len(self._row["question"]):
            self._steps.append([])
            self._gold = list(self.answers[self._row["id"]][number])
            return StepResult(observation=describe_question(self._row["question"][number]))
        return self._grade()

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the functions of the systems that the question involves."""
        names = file_names()
        hidden = set(self._row.get("excluded_function", ()))
        folder = data_folder() / "multi_turn_func_doc"
        specs = [spec for each in self._row["involved_classes"] for spec in specs_in(folder / names[each])]
        return tuple(spec for spec in specs if spec.name not in hidden)

    def expert_action(self) -> Action:
        """Return the next call of the package's own solution; without one left, end the turn."""
        if not self._gold:
            return Action(text="Done.")
        return Action(tool_calls=(read(self._gold.pop(0), self.tools()),))

    def close(self) -> None:
        """Forget the systems of the episode."""
        if self._owner:
            held = vars(turns()[1])
            for name in [name for name in held if name.startswith(f"{self._owner}_")]:
                del held[name]
        self._owner = ""

    def _place(self) -> tuple[Any, Any]:
        """Return the state that the systems begin with, and their names."""
        return self._row["initial_config"], self._row["involved_classes"]

    def _grade(self) -> StepResult:
        """Return the verdict on all turns."""
        row = self._row
        found = turns()[0].multi_turn_checker(
            self._steps, self.answers[row["id"]], row, self.category, self._owner
        )
        is_right = bool(found["valid"])
        said = "correct" if is_right else f"wrong: {found.get('error_type', '')}"
        return StepResult(observation=said, reward=float(is_right), is_terminated=True, is_success=is_right)


@cache
def questions(folder: Path, category: str) -> tuple[list[Row], dict[str, list[Any]]]:
    """Return the questions of `category`, and the possible answers by question.

    Raises:
        EnvironmentFault: the package has other files than it should.
    """
    name = f"BFCL_v4_{category}.json"
    try:
        rows = [load_json(line) for line in (folder / name).read_text("utf-8").splitlines()]
        known = folder / "possible_answer" / name
        lines = known.read_text("utf-8").splitlines() if known.exists() else []
        return rows, {row["id"]: row["ground_truth"] for row in map(load_json, lines)}
    except (OSError, ValueError, KeyError) as error:
        raise EnvironmentFault(
            f"questions of bfcl: got {error!r} from {folder / name}; install bfcl-eval==2026.3.23"
        ) from error


def describe_question(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the messages of a turn as text."""
    return "\n".join(message["content"] for message in messages)


def spec_of_function(function: Mapping[str, Any]) -> ToolSpec:
    """Return a function of the leaderboard as a tool; the names of its types become those of JSON schema."""
    return ToolSpec(
        name=function["name"], description=function["description"], parameters=_schema(function["parameters"])
    )


def first_of(values: Sequence[Any], schema: Mapping[str, Any]) -> Any:
    """Return the first of the possible `values`; in a described object, each of its own values is a list of them."""
    return _unwrap(values[0], schema) if values else []


def _unwrap(value: Any, schema: Mapping[str, Any]) -> Any:
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
        return [_unwrap(each, schema.get("items", {})) for each in cast("list[Any]", value)]
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


def write_call(call: ToolCall) -> str:
    """Return `call` as the package reads it: ``cd(folder='document')``."""
    arguments = ", ".join(f"{key}={value!r}" for key, value in call.arguments.items() if key.isidentifier())
    return f"{call.name}({arguments})"


def read(text: str, specs: tuple[ToolSpec, ...]) -> ToolCall:
    """Return the call that `text` is, its arguments without a name named as the function has them.

    Example: ``read("sort('a.txt')", specs)`` calls sort with file_name "a.txt".
    """
    tree = ast.parse(text, mode="eval").body
    assert isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name), "solutions are plain calls"
    names = list(next(spec.parameters["properties"] for spec in specs if spec.name == tree.func.id))
    given = {name: ast.literal_eval(value) for name, value in zip(names, tree.args, strict=False)}
    given |= {word.arg: ast.literal_eval(word.value) for word in tree.keywords if word.arg}
    return ToolCall(name=tree.func.id, arguments=given)


@cache
def specs_in(file: Path) -> tuple[ToolSpec, ...]:
    """Return the functions that `file` of the package describes; it is asked for them in every turn."""
    return tuple(spec_of_function(load_json(line)) for line in file.read_text("utf-8").splitlines())
