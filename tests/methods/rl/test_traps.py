"""Traps that official code of these methods fell into, each where it would have been noticed."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, cast

import numpy as np
import pytest
from tests.build import make_episode, make_turn
from tests.methods.rl.corridor import Long
from torch import Tensor

from quintain.credit.anchor import state_anchored
from quintain.credit.gae import gae_tokens
from quintain.credit.group import group_relative
from quintain.credit.outcome import outcome_return
from quintain.credit.whiten import reinforce_plus_plus_baseline, whiten
from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.environments.boundary import tasks_of
from quintain.errors import UsageError
from quintain.learning.learner import Learner, StepReport
from quintain.learning.policies import Policies
from quintain.learning.train_config import GroupConfig
from quintain.learning.update import Update, learn
from quintain.losses.policy import clip_ratio, reinforce
from quintain.methods.loops.on_policy import Estimates, OnPolicy
from quintain.methods.method import Collector
from quintain.methods.rl.parts.contexts import Contexts, Keep
from quintain.methods.rl.parts.kl import price_kl
from quintain.rollout.collect import Rollout
from quintain.runs.context import TrainingContext, open_context
from quintain.store.run import Run
from quintain.types import (
    Action,
    Batch,
    Completion,
    Credit,
    Group,
    Score,
    StepResult,
    Task,
    Trajectory,
)


def episode(amount: float, *, task: str = "t", tokens: int = 2) -> Trajectory:
    turn = make_turn((2,) * tokens, prompt=(1, 3), reward=amount)
    return make_episode(turn, task=task, outcome=Score(value=amount, is_success=amount > 0), group=task)


def group(*amounts: float, task: str = "t") -> Group:
    episodes = tuple(episode(amount, task=task) for amount in amounts)
    return Group(task=episodes[0].task, trajectories=episodes)


def numbers(credit: Credit) -> list[float]:
    return [float(x) for turns in credit.advantages for array in turns for x in array]


def test_what_is_centred_is_not_moved_by_centring_again() -> None:
    """ASearcher's workflow centres, its actor shifts by a constant: the sign of credit must survive whitening."""
    groups = [group(1, 0, 0, 1), group(1, 1, 1, 0, task="u")]
    centred = group_relative(groups, std="none")
    again = whiten(centred)
    assert numbers(again) == pytest.approx([x / np.std(numbers(centred)) for x in numbers(centred)], abs=1e-5)
    assert numbers(reinforce_plus_plus_baseline(groups)) == numbers(again)
    assert np.sum(numbers(again)) == pytest.approx(0, abs=1e-5)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the learner was asked for: it goes too far in every step, and learns nothing."""
    seen: list[dict[str, Any]] = []

    def step(_: Learner, batches: list[Batch], __: Any, **fields: Any) -> StepReport:
        seen.append({"streams": sum(len(batch.lengths) for batch in batches), **fields})
        return StepReport(
            loss=0.0, grad_norm=0.0, num_tokens=1, seconds=0.0, metrics={"policy/approx_kl": 0.5}
        )

    monkeypatch.setattr(Learner, "step", step)
    return seen


def test_groups_without_a_difference_do_not_count_in_the_mean(
    context: TrainingContext, steps: list[dict[str, Any]]
) -> None:
    """B42: zero gradient that still counts in a mean makes the step smaller."""
    groups = [group(1, 0), group(1, 1, task="u")]
    credit = group_relative(groups)
    assert len(samples_from(credit)) == 4
    for keeps in (False, True):
        update = Update(loss=clip_ratio(), keeps_zeros=keeps)
        learn(context.policies, credit, update, GroupConfig(), step=1, seed=0)
    assert [each["streams"] for each in steps] == [2, 4]


@pytest.mark.parametrize(
    ("most", "unit", "taken"),
    [(None, "token", 3), (1.0, "token", 3), (0.3, "token", 1), (0.9, "episode", 1), (1.1, "episode", 3)],
)
def test_updates_of_a_step_end_when_the_policy_went_too_far(
    most: float | None,
    unit: Literal["token", "episode"],
    taken: int,
    context: TrainingContext,
    steps: list[dict[str, Any]],
) -> None:
    """TWOSOME by token, LOOP by episode of 2 tokens: the update that went too far is kept, those after are not made."""
    update = Update(loss=clip_ratio(), num_epochs=3, target_kl=most, target_kl_unit=unit)
    found = learn(context.policies, group_relative([group(1, 0)]), update, GroupConfig(), step=2, seed=0)
    assert found is not None and found.metrics["policy/approx_kl"] == 0.5
    assert [each["is_on_policy"] for each in steps] == [True, False, False][:taken]
    assert all(each["rate_scale"] == pytest.approx(0.2) for each in steps), "step 2 of 10 of a rising rate"


def test_a_step_without_a_difference_makes_no_update() -> None:
    credit = group_relative([group(1, 1)])
    assert learn(cast(Policies, {}), credit, Update(loss=clip_ratio()), GroupConfig(), step=1, seed=0) is None


@pytest.fixture(scope="module")
def context(runner: Any) -> Iterator[TrainingContext]:
    """A policy of the corridor, and the teacher's episodes in it."""
    config = runner.config("grpo")
    with (
        Run.create(runner.folder / "traps", recipe="grpo", config={}) as run,
        open_context(config, run) as made,
    ):
        yield made


