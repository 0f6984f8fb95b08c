"""The leaderboard's categories of several turns: simulated systems whose state is compared after each turn.

A user asks several things; the agent calls functions, and ends a turn by speaking without a call. Calls and
verdict are the package's own. The one rule: an episode has systems of its own, which go with it.
"""

import ast
import itertools
import json
from typing import Any

from quintain.environments.bfcl import Bfcl, spec_of_function, told
from quintain.environments.bfcl_package import data_folder, file_names, turns
from quintain.types import Action, StepResult, Task, ToolCall, ToolSpec

MOST_STEPS = 20
"""Steps of a turn after which the package ends it."""
_numbers = itertools.count()


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
            calls = [written(call) for call in action.tool_calls]
            self._steps[-1].append(calls)
            replies, _ = turns()[1].execute_multi_turn_func_call(
                calls, *self._place(), self._owner, self._row["id"]
            )
            if len(self._steps[-1]) < MOST_STEPS:
                return StepResult(observation="\n".join(map(str, replies)))
        number = len(self._steps)
        if number < len(self._row["question"]):
            self._steps.append([])
            self._gold = list(self.answers[self._row["id"]][number])
            return StepResult(observation=told(self._row["question"][number]))
        return self._graded()

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the functions of the systems that the question involves."""
        names = file_names()
        hidden = set(self._row.get("excluded_function", ()))
        rows = [row for each in self._row["involved_classes"] for row in functions(names[each])]
        return tuple(spec_of_function(row) for row in rows if row["name"] not in hidden)

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

    def _graded(self) -> StepResult:
        """Return the verdict on all turns."""
        row = self._row
        found = turns()[0].multi_turn_checker(
            self._steps, self.answers[row["id"]], row, self.category, self._owner
        )
        is_right = bool(found["valid"])
        said = "correct" if is_right else f"wrong: {found.get('error_type', '')}"
        return StepResult(observation=said, reward=float(is_right), is_terminated=True, is_success=is_right)


def written(call: ToolCall) -> str:
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


def functions(file: str) -> list[dict[str, Any]]:
    """Return the functions that `file` of the package describes."""
    path = data_folder() / "multi_turn_func_doc" / file
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
