"""Are the calls of a transcript right, by what it says itself? xLAM's data checks (arXiv 2409.03215) as a linter.

Three questions are asked of every call, cheapest first. **Format**: could it be read at all? **Executable**: is the
tool on the list that this conversation shows, and do its arguments fit the tool's schema by name, number and type?
**Semantic**: was every value said before the call, by the user, the system text or the result of an earlier call? A
value that came from nowhere is made up, however well it fits the schema.

Said is what stands as a word or a number of its own: 10 is not said by 100, nor by a result that comes later. Values
that the schema itself names (choices, defaults, examples), true, false, null, and texts of more than `MAX_WORDS`
words, which are prose of the agent, need not be said. What is computed without a tool counts as not said: an agent
that does sums in its head needs ``semantic=False``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

from quintain.data.messages import OpeningPrompt
from quintain.data.pipeline import Stage, weigh_stage
from quintain.types import Message, Text, ToolCall, ToolSpec, Trajectory, as_text

Kind = Literal["unreadable", "undefined", "not_listed", "missing", "extra", "misnamed", "mistyped", "unsaid"]
CLASSES: Mapping[str, tuple[Kind, ...]] = {
    "format": ("unreadable",),
    "executable": ("undefined", "not_listed", "missing", "extra", "misnamed", "mistyped"),
    "semantic": ("unsaid",),
}
"""The three checks of APIGen and xLAM → kinds of faults."""
MAX_WORDS = 6
NUMBER = re.compile(r"(?<![\w.])(?<![A-Za-z]-)-?\d+(?:,\d{3})*(?:\.\d+)?(?![\w]|\.\d)")
COUNTED = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong with a call: ``Fault(answer=2, kind="unsaid", tool="book", detail="seat: got '14C', …")``."""

    answer: int
    """number of the assistant's message, from 0"""
    kind: Kind
    tool: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Return it as a line."""
        where = f"answer {self.answer}, {self.tool}" if self.tool else f"answer {self.answer}"
        return f"{where}: {self.kind.replace('_', ' ')}: {self.detail}"


def find_faults(
    messages: Sequence[Message],
    tools: Sequence[ToolSpec],
    *,
    known: Collection[str] = (),
    semantic: bool = True,
    unreadable: Mapping[int, str] | None = None,
) -> list[Fault]:
    """Return the faults of the calls in `messages`, in order.

    Args:
        messages: the conversation; what the assistant says grounds nothing.
        tools: what the conversation lists.
        known: names of tools that other conversations list, to tell a tool that is not on this list from none.
        semantic: whether values must have been said.
        unreadable: answer → why its calls could not be read.
    """
    listed = {tool.name: tool for tool in tools}
    heard = SaidSoFar()
    found: list[Fault] = []
    number = 0
    for message in messages:
        if message.role != "assistant":
            heard.add(as_text(message.content))
            continue
        if unreadable and number in unreadable:
            found.append(Fault(answer=number, kind="unreadable", detail=unreadable[number]))
        for call in message.tool_calls:
            tool = listed.get(call.name)
            if tool is None:
                kind: Kind = "not_listed" if call.name in known else "undefined"
                names = ", ".join(listed) or "none"
                detail = f"got {call.name!r}, and the tools of the conversation are {names}"
                found.append(Fault(answer=number, kind=kind, tool=call.name, detail=detail))
                continue
            told = [*misfits(call, tool)]
            if semantic and not told:
                told = [*unsaid(call, tool, heard)]
            found += [Fault(answer=number, kind=kind, tool=call.name, detail=detail) for kind, detail in told]
        number += 1
    return found


def misfits(call: ToolCall, tool: ToolSpec) -> Iterator[tuple[Kind, str]]:
    """Yield what of the arguments of `call` does not fit the schema of `tool`: names, then types."""
    fields: Mapping[str, Any] = tool.parameters.get("properties", {})
    required = [name for name in tool.parameters.get("required", ()) if name not in call.arguments]
    is_open = not fields and tool.parameters.get("additionalProperties") is not False
    others = [] if is_open else [name for name in call.arguments if name not in fields]
    for name, wanted in zip(others, required, strict=False):
        yield "misnamed", f"got the argument {name!r}; it is called {wanted!r}"
    for name in others[len(required) :]:
        yield "extra", f"got the argument {name!r}; it takes {', '.join(fields) or 'none'}"
    for name in required[len(others) :]:
        yield "missing", f"got no argument {name!r}"
    try:
        Draft202012Validator.check_schema(tool.parameters)
        errors = list(Draft202012Validator(tool.parameters).iter_errors(dict(call.arguments)))
    except (SchemaError, Unresolvable) as error:
        yield "mistyped", f"got a schema of {tool.name} that is none ({str(error).partition(chr(10))[0]:.80})"
        return
    for error in errors:
        if error.absolute_path and error.absolute_path[0] in fields:
            yield "mistyped", f"{error.absolute_path[0]}: {error.message:.120}"


def unsaid(call: ToolCall, tool: ToolSpec, heard: SaidSoFar) -> Iterator[tuple[Kind, str]]:
    """Yield the values of `call` that nobody said before it."""
    fields: Mapping[str, Any] = tool.parameters.get("properties", {})
    for name, value in call.arguments.items():
        schema: Any = fields.get(name, {})
        named = {repr(each) for each in values_in(schema)}
        for leaf in leaves(value):
            if repr(leaf) not in named and not heard.has(leaf):
                yield "unsaid", f"{name}: got {leaf!r:.60}, which was not said before"


def leaves(value: object) -> Iterator[str | int | float]:
    """Yield the texts and numbers in `value`; the names in objects are the schema's."""
    if isinstance(value, Mapping):
        value = list(cast("Mapping[str, object]", value).values())
    if isinstance(value, list | tuple):
        for part in cast("Sequence[object]", value):
            yield from leaves(part)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def values_in(schema: object) -> Iterator[object]:
    """Yield the values that `schema` itself names, at any depth."""
    if isinstance(schema, list):
        for part in cast("list[object]", schema):
            yield from values_in(part)
    own = cast("Mapping[str, object]", schema) if isinstance(schema, Mapping) else {}
    for key, part in own.items():
        if key in ("enum", "examples"):
            yield from cast("Sequence[object]", part)
        elif key in ("const", "default"):
            yield part
        else:
            yield from values_in(part)


