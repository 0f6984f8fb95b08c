"""A policy that a model writes: asked for in form, told what is wrong with it, and never wider than it may be."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engines.chat_model import KEY, ChatModel

from quintain.cli.main import main
from quintain.safety.policy import read_policy

GOOD = {"find_customer": [{}], "cancel": [{"when": {"order": {"said_by": ["task"]}}}], "respond": [{}]}


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatModel]:
    made = ChatModel(lambda _: f"Here it is: {json.dumps(GOOD)}")
    monkeypatch.setenv("POLICY_KEY", KEY)
    yield made
    made.listener.close()


def write(model: ChatModel, out: Path, *more: str) -> int:
    by = f"{model.url}?model=m&key_env=POLICY_KEY"
    return main(["policy", "desk", "--by", by, "--out", str(out), *more])


def test_a_model_is_told_the_tools_and_what_it_writes_is_a_policy(
    model: ChatModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.json"
    assert write(model, out, "--task", "Cancel order 7.") == 0
    assert json.loads(out.read_text()) == GOOD and read_policy(out)
    told = json.loads(model.seen[0]["messages"][1]["content"])
    assert told["task"] == "Cancel order 7." and "help desk" in told["instructions"]
    assert "show_order" in [tool["function"]["name"] for tool in told["tools"]]
    said = capsys.readouterr().out
    assert "3 of 10 tools may be called; not: show_order" in said and f"--guard {out}" in said


def test_it_samples_as_the_endpoint_says(
    model: ChatModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by = f"{model.url}?model=m&key_env=POLICY_KEY&temperature=0.7"
    assert main(["policy", "desk", "--by", by, "--out", str(tmp_path / "p.json")]) == 0
    assert write(model, tmp_path / "q.json") == 0
    assert [body["temperature"] for body in model.seen] == [0.7, 0.0]


def test_what_is_wrong_is_told_once_and_is_then_an_error(
    model: ChatModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        "I cannot.": "holds no JSON",
        '{"fnd": [{}]}': "got the tool 'fnd'",
        '{"cancel": [{}, {"effect": "forbid"}]}': "allow and forbid the same",
        '{"cancel": [{"effect": "forbid"}]}': "give rules that allow",
        '{"cancel": [}': "which is no JSON",
    }
    for answer, problem in wrong.items():
        model.seen.clear()
        answers = [answer, json.dumps(GOOD)]
        model.say = lambda _, answers=answers: answers.pop(0)
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        assert write(model, out) == 0
        assert problem in model.seen[1]["messages"][-1]["content"]
    model.say = lambda _: "I cannot."
    assert write(model, tmp_path / "none.json") != 0
    error = capsys.readouterr().err
    assert "got none in 2 answers" in error and error.count("\n") == 1
    assert not (tmp_path / "none.json").exists()


def test_it_only_narrows(model: ChatModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    within = tmp_path / "wide.json"
    within.write_text(json.dumps({"cancel": [{"when": {"order": {"maximum": 50}}}], "transfer": [{}]}))
    out = tmp_path / "p.json"
    assert write(model, out, "--within", str(within)) == 0
    assert json.loads(out.read_text()) == {
        "cancel": [{"when": {"order": {"allOf": [{"maximum": 50}, {"said_by": ["task"]}]}}}]
    }
    model.say = lambda _: '{"respond": [{}]}'
    assert write(model, tmp_path / "q.json", "--within", str(within)) != 0
    assert "got none of the tools that the wider policy allows" in capsys.readouterr().err
    within.write_text(json.dumps({"$order": {"formula": "true"}}))
    assert write(model, tmp_path / "q.json", "--within", str(within)) == 2
    assert "which has an $order" in capsys.readouterr().err


def test_what_is_asked_for_is_looked_at_before_a_model_is(
    model: ChatModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.json").write_text("{}")
    assert write(model, tmp_path / "there.json") == 2 and "name a new .json file" in capsys.readouterr().err
    assert main(["policy", "desk"]) == 2 and "got no --by" in capsys.readouterr().err
    by = f"{model.url}?model=m&key_env=POLICY_KEY"
    out = str(tmp_path / "p.json")
    assert main(["policy", "craft", "--by", by, "--out", out]) == 2
    assert "which has no tools" in capsys.readouterr().err
    model.say = lambda _: 503
    assert write(model, tmp_path / "p.json") != 0 and "nothing was written" in capsys.readouterr().err
