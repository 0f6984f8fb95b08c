"""Who chooses the tokens of a turn: an engine, or a demonstrator that knows an action.

A policy is asked with the episodes whose prompt is ready and returns the completions that are; an engine works
on many at once and returns each as soon as it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

from quintain.engines.protocol import Engine, Request
from quintain.environments.protocol import Environment
from quintain.rollout.episode import Episode
from quintain.rollout.stepper import Stepper, guarded
from quintain.types import Action, Completion, Failure, Observation, derive_seed

Choice = tuple[Episode, Completion | Failure]
Demonstrator = Callable[[Environment, Random, Sequence[Observation]], Action]
"""(environment, source of chance, observations of the episode so far) → action"""


class Policy(Protocol):
    """Chooses the tokens of turns."""

    def choose(self, asked: Sequence[Episode]) -> list[Choice]:
        """Take on the newly `asked` episodes and return those whose completion is ready, in a fixed order."""
        ...

    def forget(self, stream: str) -> None:
        """Free what is held for the token stream `stream`."""
        ...


class EnginePolicy:
    """Samples with `engine`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._waiting: dict[str, Episode] = {}

    def choose(self, asked: Sequence[Episode]) -> list[Choice]:
        """See `Policy.choose`."""
        for episode in asked:
            prompt = episode.prompt
            assert prompt is not None, "an asked episode has a prompt"
            room = self.engine.max_length - episode.stream_length
            sampling = prompt.sampling
            if room < sampling.max_tokens:
                sampling = replace(sampling, max_tokens=room)
            name = episode.name
            self._waiting[name] = episode
            seed = derive_seed(episode.seed, len(episode.turns))
            ids, episode.unsent = (*episode.unsent, *prompt.token_ids), ()
            self.engine.submit(Request(session=name, prompt_ids=ids, seed=seed, sampling=sampling))
        return [(self._waiting.pop(reply.session), reply.result) for reply in self.engine.advance()]

    def forget(self, stream: str) -> None:
        """See `Policy.forget`."""
        self._waiting.pop(stream, None)
        self.engine.release(stream)


class DemonstratorPolicy:
    """Writes what `demonstrator` does as the tokens the policy should have sampled (no log-probs)."""

    def __init__(self, demonstrator: Demonstrator, stepper: Stepper) -> None:
        self.demonstrator = demonstrator
        self.stepper = stepper

    def choose(self, asked: Sequence[Episode]) -> list[Choice]:
        """See `Policy.choose`."""
        actions = self.stepper.run([self._call(episode) for episode in asked])
        return [
            (episode, self._written(episode, action)) for episode, action in zip(asked, actions, strict=True)
        ]

    def _call(self, episode: Episode) -> Callable[[], Action]:
        """Return the call that asks for the action of `episode`."""
        rng = Random(derive_seed(episode.seed, len(episode.turns)))
        seen = (*(turn.observation for turn in episode.turns), episode.view.observation)
        return lambda: self.demonstrator(episode.environment, rng, seen)

    def _written(self, episode: Episode, action: Action | Failure) -> Completion | Failure:
        """Return `action` as a completion; one that cannot be written is the demonstrator's failure."""
        if isinstance(action, Failure):
            return action
        session = episode.session
        assert session is not None, "an asked episode is open"
        return guarded(lambda: Completion(token_ids=session.write(action), logprobs=(), stop="stop"))

    def forget(self, stream: str) -> None:
        """See `Policy.forget`: nothing is held."""
