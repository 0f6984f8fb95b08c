"""A harness that is told the answer, and what its prompts would have been without: rationalisation (STaR, 2203.14465).

The hint stands after the first observation of an episode. A second session of the same harness is shown the same
without it, so that for every prompt with the hint the one without is known, and what was sampled can be learned as if
it had not been there (`Hints.plain`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from quintain.agents.deliberation import Deliberation, with_words
from quintain.agents.protocol import Agent, Brief, Deliberates, Prompt
from quintain.data.pipeline import Stage, remade
from quintain.errors import UsageError
from quintain.types import Action, Completion, Example, Observation, Turn


@dataclass(slots=True)
class Hints:
    """Hints by the id of their task: ``Hints({"sums/train/7": "The answer is 12."})``."""

    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    plain: dict[tuple[int, ...], tuple[tuple[int, ...], bool]] = field(
        default_factory=dict[tuple[int, ...], tuple[tuple[int, ...], bool]]
    )
    """prompt with the hint → the same without, and whether that starts a segment"""

    def wrap(self, agent: Agent) -> Agent:
        """Return `agent` as it is told the hints."""
        return Hinting(agent=agent, hints=self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hinting:
    """A harness that is told hints: ``Hinting(agent=agent, hints=hints)``."""

    agent: Agent
    hints: Hints

    def open(self, brief: Brief) -> HintedSession:
        """See `Agent.open`."""
        return HintedSession(self, brief)


class HintedSession(Deliberation):
    """An episode of `Hinting`, beside one that is told nothing."""

    def __init__(self, settings: Hinting, brief: Brief) -> None:
        """Open both sessions."""
        super().__init__(settings.agent, brief)
        text = settings.hints.texts.get(brief.task.id)
        if text is None:
            raise UsageError(
                f"hint for {brief.task.id}: got none; give one for each task that is played with hints"
            )
        self._text: str | None = text
        self._known = settings.hints.plain
        self._plain = settings.agent.open(brief)

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; the first observation is followed by the hint."""
        told = observation if self._text is None else with_words(observation, self._text)
        self._text = None
        prompt, plain = super().observe(told, legal_actions), self._plain.observe(observation, legal_actions)
        return self._note(prompt, plain)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        self._plain.read(completion)
        action = super().read(completion)
        if isinstance(self._plain, Deliberates):
            plain = self._plain.more()
            if self._next is not None and plain is not None:
                self._note(self._next, plain)
        return action

    def _note(self, prompt: Prompt, plain: Prompt) -> Prompt:
        """Write down what `prompt` is without the hint, where it differs."""
        if prompt.token_ids != plain.token_ids:
            self._known[prompt.token_ids] = plain.token_ids, plain.starts_segment
        return prompt


def strip_hints(hints: Hints) -> Stage:
    """Return the stage that takes the hint out of prompts; log-probs, which were given with it, go too."""

    def plain(turn: Turn) -> Turn:
        if turn.prompt_ids not in hints.plain:
            return turn
        ids, starts_segment = hints.plain[turn.prompt_ids]
        return replace(
            turn,
            prompt_ids=ids,
            starts_segment=starts_segment,
            completion=replace(turn.completion, logprobs=()),
        )

    def make(example: Example) -> Sequence[Example]:
        turns = tuple(map(plain, example.trajectory.turns))
        return [replace(example, trajectory=replace(example.trajectory, turns=turns))]

    return remade("stripped", "is learned as if no hint had been there", make)
