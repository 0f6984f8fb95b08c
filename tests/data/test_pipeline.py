from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from quintain.data.filters import best_of_group, successful
from quintain.data.pack import pack
from quintain.data.pipeline import (
    Pipeline,
    as_example,
    check_stage,
    example_samples,
    filter_stage,
    refuse_empty,
    remade,
    weigh_stage,
    weigh_turns,
)
from quintain.errors import DataError, InvariantError
from quintain.types import Example, Group, Trajectory

Make = Callable[..., Trajectory]

SOLVED = filter_stage("solved", "did not solve its task", successful)


@pytest.fixture
def groups(trajectory: Make) -> list[Group]:
    """Two tasks: one of three episodes with outcomes 1, 0 and .5, one of a failure and a success of two turns."""

    def of(task: str, *made: Trajectory) -> Group:
        own = tuple(replace(t, index=i, id=f"{task}{i}") for i, t in enumerate(made))
        return Group(task=own[0].task, trajectories=own)

    return [
        of(
            "a",
            *(trajectory([((1,), (10 + i, 2))], value=v, task="a") for i, v in enumerate((1.0, 0.0, 0.5))),
        ),
        of(
            "b",
            trajectory([((3,), (4,))], value=0.0, task="b"),
            trajectory([((3,), (5, 6)), ((7,), (8,))], value=1.0, task="b"),
        ),
    ]


def test_stages_run_in_order_and_count_what_they_did(groups: list[Group]) -> None:
    made = Pipeline(
        SOLVED,
        filter_stage("best", "is not the best of its task", best_of_group),
        weigh_stage("last", "is not the last turn", lambda t: [0.0] * (len(t.turns) - 1) + [1.0]),
    )(groups)
    assert [e.sources for e in made.examples] == [("a0",), ("b1",)]
    assert [(p.stage, p.num_in, p.num_out, p.lost) for p in made.funnel.passages] == [
        ("solved", 5, 3, ("a1", "b0")),
        ("best", 3, 2, ("a2",)),
        ("last", 2, 2, ()),
    ]
    assert made.funnel.metrics == {
        "data/in": 5.0,
        "data/solved": 3.0,
        "data/best": 2.0,
        "data/last": 2.0,
        "data/kept": 2.0,
        "data/tokens": 3.0,
    }
    assert (
        str(made.funnel).splitlines()[0] == "solved       5 → 3              7 tokens  did not solve its task"
    )


def test_weights_reach_the_loss_and_its_normaliser(groups: list[Group]) -> None:
    made = Pipeline(
        SOLVED, weigh_stage("first", "is a later turn", lambda t: [1.0] + [0.0] * (len(t.turns) - 1))
    )(groups)
    samples = example_samples(made.examples)
    assert [s.loss_weight.tolist() for s in samples] == [[0, 1, 1], [0, 1, 1], [0, 1, 1, 0, 0]]
    assert pack(samples).loss_weight.sum() == pytest.approx(1.0)
    half = [weigh_turns(e, [np.full(2, 0.5), *[1.0] * (len(e.weights or ()) - 1)]) for e in made.examples]
    assert example_samples(half)[2].loss_weight.tolist() == [0, 0.5, 0.5, 0, 0]


def test_a_stream_in_which_nothing_counts_goes_and_an_example_too(trajectory: Make) -> None:
    two = trajectory([((1,), (2,)), ((3,), (4,))], segments=(1,))
    first = weigh_turns(as_example(two), [0, 1])
    assert [s.token_ids.tolist() for s in example_samples([first])] == [[3, 4]]
    nothing = weigh_stage("none", "never counts", lambda t: [0] * len(t.turns))
    assert Pipeline(nothing).run([as_example(two)]).examples == ()
    with pytest.raises(DataError, match="got 1 examples in which no token counts; loosen the masks"):
        example_samples([weigh_turns(as_example(two), [0, 0])])


def test_what_is_remade_names_what_it_was_made_of(groups: list[Group], trajectory: Make) -> None:
    def halves(example: Example) -> list[Example]:
        turns = example.trajectory.turns
        return [replace(example, trajectory=replace(example.trajectory, turns=(t,))) for t in turns]

    made = Pipeline(
        check_stage("long", "has one turn", lambda e: len(e.trajectory.turns) > 1),
        remade("halves", "becomes one episode a turn", halves),
    )(groups)
    assert [e.sources for e in made.examples] == [("b1",), ("b1",)]
    assert made.funnel.passages[1].lost == () and made.funnel.passages[1].num_out == 2
    assert as_example(trajectory([((1,), (2,))], task="x")).sources == ("x#0",)


def test_nothing_left_is_told_by_the_stage_that_kept_none(groups: list[Group]) -> None:
    none = Pipeline(SOLVED, check_stage("wise", "says nothing wise", lambda e: False))
    with pytest.raises(
        DataError,
        match="data of rft: got 3 episodes into wise and none out of it, because each says nothing wise",
    ):
        refuse_empty(none(groups), "data of rft")
    with pytest.raises(DataError, match="data of rft: got no episodes; collect some first"):
        refuse_empty(Pipeline()([]), "data of rft")
    assert Pipeline()([]).funnel.metrics["data/in"] == 0
    refuse_empty(Pipeline(SOLVED)(groups), "data of rft")


def test_what_does_not_fit_is_refused(trajectory: Make) -> None:
    one = as_example(trajectory([((1,), (2, 3))]))
    with pytest.raises(DataError, match="stages of a pipeline: got solved twice"):
        Pipeline(SOLVED, SOLVED)
    for weights, message in (
        ([1, 1], "of an episode of 1 turns: got 2"),
        ([-1], "negative or not finite"),
        ([np.ones(3)], "one a sampled token"),
    ):
        with pytest.raises(InvariantError, match=message):
            weigh_turns(one, weights)
