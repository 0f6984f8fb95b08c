"""What actions cost is told to the seat whose turn it is, from what it saw, and nothing else is."""

from contextlib import closing
from pathlib import Path

import pytest

from quintain.agents.catalog import build
from quintain.agents.costed import HEAD, Costed, tell_costs
from quintain.agents.harness import PlainText
from quintain.agents.protocol import Brief
from quintain.environments.protocol import advance, begin
from quintain.errors import DataError, UsageError
from quintain.memory.utility import CostSample, StepsToGo
from quintain.text.chat import Chat
from quintain.types import Action, Task, as_text
from quintain.worlds.twocards.game import TwoCards

TASK = Task(id="w/train/0", environment="w", seed=0)


class Known(StepsToGo):
    """Costs by the length of the action, and what it was asked with."""

    def __init__(self) -> None:
        super().__init__(size=1)
        self.is_fitted, self.asked = True, list[str]()

    def values(self, begins: str, observation: str, actions: list[str] | tuple[str, ...]) -> list[float]:  # type: ignore[override] # pyright: ignore
        self.asked += [begins, observation, *actions]
        return [len(action) - 0.5 * (len(action) == 1) for action in actions]


def brief(*legal: str) -> Brief:
    return Brief(task=TASK, instructions="Act.", tools=(), legal_actions=legal)


def read_prompt(chat: Chat, agent: Costed, *legal: str, later: tuple[str, ...] = ()) -> str:
    session = agent.open(brief(*legal))
    return chat.text(session.observe("a door", later).token_ids)


def test_the_cheapest_actions_are_told_first(small_chat: Chat) -> None:
    agent = tell_costs(PlainText(small_chat), Known())
    assert f"{HEAD} go 2.0; open 4.0." in read_prompt(small_chat, agent, "open", "go")
    assert f"{HEAD} x 1.0." in read_prompt(small_chat, agent, "open", later=("x",)), "a step at least"
    assert f"{HEAD} up 2.0." in read_prompt(small_chat, agent, "open", later=("up",))


def test_nothing_is_told_before_it_is_learned(small_chat: Chat) -> None:
    assert HEAD not in read_prompt(small_chat, tell_costs(PlainText(small_chat), StepsToGo()), "open")


def test_no_fact_of_the_other_card_is_read_by_a_seat(small_chat: Chat) -> None:
    """Of 40 deals: what f is asked of a seat has no value of the other card that was not told."""
    for number in range(40):
        with closing(TwoCards(values=9)) as world:
            seen = as_text(begin(world, world.task("train", number)))
            known = Known()
            agent = tell_costs(PlainText(small_chat), known)
            for seat, other in ((0, 1), (1, 0)):
                known.asked.clear()
                agent.open(brief(*world.legal_actions())).observe(seen, world.legal_actions())
                hidden = {key for key, _ in world.snapshot().deal.cards[other]} - set(
                    world.snapshot().deal.question
                )
                assert not any(key in text.split() for key in hidden for text in known.asked), seat
                seen = as_text(advance(world, Action(text="pass")).observation)


def test_settings_that_are_none(small_chat: Chat, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="costed: got most=0"):
        Costed(PlainText(small_chat), most=0)
    with pytest.raises(DataError, match="holds no weights"):
        Costed(PlainText(small_chat), utility=str(tmp_path / "none.json"))
    with pytest.raises(UsageError, match="costed: got w, which does not list what can be done"):
        tell_costs(PlainText(small_chat), Known()).open(brief())
    utility = StepsToGo()
    utility.fit([CostSample("", "door", "open", 3)])
    utility.save(tmp_path / "u.json")
    made = build(f"costed?utility={tmp_path / 'u.json'}+text", small_chat, TwoCards())
    assert isinstance(made, Costed) and made.model is not None and made.model.is_fitted
