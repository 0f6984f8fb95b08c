"""iAgents: is anything of a person's data in another's prompt before its own agent said it?

Talks of `twocards` in which both must give the answer, four facts on each card, whose values are numbers of four digits
and stand for themselves (canaries). A mind plays both seats through `infonav` by the prompt alone: it writes the plan,
the marks and the messages, with mistakes (plans without brackets, facts told unasked, passing). Half of the talks look
sentences up (`recall`). The number is the share of talks in which a value of one card stands in a prompt of the other
seat, or in its bank, before it was said. In the control the table of facts is filled from both cards, as a table of the
whole talk would be. In the null world the other card is the seat's own, and there is nothing to leak.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Any

from quintain.agents.harness import PlainText
from quintain.agents.infonav import WHOLE, InfoNav, InfoNavSession
from quintain.agents.protocol import Brief
from quintain.environments.catalog import find
from quintain.rollout.request import Options
from quintain.text.chat import Chat
from quintain.types import Action, Completion, Task, Trajectory, derive_seed, flatten_scored
from quintain.worlds.twocards.deal import Deal
from quintain.worlds.twocards.game import TwoCards
from quintain_evidence.labs.mind import Mind, mind_tokenizer, play_mind

SPEC = "twocards?facts=4&terms=4&values=9000&keys=16&consensus=true&max_turns=24"
ERRORS, RECALL = 0.1, 3
FACT, NUMBER = re.compile(r"\b([a-z]+) = (\d+)\."), re.compile(r"\b\d{4}\b")


def say(prompt: str, draw: int) -> str:
    """Return what an agent says: what is asked as a plan, marks by what it has read, then it tells, asks or answers."""
    rng = Random(draw)
    last = prompt.rpartition("<|user|>")[2]
    keys = re.findall(r"((?:[a-z]+ \+ )+[a-z]+)\?", prompt)[0].split(" + ")
    own = dict(FACT.findall(prompt))
    heard = re.findall(r"[AB]: (say|ask) ([a-z]+) ?(\d*)\.", prompt)
    if "square brackets" in last:
        return "I do not know." if rng.random() < ERRORS else f"Add {', '.join(f'[{key}]' for key in keys)}."
    known = {**{key: value for kind, key, value in heard if kind == "say"}, **own}
    if "FACT: VALUE" in last:
        return "\n".join(f"{key}: {known[key]}" for key in keys if key in known) or "none"
    if rng.random() < ERRORS:
        return rng.choice(["pass", *(f"say {key} {value}" for key, value in own.items())])
    newest = re.findall(r"[a-z]\?(?: [AB]: ask ([a-z]+)\.)?", prompt)[-1]
    if newest in own:
        return f"say {newest} {own[newest]}"
    unknown = [key for key in keys if f"[{key}]" in last or (WHOLE in last and key not in known)]
    return (
        f"ask {unknown[0]}" if unknown else f"answer {sum(int(known[key]) for key in keys if key in known)}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledFromBoth(InfoNav):
    """The same with a table that is filled from both cards as soon as there is a plan."""

    deals: Mapping[str, Deal]
    """by the id of the task, whose seed no harness is told"""

    def open(self, brief: Brief) -> InfoNavSession:
        """See `Agent.open`."""
        session = BothSession(self, brief)
        session.deal = self.deals[brief.task.id]
        return session


class BothSession(InfoNavSession):
    """An episode of `FilledFromBoth`."""

    deal: Deal

    def read(self, completion: Completion) -> Action:
        """See `Session.read`; the marks are those of the whole talk."""
        action = super().read(completion)
        if self.facts is not None:
            facts = [fact for card in self.deal.cards for fact in card]
            self.facts.mark("\n".join(f"{key}: {value}" for key, value in facts))
        return action


def deal_of(task: Task) -> Deal:
    """Return both cards of `task`."""
    with closing(find(SPEC)()) as world:
        assert isinstance(world, TwoCards)
        world.reset(task)
        return world.snapshot().deal


def has_leak(talk: Trajectory, chat: Chat, cards: Sequence[set[str]]) -> bool:
    """Return whether a value on one of `cards` alone, A's and B's, is in a prompt of the other before it was said."""
    said: set[str] = set()
    for turn in talk.turns:
        own, other = cards if turn.speaker == "A" else cards[::-1]
        if set(NUMBER.findall(chat.text(turn.prompt_ids))) & (other - own - said):
            return True
        said |= set() if turn.is_internal else set(NUMBER.findall(turn.action.text))
    return False


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return one row: the shares of `talks` talks that leak, and what else is known of them."""
    count, first = int(options["talks"]), derive_seed("iagents", seed) % 1_000_000
    chat = Chat(mind_tokenizer())
    plain, rows = PlainText(chat, 1.0, 64), dict[str, list[float]]()
    with play_mind(Mind(say), SPEC, seed=seed, agent="infonav+text") as probe:
        tasks = probe.tasks(count, split="train", first=first)
        deals = {task.id: deal_of(task) for task in tasks}
        for place, recall in enumerate((0, RECALL)):
            half = tasks[place::2]
            agents = {
                "method": InfoNav(plain, chat, recall=recall, max_tokens=160),
                "control": FilledFromBoth(agent=plain, chat=chat, recall=recall, max_tokens=160, deals=deals),
            }
            for name, agent in agents.items():
                groups = probe.rollout.groups(half, size=1, seed=seed, options=Options(agent=agent))
                for talk in flatten_scored(groups):
                    cards = [{value for _, value in card} for card in deals[talk.task.id].cards]
                    found = {
                        name: has_leak(talk, chat, cards),
                        f"null_{name}": has_leak(talk, chat, [cards[0] | cards[1]] * 2),
                        f"extra.solved_{name}": talk.is_success,
                        f"extra.heard_{name}": has_crossed(talk, chat, cards),
                        f"extra.messages_{name}": sum(not turn.is_internal for turn in talk.turns),
                    }
                    for key, value in found.items():
                        rows.setdefault(key, []).append(float(value))
    counts = {
        "trials": len(rows["method"]),
        "violations": sum(rows.pop("method")),
        "control_trials": len(rows["control"]),
        "control_violations": sum(rows.pop("control")),
    }
    means = {key: fmean(values) for key, values in rows.items()}
    return [
        {
            **{key: float(count) for key, count in counts.items()},
            **means,
            "extra.talks": float(counts["trials"]),
        }
    ]


def has_crossed(talk: Trajectory, chat: Chat, cards: Sequence[set[str]]) -> bool:
    """Return whether a value of one card came to stand in a prompt of the other seat at all."""
    return any(
        set(NUMBER.findall(chat.text(turn.prompt_ids)))
        & (cards[turn.speaker == "A"] - cards[turn.speaker == "B"])
        for turn in talk.turns
    )
