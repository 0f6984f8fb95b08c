"""The experiments of long episodes: what their arms do, and that they run."""

import pytest
import torch

from quintain.methods.horizon.tti import Config
from quintain.types import flatten_scored
from quintain_evidence.experiments.horizon import agile, mem1, mem_agent, pilot_rl, tti
from quintain_evidence.labs.observed import observed_world
from quintain_evidence.labs.tabular import TablePolicy


def test_tti_has_both_orders_on_the_same_plain() -> None:
    (row,) = tti.measure({"seeds": 1, "steps": 60, "batch": 8, "parts": 1}, 3)
    assert {"method", "control", "null_method", "null_control", "extra.long"} <= row.keys()
    far = tti.plain(3, most=tti.NEAR)
    assert len(far.world.tasks) == 24 and far.world.horizon == Config().max_turns
    assert tti.success(far) < 1.0


def test_a_reader_keeps_what_it_writes() -> None:
    reader = mem_agent.Reader((mem_agent.OTHER, 1, mem_agent.OTHER), is_told=False)
    for _ in range(3):
        reader.act(mem_agent.WRITES.index("both"), 0.0)
    assert reader.memory == (1, mem_agent.OTHER), "the newest two stay"
    assert reader.act(len(mem_agent.WRITES) + 1, 0.0).is_success


def test_only_memories_have_the_advantages_of_others() -> None:
    (row,) = mem_agent.measure({"seeds": 1, "updates": 1, "tasks": 2, "rate": 0.3}, 3)
    assert row["extra.start"] == pytest.approx(1 / 3, abs=0.1)


def test_a_state_of_another_book_says_other_values() -> None:
    assert mem1.exchange("red = 4. blue = 0.", 2) == "red = 1. blue = 2."
    told = "<|system|>Memory: red = 4.<|user|>Page 2: blue = 3. red? blue?\n\nWrite <state> and act.<|assistant|>"
    assert mem1.say(told, 1) == "<state>red = 4. blue = 3.</state>\nanswer 4"
    assert mem1.say("<|user|>Page 2: blue = 3. red?<|assistant|>", 1) == "read"


def test_advice_is_known_where_the_question_comes_again() -> None:
    session = agile.Asked((True, False, True), price=0.6)
    unknown = session.row()
    assert session.act(1, 0.9).reward == pytest.approx(0.4)
    assert session.act(0, 0.9).reward == 0.0
    assert session.row() != unknown
    last = session.act(0, 0.9)
    assert last.reward == 1.0 and last.is_over


def test_a_relay_is_solved_by_who_agrees_on_words_and_given_words_are_the_codes() -> None:
    code = [*range(1, pilot_rl.SIZE), 0]
    theta = torch.full((pilot_rl.NUM_ROWS, pilot_rl.SIZE), -50.0)
    for number, word in enumerate(code):
        theta[number, word] = theta[pilot_rl.SIZE + word, number] = 50.0
    world = observed_world(pilot_rl.NUM_ROWS, pilot_rl.WORDS, [], horizon=2)
    policy = TablePolicy(world, theta)
    assert pilot_rl.success(policy, sees_number=False) == pytest.approx(1.0)
    assert pilot_rl.success(policy, sees_number=True) == pytest.approx(1 / pilot_rl.SIZE)
    groups = pilot_rl.play(policy, 2, 5, words=pilot_rl.choose_words(5, code, deranged=False))
    assert all(t.is_success and [turn.seat for turn in t.turns] == ["agent"] for t in flatten_scored(groups))
    own = pilot_rl.play(policy, 2, 5)
    assert all([turn.seat for turn in t.turns] == ["agent/plan", "agent"] for t in flatten_scored(own))
    words = pilot_rl.choose_words(5, code, deranged=False)
    assert pilot_rl.choose_words(5, code, deranged=True) == [*words[1:], words[0]]
