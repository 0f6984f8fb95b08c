"""A recorded episode that another checkpoint goes on with, from any of its turns, in its environment.

What was sampled stays as it is where the checkpoint has the tokenizer and the harness of the run; else what was done so
far is written as its harness would write it, as actions of a person's own are, and thoughts before them are lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from quintain.data.seats import speakers
from quintain.environments.protocol import Environment
from quintain.environments.smoke_test import find_or_blame
from quintain.errors import UsageError
from quintain.rollout.request import Limits, Options
from quintain.rollout.views import Prefix
from quintain.runs.evaluation import find_acting
from quintain.store import Run
from quintain.types import Action, Observation, Trajectory
from quintain.warm_start.demonstrations import same_tokens, tokenizer_of


class Successor:
    """Who goes on with episodes of a run: ``Successor(run, world="guess", target="runs/b@75", agent="react")``."""

    def __init__(
        self, run: Run, *, world: str, target: str, agent: str, own_agent: str, temperature: float
    ) -> None:
        """Load the policy `target`, which acts in `world` through the harness `agent`.

        Episodes of `run` were played through the harness `own_agent`.

        Raises:
            QuintainError: there is no such policy, harness or environment.
        """
        limits = Limits(max_failure_share=1.0, attempts=1)
        self._acting = find_acting(
            target, find_or_blame(world), agent=agent, temperature=temperature, seed=0, limits=limits
        )
        self.keeps_tokens = agent == own_agent and same_tokens(
            tokenizer_of(run.folder), self._acting.tokenizer
        )
        """Whether it goes on from the very tokens that were sampled."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of tokens of this policy."""
        return str(self._acting.tokenizer.decode(list(ids)))

    def go_on(
        self, trajectory: Trajectory, turn: int, own: Sequence[Action] = (), *, turns: int = 0, seed: int = 0
    ) -> tuple[Trajectory, int]:
        """Return an episode that begins with the first `turn` turns of `trajectory` and the actions `own`, and goes on.

        It goes on for so many `turns`, 0: to its end; the number of its first new turn comes with it. `seed` draws what
        is sampled.

        Raises:
            UsageError: several seats play, or the task does not go on there. EnvironmentFault: it does not repeat.
        """
        if len(speakers(trajectory)) > 1:
            raise UsageError(
                f"going on with {trajectory.task.id}: got an episode of several seats; take one of a single seat"
            )
        before = [each.action for each in trajectory.turns[:turn] if not each.is_internal]
        done = [*before, *own]
        prefix = self._cut(trajectory, turn) if self.keeps_tokens and trajectory.turns else None
        if prefix is None or own:
            played = self._write(trajectory, prefix, done) if done else None
            prefix = None if played is None else self._cut(played, len(played.turns))
        options = Options(limits=self._limit(len(done) + turns if turns else None))
        rollout = self._acting.rollout
        groups = (
            rollout.groups([trajectory.task], size=1, seed=seed, options=options)
            if prefix is None
            else rollout.continuations([prefix], size=1, seed=seed, options=options)
        )
        return groups[0].trajectories[0], 0 if prefix is None else len(prefix.turns)

    def close(self) -> None:
        """Close the environments."""
        self._acting.rollout.close()

    def _cut(self, trajectory: Trajectory, turn: int) -> Prefix:
        """Return the first `turn` turns, to go on from."""
        (walked,) = self._acting.rollout.replay_episodes(
            [replace(trajectory, turns=trajectory.turns[: turn + 1])], checks_rewards=False
        )
        return walked.prefix(turn)

    def _write(self, trajectory: Trajectory, prefix: Prefix | None, done: Sequence[Action]) -> Trajectory:
        """Return the episode in which `done` was done, those after `prefix` written by the harness."""

        def act(_environment: Environment, _rng: Random, seen: Sequence[Observation]) -> Action:
            return done[len(seen) - 1]

        rollout, options = self._acting.rollout, Options(limits=self._limit(len(done)))
        groups = (
            rollout.demonstrations([trajectory.task], act, seed=0, options=options)
            if prefix is None
            else rollout.continuations([prefix], size=1, seed=0, options=options, demonstrator=act)
        )
        return groups[0].trajectories[0]

    def _limit(self, max_turns: int | None) -> Limits:
        return replace(self._acting.rollout.limits, max_turns=max_turns)
