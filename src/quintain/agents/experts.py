"""Experts who each say something, and a manager who chooses what is said: mixture-of-expert dialogue management
(arXiv 2206.00059).

Every turn each expert, a seat named after its intent, is shown the talk so far and says a candidate. The manager, a
seat of its own, is shown the talk and the candidates, in an order drawn anew each turn, and answers with a number; that
candidate is said. So the manager acts in a handful of actions, whatever the length of what is said: its answer is drawn
from the numbers alone, for one who explores by a Q would say one of all the other words, of which there are a thousand.
Every question is a conversation of its own. Seats are played by policies as `seats` of the configuration says: one
language model for all experts, which is told the intent (the paper's latent conditioner), or several.

An expert is paid 1 for a candidate of its own intent (`rewards.dialogue.intent_of`), the manager what the environment
pays. Without intents the experts are told their names, and nothing holds them to these.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, cast, get_args

from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.agents.scored import Scored
from quintain.agents.seated import Anew, SeatedWorld
from quintain.engines.protocol import Capability
from quintain.environments.baselines import random_action
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import Environment, Expert, Legal, StateKey, environment_name
from quintain.errors import UsageError, suggestion
from quintain.rewards.dialogue import INTENTS, intent_of
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, as_text, derive_seed

if TYPE_CHECKING:
    from quintain.types import Observation, Task

MANAGER = "manager"
USUAL = "asks,repeats,decides"
"""Intents that are right now and then on `collab`."""
LABEL = "label"
"""Reward term of an expert's candidate: 1 for one of its intent."""
Order = Literal["drawn", "kept"]
"""In which order candidates are shown to the manager."""
DRAWN = 8
"""Typical mistakes that are looked through for one of an expert's intent, where that is shown to it."""


