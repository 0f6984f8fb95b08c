"""Who chooses the tokens of a turn: an engine, or a demonstrator that knows an action.

A policy is asked with the episodes whose prompt is ready and returns the completions that are; an engine works
on many at once and returns each as soon as it is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol

from quintain.engines.protocol import Engine, Request
from quintain.environments.protocol import Environment
from quintain.errors import EngineFault
from quintain.rollout.episode import Episode
from quintain.rollout.stepper import Stepper, guarded
from quintain.types import Action, Completion, Failure, Observation, derive_seed

Choice = tuple[Episode, Completion | Failure]
Demonstrator = Callable[[Environment, Random, Sequence[Observation]], Action]
"""(environment, source of chance, observations of the episode so far) → action"""


class Policy(Protocol):
    """Chooses the tokens of turns."""

    @property
    def owner(self) -> str:
        """On whom the episodes wait that were asked, in words."""
        ...

    def choose(self, asked: Sequence[Episode]) -> list[Choice]:
        """Take on the newly `asked` episodes and return those whose completion is ready, in a fixed order."""
        ...

    def forget(self, stream: str) -> None:
        """Free what is held for the token stream `stream`."""
        ...


class Patience:
    """Bounds how long `engine` may say nothing.

    An engine that samples a token per round answers within as many rounds as it may sample tokens; one that is
    asked across a network has `seconds`. When both have passed without any reply, the requests are lost.
    """

    def __init__(self, engine: Engine, seconds: float) -> None:
        self.name = f"the engine {type(engine).__name__}"
        self._seconds = seconds
        self._num_silent = 0
        self._heard = time.monotonic()

    def listen(self, waiting: Mapping[str, int], *, is_reply: bool) -> None:
        """Count a round in which there was a reply or none; `waiting` are the sessions that wait and their most tokens.

        Raises:
            EngineFault: there were too many rounds without a reply over too long a time.
        """
        now = time.monotonic()
        if is_reply or not waiting:
            self._num_silent, self._heard = 0, now
            return
        self._num_silent += 1
        if self._num_silent > sum(waiting.values()) and now - self._heard > self._seconds:
            raise EngineFault(
                f"{len(waiting)} requests to {self.name}: got no reply in {now - self._heard:.0f} s, the "
                f"first for session {min(waiting)!r}; restart it, then resume"
            )


class EnginePolicy:
    """Samples with `engine`; a reply that does not come, or that nobody asked for, is the engine's fault."""

    def __init__(self, engine: Engine, *, patience: float = 600.0) -> None:
        self.engine = engine
        self._patience = Patience(engine, patience)
        self._waiting: dict[str, Episode] = {}

    @property
    def owner(self) -> str:
        """See `Policy.owner`."""
        return f"a reply of {self._patience.name}"

    def choose(self, asked: Sequence[Episode]) -> list[Choice]:
        """See `Policy.choose`."""
        for episode in asked:
            prompt = episode.prompt
            assert prompt is not None, "an asked episode has a prompt"
            voice = episode.voice
            room = self.engine.max_length - voice.length
            sampling = prompt.sampling
            if room < sampling.max_tokens:
                sampling = replace(sampling, max_tokens=room)
            name = voice.stream_name
            self._waiting[name] = episode
            seed = derive_seed(episode.seed, len(episode.turns))
            ids, voice.unsent = (*voice.unsent, *prompt.token_ids), ()
            self.engine.submit(Request(session=name, prompt_ids=ids, seed=seed, sampling=sampling))
        replies = self.engine.advance()
        self._patience.listen(self._most_tokens(), is_reply=bool(replies))
        return [(self._asked(reply.session), reply.result) for reply in replies]

    def _asked(self, session: str) -> Episode:
        """Return the episode that waits for the reply to `session`."""
        if session not in self._waiting:
            raise EngineFault(
                f"{self.owner}: got one for session {session!r}, which waits for none; restart it, "
                "then resume"
            )
        return self._waiting.pop(session)

    def _most_tokens(self) -> dict[str, int]:
        """Return the sessions that wait for a reply, each with the tokens it may have."""
        prompts = ((name, episode.prompt) for name, episode in self._waiting.items())
        return {name: prompt.sampling.max_tokens for name, prompt in prompts if prompt is not None}

    def forget(self, stream: str) -> None:
        """See `Policy.forget`."""
        self._waiting.pop(stream, None)
        self.engine.release(stream)


class DemonstratorPolicy:
    """Writes what `demonstrator` does as the tokens the policy should have sampled (no log-probs)."""

    def __init__(self, demonstrator: Demonstrator, stepper: Stepper) -> None:
        self.demonstrator = demonstrator
        self.stepper = stepper

    @property
    def owner(self) -> str:
        """See `Policy.owner`."""
        return "the demonstrator"

    def choose(self, asked: Sequence[Episode]) -> list[Choice]:
        """See `Policy.choose`."""
        actions = self.stepper.run([self._call(episode) for episode in asked])
        return [
            (episode, self._written(episode, action)) for episode, action in zip(asked, actions, strict=True)
        ]

    def _call(self, episode: Episode) -> Callable[[], Action]:
        """Return the call that asks for the action of `episode`."""
        rng = Random(derive_seed(episode.seed, len(episode.turns)))
        acted = (t.observation for t in episode.turns if t.seat == episode.view.seat)
        seen = (*acted, episode.view.observation)
        return lambda: self.demonstrator(episode.environment, rng, seen)

    def _written(self, episode: Episode, action: Action | Failure) -> Completion | Failure:
        """Return `action` as a completion; one that cannot be written is the demonstrator's failure."""
        if isinstance(action, Failure):
            return action
        session = episode.voice.session
        return guarded(lambda: Completion(token_ids=session.write(action), logprobs=(), stop="stop"))

    def forget(self, stream: str) -> None:
        """See `Policy.forget`: nothing is held."""
