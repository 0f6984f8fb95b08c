"""The best of several drafts: who chooses, what is shown and read, what is paid, and what a run teaches of actions."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.search.conftest import list_contexts, play_words

from quintain.data.searched import follow_found, split_head
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Snapshot, advance, begin
from quintain.errors import DataError, UsageError
from quintain.search.guided import Guided, GuidedWorld
from quintain.search.step_scores import Step, StepScores, drift_of, load_scores, require_steady, steps_of
from quintain.store.run import Run
from quintain.testing.episodes import episode_of, turn_of
from quintain.text.chat import Chat
from quintain.types import Action, Score, StepResult, Task, Trajectory, as_content

AGENT: Any = None
TASK = Task(id="bag/train/0", environment="bag", seed=0)


class Bag(Environment):
    """Take the red thing twice. Act: take COLOR. A wrong one ends the episode."""

    name = "bag"
    max_turns = 6

    def __init__(self) -> None:
        self.num = 0

    def reset(self, task: Task) -> str:
        self.num = 0
        return "red wanted"

    def step(self, action: Action) -> StepResult:
        if action.text != "take red":
            return StepResult(observation="wrong", is_terminated=action.text != "wait", is_success=False)
        self.num += 1
        done = self.num == 2
        return StepResult(
            observation=f"{self.num} red",
            reward=0.5,
            reward_terms={"red": 0.5},
            is_terminated=done,
            is_success=done,
        )

    def progress(self) -> float:
        raise AssertionError("who scores an action sees what its agent sees")

    def snapshot(self) -> int:
        return self.num

    def restore(self, state: int) -> None:
        self.num = state


def record(actions: Sequence[str], *, is_solved: bool, task: Task = TASK) -> Trajectory:
    turns = [turn_of(action=Action(text=text), observation=as_content("red wanted")) for text in actions]
    return episode_of(turns, float(is_solved), is_success=is_solved, task=task)


def number_groups(episodes: Sequence[Trajectory]) -> list[Trajectory]:
    return [replace(t, group=f"{number}") for number, t in enumerate(episodes)]


LEARNED = StepScores.learn(
    [record(["take red", "take red"], is_solved=True), record(["take blue"], is_solved=False)] * 4
)


def world_of(size: int = 3, rate: StepScores | None = LEARNED) -> GuidedWorld:
    settings = Guided(AGENT, AGENT, size=size)
    object.__setattr__(settings, "rate", rate)
    return GuidedWorld(Bag(), settings)


def say(world: GuidedWorld, *words: str) -> list[StepResult]:
    begin(world, TASK)
    return [advance(world, Action(text=text)) for text in words]


def test_the_best_draft_is_done_and_the_others_are_not() -> None:
    found = say(world_of(), "take blue", "take red", "take green", "take red", "take blue", "take red")
    assert [split_head(result.observation) for result in found] == [
        ("", (), "red wanted"), ("", (), "red wanted"), ("", (1,), "1 red"),
        ("", (1,), "1 red"), ("", (1,), "1 red"), ("end", (1, 3), "2 red"),
    ]  # fmt: skip
    assert [result.reward for result in found] == [0.0] * 5 + [1.0] and found[-1].reward_terms == {"red": 1.0}
    assert found[-1].is_success and found[-1].is_terminated and not isinstance(world_of(), Snapshot)


def test_what_cannot_be_read_is_done_only_where_there_is_nothing_else() -> None:
    world = world_of(size=2)
    begin(world, TASK)
    advance(world, Action(text="", error="no action"))
    assert split_head(advance(world, Action(text="take red")).observation)[1] == (1,)
    advance(world, Action(text="", error="no action"))
    assert advance(world, Action(text="", error="no action")).is_over


def test_an_episode_has_as_many_actions_as_without_drafts() -> None:
    world = world_of(size=2)
    found = say(world, *["wait"] * 12)
    assert [result.is_over for result in found] == [False] * 11 + [True] and found[-1].is_truncated
    assert world.max_turns == 12 and world_of(2, None).max_turns == 24, "what the model says of each"


def test_the_model_is_asked_of_each_draft_before_it_is_done() -> None:
    found = say(world_of(2, None), "take blue", "2", "take red", "9 of 10")
    assert [split_head(result.observation)[:2] for result in found] == [
        ("judge", (0,)), ("", ()), ("judge", (2,)), ("", (2,)),
    ]  # fmt: skip
    assert split_head(found[0].observation)[2] == "", "nothing came of it yet"
    assert split_head(say(world_of(2, None), "take red", "5", "take blue", "5")[-1].observation)[1] == (0,), (
        "the first"
    )


@pytest.fixture
def small_chat(tokenizer: Any) -> Chat:
    return Chat(tokenizer)


def play(chat: Chat, spec: str, words: Sequence[str]) -> Trajectory:
    return play_words(Bag, TASK, chat, spec, words)


def test_all_drafts_follow_one_prompt_and_the_chosen_ones_are_learned(
    small_chat: Chat, tmp_path: Path
) -> None:
    write_run(tmp_path / "run", 4)
    spec = f"guided?size=2&reward_model={tmp_path / 'run'}+text"
    found = play(small_chat, spec, ["take blue", "take red", "take red", "take green"])
    plain = play(small_chat, "text", ["take red", "take red"])
    assert found.outcome == Score(value=1.0, is_success=True)
    assert list_contexts(found)[0] == list_contexts(found)[1] == list_contexts(plain)[0]
    assert list_contexts(found)[2] == list_contexts(found)[3] == list_contexts(plain)[1]
    kept = follow_found(found)
    assert [turn.action.text for turn in kept.turns] == ["take red"] * 2 and list_contexts(
        kept
    ) == list_contexts(plain)
    asked = play(small_chat, "guided?size=1+text", ["take red", "9", "take red", "9"])
    texts = [small_chat.tokenizer.decode(list(ids)) for ids in list_contexts(asked)]
    assert "You have not done that yet" in texts[1] and "You have not" not in texts[2]


def write_run(folder: Path, count: int) -> None:
    held_out = Task(id="bag/eval/0", environment="bag", seed=1, split="eval")
    with Run.create(folder, recipe="collect", config={"environment": "bag"}) as run:
        seen = [
            record(["take red", "take red"], is_solved=True),
            record(["take blue"], is_solved=False),
        ] * count
        seen.append(record(["take black"], is_solved=True, task=held_out))
        run.append(number_groups(seen), step=0, phase="train")


def test_scores_are_learned_of_what_was_solved_and_what_was_not(tmp_path: Path) -> None:
    write_run(tmp_path / "run", 4)
    rate = load_scores(tmp_path / "run", 0.5)
    good, bad = (Step("red wanted", (), "red wanted", f"take {color}") for color in ("red", "blue"))
    assert rate(good) > 0.7 > 0.3 > rate(bad)
    assert "black" not in rate.known, "nothing is learned of held-out tasks"
    other = Step("a green cup", (), "green blue", "take green")
    assert rate(other) > rate(Step("a green cup", (), "green blue", "take blue")), "it holds of other things"


def test_a_step_is_read_with_where_its_words_stand() -> None:
    step = Step("a red lamp", ("click lamps",), "links: red", "click red")
    assert step.describe() == "click , red , click_task_page , click_after_click"
    steps = list(steps_of(record(["go a"] * 6, is_solved=True)))
    assert [len(each.before) for each in steps] == [0, 1, 2, 3, 4, 4] and steps[0].describe().endswith(
        "after_first"
    )
    assert "go_again" in steps[1].describe() and "go_done" in steps[1].describe()


def test_demonstrations_alone_and_places_that_changed_are_refused() -> None:
    solved, failed = record(["take red"], is_solved=True), record(["take blue"], is_solved=False)
    with pytest.raises(DataError, match="got 3 solved of 3 episodes, from which nobody learns what is bad"):
        StepScores.learn([solved] * 3)
    with pytest.raises(DataError, match="got 0 solved of 2"):
        StepScores.learn([failed] * 2)
    renamed = record(["grab mauve", "take red"], is_solved=False)
    assert drift_of(LEARNED.known, [solved, renamed]) == pytest.approx(1 / 3)
    with pytest.raises(
        DataError, match=r"scores of x: got new names in 50% of the actions of its newest 1 episodes"
    ):
        require_steady([solved, failed, solved, renamed], 0.05, "x")
    assert require_steady([solved, failed, solved, renamed], 1.0, "x")(next(steps_of(solved))) > 0.4


def test_bad_settings_and_several_seats_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"guided: got size=0, most_drift=0.05; give 1 or more drafts and a share"
    ):
        Guided(AGENT, AGENT, size=0)
    with pytest.raises(UsageError, match="several seats"):
        GuidedWorld(find("twocards")(), Guided(AGENT, AGENT))
