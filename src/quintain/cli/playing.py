"""``quintain play E``: a person acts in an environment, in the terminal or through a pipe.

Legal actions are listed by number, tools with their arguments. The person sees what an agent would see, and a mistake
costs what it would cost an agent.
"""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quintain.cli.arguments import TRUST, Parser, whole_number
from quintain.errors import DataError, UsageError, suggestion
from quintain.types.json_text import load_json
from quintain.types.terminal import write_line

if TYPE_CHECKING:
    from quintain.environments.protocol import Environment
    from quintain.types import Action, Task, ToolSpec

QUIT = ("quit", "exit", "q")
HELP = "an action by number or name; a tool as NAME, NAME VALUE … or NAME {JSON}; quit to leave"


def play(argv: Sequence[str]) -> int:
    """Act in an environment."""
    from quintain.environments.boundary import blame
    from quintain.environments.smoke_test import find_or_blame

    parser = Parser("play", "Act in an environment yourself: what an agent sees, typed by hand.")
    parser.add_argument("environment", metavar="E", help="environment: see quintain environments")
    parser.flag("--seed", "number of the task (default 0); the same number is the same task", "N", "0")
    parser.flag("--split", "tasks to play: train (default) or eval", "SPLIT", "train")
    parser.flag(
        "--record",
        "file of demonstrations, .jsonl, that the episode is added to when it ends; with --plans a new folder",
        "FILE",
    )
    parser.flag("--plans", "a run that plans and acts (agent=plan+...): you correct its plans", "RUN")
    parser.flag("--episodes", "with --plans: how many, on the tasks from --seed on (default 1)", "N", "1")
    parser.switch("--trust-run", TRUST)
    parser.flag("--runs", "folder that holds the runs (default runs)", "ROOT", "runs")
    arguments = parser.read(argv)
    seed = whole_number(arguments.seed, "--seed")
    episodes = whole_number(arguments.episodes, "--episodes", least=1)
    if arguments.split not in ("train", "eval"):
        raise UsageError(f"--split: got {arguments.split!r}; choose train or eval")

    out = None if arguments.record is None else Path(arguments.record)
    if arguments.plans is not None:
        from quintain.cli.plan_correction import correct_in_terminal

        if arguments.split != "train":
            raise UsageError("--plans: got tasks of eval, which nothing is learned from; leave --split out")
        return correct_in_terminal(
            arguments.environment, arguments.plans, out, ask, runs=arguments.runs, episodes=episodes,
            seed=seed, is_trusted=arguments.trust_run,
        )  # fmt: skip
    if episodes > 1:
        raise UsageError(f"--episodes: got {episodes}, which are played with --plans alone; name a run there")
    if out is not None and (out.suffix != ".jsonl" or arguments.split != "train"):
        raise UsageError(
            f"--record: got {arguments.record!r} with tasks of {arguments.split}; give a file that ends in .jsonl, and "
            "train, because nothing is learned from held-out tasks"
        )
    recipe = find_or_blame(arguments.environment)
    with blame(recipe.spec), closing(recipe()) as environment:
        return episode(environment, environment.task(arguments.split, seed), ask, out)


def ask() -> str | None:
    """Return the next line that was typed, None at the end of the input or where it says to leave."""
    try:
        line = input("> ").strip()
    except EOFError:
        write_line("")
        return None
    return None if line.lower() in QUIT else line


def episode(
    environment: "Environment", task: "Task", ask: Callable[[], str | None], out: Path | None = None
) -> int:
    """Play one episode of `task` with the lines that `ask` returns, add it to `out`, and return the exit status."""
    from quintain.environments.protocol import advance, begin
    from quintain.types import as_text

    write_line(environment.instructions())
    if task.prompt:
        write_line(task.prompt)
    seen = as_text(begin(environment, task))
    write_line(f"({HELP})\n\n{seen}")
    total, turns = 0.0, 0
    said: list[tuple[str, Action]] = []
    while turns < environment.max_turns:
        offer(environment)
        line = ask()
        if line is None:
            lost = "" if out is None else f"; nothing was added to {out}"
            write_line(f"left after {turns} turns, return {total:g}{lost}")
            return 0
        try:
            action = read(environment, line)
        except UsageError as error:
            write_line(error)
            continue
        said.append((seen, action))
        result = advance(environment, action)
        total, turns = total + result.reward, turns + 1
        seen = as_text(result.observation)
        paid = "".join(f", {seat} {value:g}" for seat, value in result.rewards.items())
        write_line(f"\n{seen}\n[turn {turns}, reward {result.reward:g}{paid}]")
        if result.is_over:
            solved = total > 0 if result.is_success is None else result.is_success
            write_line(f"{'solved' if solved else 'not solved'} after {turns} turns, return {total:g}")
            break
    else:
        solved = False
        write_line(f"out of turns after {turns}, return {total:g}")
    if out is not None:
        add_record(out, to_lines(environment, task, said) | {"reward": total, "is_success": solved})
    return 0


def to_lines(
    environment: "Environment", task: "Task", said: Sequence[tuple[str, "Action"]]
) -> dict[str, Any]:
    """Return what a person was shown and did as a conversation: messages, tools and the task."""
    from quintain.agents.harness import system_text
    from quintain.agents.protocol import Brief
    from quintain.data.messages import write_call, write_tool

    system = system_text(Brief(task=task, instructions=environment.instructions()))
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    role = "user"
    for seen, action in said:
        messages.append({"role": role, "content": seen})
        calls = [write_call(call) for call in action.tool_calls]
        messages.append(
            {"role": "assistant", "content": "", "tool_calls": calls}
            if calls
            else {"role": "assistant", "content": action.text}
        )
        role = "tool" if calls else "user"
    tools = [write_tool(tool) for tool in environment.tools()]
    return {"messages": messages, **({"tools": tools} if tools else {}), "task": task.id}


def add_record(file: Path, record: Mapping[str, Any]) -> None:
    """Add `record` to `file` as a line, and say how many there are now.

    Raises:
        DataError: the file cannot be written.
    """
    try:
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
        with open(file, encoding="utf-8") as stream:
            num = sum(1 for _ in stream)
    except OSError as error:
        raise DataError(f"--record {file}: got {error.strerror}; choose another place") from error
    write_line(f"{file}: {num} demonstrations")


def offer(environment: "Environment") -> None:
    """Print what can be done now."""
    legal = legal_actions(environment)
    if legal:
        write_line("actions: " + ", ".join(f"{number} {action}" for number, action in enumerate(legal, 1)))
    for tool in environment.tools():
        write_line(f"tool: {signature(tool)}  {tool.description.partition(chr(10))[0]}")


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
            found: dict[str, Any] = load_json(text)
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
        return load_json(value)
    except ValueError:
        return value
