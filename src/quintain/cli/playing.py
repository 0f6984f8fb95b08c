"""``quintain play E``: a person acts in an environment, in the terminal or through a pipe.

Legal actions are listed by number, tools with their arguments. The person sees what an agent would see, and a mistake
costs what it would cost an agent.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import Parser, whole_number
from quintain.errors import UsageError, suggestion

if TYPE_CHECKING:
    from quintain.environments.protocol import Environment
    from quintain.types import Action, ToolSpec

QUIT = ("quit", "exit", "q")
HELP = "an action by number or name; a tool as NAME, NAME VALUE … or NAME {JSON}; quit to leave"


def play(argv: Sequence[str]) -> int:
    """Act in an environment."""
    from quintain.environments.boundary import blame
    from quintain.environments.rehearsal import find_or_blame

    parser = Parser("play", "Act in an environment yourself: what an agent sees, typed by hand.")
    parser.add_argument("environment", metavar="E", help="environment: see quintain environments")
    parser.flag("--seed", "number of the task (default 0); the same number is the same task", "N", "0")
    parser.flag("--split", "tasks to play: train (default) or eval", "SPLIT", "train")
    arguments = parser.read(argv)
    seed = whole_number(arguments.seed, "--seed")
    if arguments.split not in ("train", "eval"):
        raise UsageError(f"--split: got {arguments.split!r}; choose train or eval")

    recipe = find_or_blame(arguments.environment)
    with blame(recipe.spec), closing(recipe()) as environment:
        return episode(environment, environment.task(arguments.split, seed), ask)


def ask() -> str | None:
    """Return the next line that was typed, None at the end of the input."""
    try:
        return input("> ").strip()
    except EOFError:
        print()
        return None


def episode(environment: "Environment", task: Any, ask: Callable[[], str | None]) -> int:
    """Play one episode of `task` with the lines that `ask` returns, and return the exit status."""
    from quintain.environments.protocol import advance, begin
    from quintain.types import as_text

    print(environment.instructions())
    if task.prompt:
        print(task.prompt)
    print(f"({HELP})\n\n{as_text(begin(environment, task))}")
    total, turns = 0.0, 0
    while turns < environment.max_turns:
        offer(environment)
        line = ask()
        if line is None or line.lower() in QUIT:
            print(f"left after {turns} turns, return {total:g}")
            return 0
        try:
            action = read(environment, line)
        except UsageError as error:
            print(error)
            continue
        result = advance(environment, action)
        total, turns = total + result.reward, turns + 1
        print(f"\n{as_text(result.observation)}\n[turn {turns}, reward {result.reward:g}]")
        if result.is_terminated or result.is_truncated:
            solved = total > 0 if result.is_success is None else result.is_success
            print(f"{'solved' if solved else 'not solved'} after {turns} turns, return {total:g}")
            return 0
    print(f"out of turns after {turns}, return {total:g}")
    return 0


def offer(environment: "Environment") -> None:
    """Print what can be done now."""
    legal = legal_actions(environment)
    if legal:
        print("actions: " + ", ".join(f"{number} {action}" for number, action in enumerate(legal, 1)))
    for tool in environment.tools():
        print(f"tool: {signature(tool)}  {tool.description.partition(chr(10))[0]}")


def legal_actions(environment: "Environment") -> tuple[str, ...]:
    """Return the legal actions, () where the environment lists none."""
    from quintain.environments.protocol import Legal

    return tuple(environment.legal_actions()) if isinstance(environment, Legal) else ()


def signature(tool: "ToolSpec") -> str:
    """Return how `tool` is called: ``guess number:integer``."""
    fields: Mapping[str, Any] = tool.parameters.get("properties", {})
    return " ".join([tool.name, *(f"{name}:{field.get('type', 'any')}" for name, field in fields.items())])


def read(environment: "Environment", line: str) -> "Action":
    """Return the action that `line` names.

    Raises:
        UsageError: it names no legal action and no tool of this environment.
    """
    from quintain.types import Action, ToolCall

    legal, tools = legal_actions(environment), {tool.name: tool for tool in environment.tools()}
    if line.isdecimal() and 1 <= int(line) <= len(legal):
        return Action(text=legal[int(line) - 1])
    name, _, rest = line.partition(" ")
    if name in tools:
        return Action(text=line, tool_calls=(ToolCall(name=name, arguments=read_call(tools[name], rest)),))
    if line in legal or not (legal or tools):
        return Action(text=line)
    raise UsageError(f"action: got {line!r}; {suggestion(name if tools else line, [*legal, *tools])}")


def read_call(tool: "ToolSpec", text: str) -> dict[str, Any]:
    """Return the arguments in `text`, a JSON object or values in the order of the signature.

    Raises:
        UsageError: it is neither; whether the arguments fit is left to the tool.
    """
    if text.lstrip().startswith("{"):
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise UsageError(f"arguments of {tool.name}: got {error}; write a JSON object") from None
        return found
    names = list(tool.parameters.get("properties", {}))
    try:
        values = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"arguments of {tool.name}: got {error}; close the quotes") from None
    if len(values) > len(names) and len(names) == 1:
        values = [text.strip()]
    if len(values) > len(names):
        raise UsageError(f"arguments of {tool.name}: got {len(values)} values; it takes {signature(tool)}")
    return {name: plain(value) for name, value in zip(names, values, strict=False)}


def plain(value: str) -> Any:
    """Return `value` as JSON where it is JSON, else as text."""
    try:
        return json.loads(value)
    except ValueError:
        return value
