from typing import Any

import pytest

from quintain.environments.baselines import expert, noop, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.collab.game import Collab, State
from quintain.worlds.collab.wish import STOP, Wish

WISH = Wish(thing="lamp", values=("red", "", "oval"), told=(2,), vague=())


def talk(wish: Wish = WISH, **options: Any) -> Collab:
    world = Collab(**options)
    world.restore(State(wish=wish, known=frozenset(wish.told)))
    return world


def act(world: Collab, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def said(world: Collab, *texts: str) -> list[object]:
    return [result.observation for result in act(world, *texts)]


def test_a_talk_by_value() -> None:
    world = talk()
    results = act(world, "ask color", "ask size", "submit red, huge, oval")
    assert [result.observation for result in results] == ["color: red.", "size: any.", f"Thank you. {STOP}"]
    assert [result.reward for result in results] == [-0.02, -0.02, 1.0]
    assert (
        results[-1].is_terminated
        and results[-1].is_success
        and dict(results[-1].reward_terms) == {"match": 1.0}
    )


def test_an_episode_of_a_task_by_value() -> None:
    world = Collab()
    assert play(world, world.task("train", 5), expert).observations == GOLDEN


GOLDEN = ("I want a basket. shape: round.", "color: white.", "size: huge.", "Thank you. ###STOP###")


def test_the_instruction_names_slots_and_values() -> None:
    assert Collab(slots=2, values=2).instructions() == (
        "Find out what the user wants, then hand it in. color: red, blue; size: small, medium. "
        "Act: ask and a name, or submit COLOR, SIZE."
    )


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("Which COLOR do you like?", "color: red."),
        ("Tell me the shape, and the size.", "shape: oval."),
        ("Nice weather, colorful!", "Sorry?"),
        ("ask material", "Sorry?"),
    ],
)
def test_one_question_is_answered_in_any_words(text: str, reply: str) -> None:
    assert said(talk(), text) == [reply]


@pytest.mark.parametrize(
    "text", ["submit", "submit red", "submit red huge oval flat", "submit pink huge oval", ""]
)
def test_malformed_submissions_change_nothing(text: str) -> None:
    world = talk()
    key = world.state_key()
    (result,) = act(world, text)
    assert str(result.observation).startswith("Error: ") and not result.is_valid and result.reward == 0
    assert world.state_key() == key
    assert advance(world, Action(text="ask size", error="unreadable")).observation == "Error: unreadable"
    assert said(world, "Submit RED huge oval.") == [f"Thank you. {STOP}"], "commas are not needed"


def test_the_three_rewards() -> None:
    for graded, expected in (("sparse", 0.0), ("dense", 2 / 3), ("process", 0.0)):
        (result,) = act(talk(graded=graded), "submit blue, huge, oval")
        assert result.reward == pytest.approx(expected) and result.is_success is False
    process = talk(graded="process", cost=0.0)
    texts = ("ask color", "ask color", "ask shape", "ask size", "submit red, huge, oval")
    assert [result.reward for result in act(process, *texts)] == [0.25, 0, 0, 0.25, 0.5]


def test_submissions_can_be_mended() -> None:
    world = talk(tries=2, graded="dense")
    first, second = act(world, "submit blue, huge, flat", "submit red, huge, oval")
    assert first.observation == "1 of 3 are right." and not first.is_terminated and first.reward == 0
    assert second.is_success and second.reward == 1.0
    assert act(talk(tries=2), *["submit blue, huge, oval"] * 2)[1].is_terminated


def test_a_vague_user_is_asked_twice() -> None:
    world = talk(Wish(thing="lamp", values=("red", "tiny", "oval"), told=(), vague=(0,)))
    assert said(world, "ask color", "ask size", "ask color") == [
        "color: not sure.",
        "size: tiny.",
        "color: red.",
    ]


