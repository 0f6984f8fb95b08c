"""What single methods are made of: roles, relabelled answers, contexts, the expert's actions, selected tasks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.build import make_episode, make_group

from quintain.credit.gae import Critic
from quintain.data.samples import since_segment
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, advance, begin
from quintain.errors import ConfigError
from quintain.methods.find import find_method
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.rl import epo, metaspatial, mucode, openmanus, pag, toolrl, ui_r1
from quintain.methods.rl.parts.contexts import (
    ExpertLabels,
    Keep,
    agreement,
    ask_expert,
    calls_of,
    is_kept,
    single,
)
from quintain.methods.rl.parts.relabelling import best_answer, is_right_answer, relabel_groups
from quintain.methods.rl.ui_r1 import hard_and_diverse
from quintain.rewards.terms import Term, apply
from quintain.types import (
    Action,
    Completion,
    Failure,
    Group,
    Score,
    ToolCall,
    Trajectory,
    Turn,
    as_content,
)
from quintain.worlds.screen.game import Screen

FAILURE = Failure(owner="judge", kind="k", message="m")


def turn(
    text: str = "", *, ids: tuple[int, ...] = (1,), prompt: tuple[int, ...] = (7,), **fields: Any
) -> Turn:
    completion = Completion(token_ids=ids, logprobs=(-0.5,) * len(ids), stop="stop")
    given: dict[str, Any] = {
        "observation": (),
        "prompt_ids": prompt,
        "completion": completion,
        "action": Action(text=text),
    }
    return Turn(**{**given, **fields})


def episode(*turns: Turn, value: float = 0.0, task: str = "t") -> Trajectory:
    return make_episode(*turns, task=task, outcome=Score(value=value, is_success=value > 0), group=task)


# pag


def test_roles_are_read_from_what_a_turn_was_paid_for() -> None:
    told = [
        turn(reward=0.0, reward_terms={"answer": 0.0}),
        turn(reward=1.0, reward_terms={"verdict": 1.0}),
        turn(reward=1.0, reward_terms={"answer": 1.0}),
        turn(reward=0.0, reward_terms={"verdict": 0.0}),
    ]
    mended = episode(*told)
    assert [pag.role(mended, t) for t in told] == ["policy", "verifier", "policy", "verifier"]
    spoiled = episode(told[2], told[3], told[0])
    found = pag.verification([make_group(mended, spoiled)], str)
    assert found == {"pag/true_verdicts": pytest.approx(1 / 3), "pag/mended": 0.5, "pag/spoiled": 0.5}
    (paid,) = pag.pay_roles([make_group(episode(*(replace(t, reward=0.0) for t in told), turn(reward=0.25)))])
    assert [t.reward for t in paid.trajectories[0].turns] == [0, 1, 1, 0, 0.25]
    assert pag.verification([], str) == {"pag/true_verdicts": 0, "pag/mended": 0, "pag/spoiled": 0}


# mucode


def answering(text: str, *, pays: float = 0.0, **fields: Any) -> Turn:
    """A turn that the world calls an answer."""
    return turn(text, reward=pays, reward_terms={"answer": pays}, **fields)


def judging(text: str, *, pays: float = 0.0, **fields: Any) -> Turn:
    """A turn that judges an answer."""
    return turn(text, reward=pays, reward_terms={"verdict": pays}, **fields)


def test_the_best_answer_stands_in_place_of_the_last_answer_that_failed() -> None:
    short = episode(answering("x", ids=(5,), pays=1.0), judging("right", ids=(8,), pays=1.0), value=2)
    long = episode(answering("y", ids=(5, 6), pays=1.0), judging("right", ids=(8,), pays=1.0), value=2)
    lost = episode(
        answering("a", ids=(2,), prompt=(10,), starts_segment=True),
        judging("wrong", ids=(3,), prompt=(11,), pays=1.0),
        answering("c", ids=(4,), prompt=(12,)),
        judging("right", ids=(9,), prompt=(13,)),
    )
    whole = make_group(short, long, lost)
    assert best_answer(whole, None) == short.turns[0]
    favourite: dict[tuple[int, ...], float] = {(5, 6): 1.0, (8,): 2.0}
    by_length = best_answer(whole, lambda t: favourite.get(t.completion.token_ids, 0.0))
    assert by_length == long.turns[0]
    (found,) = relabel_groups([whole, make_group(lost)], None, count=1)
    assert found.trajectories[:2] == (short, long)
    (last,) = found.trajectories[2].turns
    assert last.prompt_ids == (10, 2, 11, 3, 12)
    assert (last.completion.token_ids, last.completion.logprobs, last.starts_segment) == ((5,), (), True)
    assert last.action.text == "x" and last.reward_terms == {"answer": 1.0}
    (alone,) = relabel_groups([whole], None, count=0)
    assert alone.trajectories == (short, long)
    silent = make_group(short, episode(judging("wrong")))
    assert relabel_groups([silent], None, count=3)[0].trajectories == (short,)
    cut = (lost.turns[0], replace(lost.turns[1], starts_segment=True), lost.turns[2])
    assert list(since_segment(cut)) == list(cut[1:])


def test_only_answers_are_labelled() -> None:
    mended = episode(
        answering("a"), judging("wrong", pays=1.0), answering("b", pays=1.0), judging("right", pays=1.0)
    )
    assert [is_right_answer(mended, number) for number in range(4)] == [False, None, True, None]
    partly = episode(answering("a", pays=0.5))
    assert is_right_answer(partly, 0) is False
    verifier = mucode.method(mucode.Config(environment="sums")).state
    told = [answering("no", ids=(1,)), judging("wrong", ids=(2,)), answering("yes", ids=(3,), pays=1.0)]
    verifier.update([make_group(episode(*told, value=1.0))])
    (only,) = verifier.parts  # type: ignore[attr-defined] # pyright: ignore
    no, verdict, yes = map(only.score, told)
    assert yes > 0.3 > -0.3 > no and abs(verdict) < 0.2


# swirl


def test_a_context_is_a_prompt_and_one_action() -> None:
    whole = episode(
        turn(ids=(2,), prompt=(10,), starts_segment=True),
        turn(ids=(3,), prompt=(11,), is_valid=False),
        turn(ids=(4,), prompt=(12,)),
        value=1,
    )
    (only,) = single(whole, 2).turns
    assert (only.prompt_ids, only.completion.token_ids) == ((10, 2, 11, 3, 12), (4,))
    assert single(whole, 0).turns[0].prompt_ids == (10,)
    assert single(whole, 3) is whole


KEPT = [("process", "1010"), ("outcome", "1110"), ("both", "1010"), ("all", "1111")]


@pytest.mark.parametrize(("keep", "kept"), KEPT)
def test_which_steps_of_a_teacher_that_errs_are_learned_from(keep: Keep, kept: str) -> None:
    """Sound is what the expert does, whatever the outcome; a step that cannot be read never is."""
    right = Action(text="x")
    won = episode(turn("x"), turn("y"), turn("x"), value=1)
    lost = replace(won, outcome=Score(value=0.0, is_success=False))
    found = [is_kept(won, number, right, keep) for number in range(3)]
    unread = replace(lost.turns[0], action=Action(text="x", error="cut"))
    found.append(is_kept(replace(lost, turns=(unread,)), 0, right, keep))
    assert found == [mark == "1" for mark in kept]
    assert is_kept(lost, 0, right, keep) == (keep in ("process", "all"))


def test_agreement_is_by_field() -> None:
    wanted = Action(tool_calls=(ToolCall(name="a", arguments={"x": 1, "y": 2}),))
    near = Action(tool_calls=(ToolCall(name="a", arguments={"x": 1, "y": 3}),))
    assert [agreement(action, wanted) for action in (wanted, near, Action())] == [1, 0.75, 0]
    assert agreement(replace(wanted, error="cut"), wanted) == 0


# toolrl, ui_r1


CORRIDOR = f"{Path(__file__).with_name('corridor.py')}:Corridor"


def test_the_expert_is_asked_in_the_states_of_the_episode() -> None:
    labels = ExpertLabels(CORRIDOR, ask_expert)
    environment = find(CORRIDOR)()
    task = environment.task("train", 0)
    shown = [environment.reset(task), environment.step(Action(text="left")).observation]
    turns = [
        turn(said, observation=as_content(seen)) for said, seen in zip(("left", "right"), shown, strict=True)
    ]
    walked = replace(episode(*turns), task=task)
    assert labels.labels(walked) == [Action(text="right")] * 2
    term = Term(name="same", measure=labels.measure(lambda did, wanted: float(did == wanted)))
    rewarded = apply(walked, [term])
    assert [t.reward for t in rewarded.turns] == [0, 0.5]
    lost = replace(walked, task=replace(task, data={}), turns=())
    assert labels.labels(lost) == []


def test_where_the_expert_gives_up_the_judge_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = ExpertLabels(CORRIDOR, ask_expert)
    monkeypatch.setattr(labels, "labels", lambda _: [None])
    outcome = apply(
        episode(turn("left")), [Term(name="same", measure=labels.measure(lambda *_: 1.0))]
    ).outcome
    assert isinstance(outcome, Failure) and outcome.owner == "judge"
    assert calls_of(Action(text="go")) == (ToolCall(name="go"),)
    assert calls_of(Action()) == ()


@pytest.mark.parametrize(
    ("said", "fine", "coarse"),
    [
        ({"x": 1, "y": 2}, 4.0, 4.0),
        ({"x": 1, "y": 3}, 2.5, -2.0),
        ({}, 1 + 6 * 1 / 4 - 3, -2.0),
        (None, -3.0, -3.0),
    ],
)
def test_format_and_fields_of_a_call_add_up(said: dict[str, int] | None, fine: float, coarse: float) -> None:
    """ToolRL: of S = names + argument names + values, 3 of 4 are 1.5, and 1 more for what can be read."""
    wanted = Action(tool_calls=(ToolCall(name="a", arguments={"x": 1, "y": 2}),))
    calls = (ToolCall(name="a", arguments=said or {}),)
    action = Action(error="?") if said is None else Action(tool_calls=calls)
    assert toolrl.score(action, wanted, is_fine=True, format_weight=1.0) == pytest.approx(fine)
    assert toolrl.score(action, wanted, is_fine=False, format_weight=1.0) == coarse


def click(x: float, y: float) -> Action:
    return Action(tool_calls=(ToolCall(name="click", arguments={"x": x, "y": y}),))


class Expected(Environment):
    """An expert that does what it was told to."""

    wanted: Action

    def expert_action(self) -> Action:
        return self.wanted


def test_a_point_is_inside_the_box_around_the_experts() -> None:
    world = Expected()

    def score(action: Action, wanted: Action, tolerance: float) -> float:
        world.wanted = wanted
        target = ui_r1.ask_target(world, tolerance=tolerance)
        assert target is not None
        return ui_r1.score(action, target)

    assert score(click(3, 4), click(4, 4), tolerance=1) == 1
    assert score(click(2, 4), click(4, 4), tolerance=1) == pytest.approx(2 / 3)
    assert score(Action(text="back"), Action(text="back"), tolerance=0) == 1
    assert score(Action(text="on"), Action(text="back"), tolerance=0) == 0.5
    assert score(Action(error="?"), Action(text="back"), tolerance=0) == 0


def test_the_box_is_the_worlds_where_it_knows_one() -> None:
    world = Screen(goal="form", buttons=1)
    begin(world, world.task("train", 0))
    kinds: list[str] = []
    for _ in range(world.max_turns):
        target = ui_r1.ask_target(world, tolerance=0)
        assert target is not None
        kinds.append(target.kind)
        if target.kind == "type":
            assert target.box is None
        else:
            assert target.box is not None
            left, top, right, bottom = map(int, target.box)
            assert right > left
            for x, y in ((left, top), (right, bottom), ((left + right) // 2, top)):
                assert ui_r1.score(click(x, y), target) == 1
            for x, y in ((left - 1, top), (right, bottom + 1)):
                assert ui_r1.score(click(x, y), target) == pytest.approx(2 / 3)
        if advance(world, world.expert_action()).is_terminated:
            break
    assert set(kinds) == {"click", "type"}


def test_hard_tasks_of_every_kind_come_first() -> None:
    def tried(name: str, *values: float) -> Group:
        return make_group(*(episode(turn(), value=v, task=name) for v in values))

    groups = [tried("a1", 0.5), tried("a2", 0.0, 0.2), tried("b1", 0.9), tried("easy", 1.0)]
    chosen = hard_and_diverse(groups, lambda g: g.task.id[0], count=3)
    assert [task.id for task in chosen] == ["a2", "b1", "a1"]
    only_easy = hard_and_diverse(groups[3:], lambda g: "", count=2)
    assert [task.id for task in only_easy] == ["easy"]
    failed = make_group(replace(episode(turn()), outcome=FAILURE))
    assert hard_and_diverse([failed], lambda g: "", count=2) == []


# metaspatial, epo, ui_tars2


def test_attempts_are_discounted_and_a_broken_judge_is_no_grade() -> None:
    attempts = episode(turn(reward=0.5), turn(reward=1.0), value=1.5)
    outcome = metaspatial.discount_rewards(attempts, 0.9).outcome
    assert isinstance(outcome, Score) and outcome.value == pytest.approx(0.5 + 0.9)
    broken = replace(attempts, outcome=FAILURE)
    assert metaspatial.discount_rewards(broken, 0.9) is broken


def test_only_groups_that_the_environment_paid_differently_are_left() -> None:
    config = openmanus.Config(environment="w", invalid_penalty=0.25)
    made = openmanus.method(config)
    lost, bad = episode(turn()), episode(turn(is_valid=False))
    won = episode(turn(reward=1.0), value=1.0)
    equal, differing = make_group(lost, bad), make_group(lost, won)
    rewarded = made.reward([equal, differing, make_group(won, won)])
    assert [t.outcome for t in rewarded[0].trajectories] == [
        Score(value=0.0, is_success=False),
        Score(value=-0.25, is_success=False),
    ]
    assert list(made.keep(rewarded)) == [rewarded[1]]


def test_key_turns_are_those_that_led_to_something_new() -> None:
    walked = episode(
        turn(state_key="a"),
        turn(state_key="b"),
        turn(state_key="b", is_valid=False),
        turn(state_key="c"),
        value=1,
    )
    assert epo.key_turns(walked) == [1, 0, 0, 1]
    assert epo.success_alone(walked) == [0, 0, 0, 1]
    failed = replace(walked, outcome=Score(value=0.0, is_success=False))
    assert epo.key_turns(failed) == epo.success_alone(failed) == [0] * 4
    assert epo.key_turns(episode(value=1)) == []
    with pytest.raises(ConfigError, match="discount: got 0"):
        find_method("epo").config_class(discount=0.0).check()


def test_by_default_a_turn_that_led_nowhere_weighs_less_than_those_that_led_on() -> None:
    walked = episode(turn(state_key="a", is_valid=False), turn(state_key="a"), turn(state_key="b"), value=1)

    def weights(**fields: float) -> list[float]:
        made = find_method("epo").make(find_method("epo").config_class(**fields))
        assert isinstance(made, OnPolicy)
        (found,) = made.credit([make_group(walked)], Estimates()).advantages
        return [3 * float(array.sum()) for array in found]

    assert weights() == pytest.approx([0.5, 1.0, 2 / 3], abs=1e-6)
    assert weights(discount=0.99) == pytest.approx([0.99, 1.0, 1 / 1.99], abs=1e-6), "as published"


def test_by_default_the_reward_of_a_short_episode_reaches_its_first_tokens() -> None:
    won, lost = (
        episode(turn(ids=(1,) * 6), turn(ids=(1,) * 6, reward=reward), value=reward) for reward in (1.0, 0.0)
    )
    values = Critic(values=[[np.zeros(6, np.float32)] * 2] * 2)

    def first(**fields: float) -> list[float]:
        made = find_method("ui_tars2").make(find_method("ui_tars2").config_class(**fields))
        assert isinstance(made, OnPolicy)
        found = made.credit([make_group(won, lost)], Estimates(values=values)).advantages
        return [float(turns[0][0]) for turns in found]

    here, elsewhere = first()
    assert here > elsewhere
    as_published = first(adaptive=0.05)
    assert as_published[0] == as_published[1], "λ is 0 below 20 tokens"
