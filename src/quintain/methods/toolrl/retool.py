"""ReTool (arXiv 2504.11536): imitates reasoning rewritten to code, then learns by PPO from outcomes.

R = 1 if right else -1.

A trace of words derives the answer in the head, a line for each thing that is worked out ("add 3 4 = 7"). It is
rewritten: every such line becomes a call, whose result the interpreter tells, and the answer stays what the words said.
Kept is a trace whose calls all ran, whose every result is used later in it, and whose answer is right. The policy
imitates these, then calls and answers are learned together by the outcome alone: nothing is paid for code that ran.
What the interpreter tells is never trained on, and the critic reads the policy's own tokens.

Differences to the paper: traces are of a scripted author, the environment's expert who does sums in the head and
slips at the rate `error_rate`, where the paper has traces of language models, and a rule rewrites them, where a
model does; the advantages are whitened as in `ppo`; a call is one of the environment's tools, or with `--agent
code` Python that calls them. `rewrites=false` imitates the words themselves, which the paper compares with.
Measured on arithmetic (`calc`) with a tiny model, where the paper has AIME with 32B.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from quintain.agents.capped import CappedCalls, is_answer
from quintain.agents.code_world import InCode
from quintain.config.ranges import NonNegativeInt, PositiveInt, Share
from quintain.data import stages
from quintain.data.pipeline import Pipeline, check_stage
from quintain.environments.protocol import Environment, Expert, Snapshot, advance, environment_name
from quintain.errors import ConfigError, EnvironmentFault, UsageError
from quintain.learning.train_config import ColdStart
from quintain.methods.imitation.supervised import choose_trajectories
from quintain.methods.loops.on_policy import OnPolicy
from quintain.methods.rl.parts.actor_critic import ActorCriticConfig, actor_critic
from quintain.rewards.conduct import verdict
from quintain.rewards.terms import apply_all
from quintain.types import (
    NOTHING,
    Action,
    Group,
    Observation,
    ToolCall,
    ToolSpec,
    Trajectory,
    as_text,
    flatten_scored,
)

LINE = re.compile(r"^(\w+) (\S+(?: \S+)*) = (\S+)$", re.MULTILINE)
"""A line of a derivation: the tool, its arguments, and what it came to."""
NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(ActorCriticConfig):
    """Configuration of ReTool."""

    renamed: ClassVar[Mapping[str, str]] = {"slips": "error_rate"}
    """earlier names of options"""

    environment: str = "calc?names=0&steps=2&digits=1&checks=0"
    demonstrations: NonNegativeInt | str | None = 200
    """Traces that are rewritten and imitated; or a file, folder, run or data set of conversations; 0 for RL alone."""
    episodes: PositiveInt = 64
    error_rate: Share = 0.2
    """Share of the things worked out in the head that come out wrong in a trace of words."""
    rewrites: bool = True
    """Whether traces are rewritten to calls; else they are imitated as they are, with what came out right."""

    def check(self) -> None:
        """Raise a `ConfigError` for values that no run can have."""
        ActorCriticConfig.check(self)
        if not self.rewrites and "thoughts=true" not in self.agent:
            raise ConfigError(
                f"rewrites: got false with the agent {self.agent}, which writes no words before an answer; "
                "use the agent tools?thoughts=true"
            )


def method(config: Config) -> OnPolicy:
    """Return ReTool as `config` describes it."""
    is_told = isinstance(config.demonstrations, str)
    has_author = not is_told and config.demonstrations != 0
    author = Author(slips=config.error_rate)
    teacher = Rewriter(author).act if config.rewrites else author.act
    pipeline = check_rewrite() if config.rewrites else Pipeline(stages.keep_solved())
    cold_start = ColdStart(
        choose=lambda shown, _: choose_trajectories(shown, pipeline, "imitating rewritten traces"),
        teachers=() if is_told else (teacher,),
    )
    base = actor_critic(config)
    return replace(
        base,
        cold_start=cold_start,
        reward=partial(apply_all, terms=(verdict(),)),
        needs=replace(base.needs, tools=True, expert=has_author, snapshots=has_author),
        measure=lambda groups, _: conduct(groups),
    )


def check_rewrite() -> Pipeline:
    """Return: every call ran → every result is used → the answer is right."""
    return Pipeline(
        check_stage(
            "ran",
            "has a call that did not run",
            lambda e: all(
                t.is_valid and t.action.error is None and not t.tool_errors for t in e.trajectory.turns
            ),
        ),
        check_stage("used", "has a result that is not used later", lambda e: uses_results(e.trajectory)),
        stages.keep_solved(name="answer"),
    )


def uses_results(trajectory: Trajectory) -> bool:
    """Whether of everything that a call was told something stands in what is said or called later."""
    turns = trajectory.turns
    for place, turn in enumerate(turns[:-1]):
        told = set(NUMBER.findall(as_text(turns[place + 1].observation)))
        later = " ".join(write_arguments(t.action) for t in turns[place + 1 :])
        if turn.action.tool_calls and told and told.isdisjoint(NUMBER.findall(later)):
            return False
    return True


def write_arguments(action: Action) -> str:
    """Return the words and arguments of `action`."""
    values = (str(value) for call in action.tool_calls for value in call.arguments.values())
    return " ".join((action.text, *values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Author:
    """Derives answers in words, and slips: ``Author(slips=0.2).write(environment, rng)``."""

    slips: float = 0.0

    def write(self, environment: Environment, rng: Random) -> Action:
        """Return the whole way as words, and the answer that they come to; `environment` stays as it is.

        Raises:
            UsageError: the environment has no expert or snapshots.
            EnvironmentFault: its expert never answers.
        """
        world = inside(environment)
        if not isinstance(world, Expert) or not isinstance(world, Snapshot):
            raise UsageError(
                f"traces of words: got {environment_name(environment)}, which has no expert or no snapshots; "
                "name conversations as demonstrations"
            )
        before, lines, offset = world.snapshot(), list[str](), 0
        claimed: Mapping[int, int] = {}
        try:
            for _ in range(world.max_turns):
                said = with_claims(action := world.expert_action(), claimed)
                if is_answer(action):
                    return Action(text="\n".join(lines), tool_calls=said)
                result = as_text(advance(world, action).observation)
                offset += rng.randint(1, 9) if rng.random() < self.slips else 0
                if found := NUMBER.search(result):
                    result = str(int(found[0]) + offset)
                    claimed = {int(found[0]): int(result)}
                lines += [
                    f"{call.name} {' '.join(map(str, call.arguments.values()))} = {result}" for call in said
                ]
        finally:
            world.restore(before)
        raise EnvironmentFault(
            f"traces of words: the expert of {environment_name(environment)} gave no answer in {world.max_turns} "
            "turns; mend it"
        )

    def act(self, environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
        """Return the answer, with the words that derive it: a teacher without tools."""
        return self.write(environment, rng)


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Shows the traces of `author` rewritten to calls; `act` is a teacher."""

    author: Author
    plans: WeakKeyDictionary[Environment, list[Action]] = field(
        default_factory=WeakKeyDictionary["Environment", "list[Action]"]
    )
    """What is left of the trace of the episode under way in each environment."""

    def act(self, environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
        """Return the next call of the trace, or its answer, again where it did not end the episode."""
        if len(seen) <= 1:
            trace = self.author.write(environment, rng)
            self.plans[environment] = rewrite(trace, inside(environment).tools())
        plan = self.plans[environment]
        return plan.pop(0) if len(plan) > 1 else plan[0]


def rewrite(trace: Action, tools: Sequence[ToolSpec]) -> list[Action]:
    """Return `trace` with a call of its own for each line that one of `tools` can work out, the answer last."""
    known = {tool.name: tool for tool in tools}
    calls = [
        call_of(known[name], arguments.split(" "))
        for name, arguments, _ in LINE.findall(trace.text)
        if name in known
    ]
    return [*(Action(tool_calls=(call,)) for call in calls), Action(tool_calls=trace.tool_calls)]


def call_of(tool: ToolSpec, words: Sequence[str]) -> ToolCall:
    """Return the call of `tool` with the arguments `words`, as numbers where the tool takes numbers."""
    fields: Mapping[str, Mapping[str, Any]] = tool.parameters.get("properties", NOTHING)
    arguments = {
        name: int(word) if schema.get("type") == "integer" and NUMBER.fullmatch(word) else word
        for (name, schema), word in zip(fields.items(), words, strict=False)
    }
    return ToolCall(name=tool.name, arguments=arguments)


def with_claims(action: Action, claimed: Mapping[int, int]) -> tuple[ToolCall, ...]:
    """Return the calls of `action` by one who takes the numbers in `claimed` for what they are claimed to be."""
    return tuple(
        replace(
            call, arguments={k: claimed.get(v, v) if type(v) is int else v for k, v in call.arguments.items()}
        )
        for call in action.tool_calls
    )


def inside(environment: Environment) -> Environment:
    """Return the environment that a harness put others around."""
    while isinstance(environment, InCode | CappedCalls):
        environment = environment.inner
    return environment


def conduct(groups: Sequence[Group]) -> Mapping[str, float]:
    """Return how tools are used: share of episodes with a call, and of failed calls that another call follows."""
    episodes = flatten_scored(groups)
    repairs = [
        bool(t.turns[number + 1].action.tool_calls) and not is_answer(t.turns[number + 1].action)
        for t in episodes
        for number, turn in enumerate(t.turns[:-1])
        if turn.tool_errors or not turn.is_valid
    ]
    users = sum(
        any(turn.action.tool_calls and not is_answer(turn.action) for turn in t.turns) for t in episodes
    )
    found = {"retool/code_use": users / max(len(episodes), 1)}
    return found | ({"retool/repairs": sum(repairs) / len(repairs)} if repairs else {})
