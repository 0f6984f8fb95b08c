import random
from collections import deque
from typing import Any

import pytest

from quintain.environments.baselines import expert, play
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.plan.domains import Case, CaseShape, draw_case, problem_of
from quintain.worlds.plan.game import Planning, num_steps
from quintain.worlds.plan.problem import Problem, Schema
from quintain.worlds.plan.strips import Puzzle

# b lies on a; wanted is a on b.
CASE = Case(
    domain="blocks",
    things=("a", "b"),
    start=("a on table", "b on a", "hand empty", "b clear"),
    goal=("a on b",),
)
WAY = ("unstack b from a", "put down b", "pick up a", "stack a on b")
# One package, to be flown from x1 to y1.
FLIGHT = Case(
    domain="logistics",
    things=("p1",),
    start=("p1 at x1", "truck x at x2", "truck y at y1", "plane at y1"),
    goal=("p1 at y1",),
    num_cities=2,
)


def world_at_start(case: Case = CASE, **options: Any) -> Planning:
    world = Planning(domain=case.domain, **options)
    begin(world, world.task("train", 0))
    world.restore((case, problem_of(case).start, 0, 0))
    return world


def act(world: Planning, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in words]


def test_a_walk_through_by_value() -> None:
    world = world_at_start()
    results = act(world, *WAY)
    assert [result.observation for result in results] == [
        "a on table, holding b",
        "a on table, b on table, hand empty",
        "b on table, holding a",
        "Done.",
    ]
    assert [result.reward for result in results] == [0, 0, 0, 1] and results[-1].is_success


def test_dense_rewards_by_value() -> None:
    world = world_at_start(reward="distance")
    # Four steps to the goal: stacking b back and forth gives up what was gained.
    results = act(world, "unstack b from a", "stack b on a", *WAY)
    assert [result.reward for result in results] == [0.25, -0.25, 0.25, 0.25, 0.25, 0.25]
    world = world_at_start(reward="facts")
    assert [result.reward for result in act(world, *WAY)] == [0, 0, 0, 1]
    held = Case(domain="blocks", things=("a", "b"), start=CASE.start, goal=("a on b", "b on table"))
    assert [result.reward for result in act(world_at_start(held, reward="facts"), *WAY)] == [0, 0.5, 0, 0.5]
    held = Case(domain="blocks", things=("a", "b"), start=CASE.start, goal=("a on table", "b on table"))
    rewards = [result.reward for result in act(world_at_start(held, reward="facts"), WAY[0], WAY[1])]
    assert rewards == [0, 1], "what held at the start is not paid for"


def test_a_plan_is_checked_without_effect_and_the_check_says_what_fails() -> None:
    world = world_at_start()
    key = world.state_key()
    checks = {
        f"check {'; '.join(WAY)}": "Step 4 reaches the goal.",
        "check unstack b from a; pick up a": "Step 2 fails: pick up a needs hand empty.",
        "check pick up a": "Step 1 fails: pick up a needs a clear.",
        "check unstack b from a; fly": "Step 2 fails: fly is no action.",
        "check unstack b from a; put down b": "The plan works, without a on b.",
        "check unstack b from a;": "Step 2 fails: nothing is no action.",
    }
    for words, said in checks.items():
        [result] = act(world, words)
        assert result.observation == f"{said} a on table, b on a, hand empty"
        assert result.is_valid and result.reward == 0 and world.state_key() == key


def test_a_plan_is_run_until_a_step_fails_and_can_be_revised() -> None:
    world = world_at_start(form="plan", reward="distance")
    [result] = act(world, "run unstack b from a; pick up a; put down b")
    assert result.observation == "Step 2 fails: pick up a needs hand empty. a on table, holding b"
    assert result.is_valid and result.reward == 0.25
    assert world.expert_action().text == "run put down b; pick up a; stack a on b"
    [unfinished] = act(world, "run put down b")
    assert unfinished.observation == "The plan works, without a on b. a on table, b on table, hand empty"
    [done] = act(world, "run pick up a; stack a on b")
    assert done.reward == 0.5 and done.is_terminated
    assert not act(world_at_start(form="plan"), WAY[0])[0].is_valid, "single steps are no plans"


