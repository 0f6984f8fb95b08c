"""Agent-R, RRO, E2CL and StepAgent: which steps they find, what they make of them, and that they train."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from tests.methods.test_training import Coin, Hopeless

from quintain.agents.foresight import FINE
from quintain.data.pairs import extremes
from quintain.methods.preference import agent_r, e2cl, rro, step_agent
from quintain.rollout.corrections import TriedProposal
from quintain.types import Action, Group, StepResult, Stop, Task, as_content
from quintain_evidence.formulas.steps import acted


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 4)


def test_what_an_invalid_action_led_to_puts_nothing_right() -> None:
    lost, won = acted((0, 1), 0.0, 0), acted((0, 0), 1.0, 1)
    assert agent_r.partners([lost, won], good=0.5, gap=0.2) == [(lost, won)]
    invalid = replace(won, turns=(won.turns[0], replace(won.turns[1], is_valid=False)))
    assert agent_r.partners([lost, invalid], good=0.5, gap=0.2) == []


def test_the_cut_is_after_the_first_bad_step_behind_the_parting() -> None:
    assert agent_r.first_bad(["good", "bad", "uncertain", "bad"], 0) == 2
    assert agent_r.first_bad(["good", "bad", "uncertain", "bad"], 2) == 4
    assert agent_r.first_bad(["good", "uncertain"], 0) is None
    tree = [acted((0, 0), 1.0, 0), acted((0, 1, 1), 0.0, 1), acted((0, 1, 0), 0.0, 2), acted((1,), 0.5, 3)]
    assert agent_r.verdicts(tree, tree[1], 0.5) == ["uncertain", "bad", "good"]


def test_drawing_stops_at_the_first_rise() -> None:
    values = [0.3, 0.4, 0.55]
    assert rro.num_drawn(values, 0.4) == 3 and rro.num_drawn(values, 0.4, is_strict=False) == 2
    assert rro.num_drawn(values, 0.9) == 3, "the cap"
    assert rro.choose_followed(values, 0.4) == 2 and rro.choose_followed([0.1, 0.3, 0.2], 0.4) == 1
    climb = rro.Climb(prefix=cast(Any, None), before=0.4, drawn=[(acted((0,), 0.0, 0), 0.4)])
    assert not rro.has_stopped(climb, rro.Config(cap=2))
    assert rro.has_stopped(climb, rro.Config(cap=2, is_strict=False)) and rro.has_stopped(
        climb, rro.Config(cap=1)
    )
    assert rro.find_followed(climb, rro.Config()) == 0


def test_without_a_stop_all_are_drawn_and_the_best_is_followed() -> None:
    drawn = [(acted((k,), 0.0, k), value) for k, value in enumerate([0.8, 0.5])]
    climb = rro.Climb(prefix=cast(Any, None), before=0.4, drawn=drawn)
    assert rro.has_stopped(climb, rro.Config(cap=3)) and rro.find_followed(climb, rro.Config()) == 1
    fixed = rro.Config(cap=3, stops=False)
    assert not rro.has_stopped(climb, fixed) and rro.find_followed(climb, fixed) == 0
    assert rro.has_stopped(climb, rro.Config(cap=2, stops=False))


def test_a_pair_is_the_best_and_the_worst_of_a_state() -> None:
    drawn = [(acted((k,), 0.0, k), value) for k, value in enumerate([0.3, 0.4, 0.55, 0.3])]
    (pair,) = extremes([drawn, drawn[:1], [drawn[0], drawn[3]]])
    assert (pair.chosen.index, pair.rejected.index) == (2, 0) and pair.margin == pytest.approx(0.25)
    assert pair.level == "turn"


def test_what_a_draft_teaches() -> None:
    shown = acted((0, 0), 1.0, 0)
    result = StepResult(observation="Hands full. Table: mug.", is_valid=False)
    on, off = Action(text="on"), Action(text="off")
    lesson = e2cl.lesson_of(shown, 1, off, TriedProposal(result, on))
    assert lesson is not None and lesson.feedback == "hands full" and lesson.right == on
    assert [each.text for each in lesson.said] == ["off", "hands full", "on"]
    assert lesson.place == (shown.task.id, ("0",))
    fine = e2cl.lesson_of(shown, 1, off, TriedProposal(replace(result, is_valid=True), None))
    assert fine is not None and fine.said == (off, Action(text=FINE)) and fine.feedback == FINE
    assert e2cl.lesson_of(shown, 1, off, TriedProposal(result, None)) is None, (
        "nothing is known that is right"
    )
    assert e2cl.lesson_of(shown, 1, on, TriedProposal(result, on)) is None, "and it is not the draft itself"
    assert e2cl.lesson_of(shown, 1, Action(error="?"), TriedProposal(result, on)) is None
    same = Action(text="hands full")
    assert e2cl.lesson_of(shown, 1, same, TriedProposal(result, on)) is None, (
        "said again, it would be taken to be fine"
    )


def test_nothing_follows_a_draft_that_is_fine_or_where_no_way_is_known() -> None:
    on, off = Action(text="on"), Action(text="off")
    begun = replace(acted((0,), 1.0, 0).turns[0], observation=as_content("The coin is in the air."))
    task = Task(id="g", environment="coin", seed=0)
    shown = replace(acted((0,), 1.0, 0), task=task, turns=(begun,))
    fine = e2cl.Lesson(episode=shown, turn=0, draft=off, feedback=FINE, right=off)
    assert e2cl.go_on(Coin, fine, 2) is fine
    wrong = replace(fine, feedback="no use", right=on)
    assert e2cl.go_on(Hopeless, wrong, 0) is wrong
    assert e2cl.go_on(Hopeless, wrong, 2) == wrong, "nothing solves it"


def test_the_same_step_however_written_drops_out_and_so_does_a_cut_one() -> None:
    expert = acted((1,), 1.0, 9)
    own = [acted((done,), 0.0, k) for k, done in enumerate((1, 2, 2, 3))]
    cut = replace(
        own[3],
        turns=(replace(own[3].turns[0], completion=replace(own[3].turns[0].completion, stop="length")),),
    )
    group = Group(task=expert.task, trajectories=(*own[:3], cut))
    (pair,) = step_agent.prefer_expert([group], {expert.task.id: expert})
    assert pair.chosen.index == 9 and pair.rejected.index == 1
    limited = replace(own[1], stop=Stop.CUT)
    assert (
        len(step_agent.prefer_expert([replace(group, trajectories=(limited,))], {expert.task.id: expert}))
        == 1
    )
    assert not step_agent.prefer_expert([group], {})
    assert not step_agent.prefer_expert([replace(group, trajectories=(own[0],))], {expert.task.id: expert})
