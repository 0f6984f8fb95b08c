"""What a world pays: cheap worlds pass the audit, and one that pays for being wrong does not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from quintain.errors import UsageError
from quintain.methods.method import same_groups
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn
from quintain_evidence.layers.objective import (
    audit_world,
    compare_rewards,
    relative_ranks,
)

CHEAP = ("guess", "twenty", "twocards", "collab", "stream", "room", "bandit?mode=mastermind")
OTHERS = (
    "api", "calc", "craft", "desk", "hopqa", "house", "keydoor", "plan", "screen", "shelf", "shop", "sokoban", "sums",
    "toolbox", "web",
)  # fmt: skip
LURE = '''
import quintain
from quintain.types import Action, StepResult

class Lure(quintain.Environment):
    """Say yes."""

    max_turns = 4
    return_range = (0.0, 4.0)

    def __init__(self, pay: float = 1.0) -> None:
        self.pay = pay

    def reset(self, task: quintain.Task) -> str:
        self.word = task.rng.choice(["yes", "no"])
        return self.word

    def step(self, action: Action) -> StepResult:
        is_right = action.text == self.word
        reward = 1.0 if is_right else self.pay if action.text == "no" else 0.0
        return StepResult(observation="", reward=reward, is_terminated=is_right, is_success=is_right)

    def legal_actions(self) -> tuple[str, ...]:
        return ("yes", "no", "perhaps")

    def expert_action(self) -> Action:
        return Action(text=self.word)
'''


@pytest.mark.parametrize("world", [*CHEAP, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS)])
def test_a_world_pays_for_what_is_measured(world: str) -> None:
    found = audit_world(world, num_tasks=12, num_episodes=64)
    assert [check.detail for check in found.checks if not check.has_passed] == []
    assert len(found.scripted) >= 7


@pytest.mark.slow
def test_a_bandit_of_clear_arms_passes_with_a_greedy_teacher_whom_chance_beats() -> None:
    """Where arms differ little or pulls are few, returns are luck: they do not even rank like regret."""
    greedy = audit_world("bandit?gap=0.8&pulls=40&expert=greedy", num_tasks=12, num_episodes=64)
    assert [check.detail for check in greedy.checks if not check.has_passed] == []
    assert greedy.expert > max(greedy.scripted.values()) > 0.3
    assert not audit_world("bandit", num_tasks=4, num_episodes=64).checks[1].has_passed


def test_a_world_that_pays_for_being_wrong_is_found(tmp_path: Path) -> None:
    file = tmp_path / "lure.py"
    file.write_text(LURE, encoding="utf-8")
    paid = audit_world(f"{file}:Lure", num_tasks=12, num_episodes=64)
    assert [check.name for check in paid.checks if not check.has_passed] == [
        "scripted policies",
        "returns rank like success",
    ]
    assert paid.scripted["always 'no'"] > paid.expert == 1.0
    fair = audit_world(f"{file}:Lure?pay=0.0", num_tasks=12, num_episodes=64)
    assert all(check.has_passed for check in fair.checks) and fair.ranks == pytest.approx(1.0)


def test_ranks_are_of_what_is_possible() -> None:
    assert relative_ranks([0.1, 0.2, 0.3, 0.9], [0, 0, 0, 1]) == pytest.approx(1.0), (
        "few succeed, all rank above"
    )
    assert relative_ranks([0.9, 0.2, 0.3, 0.1], [0, 0, 0, 1]) < 0
    assert relative_ranks([0.1, 0.2], [1, 1]) == 0.0, "success that never varies says nothing"


def group(*rewards: float) -> Group:
    task = Task(id="t", environment="e", seed=0)
    turns = tuple(
        Turn(
            observation=(),
            prompt_ids=(1,),
            completion=Completion(token_ids=(7,), logprobs=(-0.5,), stop="stop"),
            action=Action(),
            reward=reward,
        )
        for reward in rewards
    )
    outcome = Score(value=sum(rewards), is_success=sum(rewards) > 0)
    one = Trajectory(
        task=task, turns=turns, outcome=outcome, stop=Stop.TERMINATED, seed=0, group="t", index=0
    )
    return Group(task=task, trajectories=(one,))


def test_rewards_are_compared_on_the_same_episodes() -> None:
    def pays_the_last(groups: Sequence[Group]) -> Sequence[Group]:
        return [
            replace(
                g,
                trajectories=tuple(
                    replace(t, turns=(*t.turns[:-1], replace(t.turns[-1], reward=1.0)))
                    for t in g.trajectories
                ),
            )
            for g in groups
        ]

    groups = [group(0.0, 1.0), group(0.0, 0.0)]
    assert compare_rewards(groups, same_groups, same_groups).has_passed
    found = compare_rewards(groups, same_groups, pays_the_last)
    assert not found.has_passed and found.detail == "1 of 2 recorded episodes are paid differently"


def test_a_world_without_an_expert_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lure.py"
    file.write_text(LURE.replace("expert_action", "somebody"), encoding="utf-8")
    with pytest.raises(UsageError, match="got a world without an expert"):
        audit_world(f"{file}:Lure")
