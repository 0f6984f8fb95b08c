"""A harness that drafts several actions and does the one that a process reward model likes best: GuidNav
(arXiv 2504.16073).

``guided?size=4&reward_model=runs/NAME+text``: in each state the agent is asked for `size` actions, of one prompt; each
is scored before anything is done, by what the episodes of a run teach (`quintain.search.step_scores`), or without
``reward_model`` by the model itself, which is asked how much the action would help, a turn of its own. The best one is
carried out, of equal ones the first. An action that cannot be read is never preferred. Nothing is taken back, so that
any environment of one seat will do.

What follows an action is seen by nobody who scores it; that is `quintain.search.backtracking`. As in
`quintain.search.harness` an observation begins with the numbers of the actions that were carried out, so that
`follow_found` leaves of an episode the actions that were chosen, and the episode is paid at its end.

Differences to the paper: a regression on words, or a number that the agent says, in the place of a second vision
model; what happened before is the last few actions. Reflection and retry are another wrapper's
(`backtracked`).
"""

from __future__ import annotations

import pathlib
from dataclasses import dataclass, field
from typing import ClassVar

from quintain.agents.deliberation import describe_action
from quintain.agents.protocol import Agent, Brief, equip
from quintain.data.searched import with_head
from quintain.environments.protocol import Environment, Snapshot, advance, environment_name, sum_parts
from quintain.environments.wrapped import Wrapped
from quintain.errors import UsageError
from quintain.rollout.views import seats_of
from quintain.search.harness import Reached, Searched, SearchedSession, read_score
from quintain.search.step_scores import RECENT, Step, StepScores, describe_goal, load_scores
from quintain.text.chat import Chat
from quintain.types import Action, Observation, StepResult, Task, as_text

HELPS = "You have not done that yet. How much would it help with the task, from 0 to 10? Write a number."
UNREADABLE = -1.0
"""Score of an action that cannot be read: below all others."""


@dataclass(frozen=True, slots=True)
class Guided:
    """Any harness, of whose drafts the best is done: ``Guided(ReAct(chat), chat, size=4)``."""

    agent: Agent
    chat: Chat
    size: int = 4
    """Actions that are drafted in a state."""
    reward_model: str = ""
    """A run whose training episodes teach what a good action looks like; empty: the model is asked."""
    most_drift: float = 0.05
    """Most of the actions in the newest quarter of that run's episodes that may name what no older one names."""
    max_tokens: int = 8
    """Tokens of what the model says of an action."""
    rate: StepScores | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse a choice of nothing; learn what good actions look like.

        Raises:
            UsageError: there is nothing to choose of.
            DataError: the run teaches nothing, or what it taught does not hold any more.
        """
        if self.size < 1 or not 0 <= self.most_drift <= 1:
            raise UsageError(
                f"guided: got size={self.size}, most_drift={self.most_drift}; give 1 or more drafts and a share"
            )
        if self.reward_model:
            object.__setattr__(self, "rate", load_scores(pathlib.Path(self.reward_model), self.most_drift))

    @property
    def search(self) -> Searched:
        """The search that its conversations are those of: nothing is asked of a state where `rate` knows."""
        score = "model" if self.rate is None else "votes"
        return Searched(
            self.agent, self.chat, size=self.size, steps=1, score=score, max_tokens=self.max_tokens
        )

    def open(self, brief: Brief) -> GuidedSession:
        """See `Agent.open`."""
        return GuidedSession(self, brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment`, as the harness inside needs it, in which the best of several drafts is done.

        Raises:
            UsageError: several seats act in it.
        """
        return GuidedWorld(equip(self.agent, environment), self)


@dataclass(frozen=True, slots=True)
class Draft:
    """An action that may be done: ``Draft(3, Action(text="click red"), 0.7)``."""

    number: int
    action: Action
    score: float


class GuidedWorld(Wrapped):
    """`inner`, in which the best of several drafts is done: ``GuidedWorld(Web(), settings)``."""

    drops: ClassVar[frozenset[type]] = frozenset({Snapshot})

    def __init__(self, inner: Environment, settings: Guided) -> None:
        """Choose in `inner`.

        Raises:
            UsageError: several seats act in it.
        """
        if len(seats_of(inner)) > 1:
            raise UsageError(
                f"a guided agent in {environment_name(inner)}: got an environment of several seats, who would wait for "
                "each other's drafts; take another agent"
            )
        self._settings = settings
        super().__init__(inner)
        self._goal = ""
        self._number, self._drafts = 0, list[Draft]()
        self._asked: Draft | None = None

    def count_turns(self) -> int:
        """Return the turns of an episode: the drafts of each action, and what the model says of each."""
        return self.inner.max_turns * self._settings.size * (1 + (self._settings.rate is None))

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside; nothing was drafted."""
        observation = self.begin_inner(task)
        self._goal = describe_goal(task, as_text(observation))
        self._number, self._drafts, self._asked = 0, [], None
        self._here = Reached(state=None, way=(), observation=observation)
        return observation

    def step(self, action: Action) -> StepResult:
        """Take in a draft, or what the model says of the one before; do the best where all are there."""
        number, self._number = self._number, self._number + 1
        if self._asked is not None:
            draft, self._asked = self._asked, None
            self._drafts.append(Draft(draft.number, draft.action, read_score(action.text)))
        elif action.error is not None:
            self._drafts.append(Draft(number, action, UNREADABLE))
        elif self._settings.rate is None:
            self._asked = Draft(number, action, 0.0)
            return StepResult(observation=with_head("", "judge", (*self._here.way, number)), reward=0.0)
        else:
            seen = as_text(self._here.observation)
            step = Step(self._goal, self._here.actions[-RECENT:], seen, describe_action(action))
            self._drafts.append(Draft(number, action, self._settings.rate(step)))
        if len(self._drafts) < self._settings.size:
            return StepResult(observation=with_head(self._here.observation, "", self._here.way), reward=0.0)
        return self._do(self._choose(self._drafts))

    def _choose(self, drafts: list[Draft]) -> Draft:
        """Return the best of `drafts`, of equal ones the first."""
        return max(drafts, key=lambda draft: draft.score)

    def _do(self, draft: Draft) -> StepResult:
        """Carry `draft` out."""
        result = advance(self.inner, draft.action)
        before = self._here
        self._drafts = []
        self._here = here = Reached(
            state=None,
            way=(*before.way, draft.number),
            observation=result.observation,
            actions=(*before.actions, describe_action(draft.action)),
            total=before.total + result.reward,
            terms=sum_parts((before.terms, result.reward_terms)),
        )
        is_cut = not result.is_over and len(here.way) >= self.inner.max_turns
        is_over = result.is_over or is_cut
        return StepResult(
            observation=with_head(here.observation, "end" if is_over else "", here.way),
            reward=here.total if is_over else 0.0,
            reward_terms=here.terms if is_over else {},
            is_terminated=result.is_terminated,
            is_truncated=result.is_truncated or is_cut,
            is_success=result.is_success,
            is_valid=result.is_valid,
        )


class GuidedSession(SearchedSession):
    """An episode of `Guided`: each draft follows the same prompt, the actions that were done and what came of them."""

    def __init__(self, settings: Guided, brief: Brief) -> None:
        """Begin where nothing was done."""
        super().__init__(settings.search, brief)
        self._question = HELPS if self._question else ""
