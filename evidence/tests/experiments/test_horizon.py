"""The experiments of long episodes: what their arms do, and that they run."""

from contextlib import closing
from random import Random

import pytest
import torch

from quintain.agents.routed import PlanStep, RoutedWorld, write_plan
from quintain.environments.protocol import advance, begin
from quintain.methods.horizon.tti import Config
from quintain.types import Action, flatten_scored
from quintain.worlds.house.game import House
from quintain_evidence.experiments.horizon import agile, mem1, mem_agent, pilot_rl, router, tti
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


def test_a_plan_solves_a_house_where_every_step_has_who_can_do_it() -> None:
    """The rule that the experiment plays by, beside plans that the harness' own world carries out."""
    rng = Random(3)
    seen: set[bool] = set()
    for number in range(12):
        task = router.draw_tasks(number, 1)[0]
        cards, way = router.draw_cards(number), router.find_way(task.seed)
        able = [
            [k for k, name in enumerate(router.WORKERS) if {*verbs} <= {*cards[name]}] for _, verbs in way
        ]
        workers = [rng.choice(own or [0]) for own in able]
        workers[-1] = rng.randrange(3)
        steps = zip(way, workers, strict=True)
        plan = tuple(PlanStep(router.WORKERS[w], thing, k) for k, ((thing, _), w) in enumerate(steps))
        with closing(RoutedWorld(House(rooms=1), cards, steps=router.MOST)) as world:
            begin(world, task)
            is_solved = advance(world, Action(text=write_plan(plan))).is_success
        assert is_solved == router.solves(task.seed, cards, workers)
        seen.add(bool(is_solved))
    assert seen == {True, False}


def test_a_planner_has_the_outcomes_of_others_in_the_control() -> None:
    cards = router.draw_cards(1)
    (group,) = router.play(router.make_planner(), lambda _: cards, router.draw_tasks(2, 1), size=4, seed=5)
    told = router.exchange(group)
    assert [t.outcome for t in told.trajectories] == [
        t.outcome for t in (*group.trajectories[1:], group.trajectories[0])
    ]
    (row,) = router.measure({"seeds": 1, "updates": 1, "rate": 0.1, "tests": 4}, 3)
    assert {"method", "control", "null_method", "null_control", "extra.imitation"} <= row.keys()