def test_what_is_not_trained_on_is_still_read(context: TrainingContext) -> None:
    """MT-GRPO's code builds the attention mask from the loss mask: observations became invisible in training."""
    shown, hidden = (replace_observation(place) for place in (1, 0))
    found: list[Tensor] = []
    for trajectory in (shown, hidden):
        (batch,) = batches_of(trajectory)
        found.append(context.policies.main.infer(batch).logprobs[batch.turn_id == 1])
    assert float((found[0] - found[1]).abs().max()) > 1e-4


def test_observations_have_no_gradient_of_their_own(context: TrainingContext) -> None:
    """Other words in what was observed last change nothing that is trained, only what comes after them."""
    losses: list[float] = []
    for place in (0, 1):
        trajectory = replace_observation(place)
        last = replace(trajectory.turns[1], completion=Completion(token_ids=(), logprobs=(), stop="stop"))
        cut = replace(trajectory, turns=(trajectory.turns[0], last))
        (batch,) = batches_of(cut)
        losses.append(float(reinforce()(context.policies.main.infer(batch), batch).loss))
    assert losses[0] == pytest.approx(losses[1], abs=1e-7)


def replace_observation(word: int) -> Trajectory:
    """An episode of two turns; what is seen between them is token 10 or 11."""
    base = episode(1.0)
    second = replace(base.turns[0], prompt_ids=(10 + word, 5))
    return replace(base, turns=(base.turns[0], second))


def batches_of(trajectory: Trajectory) -> list[Batch]:
    """The micro-batches of one episode alone."""
    return micro_batches(samples_from(outcome_return([whole(trajectory)])), max_tokens=1000)


def whole(trajectory: Trajectory) -> Group:
    return Group(task=trajectory.task, trajectories=(trajectory,))


def test_every_step_of_the_teacher_is_one_context(context: TrainingContext) -> None:
    """SWiRL: k actions are k examples, and none of them is carried out."""
    contexts = Contexts("all")
    contexts.prepare(context.collector)
    episodes = context.collector.demonstrations()
    assert len(contexts.prefixes) == sum(len(t.turns) for t in episodes) > 0
    assert {prefix.task.id for prefix in contexts.prefixes} == contexts.wanted.keys()
    assert {action.text for action in contexts.wanted.values()} == {"right"}
    measure = contexts.measure(lambda action, right: float(action.text == right.text))
    on_context = replace(episodes[0], task=contexts.prefixes[0].task, turns=episodes[0].turns[:1])
    assert measure(on_context) == [1.0]
    (unknown,) = measure(replace(on_context, task=replace(on_context.task, id="elsewhere")))  # type: ignore[misc]
    assert unknown != unknown, "the judge knows nothing of an episode that is on no context"


