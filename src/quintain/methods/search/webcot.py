"""WebCoT (arXiv 2505.20013): imitates a search, with a thought in front of each step that says what was tried and why.

L = -Σ_t w_t log π(thought_t, action_t | before t), w_t = 0 on actions of branches that were left, else 1.

The search is that of an agent who goes back (`quintain.agents.rollback`): a run of one that `demonstrations` names, or
the environment's expert through it. Each search is carried out again, and becomes an episode of an agent who cannot
search: where a state was left stands the environment's own ``back`` or ``back K``, and in front of every action a
thought with the three skills of the paper:

- reflection: what the critique said of this state;
- branching: what was tried from here before, and why it was left;
- rollback: why it goes back, where to, and all that was tried from there.

A step in which nothing was left and nothing said has no thought, so that a search that never branches is flat data. A
thought is a template's, or with `by` a model's behind a chat endpoint. What it says was seen: a model's thought with a
word that only comes later in the search is replaced by the template's, and counted.

Differences to the paper: branches are steps that were taken and left, not candidates that a value model scored; what an
action would lead to is said after it was seen, never imagined. Measured on `web` with an expert who looks everywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from quintain.agents.catalog import check as check_agent
from quintain.agents.deliberation import describe_action
from quintain.agents.rollback import BACK, GO_BACK, LEFT, RollbackWorld
from quintain.data.pipeline import Pipeline, PipelineResult, Stage, name_of, remade, weigh_turns
from quintain.data.searched import split_head
from quintain.engines.rationale import Rationalist
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Factory, Legal, advance, begin
from quintain.environments.recorded import RecordedAction
from quintain.errors import ConfigError, DataError
from quintain.learning.train_config import ImitationConfig
from quintain.methods.imitation.supervised import choose_trajectories, imitate_data
from quintain.methods.loops.offline import Offline
from quintain.methods.method import Collector
from quintain.text.parse import write_react
from quintain.types import Action, Example, Message, Trajectory, as_content, as_text

WORD = re.compile(r"\w+")
BARE = frozenset({"", "good", "good."})
"""Critiques that say no reason: nothing is reflected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ImitationConfig):
    """Configuration of WebCoT."""

    environment: str = "web?labels=vague&goal=open"
    agent: str = "react"
    eval_every: int = 50
    search: str = "rollback"
    """What the agent was wrapped in when it searched, with its options."""
    by: str = ""
    """Address of a model that writes the thoughts, http://…/v1?model=NAME; empty: a template."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have, and a `UsageError` for an address that is none."""
        ImitationConfig.check(self)
        if self.demonstrations == 0:
            raise ConfigError(
                "demonstrations: got 0, which leaves no search to imitate; give 1 or more, or a run"
            )
        if check_agent(f"{self.search}+{self.agent}")[0].name != "rollback":
            raise ConfigError(
                f"search: got {self.search!r}, which says of no state that it is gone back to; give rollback"
            )
        if self.by:
            Rationalist(self.by, asked="by")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """A step of a search: ``SearchStep(action=Action(text="back"), tried="click a: bad", target="home")``."""

    action: Action
    """as an agent takes it who cannot search"""
    critique: str = ""
    """what was said of the state before it"""
    tried: str = ""
    """what was left from here; of a step back, from where it leads"""
    target: str = ""
    """of a step back, what is seen where it leads"""
    is_kept: bool = True
    """whether it is on the way that was found, or goes back to it"""
    seen: frozenset[str] = frozenset()
    """words of the task, of what was seen and done up to here, and of what was said of it"""

    @property
    def thought(self) -> str:
        """What the template says in front of the action; empty where there is nothing to say."""
        parts = [f"I tried {self.tried}."] if self.tried and not self.target else []
        parts += [] if self.critique.lower() in BARE else [f"This state is {self.critique}."]
        parts += [f"I go back to {self.target}, from where I tried {self.tried}."] if self.target else []
        return " ".join(parts)

    @property
    def skills(self) -> list[str]:
        """Which of the three skills its thought has."""
        found = [] if self.critique.lower() in BARE else ["reflection"]
        return [*found, *["branching"] * bool(self.tried), *["rollback"] * bool(self.target)]


def retrace_search(trajectory: Trajectory, make: Factory) -> list[SearchStep]:
    """Return the steps of a search, carried out again in a new environment; nothing where it does not repeat.

    Raises:
        DataError: it goes back where the environment has no action for that.
    """
    steps, critique = list[SearchStep](), ""
    led: dict[int, int] = {}  # state → number of the step that led there
    with closing(make()) as inner:
        world = RollbackWorld(inner)
        observation, is_solved = begin(world, trajectory.task), False
        words = set(WORD.findall(trajectory.task.prompt.lower()))
        for turn in trajectory.turns:
            if turn.is_internal:
                critique = turn.action.text if turn.has_role("critique") else critique
                continue
            _, numbers, shown = split_head(observation)
            states = numbers or (0,)
            page, _, tried = as_text(shown).partition(LEFT)
            match = GO_BACK.fullmatch(turn.action.text)
            words |= set(WORD.findall(f"{page} {tried} {critique} {describe_action(turn.action)}".lower()))
            action, target = (turn.action, "") if match is None else find_back(world, inner, int(match[1]))
            result = advance(world, turn.action)
            observation = result.observation
            _, after, then = split_head(observation)
            here = after[-1] if after else -1
            if after and here < states[-1]:  # numbers rise: all that came after is left
                gone = [each for state, each in led.items() if state > here]
                steps = [
                    replace(step, is_kept=step.is_kept and k not in gone) for k, step in enumerate(steps)
                ]
                tried = as_text(then).partition(LEFT)[2]
            elif here > states[-1]:
                led[here] = len(steps)
            said = critique.strip().rstrip(".")
            steps.append(
                SearchStep(
                    action=action, critique=said, tried=tried.strip(), target=target, seen=frozenset(words)
                )
            )
            critique, is_solved = "", bool(result.is_success)
            if result.is_over:
                break
    return steps if is_solved else []


