"""Several tasks in one episode: ``session:hopqa?hops=1&tasks=8&repeats=4&advice=0.3`` asks eight questions in a row.

What was found out at the first question may serve at the fourth: an episode has `tasks` questions, of which one comes
`repeats` times and all others once, in an order that its seed draws. A word in front of each says whether it comes more
than once; which of two words that is is drawn once, by `seed`, so that it has to be learned. With `advice` the action
``advice`` lets the environment's expert answer, for so much off the reward: what an agent keeps of that (its memory is
its harness' affair) repays at the questions to come (AGILE, arXiv 2405.14751).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from random import Random
from typing import Any, ClassVar, cast

from quintain.config.spec import fields_of, read_options, split_query
from quintain.environments.protocol import (
    Configurable,
    Corpus,
    CountsTasks,
    Environment,
    Expert,
    Hindsight,
    Legal,
    Proposes,
    RetrievesTools,
    Scripted,
    SimultaneousSeats,
    TakesObjects,
    advance,
    environment_name,
)
from quintain.environments.wrapped import Wrapped
from quintain.errors import UsageError
from quintain.text.parse import write_react
from quintain.types import (
    Action,
    Observation,
    Split,
    StepResult,
    Task,
    ToolCall,
    ToolSpec,
    as_text,
    derive_seed,
)

SESSION = "session:"
"""What a spec begins with that asks for several tasks in an episode."""
ADVICE = "advice"
QUESTION = re.compile(r"^Question \d+ of \d+, (?=\w+\. )", re.MULTILINE)
"""How a question begins, up to the word."""
WORDS = ("amber", "violet")
"""One says that a question comes more than once, the other that it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """How a session is made: ``SessionOptions(tasks=8, repeats=4, advice=0.3)``."""

    tasks: int = 8
    """questions of an episode"""
    repeats: int = 4
    """times that one of them comes; 1: each once"""
    advice: float | None = None
    """what the expert's answer costs; None: there is none to be had"""
    seed: int = 0
    """draws which word says that a question comes again"""
    asks: float = 0.0
    """share of questions that the expert asks advice for where it first sees them, drawn without a look at the word"""

    def __post_init__(self) -> None:
        """Refuse a session that cannot be."""
        if self.tasks < 1 or not 1 <= self.repeats <= self.tasks:
            raise UsageError(
                f"session: got tasks={self.tasks} and repeats={self.repeats}; give tasks of 1 or more and repeats from "
                "1 to as many"
            )
        if self.advice is not None and not 0 <= self.advice <= 1:
            raise UsageError(f"session: got advice={self.advice}; give a price from 0 to 1")
        if not 0 <= self.asks <= (self.advice is not None):
            raise UsageError(
                f"session: got asks={self.asks}, and advice={self.advice}; give a share from 0 to 1, and a price of "
                "advice where it is above 0"
            )


