"""A talk between an agent with tools and a user who may have tools, too: τ-bench (2406.12045), τ² (2506.07982).

The agent reads a policy, calls tools and speaks to the user; the user ends the talk, and never judges it. What counts
is computed then: the databases of agent and user against those that the reference calls lead to, assertions about
them, calls that were to be made, words that were to be said. The reward is the product over the task's basis. A talk
that the user does not end within the turns earns nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol

from quintain.environments.protocol import Environment, as_results, tool_action
from quintain.environments.tools import GraderFault, OwnedFault
from quintain.rewards.execution import basis_reward, is_stated
from quintain.types import NOTHING, UNKNOWN_TOOL, Action, StepResult, Task, ToolError, derive_seed

STOP = "###STOP###"
"""What the user says to end the talk."""
ENDINGS = (STOP, "###TRANSFER###", "###OUT-OF-SCOPE###")
"""What ends a talk: the user is done, was handed on, or has no more to say."""
MAX_USER_CALLS = 12
"""Tools that the user calls before it speaks."""
LEAVES = f"I have no more time for this. {STOP}"
Basis = Literal["database", "assertions", "actions", "outputs"]
By = Literal["agent", "user"]
Line = tuple[Literal["agent", "user", "tool"], str]
"""Who said it, and what; a tool's line is what one of the user's own tools answered, which the agent does not see."""


class UserFault(OwnedFault):
    """Whoever plays the user did not give a usable reply: the episode is a `Failure`, never a score."""

    owner = "engine"

    @classmethod
    def of(cls, kind: str, who: str, got: str) -> "UserFault":
        """Return the fault of the user `who`; `kind` is for counting."""
        fault = cls(f"simulated user at {who}: got {got}; check the endpoint, or use user=scripted")
        fault.kind = f"user_{kind}"
        return fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call of agent or user: ``Call(name="cancel", arguments={"reservation": 12})``."""

    name: str
    arguments: Mapping[str, Any] = NOTHING
    by: By = "agent"
    compared: tuple[str, ...] | None = field(default=None, compare=False)
    """of a reference, the arguments that a call must have in common with it; None: all"""

    def matches(self, made: "Call") -> bool:
        """Whether `made` is the call that this reference asks for."""
        if self.compared is None:
            return self == made
        alike = all(self.arguments.get(name) == made.arguments.get(name) for name in self.compared)
        return (self.name, self.by) == (made.name, made.by) and alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a task is judged by: ``Wanted(basis=("database",), calls=(Call(name="cancel", ...),))``."""

    basis: tuple[Basis, ...]
    calls: tuple[Call, ...] = ()
    """the reference: what leads to the databases that are wanted, and with `actions` what must be called"""
    assertions: tuple[Mapping[str, Any], ...] = ()
    """each as the domain's `holds` takes it"""
    outputs: tuple[str, ...] = ()
    """what the agent must say"""

    def is_idle(self, writes: Callable[[Call], bool]) -> bool:
        """Whether who does nothing and says nothing fulfils it, as far as the task alone shows."""
        asked: dict[Basis, bool] = {
            "database": any(map(writes, self.calls)),
            "assertions": bool(self.assertions),
            "actions": bool(self.calls),
            "outputs": bool(self.outputs),
        }
        return not any(asked[part] for part in self.basis)


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call came to: ``Reply("done")``; a failed one changed nothing."""

    text: str
    failed: bool = False


class Domain(Protocol):
    """The databases of one episode, and what agent and user can do to them."""

    def call(self, call: Call) -> Reply:
        """Carry out `call`, as a whole or not at all."""
        ...

    def writes(self, call: Call) -> bool:
        """Whether calls like this one change a database."""
        ...

    def digests(self) -> tuple[str, ...]:
        """Return the hash of the agent's database and that of the user's, where there is one; changes nothing."""
        ...

    def holds(self, assertion: Mapping[str, Any]) -> bool:
        """Whether `assertion` is true of the databases."""
        ...


class Speaker(Protocol):
    """Who plays the user: what it says depends on the lines alone."""

    def opening(self) -> str:
        """Return what it says first."""
        ...

    def reply(self, lines: Sequence[Line]) -> str | Call:
        """Return what it says to the last line, or the tool of its own that it uses first; an ending ends the talk."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A task that is opened: ``Talk(domain=..., reference=..., wanted=..., user=...)``."""

    domain: Domain
    reference: Domain
    """a second one in the same state, on which the reference calls are tried"""
    wanted: Wanted
    user: Speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """How a user listens: ``Persona(mishears=.2, patience=12)``."""

    mishears: float = 0.0
    """share of messages to which it says again what it said last"""
    patience: int = 0
    """messages of the agent after which it leaves; 0: it stays"""

    def reply(self, lines: Sequence[Line], seed: int, say: Callable[[Sequence[Line]], str]) -> str:
        """Return what it says to the last of `lines`; `say` is asked with the lines that it has understood.

        Two messages in a row are never misheard, so that who asks again is understood.
        """
        number = sum(speaker == "agent" for speaker, _ in lines)
        if self.leaves(lines):
            return LEAVES
        missed = self._find_missed(number, seed)
        if number in missed:
            return next((text for speaker, text in reversed(lines) if speaker == "user"), "Sorry?")
        return say(_without(lines, missed))

    def leaves(self, lines: Sequence[Line]) -> bool:
        """Whether it has heard more messages than it has patience for."""
        return 0 < self.patience < sum(speaker == "agent" for speaker, _ in lines)

    def _find_missed(self, number: int, seed: int) -> set[int]:
        """Return which of the agent's first `number` messages, counted from 1, were misheard."""
        missed: set[int] = set()
        for message in range(1, number + 1):
            chance = derive_seed("mishears", seed, message) % 10_000
            if message - 1 not in missed and chance < 10_000 * self.mishears:
                missed.add(message)
        return missed