class SaidSoFar:
    """What was said so far, to be asked for words and numbers: ``heard.has("Rome")``."""

    def __init__(self) -> None:
        self._words = " "
        self._numbers: set[float] = set()

    def add(self, text: str) -> None:
        """Take in what was said."""
        self._words += words(text) + " "
        self._numbers |= {float(found.replace(",", "")) for found in NUMBER.findall(text)}
        self._numbers |= {float(COUNTED.index(word)) for word in words(text).split() if word in COUNTED}

    def has(self, value: str | int | float) -> bool:
        """Whether `value` was said as words or a number of its own; long texts need not be."""
        if not isinstance(value, str):
            return float(value) in self._numbers
        own = words(value)
        if not own or len(own.split()) > MAX_WORDS:
            return True
        if NUMBER.fullmatch(value.strip()) and float(value.replace(",", "")) in self._numbers:
            return True
        return f" {own} " in self._words


def words(text: str) -> str:
    """Return the words of `text` in lower case with single spaces; hyphens, dots and the like inside of words stay."""
    return " ".join(re.findall(r"\w+(?:[-.:/@'_]\w+)*", text.lower()))


def messages_of(trajectory: Trajectory, told: OpeningPrompt) -> tuple[list[Message], dict[int, str]]:
    """Return an episode as messages, and which of its answers could not be read; `told` stood before it."""
    messages = [Message(role="system", content=(Text(text=f"{told.system}\n{trajectory.task.prompt}"),))]
    unreadable: dict[int, str] = {}
    for number, turn in enumerate(trajectory.turns):
        messages.append(Message(role="user", content=turn.observation))
        messages.append(
            Message(
                role="assistant", content=(Text(text=turn.action.text),), tool_calls=turn.action.tool_calls
            )
        )
        if turn.action.error is not None:
            unreadable[number] = turn.action.error
    return messages, unreadable


def count_faults(
    trajectories: Sequence[Trajectory], told: Callable[[Trajectory], OpeningPrompt]
) -> dict[str, float]:
    """Return how many calls were written (`calls`), unreadable ones too, and the share with a fault of each kind.

    A call with several faults of a kind counts once in it. `unsaid` are calls with a value that nobody said before.
    """
    num, kinds = 0, Counter[str]()
    for trajectory in trajectories:
        own = told(trajectory)
        messages, unreadable = messages_of(trajectory, own)
        num += len(unreadable) + sum(len(message.tool_calls) for message in messages)
        faults = find_faults(messages, own.tools, unreadable=unreadable)
        kinds.update(kind for _, kind, _ in {(each.answer, each.kind, each.tool) for each in faults})
    return {"calls": float(num), **{kind: count / num for kind, count in sorted(kinds.items()) if num}}


def right_calls(
    told: Callable[[Trajectory], OpeningPrompt], *, semantic: bool = True, name: str = "right_calls"
) -> Stage:
    """Let the turns count whose calls have no fault; the others stay as context (xLAM, arXiv 2409.03215).

    A fault drops the turn, not the episode: what was done about it is as good as any other turn.
    """

    def weigh(trajectory: Trajectory) -> list[float]:
        own = told(trajectory)
        messages, unreadable = messages_of(trajectory, own)
        found = find_faults(messages, own.tools, semantic=semantic, unreadable=unreadable)
        wrong = {fault.answer for fault in found}
        return [float(number not in wrong) for number in range(len(trajectory.turns))]

    return weigh_stage(name, "has no turn whose calls are right", weigh)
