"""LLM-Agent-UMF: do agents do what the modules that are declared of them say, and is one that is built back the same?

Stacks of the catalogue, with and without a guard, are built from their names and played by a mind that does what each
prompt asks of it. What is looked at is what they do, never what is declared: memory, whether the answer follows a fact
that was told many turns before; planning, whether other words of a plan or a critique make other actions; profile,
whether the first act is another one than that of a bare agent; security, whether a call that a policy forbids reaches
the environment. A violation is an agent of which any module is declared and not seen, or seen and not declared, or
whose transcripts differ, token by token, from those of the agent that is built back from its description. The control
has the same agents with each other's descriptions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from quintain.agents.context import REMEMBER, SUMMARIZE
from quintain.agents.plan import PLANNER
from quintain.agents.rci import ACCEPTED, CRITICISE
from quintain.agents.spec import AgentSpec, Module, describe
from quintain.environments.guarding import guard_spec
from quintain.environments.protocol import Environment
from quintain.environments.tools import tool
from quintain.rollout.request import Limits
from quintain.types import Action, Split, StepResult, Task, Trajectory, derive_seed, flatten_scored
from quintain_evidence.labs.mind import Mind, play_mind

WAITS = 6
"""Turns between the fact and the question."""
POLICY = {"note": [{"effect": "forbid", "when": {"word": {"const": "spy"}}}, {}], "tell": [{}]}
ASKED, FACT = "What is the code?", re.compile(r"The code is (\d+)\.")
ORDER = re.compile(r"note (amber|birch)")
ATTITUDE = re.compile(r"is to turn out (\w+)")
WORDS = ("amber", "birch")
OWN = re.compile(r"<\|assistant\|>.*?<\|end\|>", re.DOTALL)
"""What the mind said itself."""
EVENT = re.compile(r"Begin\.|The code is \d+\.|Wait\.|What is the code\?|refused")
"""What the environment or the guard says."""


class Keep(Environment):
    """Note words while you wait, and tell the code when you are asked for it."""

    name = "keep"
    max_turns = 40

    def task(self, split: Split, index: int) -> Task:
        """Return a task whose seed is the code."""
        return Task(id=f"keep/{split}/{index}", environment=self.name, seed=index, split=split)

    def reset(self, task: Task) -> str:
        """Begin; nothing is told yet."""
        self._code, self._turn = task.seed % 90 + 10, 0
        return "Begin."

    def step(self, action: Action) -> StepResult:
        """Carry out `action`; who notes ``spy`` is seen."""
        result = super().step(action)
        spied = any(call.arguments.get("word") == "spy" for call in action.tool_calls)
        return StepResult(
            observation=result.observation,
            reward=result.reward,
            is_terminated=result.is_terminated,
            is_success=bool(result.is_success),
            is_valid=result.is_valid,
            reward_terms={"spied": 1.0} if spied else {},
        )

    @tool
    def note(self, word: str) -> str:
        """Note a word."""
        self._turn += 1
        if self._turn == 1:
            return f"The code is {self._code}."
        return "Wait." if self._turn <= WAITS else ASKED

    @tool
    def tell(self, code: int) -> str:
        """Tell the code."""
        return self.finish("thanks", reward=float(code == self._code), success=code == self._code)


def say(word: str, prompt: str, draw: int) -> str:
    """Return what the prompt asks for: a memory, a plan with `word`, a critique with it, or an action."""
    shown = re.split(r"<\|(?:system|user|tool)\|>", prompt)[-1]
    facts, events = FACT.findall(prompt), EVENT.findall(OWN.sub("", prompt))
    event = events[-1] if events else ""
    if REMEMBER in shown or SUMMARIZE in shown:
        return f"The code is {facts[-1]}." if facts else "Nothing yet."
    if PLANNER in prompt:
        return f"1. note {word}"
    if CRITICISE in shown:
        drafts = OWN.findall(prompt) or [""]
        return ACCEPTED if '"spy"' in drafts[-1] or '"tell"' in drafts[-1] else f"It should note {word}."
    if event == ASKED:
        return write(prompt, "tell", {"code": int(facts[-1]) if facts else 0})
    orders = ORDER.findall(prompt)
    attitudes = ATTITUDE.findall(prompt)
    if event == "Wait." and '"spy"' not in prompt:
        return write(prompt, "note", {"word": "spy"})
    return write(prompt, "note", {"word": (orders or attitudes or ["plain"])[-1]})


def write(prompt: str, name: str, arguments: Mapping[str, Any]) -> str:
    """Return a call in the form that the prompt asks for."""
    if "Thought: why" in prompt:
        return f"Action: {name}[{json.dumps(arguments)}]"
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def stacks(rng: Random) -> list[str]:
    """Return names of agents, with options drawn."""
    turns, every = rng.randint(0, 2), rng.randint(1, 3)
    inner = rng.choice(("tools", "react"))
    return [
        inner,
        f"window?turns={turns}+{inner}",
        f"memory+{inner}",
        f"summary?every={every}+{inner}",
        f"plan?replan_every={every + 1}+{inner}",
        f"plan+window?turns={turns}+{inner}",
        f"rci+{inner}",
        f"rci+window?turns={turns + 1}+{inner}",
        f"labelled+window?turns={turns}+{inner}",
        f"labelled?label=wrong+{inner}",
    ]


@dataclass(frozen=True, slots=True)
class Seen:
    """An agent: what is declared of it, what is seen of it, and whether it is the same when it is built back."""

    declared: AgentSpec
    modules: frozenset[Module]
    is_same: bool

    def agrees_with(self, declared: AgentSpec) -> bool:
        """Return whether `declared` says what was seen."""
        return self.is_same and declared.list_modules() == self.modules


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return the counts of one block."""
    rng = Random(derive_seed("umf", seed))
    with TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.json"
        policy.write_text(json.dumps(POLICY))
        places = (f"{__name__}:Keep", guard_spec(f"{__name__}:Keep", policy))
        found = [observe(name, place, rng.randrange(1000)) for name in stacks(rng) for place in places]
    order = list(range(len(found)))
    rng.shuffle(order)
    pairs = list(zip(order, [*order[1:], order[0]], strict=True))
    names = [describe(name).list_modules() for name in ("tools", "tools?calls=auto", "window", "window+auto")]
    return [
        {
            "trials": float(len(found)),
            "violations": float(sum(not each.agrees_with(each.declared) for each in found)),
            "control_trials": float(len(pairs)),
            "control_violations": float(sum(not found[a].agrees_with(found[b].declared) for a, b in pairs)),
            "extra.classes": float(len({each.modules for each in found})),
            "extra.names_differ": float(names[0] != names[1]) + float(names[2] != names[3]),
        }
    ]