@pytest.mark.parametrize("keep", ["process", "outcome", "both", "all"])
def test_an_erring_teacher_is_judged_by_the_expert(
    context: TrainingContext, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SWiRL: what is wanted is never the mistake; sound steps of episodes that failed are kept."""
    monkeypatch.setattr(context, "config", replace(context.config, expert_noise=0.5, demonstrations=12))
    monkeypatch.setattr(context, "_imitated", ())  # what the warm start showed had no mistakes
    episodes = context.collector.demonstrations()
    sound = [[turn.action.text == "right" for turn in t.turns] for t in episodes]
    has_won = [t.is_success for t in episodes]
    expected = {
        "process": sum(map(sum, sound)),
        "outcome": sum(len(steps) for steps, won in zip(sound, has_won, strict=True) if won),
        "both": sum(sum(steps) for steps, won in zip(sound, has_won, strict=True) if won),
        "all": sum(map(len, sound)),
    }
    assert len(set(expected.values())) > 2, "the teacher errs, and fails at times"
    contexts = Contexts(keep)
    contexts.prepare(context.collector)
    assert len(contexts.prefixes) == expected[keep]
    assert {action.text for action in contexts.wanted.values()} == {"right"}


class Counted(Long):
    """Remembers what was asked of it, also after the end."""

    steps: ClassVar[list[bool]] = []
    """for each step of any instance whether its episode had ended before"""

    def reset(self, task: Task) -> str:
        self.has_ended = False
        return super().reset(task)

    def step(self, action: Action) -> StepResult:
        self.steps.append(self.has_ended)
        result = super().step(action)
        self.has_ended = result.is_terminated
        return result


def test_episodes_that_ended_are_not_stepped_on_and_pay_once(context: TrainingContext) -> None:
    """OpenManus-RL: finished environments still generate and step, and every row carries the episode's reward."""
    Counted.steps.clear()
    rollout = Rollout(context.agent, Counted, context.policies.main.engine)
    try:
        groups = rollout.groups(TaskStream(tasks_of(Counted)).draw(0, 3), size=4, seed=1)
    finally:
        rollout.close()
    episodes = [t for g in groups for t in g.trajectories]
    assert len({len(t.turns) for t in episodes}) > 1
    assert (len(Counted.steps), any(Counted.steps)) == (sum(len(t.turns) for t in episodes), False)
    assert [len(g.trajectories) for g in groups] == [4, 4, 4]
    assert len({t.group for t in episodes}) == len({t.task.id for t in episodes}) == 3
    for t in episodes:
        assert isinstance(t.outcome, Score)
        assert t.outcome.value == pytest.approx(sum(turn.reward for turn in t.turns))
    assert len(state_anchored([replace_keys(g) for g in groups]).advantages) == 12


def replace_keys(found: Group) -> Group:
    """The group with every state the same."""
    return replace(
        found,
        trajectories=tuple(
            replace(t, turns=tuple(replace(turn, state_key="s") for turn in t.turns))
            for t in found.trajectories
        ),
    )


def test_a_method_of_ones_own_without_the_value_head_it_reads_is_refused_before_it_plays(runner: Any) -> None:
    def collect(_: Collector, __: int) -> list[Group]:
        raise AssertionError("an episode was played")

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        return gae_tokens(groups, estimates.critic)

    method = OnPolicy(collect=collect, credit=credit, update=Update(loss=clip_ratio()))
    with pytest.raises(UsageError, match=r"values of a critic: got none; say needs=Needs\(critic=True\)"):
        runner.train_method(method, runner.config("grpo"), "headless")


def test_credit_that_reads_a_reference_without_asking_for_it_is_refused_before_it_plays(runner: Any) -> None:
    def collect(_: Collector, __: int) -> list[Group]:
        raise AssertionError("an episode was played")

    def credit(groups: Sequence[Group], estimates: Estimates) -> Credit:
        price_kl(groups, estimates, 0.1)
        return group_relative(groups)

    method = OnPolicy(collect=collect, credit=credit, update=Update(loss=clip_ratio()))
    with pytest.raises(UsageError, match=r"reference: got none; say needs=Needs\(reference_logprobs=True\)"):
        runner.train_method(method, runner.config("grpo"), "unreferenced")
