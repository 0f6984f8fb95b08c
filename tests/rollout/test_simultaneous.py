"""Several seats asked at once, and several policies in one episode: golden tokens, own rewards, refusals."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import pytest

from quintain.agents.harness import PlainText
from quintain.agents.protocol import Agent
from quintain.data.seats import by_seat, split_seats
from quintain.engines.protocol import Engine
from quintain.engines.scripted import Scripted
from quintain.environments.check import check
from quintain.environments.protocol import Environment, Seats, Simultaneous, SimultaneousSeats, advance, begin
from quintain.errors import EnvironmentFault, FailureRateError, UsageError
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.replay import prefixes_of
from quintain.rollout.request import EpisodeRequest, Options
from quintain.text.chat import Chat
from quintain.types import Action, Score, StepResult, Task, Trajectory, derive_seed

pytestmark = pytest.mark.usefixtures("both_sources")
BEATS = {"rock": "scissors", "paper": "rock", "scissors": "paper"}
RULES = "Rock, paper, scissors: two rounds."


class Rps(Simultaneous):
    """Rock, paper, scissors: two rounds."""

    name = "rps"
    return_range = (-2.0, 2.0)
    max_turns = 3

    def __init__(self) -> None:
        self.round, self.last = 0, {"left": "nothing", "right": "nothing"}

    def reset(self, task: Task) -> str:
        self.round, self.last = 0, {"left": "nothing", "right": "nothing"}
        return self.observe("left")

    def seats(self) -> tuple[str, ...]:
        return ("left", "right")

    def observe(self, seat: str) -> str:
        other = "right" if seat == "left" else "left"
        return f"You are {seat}. They showed {self.last[other]}."

    def step_all(self, actions: Mapping[str, Action]) -> StepResult:
        self.round += 1
        self.last = {seat: action.text for seat, action in actions.items()}
        left, right = self.last["left"], self.last["right"]
        won = 1.0 if BEATS.get(left) == right else -1.0 if BEATS.get(right) == left else 0.0
        return StepResult(
            observation="The end.",
            reward=won,
            rewards={"left": won, "right": -won},
            is_terminated=self.round == 2,
        )

    def snapshot(self) -> tuple[int, dict[str, str]]:
        return self.round, dict(self.last)

    def restore(self, state: tuple[int, dict[str, str]]) -> None:
        self.round, self.last = state[0], dict(state[1])


def by_name(chat: Chat, said: Mapping[str, str]) -> Scripted:
    """Say what `said` has for the seat in the name of the session."""
    ids = {seat: chat.write(text) for seat, text in said.items()}
    return Scripted(lambda request, stream: ids[request.session.split("/")[-2]])


def play(rollout: Rollout, **options: Any) -> Trajectory:
    with closing(rollout):
        (group,) = rollout.groups([Rps().task("train", 0)], size=1, seed=3, options=Options(**options))
    return group.trajectories[0]


def test_golden_tokens_of_two_seats_at_once(chat: Chat) -> None:
    engine = by_name(chat, {"left": "rock", "right": "paper"})
    episode = play(Rollout(PlainText(chat), Rps, engine))
    assert [turn.seat for turn in episode.turns] == ["left", "right", "left", "right"]
    seats = ("left", "right")
    openings = [
        chat.encoder.encode_marked(
            f"<|system|>{RULES}<|user|>You are {seat}. They showed nothing.<|assistant|>", continues=False
        )
        for seat in seats
    ]
    shown = {"left": "paper", "right": "rock"}
    later = [
        chat.encoder.encode_marked(
            f"<|user|>You are {seat}. They showed {shown[seat]}.<|assistant|>", continues=True
        )
        for seat in seats
    ]
    assert [turn.prompt_ids for turn in episode.turns] == [*openings, *later]
    assert [turn.completion.token_ids for turn in episode.turns] == [
        chat.write("rock"),
        chat.write("paper"),
    ] * 2
    assert [turn.starts_segment for turn in episode.turns] == [True, True, False, False]
    assert [turn.reward for turn in episode.turns] == [0.0, -1.0, 0.0, -1.0]
    assert [dict(turn.rewards) for turn in episode.turns] == [{"left": -1.0}, {"right": 1.0}] * 2
    assert [request.seed for request in engine.requests] == [
        derive_seed(episode.seed, number, seat) for number in (0, 2) for seat in seats
    ]
    assert [request.session for request in engine.requests] == [
        f"{episode.group}/0/0/{seat}/0" for seat in (*seats, *seats)
    ]
    assert engine._streams == {}  # pyright: ignore[reportPrivateUsage]
    assert episode.outcome == Score(value=-2.0, is_success=False)
    left, right = by_seat(episode)
    assert ([t.reward for t in left.turns], left.outcome) == (
        [-1.0, -1.0],
        Score(value=-2.0, is_success=False),
    )
    assert ([t.reward for t in right.turns], right.outcome) == ([1.0, 1.0], Score(value=2.0, is_success=True))
    assert by_seat(left)[0].turns == left.turns


def test_both_are_asked_before_either_is_answered(chat: Chat) -> None:
    asked: list[int] = []

    class Counted(Scripted):
        def advance(self) -> Any:
            asked.append(len(self._queue))
            return super().advance()

    play(Rollout(PlainText(chat), Rps, Counted(lambda request, stream: chat.write("rock"))))
    assert asked == [2, 2]


def test_a_joint_step_is_one_turn_of_the_limit(chat: Chat) -> None:
    engine = by_name(chat, {"left": "rock", "right": "paper"})
    episode = play(Rollout(PlainText(chat), Rps, engine), limits=Limits(max_turns=1))
    assert len(episode.turns) == 2 and episode.stop.is_truncation


def test_asked_one_after_another_they_do_the_same(chat: Chat) -> None:
    world = Rps()
    assert isinstance(world, Seats) and isinstance(world, SimultaneousSeats)
    assert begin(world, world.task("train", 0)) == "You are left. They showed nothing."
    first = advance(world, Action(text="rock"))
    assert (first.observation, first.rewards, world.seat()) == (
        "You are right. They showed nothing.",
        {},
        "right",
    )
    second = advance(world, Action(text="paper"))
    assert (second.observation, dict(second.rewards)) == (
        "You are left. They showed paper.",
        {"left": -1.0, "right": 1.0},
    )
    advance(world, Action(text="rock"))
    assert begin(world, world.task("train", 0)) and world.seat() == "left"


def test_an_episode_of_seats_at_once_can_be_continued(chat: Chat) -> None:
    engine = by_name(chat, {"left": "rock", "right": "paper"})
    original = play(Rollout(PlainText(chat), Rps, engine))
    with closing(
        Rollout(PlainText(chat), Rps, by_name(chat, {"left": "scissors", "right": "paper"}))
    ) as other:
        (walk,) = other.replay_episodes([original])
        assert walk.steps == (0, 0, 1, 1)
        (group,) = other.continuations([walk.prefix(2)], size=1, seed=0)
        (again,) = group.trajectories
        assert again.turns[:2] == original.turns[:2]
        assert [turn.prompt_ids for turn in again.turns] == [turn.prompt_ids for turn in original.turns]
        assert [turn.action.text for turn in again.turns[2:]] == ["scissors", "paper"]
        assert again.outcome == Score(value=0.0, is_success=False) and len(again.turns) == 4
        with pytest.raises(
            UsageError, match=r"got turn 1, which was taken at the same time .* continue at turn 0"
        ):
            prefixes_of([walk])


class Misnamed(Rps):
    """Rock, paper, scissors: two rounds."""

    def acting(self) -> tuple[str, ...]:
        return ("left", "middle")


class Overpaid(Rps):
    """Rock, paper, scissors: two rounds."""

    def step_all(self, actions: Mapping[str, Action]) -> StepResult:
        return StepResult(observation="", rewards={"middle": 1.0})


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (Misnamed, r"Misnamed.acting must return some of left, right: got \('left', 'middle'\)"),
        (Overpaid, r"rps: rewards must be those of the seats left, right: got 'middle'"),
    ],
)
def test_what_an_environment_says_of_its_seats_is_checked(chat: Chat, kind: type[Rps], what: str) -> None:
    with pytest.raises(FailureRateError, match=what):
        play(Rollout(PlainText(chat), kind, by_name(chat, {"left": "rock", "right": "rock"})))


def test_rewards_are_numbers() -> None:
    class Paid(Rps):
        """Rock, paper, scissors: two rounds."""

        def step_all(self, actions: Mapping[str, Action]) -> StepResult:
            return StepResult(observation="", rewards={"left": float("nan")})

    world = Paid()
    begin(world, world.task("train", 0))
    advance(world, Action(text="rock"))
    with pytest.raises(EnvironmentFault, match=r"rps: rewards\['left'\] must be a finite number: got nan"):
        advance(world, Action(text="rock"))


def test_the_conformance_check_plays_all_seats() -> None:
    report = check(Rps, episodes=3)
    (found,) = [finding for finding in report.findings if finding.name == "seats"]
    assert (found.state, found.detail) == ("pass", "left, right, all at once")


def two_policies(chat: Chat, seats: Mapping[str, str] | None = None) -> tuple[Rollout, dict[str, Scripted]]:
    engines = {
        "learner": Scripted(lambda request, stream: chat.write("rock")),
        "opponent": Scripted(lambda request, stream: chat.write("paper")),
    }
    agents: dict[str, Agent] = {"learner": PlainText(chat), "opponent": PlainText(chat, max_tokens=7)}
    given: dict[str, Engine] = {**engines}
    named = {"left": "learner", "right": "opponent"} if seats is None else seats
    return Rollout(agents, Rps, given, seats=named), engines


def test_each_seat_speaks_with_the_engine_and_harness_of_its_policy(chat: Chat) -> None:
    rollout, engines = two_policies(chat)
    episode = play(rollout)
    assert [turn.completion.policy for turn in episode.turns] == ["learner", "opponent"] * 2
    assert [turn.action.text for turn in episode.turns] == ["rock", "paper"] * 2
    assert {r.session.split("/")[-2] for r in engines["learner"].requests} == {"left"}
    assert {r.sampling.max_tokens for r in engines["opponent"].requests} == {7}
    swapped = play(two_policies(chat)[0], seats={"left": "opponent", "right": "learner"})
    assert [turn.completion.policy for turn in swapped.turns] == ["opponent", "learner"] * 2


def test_a_request_may_change_sides(chat: Chat) -> None:
    rollout, _ = two_policies(chat)
    sides = ({"left": "learner", "right": "opponent"}, {"left": "opponent", "right": "learner"})
    task = Rps().task("train", 0)
    asked = [
        EpisodeRequest(task=task, group="g", index=number, seed=number, seats=seats)
        for number, seats in enumerate(sides)
    ]
    with closing(rollout):
        found = {t.index: t.turns[0].completion.policy for t in rollout.play(asked)}
    assert found == {0: "learner", 1: "opponent"}


def test_policies_that_share_an_engine_are_told_apart(chat: Chat) -> None:
    engine = by_name(chat, {"left": "rock", "right": "paper"})
    agent = PlainText(chat)
    seats = {"left": "one", "right": "two"}
    episode = play(Rollout({"one": agent, "two": agent}, Rps, {"one": engine, "two": engine}, seats=seats))
    assert [turn.completion.policy for turn in episode.turns] == ["one", "two"] * 2


def test_seats_without_a_policy_are_refused_before_anything_starts(chat: Chat) -> None:
    told = r"^seat right: got no policy; there are the policies learner, opponent: say which plays each seat, as seats="
    rollout, engines = two_policies(chat, {"left": "learner"})
    with pytest.raises(UsageError, match=told):
        play(rollout)
    assert not engines["learner"].requests
    with pytest.raises(UsageError, match=r"^seats left, right: got no policy"):
        play(two_policies(chat)[0], seats={"middle": "learner"})
    with pytest.raises(
        UsageError, match=r"^seat left: got no policy; there are the policies learner, opponent"
    ):
        two_policies(chat, {"left": "referee"})
    with pytest.raises(
        UsageError, match=r"^seats of a rollout: got none, with the policies learner, opponent; say"
    ):
        two_policies(chat, {})
    with pytest.raises(
        UsageError, match="agents of referee: got no such policy; there are learner, opponent"
    ):
        play(two_policies(chat)[0], agent={"referee": PlainText(chat)})


def test_a_policy_has_a_harness_and_an_engine(chat: Chat) -> None:
    engine = by_name(chat, {})
    with pytest.raises(UsageError, match="got harnesses for a and engines for a, b; give every policy both"):
        Rollout({"a": PlainText(chat)}, Rps, {"a": engine, "b": engine}, seats={"left": "a"})
    with pytest.raises(UsageError, match="got harnesses for none and engines for none"):
        Rollout({}, Rps, None)


class Alternating(Environment):
    """Two seats in turn; only `rewards` pay."""

    max_turns = 4

    def reset(self, task: Task) -> str:
        self.turn = 0
        return "go"

    def seats(self) -> tuple[str, ...]:
        return ("A", "B")

    def seat(self) -> str:
        return self.seats()[self.turn % 2]

    def step(self, action: Action) -> StepResult:
        self.turn += 1
        pay = {"A": 1.0, "B": -1.0} if self.turn == 3 else {}
        return StepResult(observation="go", rewards=pay, is_terminated=self.turn == 3)


def test_rewards_by_seat_of_seats_in_turn(chat: Chat) -> None:
    engine = Scripted(lambda request, stream: chat.write("go"))
    with closing(Rollout(PlainText(chat), Alternating, engine)) as rollout:
        groups = rollout.groups([Alternating().task("train", 0)], size=1, seed=0)
    assert [dict(turn.rewards) for turn in groups[0].trajectories[0].turns] == [{}, {}, {"A": 1.0, "B": -1.0}]
    first, second = split_seats(groups)
    assert [turn.reward for turn in first.trajectories[0].turns] == [0.0, 1.0]
    assert [turn.reward for turn in second.trajectories[0].turns] == [-1.0]
    seeds = [derive_seed(groups[0].trajectories[0].seed, number) for number in range(3)]
    assert [request.seed for request in engine.requests] == seeds
