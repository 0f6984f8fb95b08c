"""Who chooses the tokens of a turn: the engines of the policies, or a demonstrator that knows an action.

A sampler is asked with the seats whose prompt is ready and returns the completions that are; an engine works on many
at once and returns each as soon as it is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Protocol, runtime_checkable

from quintain.agents.harness import ChatSession
from quintain.agents.protocol import Brief, Foresees, Session
from quintain.engines.graph import Call, run_graph
from quintain.engines.patience import Patience
from quintain.engines.protocol import Engine, Request
from quintain.environments.protocol import Environment
from quintain.environments.recorded import RecordedAction
from quintain.errors import EngineFault
from quintain.rollout.episode import LiveEpisode
from quintain.rollout.stepper import Stepper, guard_call
from quintain.types import Action, Completion, Failure, Observation, Turn

Asked = tuple[LiveEpisode, str]
"""An episode, and the seat in it that is to speak."""
Choice = tuple[LiveEpisode, str, Completion | Failure]
"""An episode, the seat, and what it says."""
Demonstrator = Callable[[Environment, Random, Sequence[Observation]], Action]
"""(environment, source of chance, observations of the seat so far) → action"""


@runtime_checkable
class DialogueTeacher(Protocol):
    """A demonstrator that is told what an agent is told, and nothing else: a model that plays by reading."""

    def answer(self, brief: Brief, turns: Sequence[Turn], observation: Observation) -> Action:
        """Return the action after the `turns` of its seat, internal ones too, when it is shown `observation`.

        Raises:
            EnvironmentFault: there is none.
        """
        ...


class Sampler(Protocol):
    """Chooses the tokens of turns."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody who was asked has not been answered."""
        ...

    def owner(self, policy: str) -> str:
        """Return on whom the episodes wait that asked `policy`, in words."""
        ...

    def choose(self, asked: Sequence[Asked]) -> list[Choice]:
        """Take on the newly `asked` and return those whose completion is ready, in a fixed order."""
        ...

    def staleness(self, oldest: Mapping[str, int]) -> int:
        """Return how many versions of its weights a policy has moved on from its `oldest`; the most of all."""
        ...

    def forget(self, policy: str, stream: str) -> None:
        """Free what `policy` holds for the token stream `stream`."""
        ...


def sample_all(
    engine: Engine, requests: Sequence[Request], *, patience: float
) -> dict[str, Completion | Failure]:
    """Return what `engine` answers to each of `requests`, by session; the sessions are released.

    Raises:
        EngineFault: it says nothing for `patience` seconds.
    """
    calls = [
        Call(fills=each.session, prompt=(each.prompt_ids,), seed=each.seed, sampling=each.sampling)
        for each in requests
    ]
    return run_graph(engine, calls, patience=patience) if calls else {}


class EngineSampler:
    """Samples with the engine of each policy; a reply that does not come, or that nobody asked for, is its fault.

    Several policies may have one engine: it is then asked for all of them at once.
    """

    def __init__(self, engines: Mapping[str, Engine], *, patience: float = 600.0) -> None:
        self.engines = engines
        self._distinct = list({id(engine): engine for engine in engines.values()}.values())
        self._patience = [Patience(engine, patience) for engine in self._distinct]
        self._place = {
            policy: next(place for place, each in enumerate(self._distinct) if each is engine)
            for policy, engine in engines.items()
        }
        self._waiting: list[dict[str, Asked]] = [{} for _ in self._distinct]

    @property
    def is_busy(self) -> bool:
        """See `Sampler.is_busy`."""
        return any(self._waiting)

    def owner(self, policy: str) -> str:
        """See `Sampler.owner`."""
        return f"a reply of {self._patience[self._place[policy]].name}"

    def choose(self, asked: Sequence[Asked]) -> list[Choice]:
        """See `Sampler.choose`."""
        for episode, seat in asked:
            self._submit(episode, seat)
        choices: list[Choice] = []
        for engine, patience, waiting in zip(self._distinct, self._patience, self._waiting, strict=True):
            if not waiting:
                continue
            replies = engine.advance()
            patience.listen({} if replies else _most_tokens(waiting), is_reply=bool(replies))
            for reply in replies:
                if reply.session not in waiting:
                    raise EngineFault(
                        f"a reply of {patience.name}: got one for session {reply.session!r}, which waits for none; "
                        "restart it, then resume"
                    )
                episode, seat = waiting.pop(reply.session)
                choices.append((episode, seat, _name_policy(reply.result, episode.voices[seat].policy)))
        return choices

    def staleness(self, oldest: Mapping[str, int]) -> int:
        """See `Sampler.staleness`."""
        most = 0
        for name, version in oldest.items():  # it is asked in every turn: no calls that can be left out
            most = max(most, self.engines[name].policy_version - version)
        return most

    def forget(self, policy: str, stream: str) -> None:
        """See `Sampler.forget`."""
        self._waiting[self._place[policy]].pop(stream, None)
        self.engines[policy].release(stream)

    def _submit(self, episode: LiveEpisode, seat: str) -> None:
        """Send the prompt of `seat` to the engine of its policy, with what that has not seen of the stream."""
        voice = episode.voices[seat]
        engine, prompt = self.engines[voice.policy], voice.prompt
        assert prompt is not None, "a seat that is asked has a prompt"
        room = engine.max_length - voice.length
        sampling = prompt.sampling
        if room < sampling.max_tokens:
            sampling = replace(sampling, max_tokens=room)
        name = voice.stream_name
        self._waiting[self._place[voice.policy]][name] = episode, seat
        ids = prompt.token_ids
        if voice.unsent:
            ids, voice.unsent = (*voice.unsent, *ids), ()
        engine.submit(Request(session=name, prompt_ids=ids, seed=episode.seed(seat), sampling=sampling))


