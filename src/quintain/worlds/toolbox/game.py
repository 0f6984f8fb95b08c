"""Tools that nobody knows: each takes one kind of value, and where that is not told, its error tells it.

Families it stands for: calls of tools out of large and badly described collections (ToolBench, LAM Simulator). A tool's
name is drawn for its task. What was asked for is right only if a tool told it, not by luck; any tool that tells it will
do, also one that the question does not name. A tool that does not answer is no mistake of whoever called it.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, NamedTuple

from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, derive_seed

KINDS = {
    "number": ("3", "5", "7", "8"),
    "color": ("red", "blue", "green", "white"),
    "city": ("oslo", "rome", "lima", "cairo"),
    "animal": ("cat", "dog", "owl", "fox"),
}
"""What a value can be, and the values."""
NAMES = ("zor", "mip", "tak", "luv", "bex", "nid", "gop", "fen")
MAX_STEPS = 3


class Tool(NamedTuple):
    """A tool: ``Tool(name="zor", kind="color", is_told=False, answer=4)``."""

    name: str
    kind: str
    """what it takes"""
    is_told: bool
    """whether its line says so"""
    answer: int
    """what it tells"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kit:
    """A task: what is known, which tools there are, and what is asked for."""

    known: tuple[tuple[str, str], ...]
    """(kind, value)"""
    tools: tuple[Tool, ...]
    asked: tuple[str, ...]
    """names of the tools whose answers are asked for, in order"""

    def tool(self, name: str) -> Tool | None:
        """Return the tool that is called `name`, None where there is none."""
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What the tools said so far: ``Heard(answers=frozenset({4}), errors=frozenset({"zor"}), turn=2)``."""

    answers: frozenset[int] = frozenset()
    errors: frozenset[str] = frozenset()
    """tools that have said what they take"""
    turn: int = 0


State = tuple[Kit, Heard, int]


class Toolbox(Environment):
    """Call tools with what is known, and report what they tell.

    Act: call TOOL VALUE, or answer NUMBERS.
    """

    name = "toolbox"
    tags: ClassVar[frozenset[str]] = frozenset({"tools", "reasoning"})

    def __init__(
        self,
        *,
        steps: int = 2,
        tools: int = 3,
        kinds: int = 3,
        vague: float = 0.5,
        twins: int = 0,
        failures: float = 0.0,
    ) -> None:
        """Ask for the answers of `steps` of `tools` tools, which take values of `kinds` kinds.

        The lines of a share `vague` of the tools do not say what they take. The last `twins` tools tell the same as
        those that are asked for. A call fails for no reason at the rate `failures`.

        Raises:
            UsageError: there are no such tasks.
        """
        if not (1 <= steps <= MAX_STEPS and steps + twins <= tools <= len(NAMES)):
            raise UsageError(
                f"toolbox: got steps={steps}, tools={tools}, twins={twins}; give 1 to {MAX_STEPS} steps and as many "
                f"tools as steps and twins, up to {len(NAMES)}"
            )
        if not (2 <= kinds <= len(KINDS) and 0 <= twins <= steps and 0 <= vague <= 1 and 0 <= failures < 1):
            raise UsageError(
                f"toolbox: got kinds={kinds}, twins={twins}, vague={vague}, failures={failures}; give 2 to "
                f"{len(KINDS)} kinds, at most as many twins as steps, vague from 0 to 1 and failures below 1"
            )
        self._shape, self._vague, self._failures = (steps, tools, kinds, twins), vague, failures
        self.max_turns = 3 * (steps + 1)
        self._kit = Kit(known=(), tools=(), asked=())
        self._heard, self._seed = Heard(), 0

    def reset(self, task: Task) -> str:
        """Lay out the tools."""
        self._kit = split_draw(task, self._draw)
        self._heard, self._seed = Heard(), task.seed
        kit = self._kit
        known = ", ".join(f"{kind} {value}" for kind, value in kit.known)
        lines = ", ".join(f"{t.name} takes a {t.kind if t.is_told else 'value'}" for t in kit.tools)
        return f"Report {' and '.join(kit.asked)}. Known: {known}. Tools: {lines}."

    def _draw(self, rng: Random) -> Kit:
        """Return the kit of a task; what the asked tools tell differs."""
        steps, num, num_kinds, twins = self._shape
        kinds = rng.sample(sorted(KINDS), num_kinds)
        names, answers = rng.sample(NAMES, num), rng.sample(range(10), num - twins)
        made = [
            Tool(name, rng.choice(kinds), rng.random() >= self._vague, answer)
            for name, answer in zip(names, [*answers, *answers[:twins]], strict=True)
        ]
        return Kit(
            known=tuple((kind, rng.choice(KINDS[kind])) for kind in kinds),
            tools=tuple(rng.sample(made, num)),
            asked=tuple(names[:steps]),
        )

    def step(self, action: Action) -> StepResult:
        """Take a call or the answer."""
        self._heard = replace(self._heard, turn=self._heard.turn + 1)
        verb, _, rest = " ".join(action.text.lower().split()).partition(" ")
        if action.error is not None or verb not in ("call", "answer"):
            said = action.error or "write call TOOL VALUE, or answer NUMBERS"
            return StepResult(observation=f"Error: {said}.", is_valid=False)
        return self._report(rest) if verb == "answer" else self._call(rest)

    def _call(self, rest: str) -> StepResult:
        """Call a tool."""
        name, _, value = rest.partition(" ")
        tool = self._kit.tool(name)
        if tool is None:
            there = ", ".join(each.name for each in self._kit.tools)
            return StepResult(observation=f"Error: there is {there}.", is_valid=False)
        if (tool.kind, value) not in self._kit.known:
            self._heard = replace(self._heard, errors=self._heard.errors | {name})
            return StepResult(observation=f"Error: {name} takes a {tool.kind}.", is_valid=False)
        if derive_seed("failure", self._seed, self._heard.turn) % 10_000 < 10_000 * self._failures:
            return StepResult(observation=f"{name} did not answer.")
        self._heard = replace(self._heard, answers=self._heard.answers | {tool.answer})
        return StepResult(observation=f"{name} says {tool.answer}.")

    def _report(self, rest: str) -> StepResult:
        """Take the answer; what no tool told is not right, whatever it is."""
        wanted = self._find_wanted()
        is_right = rest.split() == [str(number) for number in wanted]
        is_known = self._heard.answers.issuperset(wanted)
        said = "Done." if is_right and is_known else "Nobody told you." if is_right else "Wrong."
        is_success = is_right and is_known
        return StepResult(
            observation=said, reward=float(is_success), is_terminated=True, is_success=is_success
        )

    def _find_wanted(self) -> list[int]:
        """Return what is to be reported."""
        answers = {tool.name: tool.answer for tool in self._kit.tools}
        return [answers[name] for name in self._kit.asked]

    def progress(self) -> float:
        """Return the share of what is asked for that the tools told."""
        wanted = self._find_wanted()
        return sum(number in self._heard.answers for number in wanted) / len(wanted)

    def expert_action(self) -> Action:
        """Return the next call; where nobody said what a tool takes, of what is known the first."""
        for name, number in zip(self._kit.asked, self._find_wanted(), strict=True):
            if number not in self._heard.answers:
                tool, values = self._kit.tool(name), dict(self._kit.known)
                assert tool is not None, "what is asked for is there"
                is_known = tool.is_told or name in self._heard.errors
                return Action(text=f"call {name} {values[tool.kind] if is_known else self._kit.known[0][1]}")
        return Action(text=f"answer {' '.join(map(str, self._find_wanted()))}")

    def mistaken_action(self, rng: Random) -> Action:
        """Return a call of some tool with some value."""
        return Action(text=f"call {rng.choice(self._kit.tools).name} {rng.choice(self._kit.known)[1]}")

    def snapshot(self) -> State:
        """Return the kit and what was heard."""
        return self._kit, self._heard, self._seed

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._kit, self._heard, self._seed = state

    def state_key(self) -> str:
        """Return the kit and what was heard of it."""
        return f"{self._kit} {sorted(self._heard.answers)} {sorted(self._heard.errors)} {self._heard.turn}"