def _without(lines: Sequence[Line], missed: set[int]) -> list[Line]:
    """Return `lines` without the agent's messages `missed` and what was said to them."""
    kept: list[Line] = []
    number = 0
    for line in lines:
        number += line[0] == "agent"
        if number not in missed:
            kept.append(line)
    return kept


class Service(Environment):
    """Serve the user as the policy says."""

    is_variant: ClassVar[bool] = True
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "planning", "memory"})
    max_turns = 30
    ending_tools: frozenset[str] = frozenset()
    """tools of the agent that end the talk, such as handing the user on"""
    _talk: Talk | None = None

    def open(self, task: Task) -> Talk:
        """Return the talk that `task` names."""
        raise NotImplementedError(f"{type(self).__name__} must define open(self, task)")

    def reset(self, task: Task) -> str:
        """Open the talk and return what the user says first."""
        self._talk = self.open(task)
        self._calls: list[Call] = []
        self._turn = 0
        said = self._talk.user.opening()
        for ending in ENDINGS:
            said = said.replace(ending, "")
        self._lines: list[Line] = [("user", said.strip())]
        return said.strip()

    def step(self, action: Action) -> StepResult:
        """Carry out tool calls; text without any is said to the user."""
        self._turn += 1
        if action.error is not None:
            result = StepResult(observation=f"Error: {action.error}", is_valid=False)
        elif action.tool_calls:
            result = self._carry_out(action)
            if self.ending_tools.intersection(call.name for call in action.tool_calls):
                return replace(
                    self._grade(""), observation=result.observation, tool_errors=result.tool_errors
                )
        elif not action.text.strip():
            result = StepResult(observation="Error: nothing was said; speak or call a tool.", is_valid=False)
        else:
            return self._speak(action.text.strip())
        return self._cut(result)

    def expert_action(self) -> Action:
        """Return the next reference call, or a request to the user for its own; then what is to be said."""
        talk = self._now
        for call in self._open_calls():
            if call.by == "agent":
                return tool_action(call.name, **call.arguments)
            return Action(text=f"Please use {call.name}.")
        unsaid = [text for text in talk.wanted.outputs if not is_stated(text, self._own_words())]
        return Action(text=" ".join((*(f"{text}." for text in unsaid), "All is done.")))

    @property
    def calls(self) -> tuple[Call, ...]:
        """What agent and user have called in this episode, in order."""
        return tuple(self._calls)

    @property
    def _now(self) -> Talk:
        assert self._talk is not None, "reset comes first"
        return self._talk

    def _open_calls(self) -> list[Call]:
        """Return the reference calls that were not made yet, in order."""
        made = list(self._calls)
        left: list[Call] = []
        for call in self._now.wanted.calls:
            if call in made:
                made.remove(call)
            else:
                left.append(call)
        return left

    def _own_words(self) -> list[str]:
        return [text for speaker, text in self._lines if speaker == "agent"]

    def use(self, tool: str, /, **arguments: Any) -> str:
        """Return what the agent's call comes to, for a tool written as a method."""
        call = Call(name=tool, arguments=arguments)
        reply = self._now.domain.call(call)
        self._calls.append(call)
        return self.failure(reply.text) if reply.failed else reply.text

    def _carry_out(self, action: Action) -> StepResult:
        """Return what the agent's calls come to, where tools are the domain's and no methods."""
        names = {spec.name for spec in self.tools()}
        replies: list[str] = []
        errors: list[ToolError] = []
        for asked in action.tool_calls:
            if asked.name not in names:
                replies.append(
                    f"Error: there is no tool {asked.name[:40]}; tools: {', '.join(sorted(names))}."
                )
                errors.append(ToolError(tool=UNKNOWN_TOOL, cause="invalid_call"))
                continue
            call = Call(name=asked.name, arguments=dict(asked.arguments))
            reply = self._now.domain.call(call)
            self._calls.append(call)
            replies.append(reply.text)
            if reply.failed:
                errors.append(ToolError(tool=asked.name, cause="tool_error"))
        return StepResult(
            observation=as_results(replies),
            is_valid=all(error.cause != "invalid_call" for error in errors),
            tool_errors=tuple(errors),
        )

    def _speak(self, text: str) -> StepResult:
        """Return what the user says to `text`, once it has used the tools that it wants to use."""
        self._lines.append(("agent", text))
        for _ in range(MAX_USER_CALLS):
            said = self._now.user.reply(tuple(self._lines))
            if isinstance(said, str):
                break
            call = replace(said, by="user")
            self._lines.append(("tool", f"{call.name}: {self._now.domain.call(call).text}"))
            self._calls.append(call)
        else:
            raise UserFault.of("loops", self.name, f"{MAX_USER_CALLS} calls of its tools and no word")
        self._lines.append(("user", said))
        return (
            self._grade(said)
            if any(ending in said for ending in ENDINGS)
            else self._cut(StepResult(observation=said))
        )

    def _cut(self, result: StepResult) -> StepResult:
        """Return `result`, or the end of a talk that nobody ended."""
        if self._turn < self.max_turns:
            return result
        told = f"The talk is over: the user did not end it within {self.max_turns} turns."
        return replace(result, observation=told, reward=0.0, is_truncated=True, is_success=False)

    def _grade(self, said: str) -> StepResult:
        """Return the end of the episode with the verdict on it."""
        checks = judge(self._now, self._calls, self._own_words())
        reward = basis_reward(checks)
        return StepResult(
            observation=said,
            reward=reward,
            is_terminated=True,
            is_success=reward > 0,
            reward_terms={part: float(holds) for part, holds in checks.items()},
        )


