"""What an episode did achieve, as an episode of the task that asks for it: what was sampled stays."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.data import stages
from quintain.data.pipeline import Pipeline, as_example, weigh_turns
from quintain.environments.noisy import noisy
from quintain.environments.protocol import Environment, Hindsight, advance, begin
from quintain.errors import UsageError
from quintain.rollout.collect import Rollout
from quintain.rollout.hindsight import hindsight
from quintain.rollout.samplers import Demonstrator
from quintain.types import Action, Failure, Observation, Trajectory, as_text
from quintain.warm_start.start import build_agent
from quintain.worlds.craft.game import Craft
from quintain.worlds.guess.game import Guess
from quintain.worlds.shop.game import Shop

Show = Callable[[type[Environment]], list[Trajectory]]


def careless(environment: Environment, rng: Random, seen: Sequence[Observation]) -> Action:
    """Buy the first thing that a search shows."""
    assert isinstance(environment, Shop)
    number, legal = len(seen) - 1, environment.legal_actions()
    return Action(
        text=(legal[0], "click a", legal[0], legal[min(2, len(legal) - 1)], "click buy")[number % 5]
    )


TEACHERS: dict[type[Environment], Demonstrator] = {Craft: noisy(0.6), Shop: careless}


@pytest.fixture(scope="module")
def show(tokenizer: PreTrainedTokenizerFast) -> Show:
    """24 episodes of a teacher that fails at times."""

    def shown(world: type[Environment]) -> list[Trajectory]:
        agent = build_agent(tokenizer, world, temperature=1.0)
        tasks = [world().task("train", number) for number in range(24)]
        groups = Rollout(agent, world, None).demonstrations(tasks, TEACHERS[world], seed=1)
        return [t for group in groups for t in group.trajectories]

    return shown


@pytest.mark.parametrize("world", [Craft, Shop])
def test_failures_become_episodes_of_what_they_did(
    world: type[Environment], show: Show, tokenizer: PreTrainedTokenizerFast
) -> None:
    episodes = show(world)
    failed = [t for t in episodes if not t.is_success]
    of = hindsight(world, build_agent(tokenizer, world, temperature=1.0))
    pairs = [(t, made) for t in failed if (made := of(t)) is not None]
    assert len(failed) > 5 and len(pairs) > 5
    for old, new in pairs:
        num = len(new.turns)
        assert new.is_success and new.task.data and new.task.seed == old.task.seed
        assert new.id == old.id and new.task.id.startswith(f"{old.task.id}?")
        assert [t.completion for t in new.turns] == [t.completion for t in old.turns[:num]]
        assert as_text(new.turns[0].observation) != as_text(old.turns[0].observation)
        environment = world()
        begin(environment, new.task)
        results = [advance(environment, turn.action) for turn in new.turns]
        assert [r.is_terminated for r in results] == [False] * (num - 1) + [True]
        assert results[-1].is_success and sum(r.reward for r in results) == new.outcome.value  # type: ignore[union-attr]
    assert all(of(t) is t for t in episodes if t.is_success)


def test_what_was_shown_is_the_other_goal_and_nothing_else(
    show: Show, tokenizer: PreTrainedTokenizerFast
) -> None:
    of = hindsight(Shop, build_agent(tokenizer, Shop, temperature=1.0))
    old, new = next((t, made) for t in show(Shop) if not t.is_success and (made := of(t)))
    before, after = (as_text(t.turns[0].observation).split(". ") for t in (old, new))
    assert before[0].startswith("Goal: ") and after[0].startswith("Goal: ") and before[1:] == after[1:]
    assert [t.observation for t in old.turns[1:]] == [t.observation for t in new.turns[1:]]


def test_a_stage_keeps_sources_and_weights_up_to_where_it_was_solved(
    show: Show, tokenizer: PreTrainedTokenizerFast
) -> None:
    of = hindsight(Craft, build_agent(tokenizer, Craft, temperature=1.0))
    old = next(t for t in show(Craft) if not t.is_success and of(t))
    example = weigh_turns(as_example(old), [float(n % 2) for n in range(len(old.turns))])
    [made] = Pipeline(stages.relabel_tasks(of)).run([example]).examples
    assert made.sources == example.sources and made.weights is not None
    assert len(made.weights) == len(made.trajectory.turns) <= len(old.turns)
    assert [float(own.max()) for own in made.weights] == [float(n % 2) for n in range(len(made.weights))]


def test_nothing_is_made_of_nothing(show: Show, tokenizer: PreTrainedTokenizerFast) -> None:
    of = hindsight(Craft, build_agent(tokenizer, Craft, temperature=1.0))
    episode = next(t for t in show(Craft) if not t.is_success)
    assert of(replace(episode, turns=())) is None
    assert of(replace(episode, outcome=Failure(owner="tool", kind="timeout", message="late"))) is None
    other = replace(episode.turns[0], observation=episode.turns[-1].observation)
    assert of(replace(episode, turns=(other, *episode.turns[1:]))) is None, "it does not repeat"
    waited = replace(episode.turns[0], action=Action(text="wait"))
    assert of(replace(episode, turns=(waited,))) is None, "nothing was made"


def test_a_world_that_cannot_say_is_refused(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(
        UsageError, match=r"hindsight in guess: got .* cannot say .* give it a method achieved"
    ):
        hindsight(Guess, build_agent(tokenizer, Guess, temperature=1.0))


@pytest.mark.parametrize("options", [{}, {"depth": 4}, {"recipes": "drawn"}])
def test_the_deepest_thing_made_is_what_craft_achieved(options: dict[str, Any]) -> None:
    world = Craft(**options)
    assert isinstance(world, Hindsight)
    begin(world, world.task("train", 3))
    assert world.achieved() is None
    rng = Random(0)
    for _ in range(30):
        advance(world, Action(text=rng.choice(world.legal_actions())))
    reached, found = world.achievements(), world.achieved()
    assert found is None or found["goal"] in reached


def test_a_goal_that_is_not_made_here_is_refused() -> None:
    world = Craft(depth=2)
    task = replace(world.task("train", 0), data={"goal": "wood sward"})
    with pytest.raises(UsageError, match="goal of craft: got 'wood sward'; did you mean 'wood sword'"):
        world.reset(task)
