"""Questions one after the other, each begun anew, with a bank of what advice taught: AGILE's executor (2405.14751).

In a session (``session:ENV?advice=0.3``) each question opens a conversation of its own. Before it the executor looks
into its bank: it says how many entries there are, how many are like the question (cosine of words above `least`), and
what the best of those say. After advice a reflection is asked for, whose text is kept under the question; nothing else
writes into the bank. What the executor says is part of prompts, so it is never trained; actions and reflections are.

Differences to the paper: likeness is a cosine of words, not of embeddings; entries and earlier questions are one store;
a bank lives as long as an episode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from quintain.agents.deliberation import Deliberation, Words, with_words
from quintain.agents.experience import rank_by_likeness
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.environments.series import ADVICE, is_advice, split_question
from quintain.memory.bank import Bank, Edit
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Observation, as_text

REFLECT = "Write in a sentence what to remember of this, for when the question comes again."


@dataclass(frozen=True, slots=True)
class Consulting:
    """A bank before every question: ``Consulting(PlainText(chat), chat)``."""

    agent: Agent
    chat: Chat
    entries: int = 1
    """Entries that are told."""
    least: float = 0.46
    """Likeness from which an entry is like a question."""
    max_tokens: int = 64
    """Tokens of a reflection."""

    def open(self, brief: Brief) -> ConsultingSession:
        """See `Agent.open`."""
        return ConsultingSession(self, brief)


class ConsultingSession(Deliberation):
    """An episode of `Consulting`."""

    def __init__(self, settings: Consulting, brief: Brief) -> None:
        """Begin with an empty bank."""
        super().__init__(settings.agent, brief)
        self._settings = settings
        self._words = Words(settings.chat, settings.max_tokens)
        self.bank = Bank()
        """What was kept."""
        self._question = self._advice = self._coming = ""
        self._legal: tuple[str, ...] = ()
        self._was_advised = self._is_reflecting = False

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`: a reflection is asked for after advice; each question opens a conversation."""
        self._legal = legal_actions
        before, question = split_question(as_text(observation))
        if self._was_advised:
            self._was_advised, self._is_reflecting = False, True
            self._advice, self._coming = before, question
            prompt = self._inner.observe(with_words(before, REFLECT), legal_actions)
            return self._words.ask(prompt, "reflection", f"{before}\n\n{REFLECT}")
        return self._begin(question) if question else super().observe(observation, legal_actions)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`: a reflection, which is kept, or an action."""
        if not self._is_reflecting:
            action = self._inner_read(completion)
            self._was_advised = self._next is None and is_advice(action)
            return action
        self._is_reflecting = False
        text = self._words.read(completion)
        self.bank.edit([Edit(kind="add", key=self._question, text=text, source=ADVICE)])
        prompt = self._begin(self._coming)
        self._next = replace(prompt, shows=self._tell(self._coming))
        return Action(text=text)

    def write(self, action: Action) -> tuple[int, ...]:
        """See `Session.write`; a demonstrated reflection is what was advised."""
        if not self._is_reflecting:
            return self._inner.write(action)
        return self._words.write(self._advice.removeprefix(f"{ADVICE}: "))

    def _begin(self, question: str) -> Prompt:
        """Open a conversation of its own for `question`."""
        self._question = question
        self._inner = self._agent.open(self._brief)
        return self._inner.observe(self._tell(question), self._legal)

    def _tell(self, question: str) -> str:
        """Return `question` with what the bank says of it."""
        found = self.bank.read(question, len(self.bank), rank=rank_by_likeness, least=self._settings.least)
        told = f"Memory: {len(self.bank)} entries, {len(found)} like this question."
        shown = [f"{read.entry.key}: {read.entry.text}" for read in found[: self._settings.entries]]
        return "\n".join([question, told, *shown])