@dataclass(frozen=True, slots=True)
class Experts:
    """Experts and a manager: ``Experts(chat, intents="asks,decides")``."""

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 16
    """Tokens of a candidate."""
    intents: str = USUAL
    """Intents of the experts, with commas: asks, repeats, looks, decides, talks."""
    order: Order = "drawn"
    """Order in which the manager is shown the candidates: drawn anew every turn, so that only what they say tells them
    apart, or kept, so that a number is an expert."""
    needs: ClassVar[frozenset[Capability]] = Scored.needs
    """What the engine must be able to do: the manager chooses among numbers, it does not write them."""

    def __post_init__(self) -> None:
        """Refuse what is no mixture."""
        if self.order not in get_args(Order):
            raise UsageError(
                f"order of experts: got {self.order!r}; {suggestion(self.order, get_args(Order))}"
            )
        names = intents_of(self.intents)
        if unknown := [name for name in names if name not in INTENTS]:
            raise UsageError(f"intents of experts: got {unknown[0]!r}; {suggestion(unknown[0], INTENTS)}")
        if len(names) < 2 or len(set(names)) < len(names):
            raise UsageError(f"intents of experts: got {self.intents!r}; name two or more different ones")

    def open(self, brief: Brief) -> Anew:
        """See `Agent.open`."""
        if brief.legal_actions:
            return Anew(Scored(self.chat, self.temperature, self.max_tokens, "sum"), brief)
        return Anew(PlainText(self.chat, self.temperature, self.max_tokens), brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`."""
        return ExpertsWorld(environment, intents_of(self.intents), self.order)


def intents_of(names: str) -> tuple[str, ...]:
    """Return the intents that `names` lists with commas."""
    return tuple(name.strip() for name in names.split(",") if name.strip())


class ExpertsWorld(SeatedWorld):
    """`inner`, in which experts propose and a manager chooses: ``ExpertsWorld(Collab(), ("asks", "decides"))``."""

    adds: ClassVar[frozenset[type]] = SeatedWorld.adds | {Legal}
    own: ClassVar[tuple[str, ...]] = ("said", "candidates", "_seed", "_num_done")

    def __init__(self, inner: Environment, intents: tuple[str, ...], order: Order = "drawn") -> None:
        """Let one expert of each of `intents` speak before the manager, who is shown what they say in `order`.

        Raises:
            UsageError: `inner` has tools, which are not said.
        """
        self.intents, self.order = intents, order
        super().__init__(inner)
        if inner.tools():
            raise UsageError(
                f"experts: got {environment_name(inner)}, which is acted in by tools; take its interface=text, or an "
                "environment that is spoken to"
            )
        self.said: list[str] = []
        """the talk so far: the other's words and ours in turn"""
        self.candidates: list[str] = []
        """of this turn so far, by expert"""
        self._seed = 0

    def count_turns(self) -> int:
        """Return the turns of all seats."""
        return (len(self.intents) + 1) * self.inner.max_turns

    def seats(self) -> tuple[str, ...]:
        """Return the manager and the experts, who are named after their intents."""
        return (MANAGER, *self.intents)

    def seat(self) -> str:
        """Return the next expert, or the manager when all have spoken."""
        place = len(self.candidates)
        return self.intents[place] if place < len(self.intents) else MANAGER

    def reset(self, task: Task) -> Observation:
        """Begin the talk."""
        self.said, self.candidates, self._seed = [as_text(self.begin_inner(task))], [], task.seed
        return self._describe_talk()

    def step(self, action: Action) -> StepResult:
        """Take an expert's candidate, or say the one that the manager chooses."""
        seat = self.seat()
        if seat != MANAGER:
            text = " ".join(action.text.split())
            label = float(intent_of(self.said, text) == seat)
            self.candidates.append(text)
            return StepResult(
                observation=self._describe_talk(),
                reward=0.0,
                rewards={seat: label},
                reward_terms={LABEL: label},
                is_success=False,
            )
        chosen = action.text.strip()
        if chosen not in self.legal_actions():
            self.candidates = []
            return self._act_and_ask(
                Action(text="", error=action.error or "say the number of a candidate"), ""
            )
        text = self.candidates[self._order()[int(chosen) - 1]]
        return self._act_and_ask(Action(text=text), text)

    def legal_actions(self) -> tuple[str, ...]:
        """Return the numbers of the candidates where the manager chooses, else nothing: experts say what they like."""
        is_choosing = self.seat() == MANAGER
        return tuple(str(place + 1) for place in range(len(self.intents))) if is_choosing else ()

    def expert_action(self) -> Action:
        """Return what is shown to an expert, or to the manager.

        An expert is shown something of its intent, where the environment's expert says such a thing now or makes such a
        mistake, else what the environment's expert says. The manager is shown who says that, or else who says something
        of the same intent, or anybody.
        """
        wanted = cast(Expert, self.inner).expert_action().text
        if self.seat() != MANAGER:
            return Action(text=self._of_intent(self._random(self.seat()), wanted))
        shown = [self.candidates[place] for place in self._order()]
        alike = [text for text in shown if intent_of(self.said, text) == intent_of(self.said, wanted)]
        found = wanted if wanted in shown else next(iter(alike), None)
        return self._any() if found is None else Action(text=self.legal_actions()[shown.index(found)])

    def mistaken_action(self, rng: random.Random) -> Action:
        """Return a typical mistake, of the expert's intent where there is one; any number as the manager.

        See `noisy.Fallible`.
        """
        if self.seat() != MANAGER and isinstance(self.inner, Fallible):
            return Action(text=self._of_intent(rng, self.inner.mistaken_action(rng).text))
        return random_action(self if self.seat() == MANAGER else self.inner, rng, self.said[0])

    def state_key(self) -> str:
        """Return the state of the environment, the talk, and what is said of this turn."""
        return f"{cast(StateKey, self.inner).state_key()} {self.said} {self.candidates} {self._num_done}"

    def _of_intent(self, rng: random.Random, text: str) -> str:
        """Return `text`, or a typical mistake that has the intent of the expert who speaks next as `text` has not."""
        drawn = [text]
        if isinstance(self.inner, Fallible):
            drawn += (self.inner.mistaken_action(rng).text for _ in range(DRAWN))
        return next((said for said in drawn if intent_of(self.said, said) == self.seat()), text)

    def _any(self) -> Action:
        return Action(text=self._random("any").choice(self.legal_actions()))

    def _order(self) -> list[int]:
        """Return the experts in the order in which the manager is shown what they say."""
        places = list(range(len(self.intents)))
        if self.order == "drawn":
            self._random("order").shuffle(places)
        return places

    def _random(self, what: str) -> random.Random:
        return random.Random(derive_seed(what, self._seed, self._num_done))

    def _act_and_ask(self, action: Action, said: str) -> StepResult:
        """Do `action`, and let the experts speak again."""
        result = self._act(action)
        self.candidates = []
        self.said += [said, as_text(result.observation)]
        return replace(result, observation=self._describe_talk(), rewards={MANAGER: result.reward})

    def _describe_talk(self) -> str:
        """Return the talk, and the candidates or the intent of who speaks next."""
        lines = [f"{'me' if place % 2 else 'other'}: {text}" for place, text in enumerate(self.said) if text]
        if self.seat() == MANAGER:
            lines += [f"{n}: {self.candidates[place]}" for n, place in enumerate(self._order(), 1)]
        else:
            lines.append(f"{self.seat()}:")
        return "\n".join(lines)
