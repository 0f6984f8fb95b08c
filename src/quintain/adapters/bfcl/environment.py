"""The Berkeley function calling leaderboard, version 4: graded by the package's own checkers.

Questions, functions, possible answers and checkers are those in the wheel of ``bfcl-eval``, and verdicts are those of
its evaluator. For evaluation only: training on them is refused. In the categories of several turns a user asks several
things, the agent calls functions and ends a turn by speaking without a call; an episode has simulated systems of its
own. Functions that are missing at first are told when they come.
"""

import ast
import itertools
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

from quintain.adapters.bfcl.gold import gold_calls, write_call, write_calls
from quintain.adapters.bfcl.package import (
    COMMAND,
    Decoded,
    checker,
    data_folder,
    decode,
    describe_functions,
    file_names,
    is_call_list,
    is_empty,
    more_functions,
    turns,
    write_prompt,
)
from quintain.environments.protocol import Environment
from quintain.errors import DataError, EnvironmentFault, UsageError, suggestion
from quintain.types import Action, Split, StepResult, Task, ToolCall, ToolSpec, derive_seed
from quintain.types.json_text import load_json

ONE_TURN = (
    "simple_python",
    "simple_java",
    "simple_javascript",
    "multiple",
    "parallel",
    "parallel_multiple",
    "irrelevance",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
    "live_irrelevance",
    "live_relevance",
)
SEVERAL_TURNS = (
    "multi_turn_base",
    "multi_turn_miss_func",
    "multi_turn_miss_param",
    "multi_turn_long_context",
)
LEFT_OUT = {
    "web_search_base": "asks a search engine over the network",
    "web_search_no_snippet": "asks a search engine over the network",
    "memory_kv": "needs conversations that the same model leads before",
    "memory_vector": "needs an embedding model that is downloaded",
    "memory_rec_sum": "needs conversations that the same model leads before",
    "format_sensitivity": "is other categories in 26 forms of the prompt, and counts for nothing in the summary",
}
"""Categories of version 4 that are not here, and why."""
JSON_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}
Row = dict[str, Any]
MAX_STEPS = 20
"""Steps of a turn after which the package gives the whole question up."""
NO_SUCH = "there_is_no_such_function()"
"""What is carried out in the place of a call of a function that does not exist, whose name a model wrote."""
_numbers = itertools.count()


class Bfcl(Environment):
    """Call the functions that answer the request, with the right arguments; if none fits, say so without a call."""

    tags: ClassVar[frozenset[str]] = frozenset({"tools"})
    evaluation_only = True
    max_turns = 1

    def __new__(cls, category: str = "simple_python", *, answers: Literal["calls", "text"] = "calls") -> Self:
        """Return the environment of a category of one turn, or of several."""
        if cls is Bfcl and category in SEVERAL_TURNS:
            return super().__new__(cast("type[Self]", BfclTurns))
        return super().__new__(cls)

    def __init__(
        self, category: str = "simple_python", *, answers: Literal["calls", "text"] = "calls"
    ) -> None:
        """Take the questions of `category`; `answers` are calls of tools, or text that the package decodes.

        Raises:
            MissingExtra: bfcl-eval is not installed, or in another version.
            UsageError: there is no such category here.
        """
        known = (*ONE_TURN, *SEVERAL_TURNS)
        if category in LEFT_OUT:
            raise UsageError(f"category of bfcl: got {category!r}, which {LEFT_OUT[category]}; take another")
        if category not in known:
            raise UsageError(f"category of bfcl: got {category!r}; {suggestion(category, known)}")
        self.name, self.category = f"bfcl/{category}", category
        self._is_text = answers == "text"
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
        return self._ask(self._row["question"][0])

    def step(self, action: Action) -> StepResult:
        """Grade the calls; the episode is over."""
        calls = self._read(action)
        if "relevance" in self.category:
            has_called = calls is not None and not is_empty(calls)
            is_right = has_called != ("irrelevance" in self.category)
            said = "a function was called" if has_called else "no function was called"
        elif calls is None or not is_call_list(calls):
            is_right, said = False, "it cannot be read"
        else:
            verdict = checker()(self._row["function"], calls, self.answers[self._row["id"]], self.category)
            is_right, said = bool(verdict["valid"]), "; ".join(map(str, verdict.get("error", [])))
        return StepResult(
            observation="correct" if is_right else f"wrong: {said}",
            reward=float(is_right),
            is_terminated=True,
            is_success=is_right,
            is_valid=calls is not None,
        )

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the functions of the question; none where answers are text, whose prompt has them."""
        return () if self._is_text else tuple(spec_of_function(function) for function in self._functions())

    def expert_action(self) -> Action:
        """Return calls with the first of the possible answers; a few of those the checker itself refuses."""
        if "irrelevance" in self.category:
            return Action(text="None of the functions fits.")
        if "relevance" in self.category:
            return self._say((ToolCall(name=self._row["function"][0]["name"]),))
        return self._say(gold_calls(self.answers[self._row["id"]], self._row["function"], self.category))

    def _functions(self) -> list[Row]:
        """Return the functions of the question as models are shown them."""
        return describe_functions(self._row["function"], self._row["id"])

    def _ask(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the first request; with instructions and functions where answers are text."""
        if self._is_text:
            return write_prompt(messages, self._functions(), self._row["id"])
        return describe_question(messages)

    def _read(self, action: Action) -> Decoded | None:
        """Return the calls of `action`, by the package's decoder where answers are text; None: it cannot be read."""
        if self._is_text:
            try:
                return decode(action.text, self.category)
            except DataError:
                return None
        if action.error is not None:
            return None
        return [{call.name: dict(call.arguments)} for call in action.tool_calls]

    def _say(self, calls: Sequence[ToolCall]) -> Action:
        """Return `calls` as an action, in the form that is asked for."""
        if self._is_text:
            return Action(text=write_calls(calls, self.category))
        return Action(tool_calls=tuple(calls))


