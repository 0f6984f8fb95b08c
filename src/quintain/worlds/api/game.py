"""An API of drawn calls over hidden tables: the result of one fills an argument of the next.

Families it stands for: goals that take a chain of API calls (GOAT, ToolBench, RestBench). Goals say what is wanted, in
words of the documents, and name no call. Some calls take a value once only, until the next episode. A task may bring a
goal of its own, with the calls that reach it (`Task.data`); a goal belongs to train or to eval by its words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from quintain.environments.protocol import Environment, tool_action
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, ToolCall, ToolSpec
from quintain.worlds.api.registry import MAX_CALLS, Registry, draw_registry

ANSWER = ToolSpec(
    name="answer",
    description="Give the answer. You can answer once.",
    parameters={
        "type": "object", "properties": {"value": {"type": "integer", "description": "what was asked for"}},
        "required": ["value"], "additionalProperties": False,
    },
)  # fmt: skip
MAX_HOPS = 4
Made = tuple[str, tuple[tuple[str, int], ...]]
"""(call, its arguments by name)"""


@dataclass(frozen=True, slots=True)
class Goal:
    """What is wanted: ``Goal("Find the owner of parcel 512.", (("zormip", (("x", 512),)),), 301)``."""

    words: str
    calls: tuple[Made, ...]
    """that reach it"""
    answer: int

    def __repr__(self) -> str:
        """Return its words, by which it belongs to train or to eval."""
        return repr(self.words)


State = tuple[Goal, tuple[Made, ...], frozenset[tuple[str, int]]]


class Api(Environment):
    """Find out what is asked for by calling tools, then answer."""

    name = "api"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "planning"})

    def __init__(
        self,
        *,
        tools: int = 8,
        hops: int = 2,
        overlap: float = 0.2,
        stateful: float = 0.25,
        registry: int = 0,
    ) -> None:
        """Ask for what `hops` of `tools` calls find out one after the other, in the API that `registry` numbers.

        An argument takes a share `overlap` of the values of other kinds, too, and tells nonsense of them. A share
        `stateful` of the calls takes a value once.

        Raises:
            UsageError: there is no such API.
        """
        if not (2 <= tools <= MAX_CALLS and 1 <= hops <= MAX_HOPS):
            raise UsageError(
                f"api: got tools={tools}, hops={hops}; give 2 to {MAX_CALLS} tools and 1 to {MAX_HOPS} hops"
            )
        if not (0 <= overlap <= 1 and 0 <= stateful <= 1):
            raise UsageError(f"api: got overlap={overlap}, stateful={stateful}; give shares from 0 to 1")
        self.registry: Registry = draw_registry(tools, overlap=overlap, stateful=stateful, seed=registry)
        self._hops = hops
        self.max_turns = 3 * hops + 3
        self._specs = (*(call.spec() for call in self.registry.calls), ANSWER)
        self._goal = Goal("", (), 0)
        self._made: tuple[Made, ...] = ()
        self._used: frozenset[tuple[str, int]] = frozenset()

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the calls and the answer."""
        return self._specs

    def reset(self, task: Task) -> str:
        """State the goal of the task: the one that it brings, or one that is drawn."""
        self._goal = read_goal(task.data) if task.data else split_draw(task, self._draw)
        self._made, self._used = (), frozenset()
        return self._goal.words

    def _draw(self, rng: Random) -> Goal:
        """Return a goal whose calls can be made one after the other: none takes a value again that it takes once."""
        stateful = {call.name for call in self.registry.calls if call.is_stateful}
        while True:
            goal = self._walk(rng)
            once = [(name, value) for name, own in goal.calls if name in stateful for _, value in own]
            if len(set(once)) == len(once):
                return goal

    def _walk(self, rng: Random) -> Goal:
        """Return a goal that takes a chain of calls, each with what the one before it gave."""
        registry = self.registry
        call, given = rng.choice(registry.calls), dict[str, tuple[int, str]]()
        made: list[Made] = []
        while True:
            slots: dict[str, tuple[int, str]] = {}
            for argument in call.arguments:
                value = rng.choice(registry.values[argument.kind])
                slots[argument.name] = given.get(
                    argument.name, (value, f"{argument.told.split()[0]} {value}")
                )
            arguments = {name: value for name, (value, _) in slots.items()}
            made.append((call.name, tuple(arguments.items())))
            result = registry.result(call, arguments)
            words = phrase(call.relation, [told for _, told in slots.values()])
            following = [
                (other, argument.name)
                for other in registry.calls
                for argument in other.arguments
                if other is not call and argument.kind == call.kind
            ]
            if len(made) == self._hops or not following:
                return Goal(f"Find {words}.", tuple(made), result)
            call, name = rng.choice(following)
            given = {name: (result, words)}

    def step(self, action: Action) -> StepResult:
        """Make the calls of a turn, until one answers or fails."""
        if action.error is not None or not action.tool_calls:
            said = (
                action.error or f"no tool was called; tools: {', '.join(spec.name for spec in self._specs)}"
            )
            return StepResult(observation=f"Error: {said}.", is_valid=False)
        replies: list[str] = []
        for call in action.tool_calls:
            if call.name == ANSWER.name and set(call.arguments) == {"value"}:
                is_right = call.arguments["value"] == self._goal.answer
                return StepResult(
                    observation="right" if is_right else "wrong",
                    reward=float(is_right),
                    is_terminated=True,
                    is_success=is_right,
                )
            reply, is_valid = self._carry_out(call)
            replies.append(reply)
            if not is_valid:
                return StepResult(observation="\n".join(replies), is_valid=False)
        return StepResult(observation="\n".join(replies))

    def _carry_out(self, made: ToolCall) -> tuple[str, bool]:
        """Return what a call comes to, and whether it could be carried out."""
        call = self.registry.call(made.name)
        if call is None:
            return f"Error: there is no {made.name}; tools: {', '.join(s.name for s in self._specs)}.", False
        names = [argument.name for argument in call.arguments]
        if set(made.arguments) != set(names):
            return f"Error: {call.name} takes {', '.join(names)}, each of them and no other.", False
        arguments: dict[str, int] = {}
        for argument in call.arguments:
            value = made.arguments[argument.name]
            if type(value) is not int or not self.registry.takes(call, argument, value):
                return f"Error: {argument.name}: {value!s:.20} is no {argument.told}.", False
            if call.is_stateful and (call.name, value) in self._used:
                return f"Error: {argument.name}: {value} was used already.", False
            arguments[argument.name] = value
        if call.is_stateful:
            self._used |= {(call.name, value) for value in arguments.values()}
        self._made = (*self._made, (call.name, tuple(arguments.items())))
        return str(self.registry.result(call, arguments)), True

    def expert_action(self) -> Action:
        """Return the next call that reaches the goal, then the answer."""
        for name, arguments in self._goal.calls:
            if (name, arguments) not in self._made:
                return tool_action(name, **dict(arguments))
        return tool_action(ANSWER.name, value=self._goal.answer)

    def mistaken_action(self, rng: Random) -> Action:
        """Return some call with examples of its document, or an early answer."""
        if rng.random() < 0.2:
            return tool_action(ANSWER.name, value=rng.choice(rng.choice(self.registry.values)))
        call = rng.choice(self.registry.calls)
        return tool_action(call.name, **{a.name: rng.choice(a.examples) for a in call.arguments})

    def progress(self) -> float:
        """Return the share of the calls of the goal that were made."""
        return sum(made in self._made for made in self._goal.calls) / max(len(self._goal.calls), 1)

    def snapshot(self) -> State:
        """Return the goal, the calls that were made, and what may not be used again."""
        return self._goal, self._made, self._used

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._goal, self._made, self._used = state

    def state_key(self) -> str:
        """Return the calls that were made, in any order."""
        return repr(sorted(set(self._made)))


def phrase(relation: str, slots: Sequence[str]) -> str:
    """Return what a call finds out, in words: ``the owner of parcel 512 with the sender of order 301``."""
    return f"the {relation} of {' with '.join(slots)}"


def read_goal(data: Mapping[str, Any]) -> Goal:
    """Return the goal that a task brings: ``{"goal": "Find …", "calls": [["zormip", {"x": 512}]], "answer": 301}``.

    Raises:
        UsageError: a part is missing, or is none.
    """
    try:
        calls = tuple((str(name), tuple(dict(arguments).items())) for name, arguments in data["calls"])
        return Goal(str(data["goal"]), calls, int(data["answer"]))
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"api: got the task data {dict(data)!r:.60}; give goal, calls ([name, arguments] each) and answer"
        ) from error
