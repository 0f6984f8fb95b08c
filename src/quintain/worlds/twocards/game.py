"""Two seats with a card each: only together do they know enough, and only by talking.

Families it stands for: information exchange between agents, as in Optima (arXiv 2410.08115), iAgents (2406.14928) and
the debates of MARTI. Seats act in turn, and an observation is addressed to the seat whose turn it is. What is on a
card reaches the other seat in messages and in no other way.
"""

import re
from dataclasses import dataclass, replace
from random import Random
from typing import ClassVar, Literal

from quintain.environments.noisy import chatter
from quintain.environments.protocol import Environment
from quintain.environments.splitting import split_draw
from quintain.environments.words import KEYS
from quintain.errors import UsageError
from quintain.types import Action, StepResult, Task, derive_seed
from quintain.worlds.twocards.deal import (
    CLAIM,
    Deal,
    Message,
    Shape,
    draw_deal,
    expert_talk,
    progress,
    style_message,
)

SEATS = ("A", "B")
NAMED = frozenset(KEYS)
ANSWER = re.compile(r"answer (-?\d{1,9})")
SPOKEN = re.compile(r"(?:say|ask) \S.*", re.DOTALL)
LONGEST_MESSAGE = 200
"""Characters of a message that reach the other seat."""
PROCESS_SHARE = 0.5
"""What a dense reward pays for needed facts that were passed on, out of 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A talk as a value: ``State(deal=deal, messages=((0, "say red 4"),))``."""

    deal: Deal
    messages: tuple[Message, ...] = ()
    acting: int = 0
    """number of the seat that acts next"""
    num_lost: int = 0
    """messages that did not arrive"""


