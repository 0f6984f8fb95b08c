"""A choice among legal actions by the log-probs of whole actions: GLAM and TWOSOME.

Every legal action is scored after the prompt and one is drawn from the softmax of the scores, so an action is
always legal and costs no decoding. ``sum`` is the policy of GLAM (arXiv 2302.02662), ``token`` and ``word`` are
those of TWOSOME (2401.14151), which keep a long action from losing against a short one. What
was chosen is stored as its tokens with their log-probs under the model, which is what is trained;
`quintain.engines.scoring` says how that gradient differs from the one of the policy over actions.

Differences to the papers' code: log-softmax before summing (GLAM's sums raw logits and counts padding);
the tokens of an action are those written after this prompt, not those of the action alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from quintain.agents.harness import Choices, ChoiceSession, sampling_of
from quintain.agents.protocol import Brief, Prompt
from quintain.engines.protocol import Candidates, Capability, Sampling
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, Observation, Task, derive_seed

Normalization = Literal["sum", "token", "word"]
"""What the sum of an action's log-probs is divided by: 1, its tokens or its words."""
FILLERS = ("so", "then", "well")


@dataclass(frozen=True, slots=True)
class Scored:
    """One of the legal actions, by their scores: ``Scored(chat, normalization="word")``.

    With `list_actions` each observation is followed by the legal actions, as in GLAM's prompts.
    """

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 64
    normalization: Normalization = "token"
    list_actions: bool = False
    pad: int = 0
    """Words without a meaning that follow half of the actions, another half in each task: length without content."""
    needs: ClassVar[frozenset[Capability]] = frozenset({"candidates"})
    """What the engine must be able to do."""

    def open(self, brief: Brief) -> ScoredSession:
        """See `Agent.open`.

        Raises:
            UsageError: there is no such normalization, or `pad` is negative.
        """
        if self.normalization not in ("sum", "token", "word"):
            raise UsageError(
                f"normalization of scores: got {self.normalization!r}; choose sum, token or word"
            )
        if self.pad < 0:
            raise UsageError(f"pad of scored actions: got {self.pad}; give a number of words, 0 for none")
        sampling = sampling_of(self.chat, self.temperature, self.max_tokens)
        return ScoredSession(
            self.chat, sampling, brief, self.normalization, list_actions=self.list_actions, pad=self.pad
        )


class ScoredSession(ChoiceSession):
    """An episode of `Scored`; the legal actions may change with every observation."""

    def __init__(
        self,
        chat: Chat,
        sampling: Sampling,
        brief: Brief,
        normalization: Normalization,
        *,
        list_actions: bool,
        pad: int = 0,
    ) -> None:
        """Begin with the legal actions of `brief`."""
        super().__init__(chat, sampling, brief, list_actions=list_actions)
        self._normalization: Normalization = normalization
        self._task, self._pad = brief.task, pad

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `ChoiceSession.observe`; the prompt's sampling names the candidates."""
        prompt = super().observe(observation, legal_actions)
        here = self._choices()
        candidates = Candidates(
            token_ids=tuple(here.written.values()),
            lengths=tuple(
                length(pad_action(text, self._task, self._pad), ids, self._normalization)
                for text, ids in here.written.items()
            ),
        )
        sampling = replace(
            prompt.sampling, candidates=candidates, stop_ids=frozenset(), max_tokens=here.longest
        )
        return replace(prompt, sampling=sampling)

    def _write(self) -> Choices:
        """Return the legal actions as their own tokens: nothing ends them, for nothing else can follow."""
        firsts: dict[tuple[int, ...], str] = {}
        for action in self._legal:
            written = pad_action(action.strip(), self._task, self._pad)
            firsts.setdefault(self._chat.answer_ids(written), action)
        if () in firsts:
            raise UsageError(
                f"scoring legal actions: got {firsts[()]!r}, which has no token; name every action"
            )
        ids = {action: tokens for tokens, action in firsts.items()}
        return Choices(written=ids, stop_ids=frozenset(), longest=max(map(len, ids.values())))

    def _read_choice(self, text: str) -> Action:
        """See `ChoiceSession`; the words that follow an action are no part of it."""
        plain = text.strip().removesuffix(filler(self._pad))
        return super()._read_choice(
            plain if pad_action(plain, self._task, self._pad) == text.strip() else text
        )


def filler(pad: int) -> str:
    """Return `pad` words without a meaning, a space before each: ``" so then well"`` for 3."""
    return "".join(f" {FILLERS[number % len(FILLERS)]}" for number in range(pad))


def pad_action(action: str, task: Task, pad: int) -> str:
    """Return `action`, followed by `pad` words without a meaning where it is of the half that `task` draws."""
    is_padded = pad and derive_seed("pad", task.seed, action.strip()) % 2
    return f"{action}{filler(pad)}" if is_padded else action


def length(text: str, token_ids: Sequence[int], normalization: Normalization) -> float:
    """Return what the score of the action `text`, written as `token_ids`, is divided by."""
    counts = {"sum": 1, "token": len(token_ids), "word": max(len(text.split()), 1)}
    return float(counts[normalization])