class Session(Wrapped):
    """`inner`, of which an episode plays several tasks: ``Session(Sums(), SessionOptions(tasks=3, repeats=2))``."""

    drops: ClassVar[frozenset[type]] = frozenset(
        {
            Configurable, Corpus, CountsTasks, Hindsight, Proposes, RetrievesTools, Scripted, SimultaneousSeats,
            TakesObjects,
        }
    )  # fmt: skip
    """What speaks of one task, or of what comes before there is one."""
    own: ClassVar[tuple[str, ...]] = ("_tasks", "_again", "_place", "_turns", "_solved")

    def __init__(self, inner: Environment, options: SessionOptions) -> None:
        """Play so many tasks of `inner` in an episode.

        Raises:
            UsageError: advice is to be had of an environment without an expert, or that has such an action itself.
        """
        self.options = options
        self._tasks: list[Task] = []
        self._again: list[bool] = []
        self._place = self._turns = self._solved = 0
        if options.advice is not None and not isinstance(inner, Expert):
            raise UsageError(
                f"session: got advice={options.advice} in {environment_name(inner)}, which has no expert to give it; "
                "leave advice out"
            )
        if options.advice is not None and any(tool.name == ADVICE for tool in inner.tools()):
            raise UsageError(
                f"session: got advice in {environment_name(inner)}, which has a tool of that name itself"
            )
        super().__init__(inner)
        self.name = f"{SESSION}{environment_name(inner)}"
        low, high = inner.return_range
        self.return_range = (
            min(low, 0.0) * options.tasks - (options.advice or 0) * options.tasks,
            high * options.tasks,
        )

    def count_turns(self) -> int:
        """Return the turns of all questions."""
        return self.inner.max_turns * self.options.tasks

    def task(self, split: Split, index: int) -> Task:
        """Return session number `index` of `split`, whose questions no other session has."""
        distinct = self.options.tasks - self.options.repeats + 1
        seed = derive_seed(self.name, split, index) >> 1 << 1 | (split == "eval")
        return Task(
            id=f"{self.name}/{split}/{index}",
            environment=self.name,
            seed=seed,
            split=split,
            data={"first": index * distinct},
            tags=type(self.inner).tags,
        )

    def reset(self, task: Task) -> Observation:
        """Begin the first question."""
        options = self.options
        first = task.data.get("first")
        if not isinstance(first, int):
            raise UsageError(
                f"session: got the task {task.id}, which is none of a session; take those of task()"
            )
        distinct = options.tasks - options.repeats + 1
        places = [0] * options.repeats + list(range(1, distinct))
        Random(derive_seed("session", task.seed)).shuffle(places)
        self._tasks = [self.inner.task(task.split, first + place) for place in places]
        self._again = [place == 0 and options.repeats > 1 for place in places]
        self._place = self._solved = 0
        return self._begin()

    def step(self, action: Action) -> StepResult:
        """Carry out `action` at the question, or let the expert answer it; what comes next begins at once."""
        if self.options.advice is not None and is_advice(action):
            return self._end(self._advise())
        result = advance(self.inner, action)
        self._turns += 1
        if not result.is_terminated and not result.is_truncated and self._turns < self.inner.max_turns:
            return result
        return self._end(result)

    def instructions(self) -> str:
        """Return the instructions of the environment, and how a session goes."""
        said = f"You get {self.options.tasks} questions, one after the other; some come more than once."
        if self.options.advice is not None:
            said += f" Say {ADVICE} to have one answered for you, which costs {self.options.advice:g}."
        return f"{self.inner.instructions()} {said}".strip()

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the environment, and that which asks for advice."""
        own = self.inner.tools()
        if self.options.advice is None or not own:
            return own
        empty = {"type": "object", "properties": {}, "additionalProperties": False}
        return (
            *own,
            ToolSpec(name=ADVICE, description="Have the question answered for you.", parameters=empty),
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return what is legal at the question, and advice."""
        own = tuple(cast(Legal, self.inner).legal_actions())
        return (*own, ADVICE) if self.options.advice is not None and own else own

    def expert_action(self) -> Action:
        """Ask for advice where that is drawn and the question is new; else act as the expert at the question."""
        place = self._place
        is_new = self._turns == 0 and not (self._again[place] and any(self._again[:place]))
        draw = Random(derive_seed("asks", self._tasks[place].seed, self.options.seed)).random()
        if is_new and draw < self.options.asks:
            has_tools = bool(self.inner.tools())
            return (
                Action(tool_calls=(ToolCall(name=ADVICE, arguments={}),))
                if has_tools
                else Action(text=ADVICE)
            )
        return cast(Expert, self.inner).expert_action()

    def state_key(self) -> str:
        """Return the state of the question, and which it is."""
        return f"{self._place} {cast(Any, self.inner).state_key()}"

    def _begin(self) -> str:
        """Return what the question shows as it begins."""
        self._turns = 0
        shown = as_text(self.begin_inner(self._tasks[self._place]))
        word = WORDS[self._again[self._place] ^ (derive_seed("words", self.options.seed) & 1)]
        return f"Question {self._place + 1} of {len(self._tasks)}, {word}. {shown}"

    def _advise(self) -> StepResult:
        """Let the expert go on to the end of the question; return what came of it."""
        said, reward, last = list[str](), 0.0, StepResult(observation="")
        while not last.is_over and self._turns < self.inner.max_turns:
            action = cast(Expert, self.inner).expert_action()
            last = advance(self.inner, action)
            said.append(write_react(action) if action.tool_calls else action.text)
            reward, self._turns = reward + last.reward, self._turns + 1
        cost = self.options.advice or 0.0
        return replace(
            last,
            observation=f"{ADVICE}: {'; '.join(said)}. {as_text(last.observation)}".strip(),
            reward=reward - cost,
            reward_terms={"answers": reward, ADVICE: -cost},
        )

    def _end(self, result: StepResult) -> StepResult:
        """Return `result`, the last of a question, with the next question; after the last one all is over."""
        self._solved += bool(result.is_success)
        self._place += 1
        if self._place < len(self._tasks):
            told = f"{as_text(result.observation)}\n{self._begin()}".strip()
            return replace(result, observation=told, is_terminated=False, is_truncated=False, is_success=None)
        return replace(
            result, is_terminated=True, is_truncated=False, is_success=self._solved == len(self._tasks)
        )


def split_question(shown: str) -> tuple[str, str]:
    """Return what `shown` says before the question that begins in it, and the question from its word on.

    Where none begins the question is empty.
    """
    found = QUESTION.search(shown)
    return (shown, "") if found is None else (shown[: found.start()].strip(), shown[found.end() :].strip())


def is_advice(action: Action) -> bool:
    """Return whether `action` asks for advice: the word, or a call of that name alone."""
    if action.tool_calls:
        return [call.name for call in action.tool_calls] == [ADVICE]
    return action.text.strip() == ADVICE


def split_session(spec: str) -> tuple[str, SessionOptions]:
    """Return the environment and the options of ``session:ENV?tasks=8&repeats=4``; other options are the environment's.

    Raises:
        UsageError: an option has a value that it cannot have.
    """
    place, _, query = spec.removeprefix(SESSION).partition("?")
    known = fields_of(SessionOptions)
    pairs = split_query(query, repr(spec))
    own = [pair for pair in pairs if pair[0] in known]
    rest = "&".join(f"{name}={value}" for name, value in pairs if name not in known)
    return f"{place}?{rest}" if rest else place, SessionOptions(**read_options(own, known, repr(spec)))