@dataclass(kw_only=True, eq=False)
class TwoCards(Environment):
    """Two seats, A and B, each with a card of facts. Exchange what is needed, then answer.

    Act: say KEY VALUE, ask KEY, answer NUMBER, or pass.
    """

    name = "twocards"
    tags: ClassVar[frozenset[str]] = frozenset({"planning", "memory", "reasoning"})

    facts: int = 2
    """facts on each card"""
    terms: int = 2
    """keys that the question adds up"""
    hops: int = 1
    """facts that lead from a key to its value"""
    values: int = 5
    """values are 0 to `values` - 1"""
    keys: int = 16
    """different keys that facts are about"""
    informed: Literal["both", "one"] = "both"
    """whether seat B is told the question, too"""
    partner: Literal["self", "scripted"] = "self"
    """who plays seat B: the policy, or a script"""
    consensus: bool = False
    """whether both seats must give the right answer"""
    cost: float = 0.02
    """what a message costs"""
    max_turns: int = 12
    noise: int = 0
    """sentences on a card that say nothing"""
    style: Literal["short", "mixed"] = "short"
    """how the expert tells facts: in few words; or of each three one in few, one in many, one without the verb, which
    is then understood of everybody"""
    message_failures: float = 0.0
    """share of messages that get lost"""
    dense: bool = False
    """whether needed facts that are passed on are paid for, too"""
    alone: float = 0.0
    """share of deals in which one card holds all that is needed, so that nothing need be said"""

    def __post_init__(self) -> None:
        """Check the options.

        Raises:
            UsageError: they contradict each other or are out of range.
        """
        facts, terms, hops, needed = self.facts, self.terms, self.hops, self.terms * self.hops
        if min(facts, terms, hops) < 1 or not 2 <= needed <= 2 * facts or self.values < 2:
            raise UsageError(
                f"twocards: got facts={facts}, terms={terms}, hops={hops}, values={self.values}; give 2 values or "
                "more, and terms times hops between 2 and twice the facts"
            )
        if not 2 * facts + needed <= self.keys <= len(KEYS):
            raise UsageError(
                f"twocards: got keys={self.keys} for {2 * facts + needed} facts and questions; "
                f"give as many keys, and at most {len(KEYS)}"
            )
        if not 0 <= self.alone <= (needed <= facts and not self.dense):
            raise UsageError(
                f"twocards: got alone={self.alone} with dense={self.dense}, {needed} needed facts and cards of "
                f"{facts}; give a share from 0 to 1, cards that can hold all, and a reward that is not dense"
            )
        is_dear = not 0 <= self.cost * self.max_turns < 1
        if self.max_turns < 2 or self.noise < 0 or is_dear or not 0 <= self.message_failures < 1:
            raise UsageError(
                f"twocards: got max_turns={self.max_turns}, noise={self.noise}, cost={self.cost}, message_failures="
                f"{self.message_failures}; give 2 turns or more that together cost less than 1, and failures below 1"
            )
        self._shape = Shape(
            facts=facts,
            terms=terms,
            hops=hops,
            values=self.values,
            keys=self.keys,
            informed=self.informed,
            alone=self.alone,
        )
        self.return_range = (-self.cost * self.max_turns, 1.0)
        self._answers = tuple(f"answer {number}" for number in range(terms * (self.values - 1) + 1))
        self._state = State(deal=Deal(cards=((), ()), question=(), answer=0, needed=()))

    def reset(self, task: Task) -> str:
        """Deal the cards of the task; seat A begins."""
        self._state = State(deal=split_draw(task, lambda rng: draw_deal(rng, self._shape)))
        return self._view()

    def seats(self) -> tuple[str, ...]:
        """Return the seats that an agent plays."""
        return SEATS[:1] if self.partner == "scripted" else SEATS

    def seat(self) -> str:
        """Return the seat that acts next."""
        return SEATS[self._state.acting]

    def step(self, action: Action) -> StepResult:
        """Let the seat whose turn it is speak, and a scripted partner answer."""
        text = " ".join(action.text.split())[:LONGEST_MESSAGE]
        is_message = bool(ANSWER.fullmatch(text) or SPOKEN.fullmatch(text) or text == "pass")
        is_message |= (
            self.style == "mixed" and text.partition(" ")[0] in NAMED and bool(CLAIM.fullmatch(text))
        )
        if action.error is not None or not is_message:
            problem = action.error or "write say KEY VALUE, ask KEY, answer NUMBER, or pass"
            return StepResult(observation=f"Error: {problem}", is_valid=False, is_success=False)
        before = progress(self._state.deal, self._state.messages)
        terms = {"messages": -self.cost} if text != "pass" else {}
        is_right = self._speak(text)
        if is_right is None and self.partner == "scripted":
            is_right = self._speak(self._expert_text())
        if self.dense:
            passed_on = self._pay_progress(before)
            terms |= {"passed_on": passed_on} if passed_on else {}
        if is_right:
            terms["answer"] = 1.0 - (PROCESS_SHARE if self.dense else 0.0)
        return StepResult(
            observation=self._view() if is_right is None else ("Right." if is_right else "Wrong."),
            reward=sum(terms.values()),
            is_terminated=is_right is not None,
            is_success=bool(is_right),
            reward_terms=terms,
        )

    def legal_actions(self) -> tuple[str, ...]:
        """Return what the seat may say of its card, questions for keys it was told of, answers, and `pass`."""
        now = self._state
        card = now.deal.cards[now.acting]
        heard = [word for speaker, text in now.messages if speaker != now.acting for word in text.split()[1:]]
        named = [
            *(now.deal.question if self._are_informed()[now.acting] else ()),
            *(value for _, value in card),
            *heard,
        ]
        own = {key for key, _ in card}
        open_keys = dict.fromkeys(key for key in named if key in NAMED and key not in own)
        ways = range(1 if self.style == "short" else 3)
        said = tuple(style_message(f"say {key} {value}", way) for key, value in card for way in ways)
        return (*said, *(f"ask {key}" for key in open_keys), *self._answers, "pass")

    def expert_action(self) -> Action:
        """Return what a helpful seat would do, from its own card and what was said to it."""
        return Action(text=self._expert_text())

    def mistaken_action(self, rng: Random) -> Action:
        """Tell something, right or wrong, or answer too early; see `noisy.Fallible`."""
        key, value = rng.choice(self._state.deal.cards[self._state.acting])
        lie = f"say {key} {rng.randrange(self._shape.values)}"
        return Action(text=rng.choice((f"say {key} {value}", lie, rng.choice(self._answers), "pass")))

    def privileged(self) -> str:
        """Return the facts that are needed and the answer, which neither seat sees."""
        deal = self._state.deal
        return f"{', '.join(f'{key} {value}' for key, value in deal.needed)}; answer {deal.answer}"

    def snapshot(self) -> State:
        """Return the talk as a value."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot."""
        self._state = state

    def state_key(self) -> str:
        """Return a key of the cards, all that was said, and whose turn it is."""
        now = self._state
        return f"{derive_seed(repr(now.deal), repr(now.messages), now.num_lost)}:{now.acting}"

    def _are_informed(self) -> tuple[bool, bool]:
        return True, self._shape.informed == "both"

    def _expert_text(self) -> str:
        """Return what the expert says; it agrees with an answer that it was given unless it knows better."""
        now = self._state
        said = expert_talk(now.deal, now.messages, now.acting, self._are_informed())
        given = self._find_answer()
        if given and not ANSWER.fullmatch(said):
            return given[0]
        if self.style == "short":
            return said
        return style_message(said, derive_seed("style", repr(now.deal), len(now.messages), now.acting) % 3)

    def _find_answer(self) -> re.Match[str] | None:
        """Return the answer that the other seat has just given, if it has."""
        now = self._state
        if not now.messages or now.messages[-1][0] == now.acting:
            return None
        return ANSWER.fullmatch(now.messages[-1][1])

    def _speak(self, text: str) -> bool | None:
        """Let the acting seat say `text`; return whether the talk ended right, None while it goes on."""
        now = self._state
        answer, given = ANSWER.fullmatch(text), self._find_answer()
        if answer and (given or not self.consensus):
            return {int(found[1]) for found in (answer, given) if found} == {now.deal.answer}
        is_lost = text != "pass" and not answer and self._is_lost()
        heard = () if text == "pass" or is_lost else ((now.acting, text),)
        self._state = replace(
            now,
            messages=(*now.messages, *heard),
            acting=1 - now.acting,
            num_lost=now.num_lost + (text != "pass" and bool(self.message_failures)),
        )
        return None

    def _is_lost(self) -> bool:
        """Whether the next message gets lost, by a chance that depends on the deal and the talk alone."""
        now = self._state
        chance = derive_seed("twocards", repr(now.deal), now.num_lost) % 10_000
        return chance < 10_000 * self.message_failures

    def _pay_progress(self, before: float) -> float:
        """Return what a dense reward pays for the progress since `before`."""
        now = self._state
        start = progress(now.deal, ())
        return PROCESS_SHARE * (progress(now.deal, now.messages) - before) / (1 - start)

    def _view(self) -> str:
        """Return what the acting seat sees: its card and the question at first, then what was said to it."""
        now = self._state
        name, other = SEATS[now.acting], SEATS[1 - now.acting]
        said = (
            f" {other}: {now.messages[-1][1]}." if now.messages and now.messages[-1][0] != now.acting else ""
        )
        return f"{name}.{self._card()}{said}"

    def _card(self) -> str:
        """Return the card of the acting seat, with the question if it was told."""
        deal, acting = self._state.deal, self._state.acting
        card = " ".join(f"{key} = {value}." for key, value in deal.cards[acting])
        asked = f" {' + '.join(deal.question)}?" if self._are_informed()[acting] else ""
        return f" {card}{asked}{chatter(self.noise, 'twocards', repr(deal), acting)}"