def judge(talk: Talk, calls: Sequence[Call], said: Sequence[str]) -> dict[str, bool]:
    """Return whether each part of the task's basis holds, after `calls` of both and the agent's words `said`.

    The reference calls are carried out on the talk's reference; the databases of the talk itself stay as they are.

    Raises:
        GraderFault: nothing can be said. A reference call that changes something fails, so that the state that is
            wanted was not reached, and the databases are equal to what was; or an assertion breaks there, too.
    """
    wanted, found = talk.wanted, dict[str, bool]()
    replies = [(call, talk.reference.call(call)) for call in wanted.calls]
    broken = [call.name for call, reply in replies if reply.failed and talk.reference.writes(call)]
    for part in wanted.basis:
        if part == "database":
            found[part] = talk.domain.digests() == talk.reference.digests()
            if found[part] and broken:
                raise GraderFault(
                    f"reference of a task: got the failing call {broken[0]}, so the state that is wanted was not "
                    "reached; leave this task out"
                )
        elif part == "assertions":
            found[part] = all(_holds(talk, assertion) for assertion in wanted.assertions)
        elif part == "actions":
            found[part] = all(any(map(call.matches, calls)) for call in wanted.calls)
        else:
            found[part] = all(is_stated(output, said) for output in wanted.outputs)
    return found


def _holds(talk: Talk, assertion: Mapping[str, Any]) -> bool:
    """Return whether `assertion` holds; one that breaks here, and holds of the reference, does not."""
    try:
        return talk.domain.holds(assertion)
    except GraderFault:
        if not talk.reference.holds(assertion):
            raise
        return False


@dataclass(slots=True)
class Scenario:
    """A user made of the texts of a task, who follows rules: it tells all it knows, then uses the tools it is told to.

    ``Scenario(first="I want ...", facts="I am ...", tools=("toggle_roaming",))``. A stand-in for a language model.
    """

    first: str
    facts: str
    tools: tuple[str, ...] = ()
    known: tuple[Call, ...] = ()
    """calls of its own whose arguments it knows"""
    persona: Persona = field(default_factory=Persona)
    seed: int = 0

    def opening(self) -> str:
        """Return why it calls."""
        return self.first

    def reply(self, lines: Sequence[Line]) -> str | Call:
        """Return the next tool that the agent's last message names, or what there is to say."""
        place = max(number for number, (speaker, _) in enumerate(lines) if speaker == "agent")
        used = [text.partition(":")[0] for speaker, text in lines[place:] if speaker == "tool"]
        asked = lines[place][1].lower()
        found = [name for name in self.tools if name in asked or name.replace("_", " ") in asked]
        named = [name for name in found if not any(name != other and name in other for other in found)]
        if self.persona.leaves(lines):
            return LEAVES
        if unused := [name for name in named if name not in used]:
            return self._call(unused[0], lines)
        if used:
            return " ".join(text for speaker, text in lines[place:] if speaker == "tool")
        return self.persona.reply(lines, self.seed, self._say)

    def _call(self, name: str, lines: Sequence[Line]) -> Call:
        """Return the call of tool `name`, with the arguments of the next that is known."""
        before = sum(speaker == "tool" and text.startswith(f"{name}:") for speaker, text in lines)
        known = [call for call in self.known if call.name == name]
        return known[min(before, len(known) - 1)] if known else Call(name=name, by="user")

    def _say(self, lines: Sequence[Line]) -> str:
        spoken = [text for speaker, text in lines if speaker == "agent"]
        if is_closing(spoken[-1]):
            return f"Thank you. {STOP}"
        if len(spoken) == 1:
            return self.facts or "That is all I know."
        return "That is all I know." if len(spoken) < 6 else f"This leads nowhere. {STOP}"


def is_closing(text: str) -> bool:
    """Whether the agent's message `text` closes the talk."""
    lower = text.lower()
    return any(words in lower for words in ("all is done", "all done", "anything else", "goodbye", "all set"))
