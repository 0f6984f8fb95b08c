"""PilotRL: stages by the step alone, plans that are given, what each stage pays and trains."""

from dataclasses import replace

import pytest
from tests.build import make_episode, make_group, make_turn

from quintain.agents.plan import Plan, Step
from quintain.credit.group import group_relative
from quintain.data.samples import samples_from
from quintain.errors import DataError
from quintain.methods.horizon.pilot_rl import (
    Config,
    StageState,
    assign,
    first_plan,
    follow_plan,
    method,
    pay,
    stage_at,
)
from quintain.methods.loops.on_policy import Estimates
from quintain.types import Action, Group, Score, Trajectory, Turn


def act(said: str, *, error: str | None = None) -> Turn:
    return make_turn((5, 6), action=Action(text=said, error=error), starts_segment=True)


def write(*steps: str) -> Turn:
    text = Plan(tuple(Step(step) for step in steps)).text
    return make_turn((2, 3, 4), action=Action(text=text), seat="agent/plan", starts_segment=True)


def play(*turns: Turn, won: bool = False, seed: int = 0) -> Trajectory:
    *before, last = turns
    return make_episode(
        *before,
        replace(last, reward=float(won)),
        outcome=Score(value=float(won), is_success=won),
        seed=seed,
        index=seed,
    )


GIVEN = Plan((Step("a"), Step("b"), Step("c")))


def value(trajectory: Trajectory) -> float:
    assert isinstance(trajectory.outcome, Score)
    return trajectory.outcome.value


def test_stages_are_a_function_of_the_step() -> None:
    config = Config(follow_steps=2, plan_steps=1)
    assert [stage_at(config, step) for step in range(1, 6)] == ["follow", "follow", "plan", "both", "both"]
    assert stage_at(Config(follow_steps=0, plan_steps=0), 1) == "both"


def test_a_resumed_run_is_in_the_stage_that_it_was_in() -> None:
    """What is remembered is a fold over the recorded steps, so nothing advances it twice."""
    config = Config(follow_steps=2, plan_steps=1)
    for _ in range(2):
        state = StageState(config)
        for _ in range(3):
            state.update(())
        assert stage_at(config, state.step) == "plan"


def test_adherence_counts_the_next_open_step_in_order() -> None:
    assert follow_plan(play(act("a"), act("x"), act("b")), GIVEN) == (2, 3, 3)
    assert follow_plan(play(act("b"), act("a"), act("c")), GIVEN) == (1, 3, 3)
    assert follow_plan(play(act("a"))) == (0, 1, 0)


def test_a_revised_plan_takes_the_place_of_what_is_open() -> None:
    revised = make_turn((2,), action=Action(text="1. [x] a\n2. c"), seat="agent/plan")
    assert follow_plan(play(write("a", "b"), act("a"), revised, act("c"))) == (2, 2, 3)
    kept = make_turn((2,), action=Action(text="keep"), seat="agent/plan")
    assert follow_plan(play(write("a", "b"), act("x"), kept, act("a"))) == (1, 2, 2)


def test_each_stage_pays_its_own() -> None:
    config = Config(adherence_weight=0.5, quality_weight=0.4, form_weight=0.1)
    given = {"t": GIVEN}
    episode = play(act("a"), act("x", error="no such action"), act("b"), won=True)
    (group,) = pay([make_group(episode)], config, "follow", given)
    assert value(group.trajectories[0]) == pytest.approx(1 + 0.5 * 2 / 3 + 0.1 * 2 / 3)
    own = play(write("a", "b", "c"), act("a"), act("x"), won=True)
    (group,) = pay([make_group(own)], config, "plan", {})
    assert value(group.trajectories[0]) == pytest.approx(1 + 0.4 / 3)
    (group,) = pay([make_group(own)], config, "both", {})
    assert value(group.trajectories[0]) == pytest.approx(1.1)
    assert group.trajectories[0].is_success


def pair() -> list[Group]:
    return [
        make_group(
            play(write("a"), act("a"), won=True),
            play(write("b"), act("x"), seed=1),
        )
    ]


def list_trained(stage: str) -> set[int]:
    credit = assign(pair(), stage)  # pyright: ignore[reportArgumentType]
    return {int(i) for s in samples_from(credit) for i in s.token_ids[s.loss_weight > 0]}


def test_each_stage_trains_its_own_role() -> None:
    assert list_trained("follow") == {5, 6}
    assert list_trained("plan") == {2, 3, 4}
    assert list_trained("both") == {2, 3, 4, 5, 6}


def test_with_all_masks_open_it_is_grpo_bit_for_bit() -> None:
    made = method(Config(follow_steps=0, plan_steps=0, form_weight=0.0))
    made.state.update(())
    own, other = made.credit(made.reward(pair()), Estimates()), group_relative(pair())
    assert own.is_trained is None
    assert [[a.tolist() for a in turns] for turns in own.advantages] == [
        [a.tolist() for a in turns] for turns in other.advantages
    ]


def test_the_second_stage_wants_plans() -> None:
    with pytest.raises(DataError, match="turns of plan to be trained: got none"):
        assign([make_group(play(act("a"), won=True), play(act("b"), seed=1))], "plan")


def test_the_first_plan_of_a_demonstration_is_what_is_given() -> None:
    assert first_plan(play(write("a", "b"), act("a"), write("c"), act("c"))).text == "1. a\n2. b"
    assert first_plan(play(act("a"))) == Plan()
