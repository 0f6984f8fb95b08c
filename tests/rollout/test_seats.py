"""Several seats in one episode: a conversation for each, and what one is shown reaches no other."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from quintain.agents.harness import PlainText
from quintain.agents.plan import PlanAndAct
from quintain.agents.rci import Critique
from quintain.credit.group import group_relative
from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples, samples_from
from quintain.data.seats import by_seat, split_seats
from quintain.engines.local import Local
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert
from quintain.errors import EnvironmentFault, UsageError
from quintain.learning.learner import Learner
from quintain.losses.policy import reinforce
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.rollout.views import acting_seat
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, Score, StepResult, Task, Trajectory, as_text
from quintain.worlds.keydoor.game import KeyDoor
from quintain.worlds.twocards.game import TwoCards


class Rounds(Environment):
    """Left, right, left again; each is told a word of its own, and left wins."""

    max_turns = 4

    def reset(self, task: Task) -> str:
        self.turn = 0
        return "for left"

    def step(self, action: Action) -> StepResult:
        self.turn += 1
        return StepResult(
            observation=("for left", "for right")[self.turn % 2],
            is_terminated=self.turn == 3,
            reward=float(self.turn == 3),
            reward_terms={"left": 1.0, "right": -1.0} if self.turn == 3 else {},
        )

    def seats(self) -> tuple[str, ...]:
        return ("left", "right")

    def seat(self) -> str:
        return self.seats()[self.turn % 2]


class Misseated(Rounds):
    """A seat that is not at the table."""

    def seat(self) -> str:
        return "middle"


def expert(environment: Environment, rng: Random, seen: Sequence[Any]) -> Action:
    assert isinstance(environment, Expert)
    return environment.expert_action()


@pytest.fixture(scope="module")
def talk() -> Chat:
    """A tokenizer for cards and messages."""
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(["A. red = 4. blue + red? say red 4 answer 5"], 300)
    return Chat(tokenizer)


def streams(trajectory: Trajectory, chat: Chat) -> dict[str, str]:
    """Return the text of each seat's stream."""
    found: dict[str, str] = {}
    for turn in trajectory.turns:
        ids = (*turn.prompt_ids, *turn.completion.token_ids)
        found[turn.seat] = found.get(turn.seat, "") + chat.encoder.decode(ids)
    return found


def test_each_seat_has_its_own_tokens(chat: Chat) -> None:
    said = {"left": chat.write("left"), "right": chat.write("right")}

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        return said[request.session.split("/")[-2]]

    engine = Scripted(script)
    rollout = Rollout(PlainText(chat), Rounds, engine)
    (group,) = rollout.groups([Rounds().task("train", 0)], size=1, seed=3)
    (episode,) = group.trajectories
    assert [turn.seat for turn in episode.turns] == ["left", "right", "left"]
    assert [turn.starts_segment for turn in episode.turns] == [True, True, False]
    conversations = {seat: chat.conversation() for seat in said}
    for turn in episode.turns:
        assert as_text(turn.observation) == f"for {turn.seat}"
    rules = "Left, right, left again; each is told a word of its own, and left wins."
    opening = {
        seat: chat.encoder.encode_marked(f"<|system|>{rules}<|user|>for {seat}<|assistant|>", continues=False)
        for seat in conversations
    }
    more = chat.encoder.encode_marked("<|user|>for left<|assistant|>", continues=True)
    assert [turn.prompt_ids for turn in episode.turns] == [opening["left"], opening["right"], more]
    assert [request.session for request in engine.requests] == [
        f"{episode.group}/0/0/{seat}/0" for seat in ("left", "right", "left")
    ]
    one, other = imitation_samples([episode])
    assert tuple(one.token_ids) == (*opening["left"], *said["left"], *more, *said["left"])
    assert tuple(other.token_ids) == (*opening["right"], *said["right"])
    assert one.turn_id[-1] == 2 and other.turn_id[-1] == 1
    assert engine._streams == {}  # pyright: ignore[reportPrivateUsage]
    rollout.close()