def _most_tokens(waiting: Mapping[str, Asked]) -> dict[str, int]:
    """Return the sessions that wait for a reply, each with the tokens it may have."""
    prompts = ((name, episode.voices[seat].prompt) for name, (episode, seat) in waiting.items())
    return {name: prompt.sampling.max_tokens for name, prompt in prompts if prompt is not None}


def _name_policy(result: Completion | Failure, policy: str) -> Completion | Failure:
    """Return `result` with the name of the policy that it is of."""
    if isinstance(result, Failure) or result.policy == policy:
        return result
    return replace(result, policy=policy)


def write_ids(session: Session, action: Action) -> tuple[int, ...]:
    """Return the ids that take `action` in `session`; of a recorded one, with the words that stood beside it.

    A harness that asks for more than an action writes the action alone.
    """
    message = action.message if isinstance(action, RecordedAction) else None
    if message is not None and isinstance(session, ChatSession) and session.keeps_words:
        return session.say(message).token_ids
    return session.write(action)


class DemonstratorSampler:
    """Writes what `demonstrator` does as the tokens the policy should have sampled (no log-probs)."""

    def __init__(self, demonstrator: Demonstrator | DialogueTeacher, stepper: Stepper) -> None:
        self.demonstrator = demonstrator
        self.stepper = stepper

    @property
    def is_busy(self) -> bool:
        """See `Sampler.is_busy`: everybody is answered at once."""
        return False

    def owner(self, policy: str) -> str:
        """See `Sampler.owner`."""
        return "the demonstrator"

    def choose(self, asked: Sequence[Asked]) -> list[Choice]:
        """See `Sampler.choose`."""
        actions = self.stepper.run([self._call(episode, seat) for episode, seat in asked])
        return [
            (episode, seat, self._write_action(episode, seat, action))
            for (episode, seat), action in zip(asked, actions, strict=True)
        ]

    def staleness(self, oldest: Mapping[str, int]) -> int:
        """See `Sampler.staleness`: there are no versions."""
        return 0

    def _call(self, episode: LiveEpisode, seat: str) -> Callable[[], Action]:
        """Return the call that asks for the action of `seat`."""
        rng, environment = Random(episode.seed(seat)), episode.environment
        assert environment is not None, "an episode that is played has an environment"
        voice, demonstrator = episode.voices[seat], self.demonstrator
        turns, view = [turn for turn in (*episode.turns, *voice.thoughts) if turn.speaker == seat], voice.view
        session = voice.session
        if isinstance(demonstrator, DialogueTeacher):
            assert episode.brief is not None, "an episode is opened before it is asked"
            brief = replace(episode.brief, legal_actions=view.legal_actions)
            return lambda: demonstrator.answer(brief, turns, view.observation)
        seen = (*(turn.observation for turn in turns if not turn.is_internal), view.observation)
        if isinstance(session, Foresees):
            return lambda: session.foresee(environment) or demonstrator(environment, rng, seen)
        return lambda: demonstrator(environment, rng, seen)

    def _write_action(
        self, episode: LiveEpisode, seat: str, action: Action | Failure
    ) -> Completion | Failure:
        """Return `action` as a completion; one that cannot be written is the demonstrator's failure."""
        if isinstance(action, Failure):
            return action
        voice = episode.voices[seat]
        return guard_call(
            lambda: Completion(
                token_ids=write_ids(voice.session, action), logprobs=(), stop="stop", policy=voice.policy
            )
        )

    def forget(self, policy: str, stream: str) -> None:
        """See `Sampler.forget`: nothing is held."""
