"""PoAct: do two controllers spare tokens by choosing at the right time, or by what they choose alone?

Tasks of four parts, each told once the one before is answered: a burst of sums, then a look-up of which nothing says
that it is one, and so on, among 100 tools that solve nothing. A mind knows what the words of a problem want, and none
of the tools: it calls what a line in front of it describes, and where none does it says so. It misspells an argument in
a tenth of its drafts. In the control the same choices of both controllers are permuted within the episode: as many
plans, thoughts and pieces of code, the last one code, and the same lists of functions, dealt out over the pieces of
code; when they are used up they are dealt out anew. The rival is code that has every function in its prompt from the
start. In the null world there are no other tools, so that every list holds all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from quintain.agents.code import CodeAct
from quintain.agents.poact import QUESTIONS, REFUSED, PoAct, PoActSession, Policy
from quintain.agents.protocol import Agent, Brief
from quintain.memory.bank import Entry
from quintain.types import Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.mind import Mind, play_mind, require_blindfold

AGENT, ALL = "poact+code", "code"
PROBLEM = re.compile(r"Compute: ([^.]*)\.")
LINE = re.compile(r"(?m)^(\w+)\(.*?\): (.+)$")
WANTED: Mapping[str, str] = {
    "add": "Return a plus b",
    "subtract": "Return a minus b",
    "multiply": "Return a times b",
    "lookup": "Return the price of a name",
    "answer": "Give the answer",
}
"""what is wanted → how the tool that does it is described"""
WORDS: Mapping[str, str] = {
    "add": "add numbers",
    "subtract": "subtract numbers",
    "multiply": "multiply numbers",
    "lookup": "look up the price of a name",
    "answer": "give the answer",
}
"""what is wanted, in the mind's words"""


def say(prompt: str, draw: int) -> str:
    """Return a plan, a thought or code of who reads the problem in `prompt`."""
    found = PROBLEM.findall(prompt)
    asked = prompt.removesuffix("<|assistant|>").rpartition("<|assistant|>")[2]
    wants = find_wanted(found[-1]) if found else []
    if QUESTIONS["plan"] in asked:
        return f"Then: {', '.join(WORDS[each] for each in wants)}; and so on with what is told after it."
    if QUESTIONS["thought"] in asked:
        return f"Next: {', '.join(WORDS[each] for each in wants)}."
    listed = asked if LINE.search(asked) else prompt
    named = {line.rstrip("."): name for name, line in LINE.findall(listed)}
    missing = [each for each in wants if WANTED[each] not in named]
    if missing or not found:
        return f"```python\nprint('no function for this: {', '.join(missing)}')\n```"
    names = {each: named[WANTED[each]] for each in wants}
    errs = REFUSED not in asked and Random(draw).random() < 0.1
    return f"```python\n{write(found[-1], names, answer='nubmer' if errs else 'number')}\n```"


def find_wanted(problem: str) -> list[str]:
    """Return what ``12, add 4, add 7`` or ``fig`` wants, the answer last."""
    first, *rest = (part.strip() for part in problem.split(","))
    return [*dict.fromkeys(["lookup"] * first.isalpha() + [part.split()[0] for part in rest]), "answer"]


def write(problem: str, names: Mapping[str, str], *, answer: str) -> str:
    """Return code that works the problem off by the functions that `names` has for it."""
    first, *rest = (part.strip() for part in problem.split(","))
    lines = [f"value = {names['lookup']}({first!r})[2:]" if first.isalpha() else f"value = {first}"]
    for part in rest:
        name, _, term = part.partition(" ")
        lines.append(f"value = {names[name]}(int(value), {term})[2:]")
    return "\n".join((*lines, f"print({names['answer']}({answer}=int(value)))"))


@dataclass(frozen=True, slots=True)
class Recorded(PoAct):
    """PoAct, of which every choice of an episode is noted by its task."""

    policies: dict[str, list[Policy]] = field(default_factory=dict[str, "list[Policy]"])
    lists: dict[str, list[tuple[Entry, ...]]] = field(default_factory=dict[str, "list[tuple[Entry, ...]]"])

    def open(self, brief: Brief) -> PoActSession:
        """Note the choices of a new episode."""
        return RecordedSession(self, brief)


class RecordedSession(PoActSession):
    """An episode whose choices are noted."""

    def __init__(self, settings: Recorded, brief: Brief) -> None:
        super().__init__(settings, brief)
        self.policies = settings.policies.setdefault(brief.task.id, [])
        self.lists = settings.lists.setdefault(brief.task.id, [])

    def next_policy(self) -> Policy:
        """Choose, and note it."""
        self.policies.append(super().next_policy())
        return self.policies[-1]

    def next_functions(self) -> tuple[Entry, ...]:
        """Choose, and note it unless it is for a draft that was refused."""
        found = super().next_functions()
        if not self._refusals:
            self.lists.append(found)
        return found


