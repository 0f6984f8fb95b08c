"""Actions that exploration forces in training: every legal action once at the start, or a random one now and then.

Try-all and ε-greedy of "LLMs are Greedy Agents" (arXiv 2504.16078), around any harness. Where an action is forced, the
policy chooses, by its own odds, among what is admitted: the legal actions it did not try yet, or one that was drawn.
What is recorded are the tokens of that action with the policy's own log-probs, so that it is learned from
as if the policy had taken it; evaluations force nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.engines.protocol import Candidates
from quintain.types import Action, Completion, Observation, derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """A harness that is made to explore: ``Exploring(agent=agent, tries_all=True)``."""

    agent: Agent
    tries_all: bool = False
    """whether legal actions that were not tried in the episode come first"""
    epsilon: float = 0.0
    """probability that the action of a turn is a random legal one"""

    def open(self, brief: Brief) -> ExploringSession:
        """See `Agent.open`."""
        return ExploringSession(self, brief)


class ExploringSession(Deliberation):
    """An episode of `Exploring`; what is drawn depends on the task and the turn alone."""

    def __init__(self, settings: Exploring, brief: Brief) -> None:
        """Begin with nothing tried."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._legal = brief.legal_actions
        self._tried: set[str] = set()
        self._turn = 0

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; where an action is forced, the prompt's sampling names what is admitted."""
        prompt = super().observe(observation, legal_actions)
        self._legal = legal_actions or self._legal
        self._turn += 1
        admitted = self._admit_actions()
        if not admitted:
            return prompt
        ids = tuple(dict.fromkeys(self.write(Action(text=words)) for words in admitted))
        candidates = Candidates(token_ids=ids, lengths=(1.0,) * len(ids))
        longest = max(map(len, ids))
        return replace(prompt, sampling=replace(prompt.sampling, candidates=candidates, max_tokens=longest))

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        action = super().read(completion)
        self._tried.add(action.text)
        return action

    def _admit_actions(self) -> tuple[str, ...]:
        """Return the legal actions that may be taken now; none where the policy is free."""
        untried = tuple(words for words in self._legal if words not in self._tried)
        if self._settings.tries_all and untried:
            return untried
        rng = Random(derive_seed("exploring", self._brief.task.seed, self._turn))
        return (rng.choice(self._legal),) if rng.random() < self._settings.epsilon else ()
