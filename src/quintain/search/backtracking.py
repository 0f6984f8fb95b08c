"""A harness that looks at what an action led to, and takes it back where that does not help: BacktrackAgent
(arXiv 2505.20660) at inference.

``backtracked?retries=2+text``: the agent acts (generator); rules ask whether the action could be carried out and
changed what is seen (verifier); the agent is asked whether what it led to helps, yes or no (judger), a turn of its own.
Where either says no the state before is brought back, and the agent is asked again with what was tried and what came
of it (reflector), at most `retries` times in a state; what it does then is gone on from, unjudged. A judge that is
right and a generator that errs with chance p solve a step with 1 - p^(k+1).

What ends the episode, and what the environment says cannot be undone (`Reversible`), is never taken back. An action
that is taken back counts as one of the environment's turns, so that k retries have no more actions than none. As in
`quintain.search.harness` an observation begins with where the search stands, and the episode is paid at its end, for
the way that was kept.

Differences to the paper: one model is generator, judger and reflector, told apart by what it is asked; pages are text,
so that a page has changed where its text has.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import cast

from quintain.agents.deliberation import describe_action, with_words
from quintain.agents.protocol import Agent, Brief, equip
from quintain.data.searched import with_head
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import Environment, Expert, Legal, Progressing, Reversible
from quintain.environments.states import SavedState, restore_state
from quintain.errors import UsageError
from quintain.search.harness import Reached, Searched, SearchedSession, SearchedWorld
from quintain.search.tree import Node, Seen
from quintain.text.chat import Chat
from quintain.types import Action, Observation, StepResult, Task, as_text

YES, NO = "yes", "no"
HELPS = f"Did that help with the task? Write {YES} or {NO}."
UNDONE = "Tried here and taken back:"
INSTEAD = "Do something else."


@dataclass(frozen=True, slots=True)
class Backtracked:
    """Any harness, judged by what it led to: ``Backtracked(ReAct(chat), chat, retries=2)``."""

    agent: Agent
    chat: Chat
    retries: int = 2
    """Times that an action may be taken back in a state."""
    max_tokens: int = 8
    """Tokens of a verdict."""

    def __post_init__(self) -> None:
        """Refuse a negative number of retries."""
        if self.retries < 0:
            raise UsageError(f"backtracked: got retries={self.retries}; give 0 or more")

    @property
    def search(self) -> Searched:
        """The search that it is: one action at a time, and what came of it is asked."""
        return Searched(
            self.agent, self.chat, by="depth", size=1, steps=1, score="model", max_tokens=self.max_tokens
        )

    def open(self, brief: Brief) -> BacktrackedSession:
        """See `Agent.open`."""
        return BacktrackedSession(self, brief)

    def equip(self, environment: Environment) -> Environment:
        """Return `environment`, as the harness inside needs it, in which actions are taken back.

        Raises:
            UsageError: it cannot be brought back, or several seats act in it.
        """
        return BacktrackWorld(equip(self.agent, environment), self)


class BacktrackWorld(SearchedWorld):
    """`inner` with a judge after each action: ``BacktrackWorld(Web(), settings)``."""

    def __init__(self, inner: Environment, settings: Backtracked) -> None:
        """Go about in `inner`.

        Raises:
            UsageError: it cannot be brought back, or several seats act in it.
        """
        self._retries = settings.retries
        self._tried: Reached | None = None
        self._undone: list[str] = []
        super().__init__(inner, settings.search)

    def count_turns(self) -> int:
        """Return the turns of an episode: as many actions as the environment allows, and a verdict of each."""
        return 2 * self.inner.max_turns

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside; nothing was tried."""
        self._tried = None
        return super().reset(task)

    def step(self, action: Action) -> StepResult:
        """Carry out `action`, or take in the verdict on the one before."""
        number, self._number = self._number, self._number + 1
        if self._tried is not None:
            tried, self._tried = self._tried, None
            return self._take_back(tried) if refuses(action.text) else self._keep(tried)
        reached = self._try(action, number)
        self._num_tried += 1
        last = cast(StepResult, reached.last)
        can_go_back = not isinstance(self.inner, Reversible) or self.inner.can_go_back()
        if last.is_over or not can_go_back or self._asked >= self._retries:
            return self._keep(reached)
        if not last.is_valid or as_text(reached.observation) == as_text(self._here.observation):
            return self._take_back(reached)
        self._tried = reached
        return StepResult(observation=with_head(reached.observation, "judge", reached.way), reward=0.0)

    def legal_actions(self) -> tuple[str, ...]:
        """Return what may be said now: a verdict, or an action."""
        return (YES, NO) if self._tried is not None else cast(Legal, self.inner).legal_actions()

    def expert_action(self) -> Action:
        """Return what the expert does; of an action that was tried, whether it helped.

        It did if the expert would have done it, or the environment says that more of the task is done now.
        """
        if self._tried is None:
            return cast(Expert, self.inner).expert_action()
        after = self._progress()
        restore_state(self.inner, cast(SavedState, self._here.state))
        wanted, before = cast(Expert, self.inner).expert_action(), self._progress()
        restore_state(self.inner, cast(SavedState, self._tried.state))
        helped = self._tried.actions[-1] == describe_action(wanted) or after > before
        return Action(text=YES if helped else NO)

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return a typical mistake; verdicts are right."""
        return (
            self.expert_action()
            if self._tried is not None
            else cast(Fallible, self.inner).mistaken_action(rng)
        )

    def _stand(self, node: Node) -> None:
        """Let the agent act where `node` is, of which nothing was tried yet."""
        super()._stand(node)
        self._undone = []

    def _keep(self, reached: Reached) -> StepResult:
        """Go on from `reached`."""
        self._best = reached
        if cast(StepResult, reached.last).is_over or self._num_tried >= self._depth:
            return self._end()
        self._stand(Node(seen=Seen(key="", text=str(reached.way), place=reached)))
        return StepResult(observation=with_head(reached.observation, "", reached.way), reward=0.0)

    def _take_back(self, reached: Reached) -> StepResult:
        """Bring the state before `reached` back, and tell what was tried there."""
        self._asked += 1
        self._undone.append(f"{reached.actions[-1]} → {as_text(reached.observation)}")
        if self._num_tried >= self._depth:
            return self._end()
        here = self._here
        restore_state(self.inner, cast(SavedState, here.state))
        told = with_words(here.observation, "\n".join([UNDONE, *self._undone, INSTEAD]))
        is_valid = cast(StepResult, reached.last).is_valid
        return StepResult(observation=with_head(told, "", here.way), reward=0.0, is_valid=is_valid)

    def _progress(self) -> float:
        return self.inner.progress() if isinstance(self.inner, Progressing) else 0.0

    @property
    def _here(self) -> Reached:
        """The state that the agent acts in."""
        return cast(Reached, self._node.seen.place)


class BacktrackedSession(SearchedSession):
    """An episode of `Backtracked`: the way that was kept, with what was tried in its last state."""

    def __init__(self, settings: Backtracked, brief: Brief) -> None:
        """Begin where nothing was tried."""
        super().__init__(settings.search, brief)
        self._question = HELPS

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstrated verdict is what the expert says."""
        return self._words.write(action.text) if self._is_judging else self._inner.write(action)


def refuses(verdict: str) -> bool:
    """Return whether a `verdict` says no; what cannot be read takes nothing back. Example: "No, it is lost."."""
    return verdict.strip().lower().startswith(NO)
