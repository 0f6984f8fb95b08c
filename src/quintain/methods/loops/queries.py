"""What the replay loop's methods ask the policies about recorded episodes: values, log-probs, and continuations of
turns.

A continuation is a completion after a prompt of the past, sampled by the policy as it is now and carried out nowhere:
an actor that learns from a buffer without importance weights needs actions of its own in states that others reached
(ArCHer, arXiv 2402.19446, section 3.3). How it is sampled (stop tokens, a grammar) is asked of the harness. Where the
environment lists its legal actions, the recorded ones are carried out once more to know what was legal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from quintain.agents.protocol import Brief, Prompt, Session
from quintain.credit.layout import Critic, TokenArrays
from quintain.credit.turn_td import TurnValues
from quintain.data.samples import whole_prompt
from quintain.engines.protocol import Request
from quintain.environments.boundary import ask, check_instructions, check_tools
from quintain.environments.protocol import Environment, Legal
from quintain.errors import EngineFault, UsageError
from quintain.learning.train_config import MAIN
from quintain.methods.loops.continuations import Continuation, Continuations
from quintain.models.families import longest_stream
from quintain.rollout.samplers import sample_all
from quintain.types import ALONE, Action, Completion, ToolSpec, Trajectory, Turn, as_text, derive_seed

if TYPE_CHECKING:
    from quintain.runs.context import TrainingContext


class PolicyQueries:
    """The policies of `context`, as one method may ask them in every step: only what is asked is computed.

    Of about `num_kept` episodes it keeps from one step to the next what was legal in them, and what policies that rest
    say.
    """

    def __init__(self, context: TrainingContext, num_kept: int = 4096) -> None:
        self.step = 0
        self._num_kept = num_kept
        self.max_length = min(longest_stream(policy.model) for policy in context.policies.values())
        self._context, self._policies = context, context.policies
        self._continuations: dict[tuple[str, int, str], list[list[Continuation]]] = {}
        """(episode, size, policy) → [turn] → ways by the weights that are served"""
        self._legal: dict[str, list[tuple[str, ...]]] = {}
        """episode → what was legal before each of its turns"""
        self._about: tuple[str, tuple[ToolSpec, ...], bool] | None = None

    def begin(self, step: int) -> None:
        """Ask for `step` from now on."""
        self.step = step
        self._forget()
        _trim(self._continuations, self._num_kept)
        _trim(self._legal, self._num_kept)

    def token_values(self, episodes: Sequence[Trajectory], *, by: str) -> Critic:
        """Return the values of the sampled tokens by the policy `by`, which has a value head."""
        return self._policies[by].token_values(episodes)

    def turn_values(self, episodes: Sequence[Trajectory], *, by: str) -> TurnValues:
        """Return V before and Q after each turn by the policy `by`, which has a value head."""
        return self._policies[by].turn_values(episodes)

    def last_values(self, episodes: Sequence[Trajectory], *, by: str) -> list[float]:
        """Return Q after the last turn of each of `episodes` by the policy `by`, as `turn_values` has it."""
        return self._policies[by].last_values(episodes)

    def logprobs(self, episodes: Sequence[Trajectory], *, by: str = MAIN) -> TokenArrays:
        """Return the log-probs of the sampled tokens by the policy `by`: [episode][turn] → [tokens]."""
        return self._policies[by].token_logprobs(episodes)

    def entropies(self, episodes: Sequence[Trajectory], *, by: str = MAIN) -> TokenArrays:
        """Return the entropy of the policy `by` where each token was sampled: [episode][turn] → [tokens]."""
        return self._policies[by].token_entropies(episodes)

    def _forget(self) -> None:
        """Forget the continuations of policies that learn."""
        for key in [key for key in self._continuations if self._policies[key[2]].learner is not None]:
            del self._continuations[key]

    def resample_actions(
        self, episodes: Sequence[Trajectory], *, size: int = 1, by: str = MAIN
    ) -> Continuations:
        """Return `size` continuations, each of weight 1/size, that the policy `by` as it is says in each turn of
        `episodes`.

        Nothing is carried out: the environment takes no step. In a step of the run they are the same whenever they are
        asked for, until that policy has learned; those of a policy that rests are the same in the whole run.

        Raises:
            EngineFault: a completion failed.
        """
        policy = self._policies[by]
        engine, learns = policy.engine, policy.learner is not None
        assert engine is not None, f"the policy {by} acts"
        if learns and engine.policy_version != policy.version:
            self._context.serve_weights()
            self._forget()
        unknown = [t for t in episodes if (t.id, size, by) not in self._continuations]
        requests: dict[str, Request] = {}
        # Not of the episode's id, which names the run; what a policy that rests says is the same in every step.
        first_seed = self._context.seed("ways", self.step) if learns else self._context.seed("ways of", by)
        for episode in unknown:
            for number, prompt in enumerate(self._prompts(episode)):
                ids = whole_prompt(episode.turns[:number], episode.turns[number])
                most = min(prompt.sampling.max_tokens, engine.max_length - len(ids))
                for index in range(size):
                    requests[f"{episode.id}/{number}/{index}"] = Request(
                        session=f"way/{episode.id}/{number}/{index}",
                        prompt_ids=ids,
                        seed=derive_seed(
                            first_seed, episode.group, episode.index, episode.seed, number, index
                        ),
                        sampling=replace(prompt.sampling, max_tokens=most),
                    )
        limits = self._context.rollout.limits
        said: dict[str, Completion] = {}
        for first in range(0, len(requests), limits.concurrency):
            names = list(requests)[first : first + limits.concurrency]
            part = [requests[name] for name in names]
            replies = sample_all(engine, part, patience=limits.reply_timeout)
            for name in names:
                reply = replies[requests[name].session]
                if not isinstance(reply, Completion):
                    raise EngineFault(f"a way on from turn {name}: got {reply.kind}: {reply.message}")
                said[name] = reply
        self._context.collector.spent.tokens += sum(len(each.token_ids) for each in said.values())
        for episode in unknown:
            self._continuations[episode.id, size, by] = [
                continuations_of(
                    episode, number, [said[f"{episode.id}/{number}/{index}"] for index in range(size)]
                )
                for number in range(len(episode.turns))
            ]
        return [self._continuations[t.id, size, by] for t in episodes]

    def legal_continuations(self, episodes: Sequence[Trajectory]) -> Continuations:
        """Return every legal action as a continuation in each turn of `episodes`, its weight its probability among
        them.

        The environment lists its legal actions (``Needs(legal_actions=True)``) and the agent writes them.
        """
        found: list[list[list[Trajectory]]] = []
        for episode in episodes:
            turns: list[list[Trajectory]] = []
            for number, legal in enumerate(self._legal_of(episode)):
                session, _ = self._session(episode, number, legal)
                written = (session.write(Action(text=action)) for action in legal)
                turns.append(
                    [
                        take_turn(
                            episode, number, Completion(token_ids=ids, logprobs=(), stop="stop", policy=MAIN)
                        )
                        for ids in dict.fromkeys(written)
                    ]
                )
            found.append(turns)
        flat = [way for turns in found for ways in turns for way in ways]
        logs = iter([arrays[-1].tolist() for arrays in self.logprobs(flat)])
        return [[_weigh_continuations(ways, [next(logs) for _ in ways]) for ways in turns] for turns in found]

    def _prompts(self, episode: Trajectory) -> list[Prompt]:
        """Return what the harness asks before each turn of `episode`, whose sampling says how a way is sampled."""
        legal = self._legal_of(episode) if self._tells[2] else [()] * len(episode.turns)
        return [self._session(episode, number, each)[1] for number, each in enumerate(legal)]

    def _session(self, episode: Trajectory, number: int, legal: tuple[str, ...]) -> tuple[Session, Prompt]:
        """Return a new session that was shown what turn `number` of `episode` saw, and what it asked.

        Raises:
            UsageError: several seats act, or the harness says more than what is carried out.
        """
        turn = episode.turns[number]
        if turn.seat != ALONE:
            raise UsageError(
                f"ways on from turn {number} of {episode.task.id}: got one of {turn.seat}; use an environment of one "
                "seat, and an agent that acts in every turn (choice, react, tools)"
            )
        instructions, tools, _ = self._tells
        session = self._context.agent.open(
            Brief(task=episode.task, instructions=instructions, tools=tools, legal_actions=legal)
        )
        return session, session.observe(as_text(turn.observation), legal)

    def _legal_of(self, episode: Trajectory) -> list[tuple[str, ...]]:
        """Return what was legal before each turn of `episode`."""
        if episode.id not in self._legal:
            (walk,) = self._context.rollout.replay_episodes([episode], checks_rewards=False)
            self._legal[episode.id] = [view.legal_actions for view in walk.views[: len(episode.turns)]]
        return self._legal[episode.id]

    @property
    def _tells(self) -> tuple[str, tuple[ToolSpec, ...], bool]:
        """What the environment tells of itself: instructions, tools, and whether it lists legal actions."""
        if self._about is None:

            def tell(environment: Environment) -> tuple[str, tuple[ToolSpec, ...], bool]:
                return (
                    check_instructions(environment),
                    check_tools(environment),
                    isinstance(environment, Legal),
                )

            self._about = ask(self._context.make_environment, tell)
        return self._about


def _trim(known: dict[Any, Any], most: int) -> None:
    """Forget what was known first, above `most`."""
    for key in list(known)[: max(0, len(known) - most)]:
        del known[key]


def take_turn(episode: Trajectory, number: int, completion: Completion) -> Trajectory:
    """Return `episode` up to its turn `number`, in which `completion` is said and nothing is carried out."""
    turn = episode.turns[number]
    way = Turn(
        seat=turn.seat,
        observation=turn.observation,
        prompt_ids=turn.prompt_ids,
        completion=completion,
        action=Action(),
        starts_segment=turn.starts_segment,
    )
    return replace(episode, turns=(*episode.turns[:number], way))


def continuations_of(episode: Trajectory, number: int, said: Sequence[Completion]) -> list[Continuation]:
    """Return what was `said` in turn `number` of `episode` as ways of one weight; the same words are the same episode,
    so that they are read once.
    """
    known: dict[tuple[int, ...], Trajectory] = {}
    for each in said:
        known.setdefault(tuple(each.token_ids), take_turn(episode, number, each))
    return [Continuation(episode=known[tuple(each.token_ids)], weight=1 / len(said)) for each in said]


def _weigh_continuations(ways: Sequence[Trajectory], logs: Sequence[Sequence[float]]) -> list[Continuation]:
    """Return `ways`, the log-probs of whose tokens are `logs`, weighed by their odds among each other."""
    sums = np.array([sum(own) for own in logs])
    odds = np.exp(sums - sums.max(initial=-math.inf))
    found: list[Continuation] = []
    for way, own, weight in zip(ways, logs, (odds / odds.sum()).tolist(), strict=True):
        *before, last = way.turns
        said = replace(last.completion, logprobs=tuple(own))
        found.append(
            Continuation(episode=replace(way, turns=(*before, replace(last, completion=said))), weight=weight)
        )
    return found
