"""M3HF: when it pauses, what is read of remarks, what a test judges by, and a run that is taken up again."""

import json
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

import quintain
from quintain.api import resume
from quintain.config import build
from quintain.data.labels import Query, read_labels
from quintain.errors import ConfigError, DataError
from quintain.learning.labelling import FILE, Session
from quintain.methods.multiagent.m3hf import KEPT, Config, mean_change, pause_at
from quintain.methods.multiagent.remarking import read_remark, script_remark, translate_remark
from quintain.rewards.feedback import Remark
from quintain.serve.listener import Listener
from quintain.store.run import Run
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Trajectory

SMALL: dict[str, Any] = {
    "environment": "twocards?facts=1&values=2&max_turns=4", "model": "micro", "demonstrations": 16,
    "imitation_epochs": 2, "episodes": 4, "num_epochs": 1, "phase_steps": 1, "pauses": 2, "test_tasks": 6,
    "max_turn_tokens": 8, "eval_every": 9, "eval_episodes": 1,
}  # fmt: skip


def make_episode(*words: str, is_success: bool) -> Trajectory:
    return episode_of([turn_of(action=Action(text=each)) for each in words], is_success=is_success)


def test_it_pauses_after_each_phase_and_tests_once_more() -> None:
    config = Config(phase_steps=10, pauses=2)
    assert {step: pause_at(step, config) for step in range(1, 60) if pause_at(step, config)} == {
        11: 1, 21: 2, 31: 3,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="pauses: got 6; give 1 to 5"):
        build(Config, {"pauses": 6}, "test").check()


def test_a_remark_is_a_template_of_seats_that_there_are() -> None:
    found = read_remark("event?seats=A,B&action=say&value=0.2", ("A", "B"))
    assert found == Remark(template="event", seats=("A", "B"), action="say", value=0.2)
    for spec, says in (
        ("they should talk more", "begins with no template.*or name a --reader"),
        ("event?action=say", "without a value"),
        ("event?action=say&value=0.2&seats=C", "got the seat 'C'; the environment has A, B"),
        ("event?action=say&value=0.2&code=import", "option of remark event: got 'code'"),
        ("lambda?obs=1&value=2", "begins with no template"),
        ("time?value=2", "give a number from -1 to 1"),
    ):
        with pytest.raises(DataError, match=says):
            read_remark(spec, ("A", "B"))


def test_a_script_remarks_on_what_tells_solved_episodes_apart_or_on_the_opposite() -> None:
    episodes = [
        make_episode("say red 4", "answer 3", is_success=True),
        make_episode("pass", "answer 1", is_success=False),
    ]
    assert script_remark(episodes, Random(0), errors=0.0) == "event?action=pass&value=-0.2"
    assert script_remark(episodes, Random(0), errors=1.0) == "event?action=pass&value=0.2"
    assert script_remark(episodes[1:], Random(0), errors=0.0) == "time?value=-0.02"


def test_returns_are_compared_on_tasks_that_both_tests_played() -> None:
    assert mean_change({"a": 1.0, "b": 0.0, "c": 5.0}, {"a": 0.5, "b": -0.25}) == -0.375
    third = dict.fromkeys("abc", 0.0)
    assert mean_change(third, {**third, "a": -1.0}) == 0.0, "-1/3 with an error of 1/3"
    assert mean_change({"a": 0.0}, {"a": -1.0}) == -1.0
    assert mean_change({"a": 1.0}, {"b": 1.0}) is None


def test_plain_words_go_to_a_reader_and_templates_do_not() -> None:
    answers = ["They tell.\nREWARD: event?action=say&value=0.1", "I cannot."]

    async def answer(request: Request) -> JSONResponse:
        asked = (await request.json())["messages"]
        assert asked[1]["content"] == "tell more" and "Seats: A" in asked[0]["content"]
        return JSONResponse({"choices": [{"message": {"content": answers.pop(0)}}]})

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    listener = Listener(app).start()
    try:
        reader = f"{listener.url}/v1?model=any"
        assert translate_remark("tell more", reader, ("A",)) == "event?action=say&value=0.1"
        assert translate_remark("time?value=-0.1", reader, ("A",)) == "time?value=-0.1", "nobody is asked"
        assert translate_remark("tell more", "", ("A",)) == "tell more"
        with pytest.raises(DataError, match="does not end with REWARD"):
            translate_remark("tell more", reader, ("A",))
    finally:
        listener.close()


def read_kept(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / KEPT).read_text().splitlines()]


@pytest.fixture(scope="module")
def train_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two pauses and the test that follows them."""
    return quintain.train("m3hf", run="script", root=tmp_path_factory.mktemp("m3hf"), steps=4, **SMALL)


@pytest.mark.slow
def test_a_run_tests_on_tasks_that_it_does_not_learn_from(train_script: Path) -> None:
    with Run.open(train_script, writable=False) as run:
        rows = {int(row["step"]): row for row in run.metrics()}
        played = {step: list(run.trajectories(step=step, phase="train")) for step in (1, 2, 3, 4)}
        used = {run.episode(use.episode).task.id for step in (2, 3, 4) for _, use in run.uses(step)}
    assert [len(played[step]) for step in (1, 2, 3, 4)] == [4, 10, 10, 10]
    tested = [{t.task.id for t in played[step]} for step in (2, 3, 4)]
    common = tested[0] & tested[1] & tested[2]
    assert len(common) == 6 and not common & used
    assert [row["pause"] for row in read_kept(train_script)] == [1, 2]
    assert rows[2]["remarks/weight_1"] == 1.0 and "remarks/weight_2" in rows[3]
    own = [sum(turn.reward for turn in t.turns) for t in played[4] if t.task.id in common]
    assert rows[4]["remarks/test_return"] == pytest.approx(sum(own) / 6), "what the environment paid"


@pytest.mark.slow
def test_a_run_that_is_taken_up_knows_remarks_weights_and_tests(train_script: Path, tmp_path: Path) -> None:
    short = quintain.train("m3hf", run="short", root=tmp_path, steps=2, **SMALL)
    resume(short, steps=4)
    assert read_kept(short) == read_kept(train_script)
    weights: list[Any] = []
    for folder in (short, train_script):
        with Run.open(folder, writable=False) as run:
            weights.append((run.weights(), [row.get("remarks/weight_1") for row in run.metrics()]))
    assert weights[0] == weights[1]


@pytest.mark.slow
def test_people_remark_while_the_run_waits(tmp_path: Path) -> None:
    stop, person = threading.Event(), Session(tmp_path / "ask" / FILE, "ann")

    def remark() -> None:
        while not stop.is_set():
            query: Query | None = person.next() if (tmp_path / "ask").is_dir() else None
            if query is not None:
                person.answer(query.id, "first", "event?seats=A&action=say&value=0.1")
            time.sleep(0.02)

    thread = threading.Thread(target=remark)
    thread.start()
    try:
        made = quintain.train("m3hf", run="ask", root=tmp_path, steps=3, remarks="ask", **SMALL)
    finally:
        stop.set()
        thread.join(10)
    assert [row["reward"] for row in read_kept(made)] == ["event?seats=A&action=say&value=0.1"] * 2
    assert [query.note for query in read_labels(made / FILE).queries.values()] == ["pause 1", "pause 2"]
    given = quintain.train("m3hf", run="file", root=tmp_path, steps=3, remarks=str(made / FILE), **SMALL)
    assert read_kept(given) == read_kept(made)
