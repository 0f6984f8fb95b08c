"""An episode in its world: taken over by a person, and gone on with by checkpoints of this run and of another."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn, shorten_corpus
from tests.time_travel.conftest import train

from quintain.dashboard.viewer.replays import Replays
from quintain.dashboard.viewer.viewed import Viewer
from quintain.environments.catalog import find
from quintain.environments.protocol import advance, begin
from quintain.errors import QuintainError, UsageError
from quintain.store import Run
from quintain.types import Action, Score, Stop, ToolCall, Trajectory, as_content

GUESS = "guess?high=8&max_turns=3"


def guess(*numbers: int) -> Trajectory:
    """Return an episode of guesses at training task 0."""
    with closing(find(GUESS)()) as world:
        task = world.task("train", 0)
        seen, turns, value = begin(world, task), list[Any](), 0.0
        for number in numbers:
            action = Action(tool_calls=(ToolCall(name="guess", arguments={"number": number}),))
            result = advance(world, action)
            turns.append(make_turn((1,), shows=as_content(seen), action=action, reward=result.reward))
            seen, value = result.observation, value + result.reward
    outcome = Score(value=value, is_success=value > 0)
    return make_episode(*turns, task=task, outcome=outcome, stop=Stop.CUT, final_observation=as_content(seen))


def find_secret() -> int:
    """Return the number of that task."""
    return next(number for number in range(1, 9) if guess(number).is_success)


@pytest.fixture
def replays(tmp_path: Path) -> Iterator[tuple[Replays, str]]:
    """Replays of a run with an episode of two wrong guesses, and its session."""
    wrong = [number for number in range(1, 9) if number != find_secret()]
    with Run.create(tmp_path / "runs" / "a", recipe="grpo", config={"environment": GUESS}) as run:
        (name,) = run.append([guess(*wrong[:2])], step=1)
        run.finish("done")
    viewer = Viewer(tmp_path / "runs", cache=None)
    made = Replays(viewer)
    yield made, str(made.begin("a", name)["session"])
    made.close()
    viewer.close()


def act(made: Replays, session: str, number: int) -> Any:
    return made.act(session, {"tool": "guess", "arguments": {"number": number}})


def test_a_person_solves_it_from_the_second_turn(replays: tuple[Replays, str]) -> None:
    made, session = replays
    made.go(session, 1)
    found = act(made, session, find_secret())
    (said,) = found["said"]
    assert (said["who"], said["reward"], said["is_over"], said["is_success"]) == ("you", 1.0, True, True)
    with pytest.raises(UsageError, match="acting: got an episode that is over"):
        act(made, session, 1)
    assert made.go(session, 0)["said"] == [] and not made.go(session, 0)["is_over"]


def test_turns_end_for_a_person_as_for_an_agent(replays: tuple[Replays, str]) -> None:
    made, session = replays
    made.go(session, 2)
    found = act(made, session, find_secret() % 8 + 1)
    assert found["is_over"] and found["said"][0]["reward"] == 0, "the third of three turns"


def test_what_cannot_go_on(replays: tuple[Replays, str]) -> None:
    made, session = replays
    for policy, turns, said in (
        ("nobody", 0, "run: got 'nobody'"), ("nobody@3", 0, "run: got 'nobody'"), ("/etc", 0, "run: got '/etc'"),
        ("a", -1, "turns: got -1"), ("a", 0, "tokenizer of the run|model of the run"), ("a@7", 0, "step|@7"),
    ):  # fmt: skip
        with pytest.raises(QuintainError, match=said):
            made.go_on(session, policy, turns)
    with pytest.raises(UsageError, match="open the episode again"):
        made.go_on("other", "a", 0)


@pytest.mark.slow
def test_checkpoints_go_on_with_what_was_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of this run goes on from the very tokens; after what a person did it goes on from that."""
    shorten_corpus(monkeypatch)
    folder = train(tmp_path / "runs" / "a", num_epochs=1, num_minibatches=1, steps=2)
    shutil.copytree(folder, tmp_path / "runs" / "b")
    viewer = Viewer(tmp_path / "runs", cache=None)
    made = Replays(viewer)
    run = viewer.get("a").run
    before = run.read_ends()
    recorded = next(t for t in run.trajectories(phase="train") if len(t.turns) == 3)
    session = str(made.begin("a", recorded.id)["session"])
    made.go(session, 1)
    one = made.go_on(session, "a@0", 1)
    assert one["keeps_tokens"] and [each["who"] for each in one["said"]] == ["a@0"] and not one["is_over"]
    both = made.go_on(session, "b@2", 0)
    assert both["is_over"] and {each["who"] for each in both["said"][1:]} <= {"b@2"}
    assert both["said"][0] == one["said"][0] and both["said"][0]["sampled"]
    made.go(session, 0)
    number = find_wrong(recorded)
    act(made, session, number)
    mixed = made.go_on(session, "a", 0)
    assert [each["who"] for each in mixed["said"]][:2] == ["you", "a"] and mixed["is_over"]
    assert run.read_ends() == before, "nothing of that is recorded"
    made.close()
    viewer.close()


def find_wrong(recorded: Trajectory) -> int:
    """Return the first guess of an episode that went on after it, which was wrong."""
    return int(recorded.turns[0].action.tool_calls[0].arguments["number"])
