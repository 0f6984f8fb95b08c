"""xLAM: the checks of calls find every planted fault of eight kinds, and raise no alarm on calls that are right.

Conversations are drawn with tools of their own: names, schemas, what the user says, and results whose values later
calls use. The generator keeps count of what was said when, so it can plant a fault of a kind and nothing else; it
shares no code with the checks. Beside them stand episodes of `calc`'s expert, whose arguments are results of earlier
calls. A violation is a fault that is not found, or an alarm where nothing is wrong. The control validates schemas and
nothing more: values that were never said must pass it. Clean conversations are the null world.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from jsonschema import Draft202012Validator

from quintain.data.calls import find_faults
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.types import Action, Message, Text, ToolCall, ToolSpec, as_text, derive_seed

KINDS = (
    "undefined", "not_listed", "missing", "extra", "misnamed", "mistyped", "nowhere", "substring", "later",
)  # fmt: skip
"""What is planted; `substring` and `later` are one kind of the eight, in two forms."""
UNSAID = ("nowhere", "substring", "later")
"""What fits every schema."""
VERBS = ("find", "book", "list", "move", "send", "count", "open", "rate")
NOUNS = ("flight", "room", "parcel", "table", "seat", "ticket", "bill", "note")
FIELDS = ("code", "amount", "place", "level", "owner", "weight", "day", "mode")
PLACES = ("rome", "oslo", "lima", "cairo", "delhi", "quito", "paris", "tunis")


@dataclass(slots=True)
class Drawn:
    """A conversation as it grows, and what its generator knows of it."""

    rng: random.Random
    tools: tuple[ToolSpec, ...]
    others: tuple[ToolSpec, ...]
    """tools of other conversations"""
    messages: list[Message] = field(default_factory=list[Message])
    said: list[int | str] = field(default_factory=list["int | str"])
    """values that stand in user's messages and results, in order"""

    def tell(self, role: str, text: str, values: Sequence[int | str]) -> None:
        """Let a user or a tool say `values` within `text`, which has a pair of braces for each."""
        content = (Text(text=text.format(*values)),)
        self.messages.append(Message(role="user" if role == "user" else "tool", content=content))
        self.said += values

    def call(self, call: ToolCall) -> None:
        """Let the assistant call."""
        self.messages.append(Message(role="assistant", content=(), tool_calls=(call,)))

    def new(self, kind: str) -> int | str:
        """Return a value of the type `kind` that nobody has said, nor as a part of what was said."""
        while True:
            found: int | str = (
                self.rng.randint(100, 99_999)
                if kind == "integer"
                else f"{self.rng.choice('bcdfghkmpqrtvxz')}{self.rng.randint(10, 99)}-{self.rng.randint(100, 999)}"
            )
            if not any(str(found) in str(value) or str(value) in str(found) for value in self.said):
                return found


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return how many of the planted faults are missed, and how many alarms are false, of ours and of schemas alone."""
    num, clean = int(options.get("faults", 100)), int(options.get("clean", 500))
    missed, passed, blind = Counter[str](), Counter[str](), 0
    for number in range(num):
        for kind in KINDS:
            drawn = draw(random.Random(derive_seed("xlam", seed, kind, number)), kind)
            others = {tool.name for tool in drawn.others}
            found = {fault.kind for fault in find_faults(drawn.messages, drawn.tools, known=others)}
            missed[kind] += found != {"unsaid" if kind in UNSAID else kind}
            passed[kind] += fits_schemas(drawn)
            blind += kind in UNSAID and fits_schemas(drawn)
    alarms = 0
    for number in range(clean):
        drawn = draw(random.Random(derive_seed("xlam", seed, "clean", number)), "")
        alarms += bool(find_faults(drawn.messages, drawn.tools))
    expert_alarms, expert_calls, chained = play_experts(str(options.get("expert", "calc")), clean, seed)
    return [
        {
            "violations": float(missed.total() + alarms + expert_alarms),
            "trials": float(num * len(KINDS) + clean + expert_calls),
            "control_violations": float(blind),
            "control_trials": float(num * len(UNSAID)),
            "extra.least_caught": 1 - max(missed.values()) / num,
            "extra.null_alarms": float(alarms + expert_alarms),
            "extra.expert_calls": float(expert_calls),
            "extra.chained": chained / max(expert_calls, 1),
            "extra.schema_catches": 1 - sum(passed[k] for k in KINDS if k not in UNSAID) / (6 * num),
        }
    ]


def draw(rng: random.Random, kind: str) -> Drawn:
    """Return a conversation of two to four calls, of which one has a fault of `kind`; none without a kind."""
    names = rng.sample([f"{verb}_{noun}" for verb in VERBS for noun in NOUNS], 6)
    specs = [draw_tool(rng, name) for name in names]
    drawn = Drawn(rng=rng, tools=tuple(specs[:4]), others=tuple(specs[4:]))
    num = rng.randint(2, 4)
    faulty = rng.randrange(num) if kind else -1
    drawn.tell(
        "user", "I am {} and I have {} of them, from {}.", [drawn.new("string"), drawn.new("integer"), "rome"]
    )
    for number in range(num):
        tool = rng.choice(drawn.tools)
        arguments = draw_arguments(drawn, tool)
        call = ToolCall(name=tool.name, arguments=arguments)
        late: list[int | str] = []
        if number == faulty:
            call, late = spoiled(drawn, tool, arguments, kind)
        drawn.call(call)
        results = [drawn.new("integer"), drawn.new("string"), *late]
        drawn.tell("tool", "ok: {} units, reference {}" + "".join("; also {}" for _ in late), results)
    return drawn


def draw_tool(rng: random.Random, name: str) -> ToolSpec:
    """Return a tool of two to four arguments: whole numbers, codes and a choice."""
    fields = rng.sample(FIELDS, rng.randint(2, 4))
    kinds = ["integer", "string", *(rng.choice(("integer", "string", "choice")) for _ in fields[2:])]
    properties = {
        own: {"enum": list(PLACES)} if kind == "choice" else {"type": kind}
        for own, kind in zip(fields, kinds, strict=True)
    }
    schema = {
        "type": "object", "properties": properties, "required": fields[: rng.randint(2, len(fields))],
        "additionalProperties": False,
    }  # fmt: skip
    return ToolSpec(name=name, description=f"Do {name}.", parameters=schema)


def draw_arguments(drawn: Drawn, tool: ToolSpec) -> dict[str, int | str]:
    """Return arguments of `tool` that were said, those that it requires and perhaps others."""
    found: dict[str, int | str] = {}
    for name, schema in tool.parameters["properties"].items():
        if name not in tool.parameters["required"] and drawn.rng.random() < 0.5:
            continue
        if "enum" in schema:
            found[name] = drawn.rng.choice(PLACES)
        else:
            kind = int if schema["type"] == "integer" else str
            found[name] = drawn.rng.choice([v for v in drawn.said if type(v) is kind and v != "rome"])
    return found


def spoiled(
    drawn: Drawn, tool: ToolSpec, arguments: dict[str, int | str], kind: str
) -> tuple[ToolCall, list[int | str]]:
    """Return the call with a fault of `kind`, and values that are to be said right after it."""
    rng = drawn.rng
    required = tool.parameters["required"]
    schema = tool.parameters["properties"]
    call = ToolCall(name=tool.name, arguments=arguments)
    free = rng.choice([name for name in arguments if "enum" not in schema[name]])
    rest = {name: value for name, value in arguments.items() if name != free}
    match kind:
        case "undefined":
            return replace(call, name=f"{tool.name}_now"), []
        case "not_listed":
            other = rng.choice(drawn.others)
            return ToolCall(name=other.name, arguments=draw_arguments(drawn, other)), []
        case "missing":
            gone = rng.choice(required)
            return replace(call, arguments={k: v for k, v in arguments.items() if k != gone}), []
        case "extra":
            return replace(call, arguments={**arguments, "priority": rng.choice(drawn.said)}), []
        case "misnamed":
            gone = rng.choice(required)
            return replace(
                call, arguments={(f"{k}_id" if k == gone else k): v for k, v in arguments.items()}
            ), []
        case "mistyped":
            wrong: Any = str(arguments[free]) if isinstance(arguments[free], int) else [arguments[free]]
            return replace(call, arguments={**rest, free: wrong}), []
        case "substring":
            cut = str(arguments[free])[:-1]
            # A code loses its last digit, a number too: what is left stands in what was said, but not by itself.
            return replace(
                call, arguments={**rest, free: int(cut) if isinstance(arguments[free], int) else cut}
            ), []
        case _:
            value = drawn.new(schema[free]["type"])
            return replace(call, arguments={**rest, free: value}), [value] if kind == "later" else []


def fits_schemas(drawn: Drawn) -> bool:
    """Whether every call is of a tool that exists anywhere, and its arguments fit that tool's schema."""
    known = {tool.name: tool for tool in (*drawn.tools, *drawn.others)}
    calls = [call for message in drawn.messages for call in message.tool_calls]
    return all(
        call.name in known
        and Draft202012Validator(known[call.name].parameters).is_valid(dict(call.arguments))
        for call in calls
    )


