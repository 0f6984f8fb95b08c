"""What is chosen of data before it is trained on: calls that are right by schema and by what was said."""

from dataclasses import dataclass
from types import ModuleType

from quintain.benchmarks.formulas.formula import Formula, Rng
from quintain.types import Message, Text, ToolCall, ToolSpec

NAMES = ("a", "b", "c", "d", "e")
KINDS = ("undefined", "not_listed", "missing", "extra", "misnamed", "mistyped", "unsaid", "unreadable")
Value = int | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call in plain data, with what its tool takes and what was said before and after it."""

    tool: int
    """0 is on the list, 1 on another's, 2 on none"""
    fields: dict[str, str]
    """name → integer or string"""
    required: tuple[str, ...]
    arguments: dict[str, Value]
    before: tuple[Value, ...]
    after: tuple[Value, ...]
    is_readable: bool


def value_of(rng: Rng) -> Value:
    """Return a number of one to three digits, or a word of three letters and perhaps a part of it."""
    if rng.random() < 0.5:
        return int(rng.choice([1, 12, 123, 7, 77]))
    return str(rng.choice(["rom", "rome", "ro", "x-1", "x-12"]))


def draw_calls(rng: Rng) -> list[Call]:
    """Return eight calls, most of which name their arguments rightly."""
    found: list[Call] = []
    for _ in range(8):
        fields = {
            name: str(rng.choice(["integer", "string"])) for name in NAMES[:4] if rng.random() < 0.7
        } or {"a": "string"}
        own = [name for name in fields if rng.random() < 0.85]
        own += ["e"] if rng.random() < 0.15 else []
        before = tuple(value_of(rng) for _ in range(int(rng.integers(1, 6))))
        drawn = [before[int(rng.integers(len(before)))] if rng.random() < 0.7 else value_of(rng) for _ in own]
        found.append(
            Call(
                tool=int(rng.choice([0, 0, 0, 0, 1, 2])),
                fields=fields,
                required=tuple(name for name in fields if rng.random() < 0.6),
                arguments=dict(zip(own, drawn, strict=True)),
                before=before,
                after=tuple(value_of(rng) for _ in range(2)),
                is_readable=bool(rng.random() < 0.9),
            )
        )
    return found


def counted(module: ModuleType, case: list[Call]) -> list[float]:
    """Return how many faults of each kind each call has."""
    found: list[float] = []
    for call in case:
        tool = ToolSpec(
            name="tool0", description="",
            parameters={"type": "object", "properties": {n: {"type": k} for n, k in call.fields.items()},
                        "required": list(call.required)},
        )  # fmt: skip
        made = ToolCall(name=f"tool{call.tool}", arguments=call.arguments)
        messages = [
            spoken("user", " and ".join(map(str, call.before))),
            Message(role="assistant", content=(), tool_calls=(made,)),
            spoken("tool", " and ".join(map(str, call.after))),
        ]
        unreadable = {} if call.is_readable else {0: "no JSON"}
        faults = module.find_faults(messages, [tool], known={"tool1"}, unreadable=unreadable)
        kinds = [fault.kind for fault in faults]
        found += [float(kinds.count(kind)) for kind in KINDS]
    return found


def spoken(role: str, text: str) -> Message:
    """Return what a user or a tool says."""
    return Message(role="user" if role == "user" else "tool", content=(Text(text=text),))


def by_sets(case: list[Call]) -> list[float]:
    """Return the same by sets of names and by what was told as a value."""
    found: list[float] = []
    for call in case:
        num = dict.fromkeys(KINDS, 0)
        num["unreadable"] = int(not call.is_readable)
        num["not_listed"], num["undefined"] = int(call.tool == 1), int(call.tool == 2)
        if call.tool == 0:
            strange = len(set(call.arguments) - set(call.fields))
            gone = len(set(call.required) - set(call.arguments))
            num["misnamed"] = min(strange, gone)
            num["extra"], num["missing"] = strange - num["misnamed"], gone - num["misnamed"]
            num["mistyped"] = sum(
                isinstance(value, int) != (call.fields[name] == "integer")
                for name, value in call.arguments.items()
                if name in call.fields
            )
            if not any(num[kind] for kind in ("misnamed", "extra", "missing", "mistyped")):
                num["unsaid"] = sum(value not in call.before for value in call.arguments.values())
        found += [float(num[kind]) for kind in KINDS]
    return found


FORMULAS: tuple[Formula, ...] = (
    Formula("data.find_faults", "data.calls", ("find_faults", "misfits", "unsaid", "leaves"), draw_calls,
        counted, by_sets),
)  # fmt: skip