def find_back(world: RollbackWorld, inner: Environment, number: int) -> tuple[Action, str]:
    """Return the environment's own action that goes back to the state `number`, and what is seen there.

    Raises:
        DataError: it has none.
    """
    legal = inner.legal_actions() if isinstance(inner, Legal) else ()
    depth = sum(BACK.fullmatch(each) is not None for each in legal)
    target = next((each for each in world.list_offered() if each.number == number), None)
    if target is None or depth <= target.depth:
        raise DataError(
            f"webcot in {world.name}: got a search that goes back to state {number}, and no legal action that does; "
            "take an environment with the actions back and back NUMBER"
        )
    steps = depth - target.depth
    label = as_text(target.observation).rpartition("Task: ")[2].rpartition(". ")[2].partition(":")[0]
    return Action(text="back" if steps == 1 else f"back {steps}"), label.strip()


def write_thoughts(steps: Sequence[SearchStep], task: str, by: str, counts: Counter[str]) -> list[str]:
    """Return what stands in front of each of `steps`: the template's thought, or that of a model, if it was seen."""
    found = [step.thought for step in steps]
    if not by:
        return found
    places = [place for place, thought in enumerate(found) if thought]
    acts = [describe_action(step.action) for step in steps]
    told = [
        {"task": task, "so far": acts[:place], "known": found[place], "right action": acts[place]}
        for place in places
    ]
    every = frozenset[str]().union(*(step.seen for step in steps))
    for place, said in zip(places, Rationalist(by, asked="by of webcot").thoughts(told), strict=True):
        if find_leaks(said, steps[place].seen, every) or not said:
            counts["leaks"] += 1
        else:
            found[place] = " ".join(said.split())
    return found


def find_leaks(thought: str, seen: frozenset[str], every: frozenset[str]) -> list[str]:
    """Return the words of `thought` that come later in the search, `every` word of which is known, and not before."""
    return [word for word in WORD.findall(thought.lower()) if word in every and word not in seen]


def record_step(step: SearchStep, thought: str) -> RecordedAction:
    """Return the action of `step` with the answer that it is imitated as."""
    action = step.action
    text = thought if action.tool_calls else write_react(action, thought)
    message = Message(role="assistant", content=as_content(text), tool_calls=action.tool_calls)
    return RecordedAction(text=action.text, tool_calls=action.tool_calls, message=message)


def explain_searches(config: Config, collector: Collector, counts: Counter[str]) -> PipelineResult:
    """Return the searches that `config` names as episodes with thoughts; of each task the first that was solved.

    Raises:
        DataError: none is left, or the harness reads thoughts as actions.
    """
    counts.clear()
    make, found = find(config.environment), dict[str, tuple[Trajectory, list[SearchStep]]]()
    searched = collector.demonstrations(agent=f"{config.search}+{config.agent}")
    for trajectory in searched:
        if trajectory.is_success and trajectory.task.id not in found:
            steps = retrace_search(trajectory, make)
            counts["unrepeatable"] += not steps
            if steps:
                found[trajectory.task.id] = trajectory, steps
    acts: dict[str, Sequence[Action]] = {}
    for name, (trajectory, steps) in found.items():
        thoughts = write_thoughts(steps, trajectory.task.prompt, config.by, counts)
        acts[name] = [record_step(*each) for each in zip(steps, thoughts, strict=True)]
        counts.update(skill for step in steps for skill in step.skills if step.is_kept)
        counts["left"] += sum(not step.is_kept for step in steps)
    told = collector.expert_episodes([t.task for t, _ in found.values()], by=acts) if found else []
    what = f"imitating {len(searched)} searches by {config.search}+{config.agent}"
    return choose_trajectories(
        told, Pipeline(weigh_steps({name: steps for name, (_, steps) in found.items()})), what,
        {"weighed": "take the agent react or tools, which write thoughts, and searches that repeat"},
    )  # fmt: skip


def weigh_steps(found: Mapping[str, Sequence[SearchStep]]) -> Stage:
    """Return the stage that leaves actions of branches that were left without weight."""

    def make(example: Example) -> Iterable[Example]:
        steps, turns = found[example.trajectory.task.id], example.trajectory.turns
        same = [turn.action.text == step.action.text for turn, step in zip(turns, steps, strict=False)]
        if example.trajectory.is_success and len(turns) == len(steps) and all(same):
            weights = [float(step.is_kept) for step in steps]
            yield weigh_turns(
                Example(trajectory=example.trajectory, sources=(name_of(example.trajectory),)), weights
            )

    return remade("weighed", "does not repeat behind its thoughts", make)


def method(config: Config) -> Offline:
    """Return WebCoT as `config` describes it."""
    counts = Counter[str]()

    def measure(_: Any) -> Mapping[str, float]:
        names = ("reflection", "branching", "rollback", "left", "leaks", "unrepeatable")
        return {f"webcot/{name}": float(counts[name]) for name in names}

    def explain(collector: Collector) -> PipelineResult:
        return explain_searches(config, collector, counts)

    return imitate_data(config, explain, batch_size=config.batch_size, metrics=measure)