def observe(name: str, place: str, first: int) -> Seen:
    """Return what is seen of the agent `name` in `place`: what it does with two codes and two words."""
    declared = describe(name, place)
    played = {(k, word): play(name, place, first + k, word) for k in (0, 1) for word in WORDS}
    again = play(declared.name, declared.place, first, WORDS[0])
    one, other = played[0, WORDS[0]], played[0, WORDS[1]]
    modules: set[Module] = set()
    if all(episode.is_success for episode in played.values()):
        modules.add("memory")
    if acts(one) != acts(other):
        modules.add("planning")
    if acts(one)[0] not in ("plain", *WORDS):
        modules.add("profile")
    if any(turn.action.tool_calls and not turn.is_internal for turn in one.turns):
        modules.add("action")
    asked = sum(word == "spy" for word in acts(one))
    assert asked, "the mind tries what is forbidden"
    if not any("spied" in turn.reward_terms for turn in one.turns):
        modules.add("security")
    return Seen(declared, frozenset(modules), tokens(one) == tokens(again))


def play(name: str, place: str, index: int, word: str) -> Trajectory:
    """Return the episode of the mind whose plans say `word`."""
    mind = Mind(partial(say, word))
    with play_mind(mind, place, seed=0, agent=name, limits=Limits(max_turns=30)) as probe:
        (episode,) = flatten_scored(probe.play(probe.tasks(1, first=index)))
    return episode


def acts(episode: Trajectory) -> list[str]:
    """Return the words that were noted, refused ones among them, in order."""
    calls = [call for turn in episode.turns if not turn.is_internal for call in turn.action.tool_calls]
    return [str(call.arguments["word"]) for call in calls if call.name == "note"]


def tokens(episode: Trajectory) -> list[tuple[int, ...]]:
    """Return all that was shown and said, as ids."""
    return [ids for turn in episode.turns for ids in (turn.prompt_ids, turn.completion.token_ids)]
