"""Models behind endpoints that do not answer are found out before a run is made, whichever option names them."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.engines.chat_model import KEY, ChatModel

from quintain.api import train
from quintain.config.fields import own_options
from quintain.engines.probe import JUDGES, QUESTION, probe_endpoints
from quintain.errors import EngineFault, QuintainError
from quintain.methods.find import find_method
from quintain.methods.table import MODULES
from quintain.processes import http_json

GUESS: dict[str, Any] = {"environment": "guess", "model": "micro", "demonstrations": 4}
OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("agent_q", "judge"): GUESS,
    ("atlas", "judge"): GUESS,
    ("pae", "judge"): {**GUESS, "environment": "craft"},
    ("pae", "proposer"): {**GUESS, "environment": "craft"},
    ("policy_gradient", "judge"): {**GUESS, "rewards": "judge"},
    ("learning_to_summarize", "reward_model"): GUESS,
    ("web_gpt", "reward_model"): GUESS,
    ("instruct_gpt", "reward_model"): GUESS,
    ("agent0", "proposer"): {**GUESS, "environment": "craft"},
    ("grpo", "teacher"): GUESS,
}
"""method and option → what else it is given"""
SILENT, DEAF, NONSENSE, SCORELESS = "silent", "deaf", "nonsense", "scoreless"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that accepts and never answers, refuses, answers nonsense, or says no score."""
    if request.param in (NONSENSE, SCORELESS):
        says: dict[str, Callable[[dict[str, Any]], Any]] = {
            NONSENSE: lambda _: {"content": 7},
            SCORELESS: lambda _: "A fine day.",
        }
        model = ChatModel(says[request.param])
        try:
            yield f"{model.url}?model=m&deadline=5"
        finally:
            model.listener.close()
        return
    with closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))
        if request.param == SILENT:
            server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1?model=m&deadline=0.2"


@pytest.fixture
def key(tmp_path: Path) -> str:
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "rubric").write_text("Is it good?")
    return f"key_file={tmp_path}/key"


@pytest.mark.parametrize("place", [DEAF], indirect=True)
@pytest.mark.parametrize(("method", "option"), OPTIONS)
def test_nothing_is_written_for_an_endpoint_that_does_not_answer(
    method: str, option: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "rubric").write_text("Is it good?")
    more = f"&rubric={tmp_path}/rubric" if option in JUDGES else ""
    with pytest.raises(
        EngineFault, match=r"got ConnectError.*check the endpoint; nothing was written"
    ) as raised:
        train(method, root=tmp_path / "runs", run="r", **{option: place + more}, **OPTIONS[method, option])
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_every_option_that_is_an_endpoint_is_tried() -> None:
    found = {
        (method, option.name)
        for method in MODULES
        for option in own_options(find_method(method).config_class)
        if "chat endpoint" in option.help.lower() and option.name != "teacher"
    }
    assert found == OPTIONS.keys() - {("grpo", "teacher")}


@pytest.mark.parametrize("option", ["judge", "proposer"])
@pytest.mark.parametrize(
    ("place", "got"),
    [
        (SILENT, "no answer within 0.2 s"),
        (DEAF, "ConnectError"),
        (NONSENSE, "an answer that cannot be read"),
        (SCORELESS, "'A fine day.', which does not end with SCORE: n"),
    ],
    indirect=["place"],
)
def test_what_an_endpoint_did_is_said_in_a_line(option: str, place: str, got: str, key: str) -> None:
    if got.startswith("'A fine") and option != "judge":
        probe_endpoints({option: f"{place}&{key}"})
        return
    with pytest.raises(EngineFault) as raised:
        probe_endpoints({option: f"{place}&{key}"})
    said = str(raised.value)
    assert said.startswith(f"{option} at http://127.0.0.1:") and f"got {got}" in said
    assert "\n" not in said and KEY not in said


def test_one_score_of_a_judge_is_enough_and_what_a_tape_holds_is_not_asked(tmp_path: Path, key: str) -> None:
    model = ChatModel(lambda body: "SCORE: 10" if "4 + 4" in body["messages"][-1]["content"] else "Right.")
    try:
        tape = tmp_path / "tape.jsonl"
        address = f"{model.url}?model=m&calls=0&tape={tape}&{key}"
        probe_endpoints({"judge": address, "steps": 3, "environment": "guess"})
        assert len(model.seen) == 5, "twice each of two that are unreadable"
        assert not tape.exists()
        tape.write_text(json.dumps({"name": "a", "text": "SCORE: 1", "tokens": 1}) + "\n")
        probe_endpoints({"judge": address, "teacher": f"{address}&max_tokens=7"})
        assert len(model.seen) == 5
        probe_endpoints({"teacher": f"{model.url}?model=m&max_tokens=7&{key}"})
        assert model.seen[-1]["messages"] == [{"role": "user", "content": QUESTION}]
    finally:
        model.listener.close()


@pytest.mark.parametrize("place", [SILENT, DEAF, NONSENSE], indirect=True)
@pytest.mark.parametrize("who", ["judge", "grader"])
def test_a_grader_of_an_environment_is_asked_before_anything_is_written(
    who: str, place: str, tmp_path: Path, key: str
) -> None:
    (tmp_path / "rubric").write_text("Is it good?")
    settings = {
        "judge": {"judge": f"{place}&rubric={tmp_path}/rubric&{key}"},
        "grader": {"grader": {"url": place, "deadline": 0.2}, "key_file": f"{tmp_path}/key"},
    }
    file = tmp_path / "shop.json"
    row = {"prompt": "Say hello.", "id": "1"}
    file.write_text(json.dumps({"tools": [], "tasks": [row], **settings[who]}))
    with pytest.raises(QuintainError, match=f"{who} at http://127.0.0.1:.* got ") as raised:
        train("grpo", root=tmp_path / "runs", run="r", environment=f"http-tools/{file}", model="micro")
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "runs").exists()