def play_experts(spec: str, least: int, seed: int) -> tuple[int, int, int]:
    """Return false alarms on the calls of experts of `spec`, how many calls there were, and how many use results."""
    alarms = calls = chained = 0
    with closing(find(spec)()) as environment:
        index = 0
        while calls < least:
            task = environment.task("train", derive_seed("xlam", seed, index) % 1_000_000)
            written: list[Action] = []

            def watch(world: Environment, told: str, written: list[Action] = written) -> Action:
                written.append(expert(world, told))
                return written[-1]

            observations = play(environment, task, watch).observations
            messages: list[Message] = []
            told = f"{environment.instructions()}\n{task.prompt}"
            first = f"{told}\n{as_text(observations[0])}"
            for observation, action in zip(observations, written, strict=False):
                text = as_text(observation) if messages else first
                messages.append(Message(role="user", content=(Text(text=text),)))
                messages.append(Message(role="assistant", content=(), tool_calls=action.tool_calls))
                values = {str(v) for call in action.tool_calls for v in call.arguments.values()}
                chained += bool(values - set(first.replace("?", " ").replace(".", " ").split()))
            alarms += len(find_faults(messages, environment.tools()))
            calls += sum(len(action.tool_calls) for action in written)
            index += 1
    return alarms, calls, chained