def test_macro_actions_have_different_lengths() -> None:
    assert num_steps(Action(text="pick up a")) == 1
    assert num_steps(Action(text="run pick up a; stack a on b")) == 2
    assert num_steps(Action(text="Check pick up a; stack a on b")) == 0


@pytest.mark.parametrize("words", ["pick up a", "put down b", "stack a on b", "run pick up a", "", "fly"])
def test_what_has_no_effect_changes_nothing_and_says_so(words: str) -> None:
    world = world_at_start()
    key = world.state_key()
    [result] = act(world, words)
    assert str(result.observation).endswith(" a on table, b on a, hand empty")
    assert str(result.observation).startswith(("Nothing happens.", "Step 1 fails: pick up a needs a clear."))
    assert not result.is_valid and world.state_key() == key
    assert not advance(world, Action(text="wait", error="unreadable")).is_valid
    assert act(world, "wait")[0].is_valid


def test_stacking_irreversibly_can_lose_the_goal() -> None:
    case = Case(
        domain="blocks",
        things=("a", "b", "c"),
        start=(
            *(f"{x} on table" for x in "abc"),
            *(f"{x} {y}" for x in "abc" for y in ("clear", "loose")),
            "hand empty",
        ),
        goal=("a on b", "b on c"),
        is_irreversible=True,
    )
    world = world_at_start(case, reward="distance")
    assert world.distance() == 4
    # a onto b before b is on c: a cannot come off again, and b cannot be picked up under it.
    results = act(world, "pick up a", "stack a on b")
    assert world.distance() is None and world.expert_action().text == "wait"
    assert "unstack a from b" not in world.legal_actions() and results[-1].reward == 0
    assert world.progress() == 0.0


def test_a_flight_by_value_and_its_fuel() -> None:
    assert problem_of(FLIGHT).plan(problem_of(FLIGHT).start) == (
        "fly plane to x1",
        "load p1 into plane",
        "fly plane to y1",
        "unload p1 from plane",
    )
    start = (*FLIGHT.start, "fuel 2")
    fueled = Case(domain="logistics", things=("p1",), start=start, goal=FLIGHT.goal, num_cities=2, fuel=2)
    world = world_at_start(fueled)
    [moved] = act(world, "drive truck x to x1")
    assert moved.observation == "fuel 1, p1 at x1, plane at y1, truck x at x1, truck y at y1"
    assert world.distance() is None


def independent_distance(case: Case) -> int:
    """Breadth-first search through the world's own steps: independent of the expert."""
    world = world_at_start(case)
    queue = deque([(world.snapshot(), 0)])
    seen = {world.state_key()}
    while queue:
        state, depth = queue.popleft()
        world.restore(state)
        for words in world.legal_actions():
            world.restore(state)
            if act(world, words)[0].is_terminated:
                return depth + 1
            if world.state_key() not in seen:
                seen.add(world.state_key())
                queue.append((world.snapshot(), depth + 1))
    raise AssertionError("the goal cannot be reached")


@pytest.mark.parametrize(
    "shape", [CaseShape("blocks", 3, 1, 2, False), CaseShape("logistics", 2, 1, 2, True)]
)
def test_distances_are_exact(shape: CaseShape) -> None:
    rng = random.Random(1)
    for _ in range(6):
        case = draw_case(shape, rng)
        problem = problem_of(case)
        plan = problem.plan(problem.start)
        assert plan is not None and len(plan) == problem.distance(problem.start) == independent_distance(case)


def test_a_problem_by_value() -> None:
    schemas = [
        Schema("go", ("here",), ("there",), ("here",)),
        Schema("fall", ("there",), ("down",), ("there",)),
    ]
    problem = Problem(schemas, ["here"], ["there"])
    there, down = problem.bits(["there"]), problem.bits(["down"])
    assert problem.facts == ("here", "there", "down")
    assert (problem.distance(problem.start), problem.distance(there), problem.distance(down)) == (1, 0, None)
    assert problem.plan(there) == () and problem.plan(down) is None
    assert problem.after(problem.start, "fall") is None and problem.after(there, "fall") == down
    assert problem.missing(problem.start, "fall") == ("there",)


