"""Splices are carried out before they are learned from."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from random import Random

import pytest

from quintain.agents.harness import PlainText
from quintain.data.pipeline import Pipeline, as_example
from quintain.environments.protocol import Environment
from quintain.errors import EnvironmentFault, UsageError
from quintain.rollout.collect import Rollout
from quintain.rollout.corrections import (
    CorrectedEpisode,
    can_be_carried_out,
    executable,
    expert_recovery,
    first_bad_turn,
    imitate_splice,
    join_splice,
    way_back,
)
from quintain.rollout.request import Limits
from quintain.text.chat import Chat
from quintain.types import (
    Action,
    Completion,
    Observation,
    Score,
    StepResult,
    Stop,
    Task,
    Trajectory,
    Turn,
    as_content,
    as_text,
)

TASK = Task(id="walk/train/0", environment="walk", seed=0)


class Walk(Environment):
    """Walk to 3."""

    max_turns = 9

    def reset(self, task: Task) -> str:
        self.place = 0
        return "At 0."

    def step(self, action: Action) -> StepResult:
        self.place += 1 if action.text == "on" else -1
        is_there = self.place == 3
        return StepResult(observation=f"At {self.place}.", reward=float(is_there), is_terminated=is_there)


def walked(name: str, moves: str, value: float = 1.0) -> Trajectory:
    turns: list[Turn] = []
    place = 0
    for number, move in enumerate(moves):
        turns.append(
            Turn(
                observation=as_content(f"At {place}."),
                prompt_ids=(1, 10 + place),
                completion=Completion(token_ids=(ord(move), 2), logprobs=(), stop="stop"),
                action=Action(text="on" if move == "+" else "back"),
                starts_segment=not number,
            )
        )
        place += 1 if move == "+" else -1
    return Trajectory(
        task=TASK, turns=tuple(turns), outcome=Score(value=value, is_success=value > 0), stop=Stop.TERMINATED,
        seed=0, group="g", index=0, id=name,
    )  # fmt: skip


LOST, SHOWN = walked("lost", "+-", 0.0), walked("shown", "+++")


def test_a_mistake_and_the_way_out_of_it_become_one_episode() -> None:
    both = join_splice(CorrectedEpisode(head=LOST, until=2, tail=SHOWN, begin=0))
    assert [as_text(turn.observation) for turn in both.turns] == ["At 0.", "At 1.", "At 0.", "At 1.", "At 2."]
    assert both.is_success and both.parent is not None and both.parent.episode == "lost"
    repeats = can_be_carried_out(Walk)
    assert repeats(both)
    assert not repeats(join_splice(CorrectedEpisode(head=LOST, until=1, tail=SHOWN, begin=0)))
    assert not repeats(
        join_splice(CorrectedEpisode(head=SHOWN, until=3, tail=SHOWN, begin=2))
    )  # it is over by then
    with pytest.raises(UsageError, match="splice of lost and shown: got turns up to 3 of 2 and from 0 of 3"):
        join_splice(CorrectedEpisode(head=LOST, until=3, tail=SHOWN, begin=0))


def test_a_splice_imitates_what_came_after_the_joint() -> None:
    example = imitate_splice(CorrectedEpisode(head=LOST, until=2, tail=SHOWN, begin=0))
    assert [w.tolist() for w in example.weights or ()] == [[0, 0], [0, 0], [1, 1], [1, 1], [1, 1]]


def test_episodes_of_another_environment_are_not_executable() -> None:
    strange = replace(SHOWN, id="strange", turns=SHOWN.turns[1:])
    made = Pipeline(executable(Walk)).run([as_example(SHOWN), as_example(strange)])
    assert [e.sources for e in made.examples] == [("shown",)]
    assert made.funnel.passages[0].lost == ("strange",)


class Undone(Walk):
    """Walk to 3, with snapshots and two ways to go."""

    def legal_actions(self) -> tuple[str, ...]:
        return ("on", "off")

    def snapshot(self) -> int:
        return self.place

    def restore(self, state: int) -> None:
        self.place = state

    def state_key(self) -> str:
        return str(self.place)


def test_a_way_back_has_the_fewest_actions_there_are() -> None:
    lost = walked("lost", "---", 0.0)
    on = Action(text="on")
    assert way_back(Undone, lost, 1, "-1") == ()
    assert way_back(Undone, lost, 1, "0") == (on,)
    assert way_back(Undone, lost, 2, "0") is None
    assert way_back(Undone, lost, 2, "0", most=2) == (on, on)
    assert way_back(Undone, lost, 2, "3", most=9) is None, "the goal ends the episode"
    assert way_back(Undone, lost, 3, "0") is None, "there is no such turn"
    with pytest.raises(UsageError, match="a way back in walk: got an environment without snapshots"):
        way_back(Walk, lost, 1, "0")


class Guided(Walk):
    """Walk to 3, with a guide."""

    def expert_action(self) -> Action:
        return Action(text="on")

    def progress(self) -> float:
        return max(self.place, 0) / 3


def test_the_first_bad_turn_by_the_expert_and_by_progress() -> None:
    by_expert, by_progress = first_bad_turn(Guided, "expert"), first_bad_turn(Guided, "progress")
    assert (by_expert(SHOWN), by_progress(SHOWN)) == (None, None)
    lost = walked("lost", "-+-++-+", 0.0)
    assert by_expert(lost) == 0
    assert by_progress(lost) == 5, "a step back from nothing undoes nothing"
    invalid = replace(LOST, turns=(replace(LOST.turns[0], is_valid=False), LOST.turns[1]))
    assert by_progress(invalid) == 0
    for by in ("expert", "progress"):
        with pytest.raises(
            UsageError, match=f"bad turns by {by} in walk: got an environment that cannot tell"
        ):
            first_bad_turn(Walk, by)(SHOWN)
    with pytest.raises(EnvironmentFault):
        by_expert(replace(LOST, turns=LOST.turns[1:]))


def acted(chat: Chat, moves: str) -> Trajectory:
    """Return an episode of a harness that ends after `moves`."""

    def act(_: Environment, __: Random, seen: Sequence[Observation]) -> Action:
        return Action(text="on" if moves[len(seen) - 1] == "+" else "back")

    limits = Limits(max_turns=len(moves))
    with closing(Rollout(PlainText(chat), Guided, None, limits=limits)) as rollout:
        (group,) = rollout.demonstrations([TASK], act, seed=0)
    return group.trajectories[0]


def test_the_way_out_is_what_the_expert_does_from_there(chat: Chat) -> None:
    out, lost = expert_recovery(Guided, PlainText(chat)), acted(chat, "+-+")
    made = out(lost, 2)
    assert not isinstance(made, str) and made.is_success
    assert [turn.action.text for turn in made.turns] == ["on", "back", "on", "on", "on"]
    assert made.turns[:2] == lost.turns[:2]
    assert not isinstance(out(lost, 3), str), "whoever cut it can go on"
    assert out(replace(lost, stop=Stop.MAX_TURNS), 3) == "end with their bad turn"
    assert out(replace(lost, turns=lost.turns[::-1][1:]), 1) == "cannot be carried out again"
    assert out(acted(chat, "-" * 7 + "+"), 7) == "have no way out that succeeds"
    assert out(walked("other", "+-+", 0.0), 2) == "were prompted in other words than those of the harness"
