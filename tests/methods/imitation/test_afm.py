"""Chain-of-Agents: a team's run as a transcript, what of it is imitated, and what RL is paid for."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.dashboard.funnel import funnel_text
from quintain.dashboard.report import report_body
from quintain.data.pipeline import as_example, example_samples
from quintain.environments.protocol import Environment, begin
from quintain.methods.imitation import afm
from quintain.methods.imitation.afm import Team, expert_check
from quintain.methods.loops.on_policy import Estimates
from quintain.store.run import Run
from quintain.text.roles import (
    ACT,
    CHECK,
    PLAN,
    SUGGEST,
    THINK,
    Activation,
    find_broken_rule,
    read_roles,
    write_roles,
)
from quintain.text.tokenizer import encode_text, train_tokenizer
from quintain.types import Action, Completion, Group, Score, Trajectory
from quintain.worlds.guess.game import Guess
from quintain.worlds.sums.game import Sums

Make = Callable[..., Trajectory]


def decode(ids: Any) -> str:
    return "".join(map(chr, ids))


def spoken(trajectory: Trajectory, *texts: str) -> Trajectory:
    turns = tuple(
        replace(turn, completion=Completion(token_ids=tuple(map(ord, text)), logprobs=(), stop="stop"))
        for turn, text in zip(trajectory.turns, texts, strict=True)
    )
    return replace(trajectory, turns=turns)


def world_at_start() -> Sums:
    world = Sums(revisions=0)
    begin(world, world.task("train", 0))
    return world


def suggest(*texts: str) -> Any:
    waiting = iter(texts)
    return lambda environment, rng, seen: Action(text=next(waiting))


def test_a_team_goes_back_below_three_and_not_at_three() -> None:
    scores = iter([2, 3])
    team = Team(solve=suggest("1", "2"), check=lambda *_: next(scores), words=("hm",))
    told = team.run(world_at_start(), random.Random(0), ())
    assert [(a.role, a.content) for a in told] == [
        ("think", "hm"), ("suggested_answer", "1"), ("double_check", "2"), ("plan", "1 may be wrong, so once more."),
        ("think", "hm"), ("suggested_answer", "2"), ("double_check", "3"), ("action", "2"),
    ]  # fmt: skip
    assert find_broken_rule(told) == ""


def test_a_checker_without_an_answer_is_asked_again_and_is_no_zero() -> None:
    scores = iter([None, None, 5])
    team = Team(solve=suggest("1"), check=lambda *_: next(scores))
    assert [a.role for a in team.run(world_at_start(), random.Random(0), ())][-2:] == [CHECK, ACT]
    asked: list[int] = []

    def silent(environment: Environment, action: Action, rng: random.Random) -> None:
        asked.append(1)

    told = Team(solve=suggest("1"), check=silent).run(world_at_start(), random.Random(0), ())
    assert len(asked) == 3 and CHECK not in [a.role for a in told]
    assert find_broken_rule(told) == "action may not follow suggested_answer"


def test_a_team_that_is_never_sure_does_what_it_has_and_is_not_imitated() -> None:
    told = Team(solve=suggest("1", "2"), check=lambda *_: 1, max_rounds=2).run(
        world_at_start(), random.Random(0), ()
    )
    assert [a.role for a in told].count(SUGGEST) == 2 and told[-1] == Activation(ACT, "2")
    assert find_broken_rule(told) == "action may not follow double_check of 1"


def test_the_checker_knows_the_expert_and_errs_at_its_rate() -> None:
    world, rng = world_at_start(), random.Random(0)
    right, wrong = world.expert_action(), Action(text="-1")
    sure = expert_check(0.0)
    assert {sure(world, right, rng) for _ in range(40)} == {4, 5}
    assert {sure(world, wrong, rng) for _ in range(40)} == {1, 2}
    errs = [expert_check(0.2)(world, right, rng) or 0 for _ in range(500)]
    assert sum(score < 3 for score in errs) / 500 == pytest.approx(0.2, abs=0.05)
    assert expert_check(0.0)(Environment(), right, rng) is None


def test_what_is_imitated_of_a_team(trajectory: Make) -> None:
    sure = write_roles([Activation(SUGGEST, "1"), Activation(CHECK, "4"), Activation(ACT, "1")])
    unsure = write_roles(
        [Activation(SUGGEST, "2"), Activation(CHECK, "1"), Activation(PLAN, "x"), *read_roles(sure)]
    )
    one, two = trajectory([((1,), (2,))]), trajectory([((1,), (2,))] * 2)
    back, short, broken = spoken(one, unsure), spoken(one, sure), spoken(one, "12")
    both = spoken(two, sure, sure)
    failed = replace(back, outcome=Score(value=0.0, is_success=False))
    made = afm.pipeline(decode, 5, 2).run([as_example(t) for t in (back, short, broken, both, failed)])
    assert [p.num_out for p in made.funnel.passages] == [4, 3, 2, 3]
    assert [e.trajectory for e in made.examples] == [back, back, both]
    (sample,) = example_samples([as_example(short)])
    assert sample.loss_weight.tolist() == [0.0] + [1.0] * len(sure), "what was read has no loss"


def test_it_imitates_a_team_and_is_then_paid_for_the_outcome(train: Any, tmp_path: Path) -> None:
    fields = {
        "tasks": 2,
        "group_size": 2,
        "max_draws": 1,
        "imitation_epochs": 1,
        "demonstrations": 30,
        "steps": 1,
    }
    rows = train("afm", **fields, environment="sums?revisions=0&digits=1", solver_noise=0.2)
    with Run.open(tmp_path / "afm", writable=False) as run:
        (event,) = [event for event in run.events() if event["kind"] == "cold start"]
        assert (
            event["data"]["data/in"]
            == 30
            >= event["data"]["data/correct"]
            >= event["data"]["data/in_order"]
            > 0
        )
        assert event["data"]["data/kept"] >= event["data"]["data/complex"] > 0
        assert {key: value for key, value in rows[0].items() if key.startswith("data/")} == event["data"]
        assert not any(key.startswith("data/") for key in rows[1]), "a step of RL has no pipeline"
        kept = int(event["data"]["data/kept"])
        assert f'<h2>Data</h2><p class="soft">Before the first step: {kept} of 30 examples' in report_body(
            run, None
        )
        assert funnel_text(run.metrics())[0] == "data before the first step:"
        told = next(run.trajectories(step=0, phase="demonstrations"))
        assert told.turns[0].action.text.isdigit() or told.turns[0].action.text.startswith("-")


def test_a_solver_alone_thinks_and_acts_and_is_not_checked(train: Any, tmp_path: Path) -> None:
    told = Team(solve=suggest("1"), check=lambda *_: 1, words=("hm",)).act_alone(
        world_at_start(), random.Random(0), ()
    )
    assert told.text == "<think>hm</think><action>1</action>"
    fields = {
        "tasks": 2,
        "group_size": 2,
        "max_draws": 1,
        "imitation_epochs": 1,
        "demonstrations": 6,
        "steps": 1,
    }
    train("afm", **fields, environment="sums?revisions=0&digits=1", solver_noise=0.0, team=False)
    with Run.open(tmp_path / "afm", writable=False) as run:
        (event,) = [event for event in run.events() if event["kind"] == "cold start"]
        assert event["data"]["data/kept"] == 6 and "data/in_order" not in event["data"]


def test_without_rl_it_imitates_those_of_its_episodes_that_succeed(trajectory: Make) -> None:
    own = [trajectory([((1,), (2, 3))], value=value, task="t") for value in (1.0, 0.0)]
    made = afm.method(afm.Config(reinforced=False))
    credit = made.credit([Group(task=own[0].task, trajectories=tuple(own))], Estimates())
    assert [[a.tolist() for a in turns] for turns in credit.advantages] == [[[1.0, 1.0]], [[0.0, 0.0]]]
    assert "imitate" in made.update.loss.__qualname__
    assert "clip" in afm.method(afm.Config()).update.loss.__qualname__


def test_a_new_tokenizer_knows_the_marks_of_roles() -> None:
    texts = Team(solve=suggest(), check=lambda *_: 5).texts()
    tokenizer = train_tokenizer(texts, tokens="words")
    told = write_roles([Activation(THINK, "Let me see."), Activation(CHECK, "4"), Activation(ACT, "12")])
    letters = train_tokenizer(["12 + 30 = ?"], tokens="words")
    assert 2 * len(encode_text(tokenizer, told)) < len(encode_text(letters, told))
    assert afm.method(afm.Config(agent="react")).cold_start.texts == ()  # type: ignore[union-attr]


def test_calls_of_a_team_stand_in_the_role_that_acts() -> None:
    world = Guess()
    begin(world, world.task("train", 0))
    team = Team(solve=lambda environment, rng, seen: world.expert_action(), check=expert_check(0.0))
    told = read_roles(team.act(world, random.Random(0), ()).text)
    assert told[-1].role == ACT and told[-1].content.startswith("<tool_call>")
