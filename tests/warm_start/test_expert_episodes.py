"""Recorded experts: which recordings are of which task, what is carried out of them, and what is left out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from quintain.environments.baselines import foreseen
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, Expert, Snapshot, StateKey, advance, begin
from quintain.environments.recorded import RecordedAction, Recordings, WithRecordedExpert, is_same
from quintain.errors import DataError, EnvironmentFault
from quintain.learning.train_config import TrainConfig
from quintain.models.families import NO_LIMIT
from quintain.text.chat import Chat
from quintain.types import Action, Score, Split, StepResult, Task, ToolCall, as_text
from quintain.warm_start.expert_episodes import RecordedExpert, harness_name, match_tasks, with_recordings
from quintain.warm_start.start import build_agent, new_tokenizer


class Stairs(Environment):
    """Say up until you are there; anything else is lost time."""

    max_turns = 4

    def reset(self, task: Task) -> str:
        self.height, self.wanted = 0, 2 + task.seed % 2
        return f"Floor 0 of {self.wanted}."

    def step(self, action: Action) -> StepResult:
        is_up = action.text == "up"
        self.height += is_up
        done = self.height == self.wanted
        return StepResult(
            observation=f"Floor {self.height}.",
            reward=0.5 * is_up,
            is_terminated=done,
            is_success=done,
            is_valid=is_up,
        )

    def legal_actions(self) -> tuple[str, ...]:
        return ("up", "wait", "jump")


class Named(Stairs):
    """The same, whose tasks have names of their own, and states that can be told."""

    def task(self, split: Split, index: int) -> Task:
        names = ("cellar", "attic", "roof") if split == "train" else ("tower",)
        name = names[index % len(names)]
        return Task(id=name, environment="named", seed=0, split=split, data={"name": name})

    def snapshot(self) -> tuple[int, int]:
        return self.height, self.wanted

    def restore(self, state: tuple[int, int]) -> None:
        self.height, self.wanted = state

    def state_key(self) -> str:
        return str(self.height)


class Taught(Named):
    """The same, with an expert."""

    def expert_action(self) -> Action:
        return Action(text="up")


STAIRS, NAMED, TAUGHT = (f"{__file__}:{name}" for name in ("Stairs", "Named", "Taught"))


def chat(*said: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Floor 0."}]
    for text in said:
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Floor."}]
    return {"messages": messages, **fields}


def write(path: Path, *records: Mapping[str, Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def load(environment: str, demonstrations: str, **fields: Any) -> RecordedExpert:
    config = TrainConfig(environment=environment, demonstrations=demonstrations, **fields)
    make = find(environment)
    found = with_recordings(config, make)
    assert found is not None
    tokenizer = new_tokenizer(make, seed=0)
    agent = build_agent(tokenizer, make, temperature=1.0, agent=config.agent)
    found.load(agent, tokenizer, max_length=NO_LIMIT)
    return found


pytestmark = pytest.mark.usefixtures("quick")


def test_what_was_recorded_is_carried_out_and_the_rest_is_counted(tmp_path: Path) -> None:
    file = write(
        tmp_path / "shown.jsonl",
        chat("up", "up", task="cellar"),
        chat("up", "up", id="roof", task="go to the roof"),
        chat("up", "wait", "up", task="cellar"),
        chat("up", task="attic"),
        chat("up", "up", task="tower"),
        chat("up", "up", task="elsewhere"),
        chat("up", "up"),
        chat("wait", task="attic", is_success=False),
    )
    found = load(NAMED, file)
    assert str(found) == (
        "2 recorded episodes of shown.jsonl in the place of an expert; left out: 1 that failed, 1 of held-out tasks, "
        f"1 of tasks that {NAMED} does not have, 1 without the id of a task, 1 more of the same tasks, 1 that do not "
        "solve their task when they are carried out"
    )
    shown = found.episodes(found.tasks(1, 8))
    assert {t.task.id for t in shown} == {"cellar", "roof"} and all(t.is_success for t in shown)
    # What was shown is what the environment shows, not what the file says, and the states are known.
    assert [as_text(turn.observation) for turn in shown[0].turns] == ["Floor 0 of 2.", "Floor 1."]
    assert [turn.state_key for turn in shown[0].turns] == ["0", "1"]
    assert shown[0].outcome == Score(value=1.0, is_success=True)


def test_a_second_recording_stands_in_for_one_that_does_not_repeat(tmp_path: Path) -> None:
    file = write(
        tmp_path / "shown.jsonl",
        chat("up", "wait", task="cellar", reward=1.0),
        chat("up", "up", task="cellar", reward=0.5),
    )
    (shown,) = load(NAMED, file).episodes([find(NAMED)().task("train", 0)])
    assert [turn.action.text for turn in shown.turns] == ["up", "up"]


def test_answers_that_are_not_trained_may_be_no_actions(tmp_path: Path) -> None:
    record = chat("up", "up", task="cellar")
    talk = [
        {"role": "user", "content": "You live in a house."},
        {"role": "assistant", "content": "wait", "weight": 0},
    ]
    file = write(tmp_path / "shown.jsonl", {**record, "messages": [*talk, *record["messages"]]})
    (shown,) = load(NAMED, file).episodes([find(NAMED)().task("train", 0)])
    assert [turn.action.text for turn in shown.turns] in (["wait", "up", "up"], ["up", "up"])
    file = write(tmp_path / "other.jsonl", {**record, "messages": [*talk, *talk, *talk, *record["messages"]]})
    (shown,) = load(NAMED, file).episodes([find(NAMED)().task("train", 0)])
    assert [turn.action.text for turn in shown.turns] == ["up", "up"]


def test_less_than_a_solution_is_kept_where_the_record_says_what_it_earned(tmp_path: Path) -> None:
    file = write(
        tmp_path / "shown.jsonl",
        chat("up", "wait", "wait", "wait", task="cellar", reward=0.5),
        chat("wait", "wait", "wait", "wait", task="roof", reward=0.5),
    )
    found = load(NAMED, file)
    assert [t.task.id for t in found.episodes(found.tasks(0, 8))] == ["cellar"]


def test_thoughts_beside_an_action_are_kept(tmp_path: Path) -> None:
    file = write(
        tmp_path / "shown.jsonl",
        chat(
            "Thought: It is up there.\nAction: up", "Thought: Once more.\nAction: up", task="stairs/train/1"
        ),
    )
    job_seed = find(STAIRS)().task("train", 1).seed
    wanted = 2 + job_seed % 2
    record = chat(*["Thought: It is up there.\nAction: up"] * wanted, task="stairs/train/1")
    file = write(tmp_path / "shown.jsonl", record)
    make = find(STAIRS)
    config = TrainConfig(environment=STAIRS, demonstrations=file, agent="react")
    found = with_recordings(config, make)
    assert found is not None
    tokenizer = new_tokenizer(make, seed=0)
    found.load(build_agent(tokenizer, make, temperature=1.0, agent="react"), tokenizer, max_length=NO_LIMIT)
    (shown,) = found.episodes(found.tasks(0, 1))
    text = Chat(tokenizer).text(shown.turns[0].completion.token_ids)
    assert text.strip() == "Thought: It is up there.\nAction: up"
    # Through another harness the same is done, in its words.
    plain = build_agent(tokenizer, make, temperature=1.0)
    (again,) = found.play(plain, [shown.task])
    assert Chat(tokenizer).text(again.turns[0].completion.token_ids).strip() == "up"


def test_tasks_are_found_by_number_or_by_name() -> None:
    ids = ["stairs/train/4", "stairs/eval/2", "stairs/train/x", "other/train/1", "stairs/train/04"]
    assert {name: task.split for name, task in match_tasks(ids, find(STAIRS)).items()} == {
        "stairs/train/4": "train",
        "stairs/eval/2": "eval",
    }
    assert set(match_tasks(["attic", "tower", "nowhere"], find(NAMED))) == {"attic", "tower"}
    assert set(match_tasks([], find(NAMED))) == set()


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (
            [chat("up", "up", task="nowhere"), chat("up", task="cellar", is_success=False)],
            r"got 2 without one of a training task of .*Named \(1 that failed, 1 of tasks that .*Named does not have; "
            "they name nowhere, cellar, its first is cellar",
        ),
        (
            [chat("up")],
            r"1 without the id of a task; its first task is cellar\); give each the id of its task",
        ),
    ],
)
def test_recordings_of_other_tasks_are_refused(
    records: Sequence[Mapping[str, Any]], words: str, tmp_path: Path
) -> None:
    config = TrainConfig(environment=NAMED, demonstrations=write(tmp_path / "shown.jsonl", *records))
    with pytest.raises(DataError, match=words):
        with_recordings(config, find(NAMED))
    # An environment with an expert of its own goes on asking it, unless they name tasks that it does not have.
    taught = TrainConfig(environment=TAUGHT, demonstrations=config.demonstrations)
    if "task" not in records[0]:
        assert with_recordings(taught, find(TAUGHT)) is None
    else:
        with pytest.raises(DataError, match="they name nowhere, cellar"):
            with_recordings(taught, find(TAUGHT))


def test_recordings_none_of_which_repeats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"got 1 that are of tasks of .* none of them solves its task"):
        load(NAMED, write(tmp_path / "shown.jsonl", chat("up", task="cellar")))


def test_rounds_go_through_all_recorded_tasks(tmp_path: Path) -> None:
    file = write(tmp_path / "s.jsonl", *(chat("up", "up", task=name) for name in ("cellar", "attic", "roof")))
    found = load(NAMED, file)
    assert len(found.tasks(1, 99)) == 3
    drawn = [task.id for step in range(6) for task in found.tasks(step, 1)]
    assert sorted(drawn[:3]) == sorted(drawn[3:]) == ["attic", "cellar", "roof"]


@dataclass
class Play:
    environment: Any

    def do(self, *texts: str) -> None:
        for text in texts:
            advance(self.environment, Action(text=text))

    @property
    def next(self) -> str:
        return self.environment.expert_action().text


def test_the_recorded_expert_goes_on_where_it_is() -> None:
    actions = [Action(text="up"), Action(text="wait"), Action(text="jump"), Action(text="up")]
    factory = WithRecordedExpert(find(NAMED), Recordings({"cellar": actions}))
    environment = factory()
    assert isinstance(environment, Expert) and isinstance(environment, Snapshot)
    assert isinstance(environment, StateKey) and type(environment).__name__ == "Named"
    assert environment.instructions() == Named().instructions() and factory.spec == NAMED
    begin(environment, environment.task("train", 0))
    play = Play(environment)
    assert play.next == "up" and [a.text for a in foreseen(environment)] == ["up", "wait", "jump", "up"]
    play.do("up")
    saved = environment.snapshot()
    play.do("wait")
    assert play.next == "jump"
    environment.restore(saved)
    assert play.next == "wait"
    # Beside the way the state says what was done there, the last time.
    play.do("jump")
    assert play.next == "wait"
    begin(environment, environment.task("train", 1))
    with pytest.raises(
        EnvironmentFault, match="recorded episode of attic: got a state in which it is not there"
    ):
        environment.expert_action()


def test_without_states_it_does_what_it_has_not_done() -> None:
    environment = WithRecordedExpert(find(STAIRS), Recordings({"stairs/train/0": [Action(text="up")] * 2}))()
    assert not isinstance(environment, Snapshot)
    begin(environment, environment.task("train", 0))
    play = Play(environment)
    play.do("wait", "up", "jump")
    assert play.next == "up"
    play.do("up")
    with pytest.raises(EnvironmentFault, match="ends after 2 actions"):
        _ = play.next


def test_actions_are_the_same_by_what_they_do() -> None:
    call = ToolCall(name="go", arguments={"to": "roof"}, id="1")
    assert is_same(Action(text="a", tool_calls=(call,)), RecordedAction(text="b", tool_calls=(call,)))
    assert is_same(Action(text="up "), RecordedAction(text="up"))
    assert not is_same(Action(text="up"), Action(text="up", error="no"))
    assert not is_same(Action(text="up"), Action(text="up", tool_calls=(call,)))


def test_the_harness_that_acts_reads_the_recordings() -> None:
    assert (
        harness_name("plan?demonstrates=calls") == "auto" and harness_name("window?turns=2+react") == "react"
    )
    assert (
        harness_name("foresight+text") == "text" and harness_name("tools?calls=llama") == "tools?calls=llama"
    )