class PermutedSession(PoActSession):
    """An episode with the choices that were noted of its task, permuted; a refused draft keeps its list."""

    def __init__(self, settings: PoAct, brief: Brief, known: Recorded) -> None:
        super().__init__(settings, brief)
        self._random = Random(derive_seed("permuted", brief.task.id))
        self._known = known.policies[brief.task.id], known.lists[brief.task.id]
        self._left: tuple[list[Policy], list[tuple[Entry, ...]]] = [], []

    def next_policy(self) -> Policy:
        """Return the next of the permuted choices, of which the last one is code."""
        if not self._left[0]:
            *rest, last = self._known[0]
            assert last == "code", "an episode ends with code"
            self._left = [*self._random.sample(rest, len(rest)), last], self._left[1]
        return self._left[0].pop(0)

    def next_functions(self) -> tuple[Entry, ...]:
        """Return the next of the permuted lists."""
        if self._refusals:
            return self._listed
        if not self._left[1]:
            self._left[1].extend(self._random.sample(self._known[1], len(self._known[1])))
        return self._left[1].pop(0)


class RandomSession(PoActSession):
    """An episode in which as many functions are listed, drawn at random."""

    def next_functions(self) -> tuple[Entry, ...]:
        """Draw functions."""
        seed = derive_seed("random", self._brief.task.id, len(self._said), " ".join(self._said))
        count = min(self._settings.functions, len(self._entries))
        return tuple(Random(seed).sample(self._entries, count))


@dataclass(frozen=True, slots=True)
class Swapped(PoAct):
    """PoAct with other controllers: ``Swapped(agent, chat, session=RandomSession)``."""

    session: Callable[[PoAct, Brief], PoActSession] = PoActSession

    def open(self, brief: Brief) -> PoActSession:
        """Open an episode of the other controllers."""
        return self.session(self, brief)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return log tokens for each of `seeds` tasks: PoAct, its choices permuted, all functions, functions at random."""
    count, mind = int(options["seeds"]), Mind(say)
    world, null = str(options["world"]), str(options["null"])
    require_blindfold(mind, world, seed=seed, agent=AGENT, num=20)
    arms = play_arms(mind, world, count, seed)
    whole = play(mind, world, count, seed, lambda agent: replace(agent, functions=1_000))
    drawn = play(mind, world, count, seed, lambda agent: swap(agent, RandomSession))
    with play_mind(mind, world, seed=seed, agent=ALL, max_tokens=4_000) as probe:
        listed = [*flatten_scored(probe.play(probe.tasks(count)))]
    others = {"listed": listed, "whole": whole, "random": drawn}
    played = {**arms, **{f"null_{name}": found for name, found in play_arms(mind, null, count, seed).items()}}
    return [
        {name: float(np.log(count_tokens(found[k]))) for name, found in played.items()}
        | {f"extra.{name}": float(np.log(count_tokens(found[k]))) for name, found in others.items()}
        | {f"extra.solved_{name}": float(found[k].is_success) for name, found in {**played, **others}.items()}
        | {
            "extra.share_of_whole": count_tokens(arms["method"][k]) / count_tokens(whole[k]),
            "extra.steps": float(sum(not turn.is_internal for turn in arms["method"][k].turns)),
            "extra.refused": float(
                sum(t.is_internal and t.seat.endswith("/code") for t in arms["method"][k].turns)
            ),
        }
        for k in range(count)
    ]


def play_arms(mind: Mind, world: str, count: int, seed: int) -> dict[str, list[Trajectory]]:
    """Return episodes of PoAct, and of its choices permuted."""
    known: list[Recorded] = []

    def record(agent: PoAct) -> PoAct:
        known.append(Recorded(agent.agent, agent.chat))
        return known[0]

    method = play(mind, world, count, seed, record)
    control = play(
        mind,
        world,
        count,
        seed,
        lambda agent: swap(agent, lambda settings, brief: PermutedSession(settings, brief, known[0])),
    )
    return {"method": method, "control": control}


def swap(agent: PoAct, session: Callable[[PoAct, Brief], PoActSession]) -> PoAct:
    """Return `agent` with other controllers."""
    return Swapped(agent.agent, agent.chat, session=session)


def play(mind: Mind, world: str, count: int, seed: int, change: Callable[[PoAct], PoAct]) -> list[Trajectory]:
    """Return an episode of `mind` on each of `count` held-out tasks, by what `change` makes of PoAct."""

    def change_poact(agent: Agent) -> Agent:
        assert isinstance(agent, PoAct) and isinstance(agent.agent, CodeAct)
        return change(agent)

    with play_mind(mind, world, seed=seed, agent=AGENT, max_tokens=4_000) as probe:
        return [*flatten_scored(probe.play(probe.tasks(count), change=change_poact))]


def count_tokens(trajectory: Trajectory) -> int:
    """Return the tokens that the model sees or writes, each once."""
    return sum(len(turn.prompt_ids) + len(turn.completion.token_ids) for turn in trajectory.turns)
