"""Rewards by seat count wherever the return of an episode does: scores, checks, comparisons, alarms, metrics."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.agents.harness import PlainText
from quintain.data.seats import by_seat, comparable_groups, seat_returns
from quintain.engines.scripted import Scripted
from quintain.environments.baselines import Episode, expert, play
from quintain.environments.catalog import find
from quintain.environments.check import check
from quintain.environments.probes import require_same
from quintain.environments.protocol import Environment, advance, join_results
from quintain.errors import EnvironmentFault
from quintain.methods.method import differs
from quintain.rollout.collect import Rollout
from quintain.runs.monitors.measures import measures
from quintain.runs.preflight import variance
from quintain.runs.report import evaluation_metrics, rollout_metrics
from quintain.text.chat import Chat
from quintain.types import Action, Group, Score, StepResult, Task, Trajectory
from quintain.warm_start.auto_warm_start import best_of

NEGOTIATE = f"{Path(__file__).resolve().parents[2] / 'examples' / 'negotiate.py'}:Negotiate"


class Split(Environment):
    """Left divides ten, then right takes it or not."""

    max_turns = 2

    def reset(self, task: Task) -> str:
        self.offered: int | None = None
        return "divide"

    def seats(self) -> tuple[str, ...]:
        return ("left", "right")

    def seat(self) -> str:
        return "left" if self.offered is None else "right"

    def legal_actions(self) -> tuple[str, ...]:
        return ("take", "leave") if self.offered is not None else ("0", "2", "4")

    def step(self, action: Action) -> StepResult:
        if action.text not in self.legal_actions():
            return StepResult(observation="no", is_valid=False)
        if self.offered is None:
            self.offered = int(action.text)
            return StepResult(observation=f"{action.text} for you")
        share = self.offered / 10 if action.text == "take" else 0.0
        kept = 1 - share if action.text == "take" else 0.0
        return StepResult(observation="", rewards={"left": kept, "right": share}, is_terminated=True)

    def expert_action(self) -> Action:
        return Action(text="4" if self.offered is None else "take")


class Paying(Split):
    """Pays the first to speak, too."""

    def step(self, action: Action) -> StepResult:
        result = super().step(action)
        return replace(result, rewards=result.rewards or {"left": 0.1})


def rollout(chat: Chat, said: Mapping[str, str], environment: type[Environment] = Split) -> Rollout:
    ids = {seat: chat.write(text) for seat, text in said.items()}
    return Rollout(
        PlainText(chat), environment, Scripted(lambda request, _: ids[request.session.split("/")[-2]])
    )


def episode(
    chat: Chat, left: str, right: str, index: int = 0, environment: type[Environment] = Split
) -> Trajectory:
    with closing(rollout(chat, {"left": left, "right": right}, environment)) as found:
        (group,) = found.groups([environment().task("train", 0)], size=1, seed=3)
    return replace(group.trajectories[0], index=index)


def grouped(*episodes: Trajectory) -> Group:
    return Group(task=episodes[0].task, trajectories=episodes)


def test_an_episode_earns_what_its_seats_got_on_average(chat: Chat) -> None:
    fair, none = episode(chat, "4", "take"), episode(chat, "4", "leave")
    assert fair.outcome == Score(value=0.5, is_success=True)
    assert none.outcome == Score(value=0.0, is_success=False)
    assert [dict(turn.rewards) for turn in fair.turns] == [{}, {"left": 0.6, "right": 0.4}]
    assert seat_returns(fair) == {"left": 0.6, "right": 0.4}
    assert [part.outcome for part in by_seat(fair)] == [Score(value=v, is_success=True) for v in (0.6, 0.4)]
    assert best_of([none, fair]) == [fair]


def test_a_seat_that_got_nothing_counts_in_the_mean() -> None:
    class Lone(Split):
        """Pays one seat."""

        def step(self, action: Action) -> StepResult:
            return StepResult(observation="", rewards={"left": 1.0})

    assert advance(Lone(), Action(text="0")).reward == 0.5


@pytest.mark.parametrize("reward", [0.0, -1.0])
def test_a_reward_that_is_named_beside_those_of_seats_is_the_episodes(reward: float, chat: Chat) -> None:
    class Judged(Split):
        """Judged by another number."""

        def step(self, action: Action) -> StepResult:
            result = super().step(action)
            return replace(result, reward=reward) if result.rewards else result

    judged = episode(chat, "4", "take", environment=Judged)
    assert judged.outcome == Score(value=reward, is_success=False)
    assert seat_returns(judged) == {"left": 0.6, "right": 0.4}


@pytest.mark.parametrize("worker", ["", "worker/"])
def test_the_expert_of_a_negotiation_beats_random_play(worker: str) -> None:
    report = check(f"{worker}{NEGOTIATE}", episodes=20)
    assert report.has_passed, "\n".join(report.lines())
    assert report.measured["expert/return"] > report.measured["random/return"] > 0
    assert report.measured["expert/success"] > report.measured["random/success"]


def test_baselines_are_played_for_the_return_of_all_seats() -> None:
    world = find(NEGOTIATE)()
    found = play(world, world.task("eval", 0), expert)
    assert found.total == pytest.approx(sum(found.paid[-1].values()) / 2) and found.total > 0


def test_two_instances_that_pay_seats_otherwise_differ() -> None:
    def paid(**rewards: float) -> Episode:
        return Episode(
            observations=("", ""), rewards=(0.5,), paid=(rewards,), ends=(), is_success=True, seconds=0.0
        )

    with pytest.raises(Exception, match="they: rewards are"):
        require_same(paid(left=1.0, right=0.0), paid(left=0.0, right=1.0), "they")


def test_seats_that_there_are_not_are_paid_by_nobody() -> None:
    class Alone(Environment):
        """Has no seats."""

        def reset(self, task: Task) -> str:
            return ""

        def step(self, action: Action) -> StepResult:
            return StepResult(observation="", rewards={"left": 1.0})

    with pytest.raises(EnvironmentFault, match="rewards must be those of the seats agent: got 'left'"):
        advance(Alone(), Action())


def test_groups_that_differ_for_a_seat_alone_are_no_ties(chat: Chat) -> None:
    even = grouped(episode(chat, "2", "take"), episode(chat, "4", "take", 1))
    assert even.returns == [0.5, 0.5] and differs(even)
    assert [part.returns for part in comparable_groups([even])] == [[0.8, 0.6], [0.2, 0.4]]
    found = measures([even])
    assert found["monitor/zero_variance"] == 0.0 and found["monitor/solved"] == 1.0
    same = grouped(episode(chat, "4", "take"), episode(chat, "4", "take", 1))
    assert measures([same])["monitor/zero_variance"] == 1.0 and not differs(same)
    assert variance([even]).state == "pass" and variance([even]).detail.startswith("2 of 2 tasks differ")
    assert variance([same]).state == "fail"


def test_rewards_of_seats_are_metrics(chat: Chat) -> None:
    episodes = [episode(chat, "2", "take"), episode(chat, "4", "leave", 1)]
    found = rollout_metrics([grouped(*episodes)])
    assert (found["train/reward"], found["train/success"]) == (0.25, 0.5)
    assert {name: found[name] for name in found if name.startswith("train/reward/")} == {
        "train/reward/left": 0.4,
        "train/reward/right": 0.1,
    }
    held_out = evaluation_metrics(episodes)
    assert (held_out["eval/return"], held_out["eval/return/left"], held_out["eval/return/right"]) == (
        0.25,
        0.4,
        0.1,
    )


def test_an_episode_that_pays_other_seats_does_not_repeat(chat: Chat) -> None:
    recorded = episode(chat, "4", "take", environment=Paying)
    first, last = recorded.turns
    swapped = replace(recorded, turns=(replace(first, rewards={"right": 0.1}), last))
    older = replace(recorded, turns=(replace(first, reward=0.0), last))
    with closing(rollout(chat, {}, Paying)) as found:
        found.replay_episodes([recorded])
        found.replay_episodes([older])
        with pytest.raises(EnvironmentFault, match="rewards"):
            found.replay_episodes([swapped])


def test_steps_of_one_turn_pay_seats_together() -> None:
    parts: list[Any] = [StepResult(observation="", rewards={"left": 1.0}, reward=1.0)] * 2
    total = join_results([*parts, StepResult(observation="", rewards={"right": 2.0})])
    assert dict(total.rewards) == {"left": 2.0, "right": 2.0} and total.reward == 2.0