def test_a_user_changes_its_mind_about_what_was_said() -> None:
    wish = Wish(thing="lamp", values=("red", "tiny", "oval"), told=(), vague=(), changed=0, changed_to="blue")
    world = talk(wish, values=6)
    assert said(world, "ask size", "ask color") == ["size: tiny.", "color: red."], (
        "not said before: no correction"
    )
    assert world.privileged() == "red, tiny, oval"
    assert said(world, "ask shape") == ["shape: oval. No, color: blue."]
    assert world.privileged() == "blue, tiny, oval"
    assert said(world, "ask color") == ["color: blue."]
    assert world.expert_action() == Action(text="submit blue, tiny, oval")
    early = talk(wish, values=6)
    assert said(early, "ask color", "submit red, tiny, oval")[1] == f"Thank you. {STOP}"


def test_patience_ends() -> None:
    world = talk(patience=2)
    replies = act(world, *["ask color"] * 3)
    assert replies[-1].observation == f"I have no more time. {STOP}"
    assert replies[-1].is_terminated and replies[-1].is_success is False
    assert sum(reply.reward for reply in replies) == pytest.approx(world.return_range[0])


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 50),
        ({"slots": 5, "vague": 0.5, "indifferent": 0.3, "changes_of_mind": 1.0, "noise": 2}, 20),
        ({"slots": 2, "values": 6, "told": 0.0, "graded": "process"}, 20),
        ({"changes_of_mind": 1.0, "told": 1.0, "graded": "dense", "tries": 3}, 20),
    ],
)
def test_the_expert_wins(options: dict[str, Any], count: int) -> None:
    world = Collab(**options)
    for index in range(count):
        episode = play(world, world.task("train", index), expert)
        asked = len(episode.rewards) - 1
        assert episode.is_success and episode.total == pytest.approx(1.0 - 0.02 * asked)
        assert all(end[3] for end in episode.ends) and asked >= 1, "something is always hidden"


def test_nothing_is_paid_for_nothing_and_chance_is_low() -> None:
    world = Collab(graded="process")
    tasks = [world.task("eval", index) for index in range(60)]
    assert all(play(world, task, noop).total == 0 for task in tasks)
    assert sum(play(world, task, random_policy(7)).is_success for task in tasks) < 6
    wins = [sum(play(world, task, noisy_policy(rate, 1)).is_success for task in tasks) for rate in (0, 0.5)]
    assert wins[0] == 60 > wins[1]


def test_noise_depends_on_the_task_and_the_turn() -> None:
    world = talk(noise=2)
    replies = [str(reply) for reply in said(world, "ask color", "ask color")]
    assert all(reply.startswith("color: red. ") and reply.count(".") == 3 for reply in replies)
    assert replies[0] != replies[1] and replies == said(talk(noise=2), "ask color", "ask color")


def test_snapshots_continue_alike_elsewhere() -> None:
    options: dict[str, Any] = {"vague": 0.5, "changes_of_mind": 1.0, "noise": 1}
    world, other = Collab(**options), Collab(**options)
    for index in range(15):
        begin(world, world.task("train", index))
        act(world, "ask shape")
        begin(other, world.task("eval", index))
        other.restore(world.snapshot())
        assert world.state_key() == other.state_key()
        for text in ("ask color", "ask shape", "submit red, small, flat"):
            assert act(world, text) == act(other, text)


def test_thousands_of_tasks_and_no_content_in_both_splits() -> None:
    world = Collab()
    seen: dict[str, set[str]] = {"train": set(), "eval": set()}
    for split in ("train", "eval"):
        for index in range(400):
            begin(world, world.task(split, index))
            seen[split].add(repr(world.snapshot().wish))
    assert min(len(seen["train"]), len(seen["eval"])) > 330 and not seen["train"] & seen["eval"]


def test_every_submission_is_listed() -> None:
    world = talk(slots=3, values=3)
    assert len(world.legal_actions()) == 3 + 27
    assert {"ask size", "submit green, large, oval"} <= set(world.legal_actions())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"told": -0.1}, "from 0 to 1"),
        ({"slots": 7}, "1 to 6 slots"),
        ({"slots": 6, "values": 4}, "1296 combinations"),
        ({"values": 1}, "2 to 6 values"),
        ({"tries": 0}, "at least 1 try"),
        ({"cost": 0.2}, "cost less than 1"),
        ({"patience": -1}, "no negative"),
    ],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Collab(**options)
