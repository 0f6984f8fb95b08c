"""Pages that come by themselves: what is in which prompt, and what the environment pays."""

from collections.abc import Callable
from typing import Any

import pytest

from quintain.agents.catalog import build
from quintain.agents.context import ACT, REMEMBER
from quintain.agents.protocol import equip
from quintain.agents.reading import Chunks, PagesWorld
from quintain.environments.protocol import Environment, Expert, advance, begin
from quintain.errors import EnvironmentFault, UsageError
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Trajectory, as_text
from quintain.worlds.keydoor.game import KeyDoor
from quintain.worlds.stream.game import Stream
from quintain.worlds.sums.game import Sums


def read(chat: Chat, book: Callable[[], Stream], agent: str = "chunks+text", index: int = 0) -> Trajectory:
    def expert(world: Environment, _: object, __: object) -> Action:
        assert isinstance(world, Expert)
        return world.expert_action()

    rollout = Rollout(build(agent, chat, book()), book, None)
    try:
        (group,) = rollout.demonstrations([book().task("train", index)], expert, seed=1)
    finally:
        rollout.close()
    return group.trajectories[0]


def prompts(chat: Chat, trajectory: Trajectory) -> list[str]:
    assert all(turn.starts_segment for turn in trajectory.turns)
    return [chat.encoder.decode(turn.prompt_ids) for turn in trajectory.turns]


def test_each_page_is_in_one_prompt_and_the_answer_sees_none(small_chat: Chat) -> None:
    def book() -> Stream:
        return Stream(pages=4, facts=1, closed_book=0.0, filler=1)

    shown = read(small_chat, book)
    world = book()
    asked = world.reset(world.task("train", 0))
    pages = [world.step(Action(text="read")).observation for _ in range(4)]
    said = prompts(small_chat, shown)
    assert len(said) == 5 and shown.is_success
    for number, text in enumerate(said):
        assert asked in text
        assert [as_text(page) in text for page in pages] == [place == number for place in range(4)]
    assert said[-1].endswith(f"<|user|>{ACT}<|assistant|>") and REMEMBER not in said[-1]
    memories = [small_chat.text(turn.completion.token_ids) for turn in shown.turns[:-1]]
    for memory, text in zip(memories, said[1:], strict=True):
        assert f"Memory: {memory}" in text or not memory
    assert [turn.reward for turn in shown.turns] == pytest.approx([-0.04, -0.02, -0.02, 0.0, 1.0])


def test_prompts_are_no_longer_for_longer_texts(small_chat: Chat) -> None:
    lengths: dict[int, int] = {}
    for num in (4, 8, 16, 32):
        told: list[int] = []
        for index in range(6):
            shown = read(
                small_chat,
                lambda num=num: Stream(pages=num, facts=1, closed_book=0.0, cost=0.0),
                "chunks+text",
                index,
            )
            told += [len(turn.prompt_ids) for turn in shown.turns]
        lengths[num] = max(told)
    assert max(lengths.values()) - min(lengths.values()) <= 4, "pages have numbers of one or two digits"


def test_pages_that_end_within_a_fact_and_several_at_a_time(small_chat: Chat) -> None:
    for index in range(8):
        shown = read(
            small_chat,
            lambda: Stream(pages=5, facts=2, cut=True, closed_book=0.0),
            "chunks?pages=2+text",
            index,
        )
        assert shown.is_success and len(shown.turns) == 4
        assert sum(turn.reward for turn in shown.turns) == pytest.approx(1 - 0.02 * 5)


def test_whatever_is_said_turns_the_page(small_chat: Chat) -> None:
    world: Any = PagesWorld(Stream(pages=2, facts=1, closed_book=0.0), 1, "read")
    begin(world, world.task("train", 0))
    assert world.legal_actions() == ("read",)
    assert as_text(advance(world, Action(text="answer 1")).observation).startswith("Page 2: ")
    before = world.snapshot()
    assert before[1] == {"_is_open": True, "_begun": ()}
    assert advance(world, Action(text="")) == StepResult(observation=ACT, is_success=False)
    assert "read" not in world.legal_actions() and "answer 1" in world.legal_actions()
    assert advance(world, Action(text="answer 1")).is_terminated
    world.restore(before)
    assert world.legal_actions() == ("read",)


@pytest.mark.parametrize(
    ("world", "agent", "says"),
    [
        (
            Sums(),
            Chunks,
            "chunks: got sums, which does not say when 'read' is legal; take an environment with pages",
        ),
        (Stream(), lambda *of: Chunks(*of, pages=0), "pages of chunks: got 0; give 1 or more"),
    ],
)
def test_what_cannot_be_read(
    small_chat: Chat, world: Environment, agent: Callable[..., Chunks], says: str
) -> None:
    inner = build("text", small_chat, world)
    with pytest.raises(UsageError, match=says):
        equip(agent(inner, small_chat), world)


def test_a_task_without_pages_is_refused_as_it_begins(small_chat: Chat) -> None:
    world = equip(Chunks(build("text", small_chat, KeyDoor()), small_chat), KeyDoor())
    with pytest.raises((UsageError, EnvironmentFault), match="which begins where 'read' is not legal"):
        begin(world, world.task("train", 0))