class BfclTurns(Bfcl):
    """Do what the user asks by calling functions. When a request is done, answer without a call."""

    def __init__(
        self, category: str = "simple_python", *, answers: Literal["calls", "text"] = "calls"
    ) -> None:
        """Take the questions of `category`."""
        super().__init__(category, answers=answers)
        self.max_turns = (MAX_STEPS + 1) * max(len(row["question"]) for row in self.questions)
        self._owner = ""
        self._steps: list[list[list[str]]] = [[]]

    def reset(self, task: Task) -> str:
        """Ask the first thing of the task's question."""
        self.close()
        self._owner = f"quintain{next(_numbers)}"
        self._steps = [[]]
        first = super().reset(task)
        self._gold: list[str] = list(self.answers[self._row["id"]][0])
        return first

    def step(self, action: Action) -> StepResult:
        """Carry out calls, or go on to what is asked next; at the end, compare."""
        decoded = self._read(action)
        is_readable = decoded is not None and is_call_list(decoded)
        if not is_readable or not decoded:
            return self._go_on(is_valid=is_readable or self._is_text)
        known = {function["name"] for function in functions_of(self._row)}
        calls = [ToolCall(name=name, arguments=given) for each in decoded for name, given in each.items()]
        written = [
            write_call(call) if call.name in known and all(map(str.isidentifier, call.arguments)) else NO_SUCH
            for call in calls
        ]
        self._steps[-1].append(written)
        replies, _ = turns()[1].execute_multi_turn_func_call(
            written,
            *self._place(),
            self._owner,
            self._row["id"],
            long_context="long_context" in self.category,
        )
        if len(self._steps[-1]) > MAX_STEPS:
            if len(self._steps) == len(self._row["question"]):
                return self._grade()  # nothing is left to ask: the package cuts this turn and compares it
            return StepResult(
                observation=f"wrong: more than {MAX_STEPS} steps", is_terminated=True, is_success=False
            )
        shown = {function["name"] for function in self._functions()}
        return StepResult(
            observation="\n".join(map(str, replies)), is_valid=all(call.name in shown for call in calls)
        )

    def expert_action(self) -> Action:
        """Return the next call of the package's own solution; without one left, end the turn."""
        if not self._gold:
            return Action(text="Done.")
        return self._say((read(self._gold.pop(0), specs_of(functions_of(self._row))),))

    def close(self) -> None:
        """Forget the systems of the episode."""
        if self._owner:
            held = vars(turns()[1])
            for name in [name for name in held if name.startswith(f"{self._owner}_")]:
                del held[name]
        self._owner = ""

    def _go_on(self, *, is_valid: bool) -> StepResult:
        """Return what is asked next; after the last, the verdict on all turns."""
        number = len(self._steps)
        if number == len(self._row["question"]):
            return self._grade()
        self._steps.append([])
        self._gold = list(self.answers[self._row["id"]][number])
        missing = self._row.get("missed_function", {}).get(str(number), ())
        if missing:
            come = [each for each in self._functions() if each["name"] in missing]
            return StepResult(observation=f"{json.dumps(come)}\n{more_functions()}", is_valid=is_valid)
        return StepResult(observation=describe_question(self._row["question"][number]), is_valid=is_valid)

    def _functions(self) -> list[Row]:
        """Return the functions that there are in this turn as models are shown them."""
        later = {
            name
            for number, names in self._row.get("missed_function", {}).items()
            if int(number) >= len(self._steps)
            for name in names
        }
        return [each for each in functions_of(self._row) if each["name"] not in later]

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
        answers = {row["id"]: row["ground_truth"] for row in map(load_json, lines)}
        for row in rows:
            wanted = {"id", "question", "function" if category in ONE_TURN else "involved_classes"}
            if wanted - row.keys() or ("relevance" not in category and row["id"] not in answers):
                raise KeyError(row.get("id", "id"))
        return rows, answers
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise EnvironmentFault(
            f"questions of bfcl: got {error!r} from {folder / name}, a file of another version; {COMMAND}"
        ) from error


def describe_question(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the messages of a turn as text."""
    return "\n".join(message["content"] for message in messages)


def spec_of_function(function: Mapping[str, Any]) -> ToolSpec:
    """Return a function of the leaderboard as a tool; the names of its types become those of JSON schema."""
    return ToolSpec(
        name=function["name"], description=function["description"], parameters=_schema(function["parameters"])
    )


def _schema(value: Any) -> Any:
    """Return `value` with JSON's names of types."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {
            key: JSON_TYPES.get(each, each) if key == "type" and isinstance(each, str) else _schema(each)
            for key, each in items
        }
    return [_schema(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


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


def specs_of(functions: Sequence[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """Return `functions` as tools."""
    return tuple(map(spec_of_function, functions))


def functions_of(row: Row) -> list[Row]:
    """Return all functions of the systems that a question of several turns involves."""
    names, folder = file_names(), data_folder() / "multi_turn_func_doc"
    return [each for kind in row["involved_classes"] for each in functions_in(folder / names[kind])]


@cache
def functions_in(file: Path) -> list[Row]:
    """Return the functions that `file` of the package describes, as models are shown them."""
    rows = [load_json(line) for line in file.read_text("utf-8").splitlines()]
    return describe_functions(rows, "multi_turn_base_0")