def test_roles_of_a_seat_may_be_of_different_policies(chat: Chat) -> None:
    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        return chat.write(
            "1. north" if "plan" in str(chat.encoder.decode(stream)).split("<|user|>")[-1] else "north"
        )

    planner, actor = Scripted(script, policy="policy"), Scripted(script, policy="actor")
    agent = PlanAndAct(PlainText(chat, max_tokens=64), chat, replan_every=2)
    rollout = Rollout(
        {"policy": agent, "actor": agent},
        KeyDoor,
        {"policy": planner, "actor": actor},
        seats={"agent": "actor", "agent/plan": "policy"},
        limits=Limits(max_turns=4),
    )
    try:
        (group,) = rollout.groups([KeyDoor().task("train", 0)], size=1, seed=0)
    finally:
        rollout.close()
    (episode,) = group.trajectories
    assert [(turn.seat, turn.completion.policy) for turn in episode.turns] == [
        ("agent/plan", "policy"), ("agent", "actor"), ("agent", "actor"),
        ("agent/plan", "policy"), ("agent", "actor"), ("agent", "actor"),
    ]  # fmt: skip
    assert [turn.starts_segment for turn in episode.turns] == [True, True, False] * 2
    assert (len(planner.requests), len(actor.requests)) == (2, 4)
    assert planner._streams == actor._streams == {}  # pyright: ignore[reportPrivateUsage]
    first, second = by_seat(episode)
    assert [len(part.turns) for part in (first, second)] == [2, 4]


def test_roles_that_share_a_context_are_of_one_policy(chat: Chat) -> None:
    engine = Scripted(lambda request, stream: chat.write("north"))
    agent = Critique(PlainText(chat, max_tokens=64), chat)
    rollout = Rollout(
        {"policy": agent, "judge": agent},
        KeyDoor,
        {"policy": engine, "judge": engine},
        seats={"agent": "policy", "agent/critique": "judge"},
    )
    try:
        with pytest.raises(
            UsageError, match="policy of critique: got judge, but it goes on where policy spoke"
        ):
            rollout.groups([KeyDoor().task("train", 0)], size=1, seed=0)
    finally:
        rollout.close()


def test_what_a_seat_is_worth_is_its_own(chat: Chat) -> None:
    rollout = Rollout(PlainText(chat), Rounds, Scripted(lambda request, stream: chat.write("go")))
    groups = split_seats(rollout.groups([Rounds().task("train", 0)], size=2, seed=3))
    left, right = groups
    assert [t.outcome for t in left.trajectories] == [Score(value=1.0, is_success=True)] * 2
    assert [t.outcome for t in right.trajectories] == [Score(value=-1.0, is_success=False)] * 2
    assert {t.group for t in left.trajectories}.isdisjoint(t.group for t in right.trajectories)
    rollout.close()


def test_a_card_stays_with_the_seat_that_holds_it(talk: Chat) -> None:
    make = find("twocards")
    rollout = Rollout(PlainText(talk), make, None)
    world = TwoCards()
    groups = rollout.demonstrations([world.task("train", n) for n in range(20)], expert, seed=1)
    rollout.close()
    for group in groups:
        (episode,) = group.trajectories
        assert episode.is_success
        world.reset(group.task)
        cards = dict(zip("AB", world.snapshot().deal.cards, strict=True))
        told = streams(episode, talk)
        assert set(told) == {turn.seat for turn in episode.turns} <= {"A", "B"}
        for seat, text in told.items():
            hidden = cards["B" if seat == "A" else "A"]
            assert not [key for key, value in hidden if f"{key} = {value}" in text]


def test_both_seats_are_sampled_and_trained_as_one_policy(talk: Chat) -> None:
    make = find("twocards?max_turns=4")
    model = build_tiny(talk.tokenizer, size="micro")
    rollout = Rollout(PlainText(talk, max_tokens=4), make, Local(model), limits=Limits(concurrency=4))
    groups = rollout.groups([make().task("train", n) for n in range(3)], size=2, seed=5)
    rollout.close()
    assert {turn.seat for group in groups for t in group.trajectories for turn in t.turns} >= {"A"}
    samples = samples_from(group_relative(groups))
    report = Learner(model).step(micro_batches(samples, max_tokens=4096), reinforce(), is_on_policy=True)
    assert report.metrics["gap/max"] < 1e-3


def test_one_seat_is_just_the_agent() -> None:
    assert acting_seat(TwoCards(partner="scripted")) == "agent"
    assert acting_seat(TwoCards()) == "A"


def test_a_seat_that_is_not_there_is_the_environments_fault() -> None:
    world = Misseated()
    world.turn = 0
    with pytest.raises(EnvironmentFault, match="one of left, right: got 'middle'"):
        acting_seat(world)