@pytest.mark.parametrize(
    "options",
    [{}, {"irreversible": True}, {"domain": "logistics", "irreversible": True}, {"form": "plan", "noise": 1}],
)
def test_the_expert_solves_fifty_tasks(options: dict[str, Any]) -> None:
    world = Planning(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == 1.0
        assert all(end[3] for end in episode.ends), "every action of the expert is valid"


def test_mistakes_do_not_come_closer() -> None:
    world = world_at_start()
    rng = random.Random(0)
    act(world, WAY[0], WAY[1])
    assert {world.mistaken_action(rng).text for _ in range(20)} == {"pick up b"}
    won = [
        play(Planning(), Planning().task("train", index), noisy_policy(0.2, index)).is_success
        for index in range(20)
    ]
    assert sum(won) >= 15, "the expert goes on from where a mistake led"


def test_the_plan_form_lists_runs_of_one_step_and_goes_on_in_a_dead_end() -> None:
    world = world_at_start(form="plan")
    assert world.legal_actions() == ("run unstack b from a",)
    fueled = Case(
        domain="logistics",
        things=("p1",),
        start=(*FLIGHT.start, "fuel 0"),
        goal=FLIGHT.goal,
        num_cities=2,
        fuel=0,
    )
    stuck = world_at_start(fueled, form="plan")
    assert stuck.legal_actions() == ("run wait",) and stuck.expert_action().text == "run wait"


def test_splits_share_no_case_and_there_are_thousands() -> None:
    shape = CaseShape("blocks", 4, 2, 2, False)
    rng = random.Random(0)
    assert len({draw_case(shape, rng) for _ in range(3000)}) > 2900
    world = Planning()
    cases: dict[str, set[Case | Puzzle]] = {"train": set(), "eval": set()}
    for index in range(200):
        for split in ("train", "eval"):
            begin(world, world.task(split, index))
            cases[split].add(world.snapshot()[0])
    assert not cases["train"] & cases["eval"]


def test_a_snapshot_continues_alike() -> None:
    world, other = Planning(noise=1), Planning(noise=1)
    begin(world, world.task("train", 2))
    advance(world, world.expert_action())
    other.restore(world.snapshot())
    for _ in range(3):
        action = world.expert_action()
        assert other.expert_action() == action and other.state_key() == world.state_key()
        assert advance(other, action) == advance(world, action)


def test_turns_are_half_as_many_again_as_the_longest_plan_has_or_as_is_said() -> None:
    assert (Planning(blocks=4).max_turns, Planning(blocks=4, max_turns=5).max_turns) == (24, 5)
    assert Planning(form="plan", max_turns=5).max_turns == 4


def test_problems_are_as_long_as_is_asked_for() -> None:
    for spec in ({"blocks": 3}, {"blocks": 3, "evolved": "mixed"}, {"domain": "drawn", "things": 1}):
        world = Planning(length=4, **spec)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        for index in range(5):
            begin(world, world.task("train", index))
            assert world.distance() == 4
    with pytest.raises(UsageError, match="length=3, of which"):
        begin(world := Planning(blocks=3, length=3), world.task("train", 0))


@pytest.mark.parametrize(
    "options",
    [
        {"blocks": 1}, {"blocks": 7}, {"packages": 4}, {"cities": 1}, {"attempts": 0}, {"noise": -1}, {"things": 0},
        {"max_turns": -1}, {"length": -1}, {"things": 4}, {"places": 1}, {"places": 5},
    ],
)  # fmt: skip
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(UsageError, match=f"{name}={value}"):
        Planning(**options)
    with pytest.raises(UsageError, match="packages=3, cities=3"):
        Planning(packages=3, cities=3)


def test_a_thought_is_the_plan_that_is_left() -> None:
    world = world_at_start()
    assert world.thought() == f"4 left: {'; '.join(WAY)}"
    act(world, *WAY[:3])
    assert world.thought() == "1 left: stack a on b"
