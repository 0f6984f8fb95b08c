"""A judge behind a chat endpoint: rubric, strict reading, failures with an owner, tape, budget, and as a reward."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn
from tests.engines.chat_model import KEY, ChatModel

from quintain.engines.chat_client import ChatSpec, is_endpoint
from quintain.engines.judge import Judge, material_text, read_score
from quintain.errors import ConfigError, UsageError
from quintain.methods.rl.parts.reward_terms import pay, read_judge, terms
from quintain.processes import http_json
from quintain.rewards.exploration import Visits
from quintain.types import (
    Action,
    Failure,
    Group,
    Score,
    Task,
    ToolCall,
    Trajectory,
    as_content,
)

TASK = Task(id="sum/1", environment="sum", seed=1, prompt="Add.")


def episode(*said: str, index: int = 0) -> Trajectory:
    """An episode in which the last turn calls a tool."""
    turns = tuple(
        make_turn(
            logprob=-1.0,
            shows="2 + 2",
            action=Action(
                text=text, tool_calls=(ToolCall(name="say", arguments={"n": 4}),) if number else ()
            ),
            starts_segment=not number,
            reward=0.25,
        )
        for number, text in enumerate(said)
    )
    return make_episode(
        *turns,
        task=TASK,
        outcome=Score(value=0.25, is_success=True),
        index=index,
        final_observation=as_content("end"),
    )


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatModel]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    made = ChatModel(lambda _: "Good.\nSCORE: 7")
    yield made
    made.listener.close()


@pytest.fixture
def spec(model: ChatModel, tmp_path: Path) -> str:
    (tmp_path / "rubric.md").write_text("Is the sum right?\n")
    (tmp_path / "key").write_text(KEY)
    return f"{model.url}?model=judge&key_file={tmp_path}/key&rubric={tmp_path}/rubric.md"


@pytest.mark.parametrize(
    ("text", "score"),
    [
        ("SCORE: 10", 1.0),
        ("Right.\nSCORE: 7.5\n\n", 0.75),
        ("SCORE: 0", 0.0),
        ("SCORE: 11", None),
        ("SCORE: -1", None),
        ("SCORE: 7/10", None),
        ("score: 7", None),
        ("SCORE: 7\nI am sure.", None),
        ("SCORE: 10\nNo:\nSCORE: 2", None),  # perhaps it repeats what it was told to say
        ("He wrote SCORE: 10.\nSCORE: 2", 0.2),
        ("", None),
    ],
)
def test_only_a_last_line_in_form_is_a_score(text: str, score: float | None) -> None:
    assert read_score(text) == score


def test_what_a_judge_is_told(model: ChatModel, spec: str) -> None:
    assert Judge(spec).measure(episode("4", "five")) == 0.7
    (asked,) = model.seen
    rules, material = (message["content"] for message in asked["messages"])
    assert rules.endswith("Rubric:\nIs the sum right?") and asked["temperature"] == 0
    assert json.loads(material) == {
        "task": "Add.",
        "turns": [
            {"shown": "2 + 2", "said": "4"},
            {"shown": "2 + 2", "said": "five", "calls": [{"tool": "say", "arguments": {"n": 4}}]},
        ],
        "shown at the end": "end",
    }


def test_an_answer_out_of_form_is_asked_for_once_more(model: ChatModel, spec: str) -> None:
    said = ["Perhaps 7?", "SCORE: 3"]
    model.say = lambda _: said.pop(0) if said else "never"
    judge = Judge(spec)
    assert judge.score({"answer": 4}) == 0.3
    found = judge.score({"answer": 5})
    assert isinstance(found, Failure) and (found.owner, found.kind) == ("judge", "judge_unreadable")
    assert "which does not end with SCORE: n" in found.message and len(model.seen) == 4


def test_an_endpoint_that_fails_is_a_failure_of_the_judge(model: ChatModel, spec: str) -> None:
    model.say = lambda _: 503
    found = Judge(spec).score({"answer": 4})
    assert isinstance(found, Failure) and (found.owner, found.kind) == ("judge", "judge_unavailable")
    model.say = lambda _: "SCORE: 1"
    judge = Judge(f"{spec}&calls=1")
    assert judge.score({"answer": 1}) == 0.1
    found = judge.score({"answer": 2})
    assert isinstance(found, Failure) and "a budget of 1 calls" in found.message


def test_a_judge_that_does_not_answer_is_given_up_at_its_deadline(model: ChatModel, spec: str) -> None:
    released = threading.Event()

    def wait(_: object) -> str:
        released.wait(30)
        return "SCORE: 1"

    model.say = wait
    found = Judge(f"{spec}&deadline=0.1").score({"answer": 4})
    released.set()
    assert isinstance(found, Failure) and (found.owner, found.kind) == ("judge", "judge_timeout")
    assert "\n" not in found.message and "0.1 s" in found.message


def test_a_tape_judges_without_the_model(model: ChatModel, spec: str, tmp_path: Path) -> None:
    tape = tmp_path / "judge.jsonl"
    recorded = Judge(f"{spec}&tape={tape}").score({"answer": 4})
    model.listener.close()
    replayed = Judge(f"{spec}&tape={tape}&replays=1")
    assert replayed.score({"answer": 4}) == recorded == 0.7
    found = replayed.score({"answer": 5})
    assert isinstance(found, Failure) and found.kind == "judge_refused"
    assert KEY not in tape.read_text()


def test_as_a_reward_term(model: ChatModel, spec: str) -> None:
    def say(body: dict[str, Any]) -> str:
        said = json.loads(body["messages"][1]["content"])["turns"][0]["said"]
        return "SCORE: 8" if said == "4" else "who knows"

    model.say = say
    judge = read_judge("environment, judge=0.5", spec)
    assert judge is not None
    paid = terms("environment, judge=0.5", Visits(), judge)
    group = Group(task=TASK, trajectories=(episode("4"), episode("4", index=1), episode("5", index=2)))
    (found,) = pay([group], paid=paid, judge=judge)
    first, again, failed = found.trajectories
    assert isinstance(first.outcome, Score) and again.outcome == first.outcome
    assert first.outcome.value == pytest.approx(0.25 + 0.5 * 0.8)  # pyright: ignore[reportUnknownMemberType]
    assert first.turns[-1].reward_terms["judge"] == pytest.approx(0.4)  # pyright: ignore[reportUnknownMemberType]
    assert isinstance(failed.outcome, Failure) and failed.outcome.owner == "judge"
    assert len(model.seen) == 3  # equal episodes are one question; the other was asked twice


@pytest.mark.parametrize(
    ("rewards", "has_spec", "told"),
    [
        ("judge", False, r"judge: got '' with rewards 'judge'; give judge=http://"),
        ("environment", True, "add the term judge"),
    ],
)
def test_a_judge_that_is_missing_or_not_needed(spec: str, rewards: str, has_spec: bool, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_judge(rewards, spec if has_spec else "")
    assert read_judge("environment", "") is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("model=judge", "model="), r"without a model; add \?model=NAME"),
        (("model=judge", "model=judge&modl=x"), "did you mean 'model'"),
        (
            ("model=judge", "model=judge&calls=many"),
            "calls of judge .*: got 'many'; give an integer of 0 or more",
        ),
        (("model=judge", "model=judge&key_env=K"), "got key_file and key_env; give one"),
        (("http://", "http://me:secret@"), "with a name and password; give key_file"),
        (("http://", "ftp://"), "got 'ftp://"),
        (("rubric.md", "absent.md"), "absent.md.*give a readable text file"),
        (("&rubric=", "&tape="), "without a rubric"),
    ],
)
def test_specs_that_cannot_be(spec: str, change: tuple[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told) as found:
        Judge(spec.replace(*change))
    assert "me:secret" not in str(found.value) and "\n" not in str(found.value)
    with pytest.raises(ConfigError, match=told):
        read_judge("judge", spec.replace(*change))


def test_a_key_of_the_environment(model: ChatModel, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ChatSpec.read(f"{model.url}?model=m&key_env=JUDGE_KEY&temperature=0.5&tokens=9", asked="judge")
    assert spec.temperature == 0.5 and is_endpoint(spec.url) and not is_endpoint("owner/name")
    with pytest.raises(UsageError, match=r"key_env: got \$\{JUDGE_KEY\}.*is not set"):
        spec.client()
    monkeypatch.setenv("JUDGE_KEY", KEY)
    client = spec.client()
    assert client.ask([{"role": "user", "content": "?"}]) == "Good.\nSCORE: 7"
    assert (client.budget.calls, client.budget.tokens, client.deadline) == (None, 9, 60.0)


def test_the_material_does_not_tell_what_was_earned() -> None:
    assert "0.25" not in material_text(episode("4"))
