"""Typed plans: what is read, what a grammar allows, and how scripted workers carry them out."""

from contextlib import closing
from random import Random

import numpy as np
import pytest

from quintain.agents.catalog import build
from quintain.agents.routed import PlanStep, Routed, RoutedWorld, plan_grammar, read_plan, write_plan
from quintain.agents.workforce import read_cards
from quintain.engines.grammar import Grammars
from quintain.engines.protocol import Grammar
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.text.chat import Chat
from quintain.types import Action, as_text
from quintain.worlds.guess.game import Guess
from quintain.worlds.house.game import House

WORKERS = "anna:go,open,close;bert:go,take,put;cleo:go,clean,heat,cool,light"
CARDS = read_cards(WORKERS)


def make_world(*, steps: int = 4, shows_cards: bool = True) -> RoutedWorld:
    world = RoutedWorld(find("house")(), CARDS, steps=steps, shows_cards=shows_cards)
    begin(world, world.task("train", 2))  # an egg in the fridge, to be cooled and put into the drawer
    return world


def carry_out(world: RoutedWorld, *steps: PlanStep) -> str:
    return as_text(advance(world, Action(text=write_plan(steps))).observation)


def test_a_plan_is_read_as_it_is_written() -> None:
    plan = (PlanStep("anna", "fridge"), PlanStep("bert", "red mug", 1, True), PlanStep("anna", "sink", 2))
    assert (
        write_plan(plan)
        == "1. anna: fridge until done\n2. bert: red mug (after 1) until once\n3. anna: sink (after 2) until done"
    )
    assert read_plan(write_plan(plan), CARDS) == plan


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "got 0 steps; write 1 to 4"),
        ("\n".join(f"{k}. anna: sink until done" for k in range(1, 6)), "got 5 steps"),
        ("go to the fridge", "as step 1; write 1. WORKER: THING until done"),
        ("2. anna: sink until done", "as step 1"),
        ("1. dora: sink until done", "the worker dora in step 1; name one of anna, bert, cleo"),
        ("1. anna: sink (after 1) until done", "step 1 after 1; refer to an earlier one"),
        ("1. anna: sink until done\n2. bert: mug (after 3) until done", "step 2 after 3"),
    ],
)
def test_what_is_no_plan_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_plan(text, CARDS, 4)
    with closing(make_world()) as world:
        result = advance(world, Action(text=text))
        assert says in as_text(result.observation) and not result.is_valid


def test_whatever_is_sampled_under_the_grammar_is_a_plan(small_chat: Chat) -> None:
    compiled = Grammars(len(small_chat.tokenizer), small_chat.tokenizer)
    rng = Random(5)
    for _ in range(40):
        guide = compiled.begin(Grammar(text=plan_grammar(CARDS, 3)), small_chat.stop_ids)
        ids: list[int] = []
        while not guide.is_over and not (ids and ids[-1] in small_chat.stop_ids):
            allowed = np.flatnonzero(guide.allow_tokens()).tolist()
            ids.append(next((i for i in allowed if i in small_chat.stop_ids), 0) or rng.choice(allowed))
            guide.take(ids[-1])
        text = small_chat.text([i for i in ids if i not in small_chat.stop_ids])
        assert 1 <= len(read_plan(text, CARDS, 3)) <= 3


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        (
            "1. anna: sink until done\n2. bert: egg (after 1) until once\n3. anna: sink (after 2) until done",
            True,
        ),
        ("1. anna: sink until done\n2. bert: egg (after 2) until once", False),
        ("1. anna: sink (after 1) until done", False),
        ("1. dora: sink until done", False),
    ],
)
def test_the_grammar_knows_workers_and_earlier_steps(small_chat: Chat, text: str, is_allowed: bool) -> None:
    compiled = Grammars(len(small_chat.tokenizer), small_chat.tokenizer)
    guide = compiled.begin(Grammar(text=plan_grammar(CARDS, 3)), small_chat.stop_ids)
    allowed = True
    for token in small_chat.write(text):
        allowed = allowed and bool(guide.allow_tokens()[token])
        if not allowed:
            break
        guide.take(token)
    assert allowed == is_allowed


def test_workers_do_what_is_on_their_cards_and_what_hangs_on_a_failure_is_skipped() -> None:
    with closing(make_world()) as world:
        told = carry_out(
            world, PlanStep("bert", "fridge"), PlanStep("bert", "egg", 1), PlanStep("anna", "fridge"),
            PlanStep("bert", "egg", 3),
        )  # fmt: skip
        assert (
            told.startswith("1 failed, bert cannot open; 2 skipped; 3 done; 4 done. ")
            and "holding: egg" in told
        )
        assert carry_out(world, PlanStep("anna", "moon")).startswith("1 failed, nothing is done about it. ")


def test_a_step_stops_after_one_action_or_when_nothing_is_left() -> None:
    with closing(make_world()) as world:
        carry_out(world, PlanStep("anna", "fridge", is_once=True))
        assert "open" in world.inner.legal_actions()  # type: ignore[attr-defined] # pyright: ignore
        carry_out(world, PlanStep("anna", "fridge"))
        assert "close" in world.inner.legal_actions()  # type: ignore[attr-defined] # pyright: ignore


@pytest.mark.parametrize("steps", [1, 4])
def test_the_expert_finds_who_can_and_solves_it(steps: int) -> None:
    with closing(RoutedWorld(House(rooms=1), CARDS, steps=steps)) as world:
        for number in range(8):
            begin(world, world.task("train", number))
            result = advance(world, world.expert_action())
            while not result.is_over:
                assert len(read_plan(world.expert_action().text, CARDS)) <= steps
                result = advance(world, world.expert_action())
            assert result.is_success


def test_looking_ahead_changes_nothing() -> None:
    with closing(make_world()) as world:
        before = world.snapshot()  # pyright: ignore
        first, again = world.expert_action(), world.expert_action()
        assert first == again and world.snapshot() == before  # pyright: ignore
        read_plan(world.mistaken_action(Random(1)).text, CARDS)


def test_cards_are_told_or_hidden() -> None:
    with closing(make_world()) as world, closing(make_world(shows_cards=False)) as hidden:
        assert (
            "bert: go, take, put" in world.instructions()
            and "take" not in hidden.instructions().splitlines()[-1]
        )
        assert "bert" in hidden.instructions()


def test_settings_that_are_none(small_chat: Chat) -> None:
    with pytest.raises(UsageError, match="routed: got steps=0; give 1 to 9"):
        Routed(small_chat, steps=0)
    with pytest.raises(UsageError, match="routed: got guess, which does not know the way"):
        RoutedWorld(Guess(), CARDS)
    assert isinstance(build(f"routed?workers={WORKERS}", small_chat, find("house")()), Routed)
