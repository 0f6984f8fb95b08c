"""Who acts in an evaluation; and a folder of one that was broken off is gone on with, by the same command."""

import json
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.build import make_episode, make_turn

from quintain import api
from quintain.agents.harness import PlainText
from quintain.agents.reflexion import REFLECT
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.catalog import find
from quintain.environments.protocol import Environment
from quintain.errors import DataError, EngineFault, FailureRateError, UsageError
from quintain.eval.evaluate import evaluate
from quintain.eval.report import last_attempts, rate_rounds
from quintain.models.fingerprint import fingerprint
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.runs import evaluation
from quintain.runs.evaluation import Acting, find_acting, keep_evaluation
from quintain.store import Run
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Failure, Observation, StepResult, Task, Trajectory


class Number(Environment):
    """Say the number of the task."""

    max_turns = 1

    def reset(self, task: Task) -> Observation:
        self.wanted = task.id.rpartition("/")[2]
        return "Which?"

    def step(self, action: Any) -> StepResult:
        is_right = action.text == self.wanted
        said = "yes" if is_right else f"not {action.text}"
        return StepResult(observation=said, reward=float(is_right), is_terminated=True, is_success=is_right)


CORPUS = ["<|system|>Say.<|user|>Which?<|assistant|>0 1 2 3 It is not 4<|end|>", REFLECT]


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(train_tokenizer(CORPUS, 300))


class Learner:
    """Says the number after those that it is told are wrong, and counts what it is asked."""

    def __init__(self, chat: Chat) -> None:
        self.chat, self.num_asked = chat, 0

    def __call__(self, request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        text = self.chat.encoder.decode(stream)
        if REFLECT in text:
            return self.chat.write(f"It is not {text.rpartition('not ')[2][:1]}")
        self.num_asked += 1
        return self.chat.write(str(text.count("- It is not")))


def acting_as(chat: Chat, learner: Learner) -> Acting:
    engine = Scripted(learner, max_length=4000)
    return Acting(rollout=Rollout(PlainText(chat, max_tokens=16), Number, engine), tokenizer=chat.tokenizer)


@pytest.fixture
def learner(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> Learner:
    """Stands for every model, in the environment `Number`."""
    made = Learner(chat)
    monkeypatch.setattr(api, "find_acting", lambda *_, **__: acting_as(chat, made))
    monkeypatch.setattr(api, "admit_run", lambda *_, **__: {})
    monkeypatch.setattr(api, "check_files", lambda *_, **__: None)
    monkeypatch.setattr(api, "harness_of", lambda *_, **__: "text")
    return made


WORLD = f"{__name__}:Number"


def test_lessons_carry_from_attempt_to_attempt_and_plain_ones_do_not(learner: Learner) -> None:
    found, played = api.evaluate("m", WORLD, episodes=4, attempts=3, reflect=True)
    assert rate_rounds(played) == {1: 0.25, 2: 0.5, 3: 0.75} and found.success == 0.75
    assert len(played) == 4 + 3 + 2 and learner.num_asked == 9
    assert [t.task.id[-1] for t in last_attempts(played)] == ["0", "1", "2", "3"]
    again, retried = api.evaluate("m", WORLD, episodes=4, attempts=3)
    assert again.success == 0.25 and rate_rounds(retried) == {1: 0.25, 2: 0.25, 3: 0.25}


def test_what_is_collected_in_rounds_has_attempts_and_lessons_of_their_own(learner: Learner) -> None:
    found, _ = api.collect(WORLD, "m", episodes=4, attempts=3, reflect=True)
    assert [t.group.partition("/attempt ")[2] for t in found] == ["1"] * 4 + ["2"] * 3 + ["3"] * 2
    assert len({(t.group, t.index) for t in found}) == 9
    lessons = [[turn.action.text for turn in t.turns if turn.seat == "agent/reflection"] for t in found]
    assert lessons == [[]] * 4 + [["It is not 0"]] * 3 + [["It is not 1"]] * 2
    plain, _ = api.collect(WORLD, "m", episodes=4, attempts=2, show_attempt=True, max_repeats=5)
    assert len(plain) == 7 and not any(turn.is_internal for t in plain for turn in t.turns)


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"attempts": 2, "trials": 2}, "evaluation: got 2 trials and 2 attempts; give one of the two as 1"),
        (
            {"cluster": "x"},
            "cluster 'x': got number/eval/0, whose data does not say it; choose one of task, env",
        ),
        (
            {"trials": 2, "episodes": 1},
            "a clustered interval needs two clusters or more: got 1 of 1; evaluate more",
        ),
        ({"trials": 10**12}, "evaluation: got 256 tasks in 1000000000000 trials; ask for 1,000,000 episodes"),
        ({"reflect": True}, "reflect: got one attempt, after which nothing is told; give 2 attempts or more"),
        ({"show_attempt": True}, "show_attempt: got one attempt, after which nothing is told; give 2 attemp"),
        ({"max_repeats": 0, "attempts": 2}, "max_repeats: got 0; give 1 or more, or leave it out"),
    ],
)
def test_what_cannot_be_said_is_refused_before_anything_is_played(
    learner: Learner, settings: dict[str, Any], line: str
) -> None:
    with pytest.raises((UsageError, DataError), match=line):
        api.evaluate("m", WORLD, **settings)
    assert learner.num_asked == 0


def test_an_evaluation_that_was_broken_off_is_gone_on_with(learner: Learner, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"episodes": 4, "attempts": 3, "reflect": True}
    out = tmp_path / "kept"
    expected, played = api.evaluate("m", WORLD, **whole)
    before, limit = learner.num_asked, 5
    call = learner.__class__.__call__

    def breaking(self: Learner, request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        if self.num_asked - before >= limit:
            raise KeyboardInterrupt
        return call(self, request, stream)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "__call__", breaking)
        with pytest.raises(KeyboardInterrupt):
            api.evaluate("m", WORLD, out=out, **whole)
    with Run.open(out, writable=False) as run:
        assert run.status == "interrupted" and len(list(run.trajectories(phase="eval"))) >= 4
    found, again = api.evaluate("m", WORLD, out=out, **whole)
    assert found == expected and [t.turns for t in again] == [t.turns for t in played]
    assert learner.num_asked - before < 2 * len(played)
    asked = learner.num_asked
    assert api.evaluate("m", WORLD, out=out, **whole)[0] == expected and learner.num_asked == asked
    with Run.open(out, writable=False) as run:
        assert run.status == "done" and len(list(run.trajectories(phase="eval"))) == len(played)
        assert [row["step"] for row in run.metrics()] == [0, 1, 2]
    with pytest.raises(
        UsageError, match=r"kept, which holds attempts 3, not 2; choose another name, or ask for"
    ):
        api.evaluate("m", WORLD, out=out, episodes=4, attempts=2, reflect=True)
    other = Run.create(tmp_path / "trained", recipe="grpo", config={})
    other.close()
    with pytest.raises(UsageError, match="trained, which holds"):
        api.evaluate("m", WORLD, out=tmp_path / "trained", episodes=4)
    (tmp_path / "full").mkdir()
    with pytest.raises(UsageError, match="full, which holds no evaluation; choose another name"):
        api.evaluate("m", WORLD, out=tmp_path / "full", episodes=4)


def test_two_evaluations_that_were_kept_are_compared(learner: Learner, tmp_path: Path) -> None:
    for name in ("a", "b"):
        api.evaluate("m", WORLD, out=tmp_path / name, episodes=4, seed=len(name))
    found = api.compare(tmp_path / "a", tmp_path / "b")
    assert [row.evaluation.num for row in found.rows] == [4, 4]


def test_scripts_act_without_a_model_and_are_played_in_trials(tmp_path: Path) -> None:
    expert, played = api.evaluate("expert", "guess", episodes=3, trials=2, out=tmp_path / "kept")
    assert expert.success == 1.0 and len(played) == 6
    assert len({t.task.id for t in played}) == 3 and {t.task.split for t in played} == {"eval"}
    again, kept = api.evaluate("expert", "guess", episodes=3, trials=2, out=tmp_path / "kept")
    assert (again, [t.turns for t in kept]) == (expert, [t.turns for t in played])
    assert api.evaluate("random", "guess", episodes=8)[0].success < 1.0
    with pytest.raises(
        UsageError, match=r"evaluating random: got no environment; name one with --environment"
    ):
        api.evaluate("random")
    with pytest.raises(UsageError, match=r"attempts: got 'expert', which is no model here"):
        api.evaluate("expert", "guess", episodes=2, attempts=2, out=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(UsageError, match=rf"got 'expert', but {WORLD} has no expert_action"):
        api.evaluate("expert", WORLD, episodes=2)


def test_a_search_and_a_teacher_have_time_for_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def limits_of(target: str) -> Limits:
        acting = find_acting(
            target, find("keydoor"), agent="auto", temperature=1.0, seed=0, limits=Limits(step_timeout=30.0)
        )
        with closing(acting.rollout):
            return acting.rollout.limits

    monkeypatch.setattr(evaluation, "new_tokenizer", lambda *_, **__: train_tokenizer(CORPUS, 300))
    assert limits_of("search?nodes=500").step_timeout == 80.0
    teacher = limits_of("http://127.0.0.1:9/v1?model=m")
    assert teacher.num_workers == evaluation.AT_ONCE and teacher.step_timeout > 30.0


def test_what_is_not_kept_is_known_to_nobody(chat: Chat) -> None:
    with keep_evaluation(None, {}, chat.tokenizer) as (keep, known):
        keep(0, make_episode(make_turn()))
        assert list(known(0)) == []


def test_a_record_of_other_weights_is_not_gone_on_with(chat: Chat, tmp_path: Path) -> None:
    def play(weights: str) -> list[Trajectory]:
        with keep_evaluation(tmp_path / "kept", {"weights": weights}, chat.tokenizer) as (keep, known):
            keep(0, make_episode(make_turn()))
            return list(known(0))

    assert play("a") == [] and len(play("a")) == 1
    with pytest.raises(UsageError, match="which holds weights 'a', not 'b'"):
        play("b")
    with (
        pytest.raises(EngineFault, match="it is kept in"),
        keep_evaluation(tmp_path / "late", {}, chat.tokenizer),
    ):
        raise EngineFault("no reply")
    assert (tmp_path / "late").exists(), "it has begun"


def test_what_broke_is_played_again_and_nothing_else(chat: Chat, tmp_path: Path) -> None:
    broken = Failure(owner="engine", kind="teacher_unreachable", message="refused")

    def play(*, is_answering: bool) -> list[int]:
        with keep_evaluation(tmp_path / "kept", {"attempts": 1}, chat.tokenizer) as (keep, known):
            before = list(known(0))
            for index in {0, 1} - {each.index for each in before}:
                made = make_episode(make_turn(), index=index)
                keep(0, made if is_answering or index == 0 else replace(made, outcome=broken))
            return [each.index for each in before]

    assert play(is_answering=False) == []
    assert play(is_answering=True) == [0]
    assert play(is_answering=True) == [0, 1]
    with Run.open(tmp_path / "kept", writable=False) as run:
        assert run.metrics()[-1]["eval/failures"] == 0 and len(list(run.trajectories())) == 2


def test_a_round_in_which_all_broke_ends_no_evaluation(chat: Chat, tmp_path: Path) -> None:
    broken = Failure(owner="judge", kind="timeout", message="late")
    with keep_evaluation(tmp_path / "kept", {"attempts": 2}, chat.tokenizer) as (keep, _):
        keep(0, make_episode(make_turn()))
        keep(1, replace(make_episode(make_turn()), outcome=broken))
    with keep_evaluation(tmp_path / "kept", {"attempts": 2}, chat.tokenizer) as (_, known):
        assert [len(list(known(number))) for number in (0, 1)] == [1, 1]
    with pytest.raises(FailureRateError), keep_evaluation(tmp_path / "b", {}, chat.tokenizer) as (keep, _):
        keep(0, replace(make_episode(make_turn()), outcome=broken))


def test_a_policy_that_was_changed_is_another_evaluation(tmp_path: Path) -> None:
    policy = tmp_path / "calc.json"
    policy.write_text(
        json.dumps({tool: [{}] for tool in ("add", "subtract", "multiply", "lookup", "answer")})
    )
    world, out = f"guarded:calc@{policy}", tmp_path / "kept"
    api.evaluate("expert", world, episodes=2, out=out)
    policy.write_text('{"say": [{}]}')
    with pytest.raises(
        UsageError, match=r"played with other files: .*calc\.json \(changed\); bring them back"
    ):
        api.evaluate("expert", world, episodes=2, out=out)


def test_of_several_attempts_all_tasks_are_compared(learner: Learner, tmp_path: Path) -> None:
    found, _ = api.evaluate("m", WORLD, episodes=4, attempts=3, reflect=True, out=tmp_path / "kept")
    with Run.open(tmp_path / "kept", writable=False) as run:
        assert evaluate(api.evaluation_of(run)) == found
        assert len(api.evaluation_of(run, "2")) == 2, "what was left in the third round"


def test_weights_are_named_where_a_model_acts(chat: Chat) -> None:
    model = build_tiny(chat.tokenizer, size="micro")
    rollout = acting_as(chat, Learner(chat)).rollout
    assert Acting(rollout=rollout, tokenizer=chat.tokenizer, model=model).find_weights() == fingerprint(model)
    assert Acting(rollout=rollout, tokenizer=chat.tokenizer).find_weights() == ""


SHIFTING = """
from quintain import Environment
from quintain.types import StepResult, ToolSpec
from words_of_shifting import PROPERTIES

COUNT = []


class Shifting(Environment):
    \"\"\"Say something.\"\"\"

    max_turns = 1

    def reset(self, task):
        COUNT.append(task.id)
        return "go"

    def tools(self):
        more = {"later": {"type": "string"}} if SHIFTS and COUNT.count("shifting/eval/1") > 1 else {}
        parameters = {"type": "object", "properties": {**PROPERTIES, **more}}
        return (ToolSpec(name="say", description="Say.", parameters=parameters),)

    def step(self, action):
        return StepResult(observation="ok", reward=1.0, is_terminated=True, is_success=True)
"""


def write_shifting(folder: Path, *, shifts: bool) -> str:
    """Write an environment whose tool may change in later trials, and what it imports; return its name."""
    (folder / "words_of_shifting.py").write_text('PROPERTIES = {"text": {"type": "string"}}')
    (folder / "shifting.py").write_text(SHIFTING.replace("SHIFTS", str(shifts)))
    return f"{folder / 'shifting.py'}:Shifting"


def test_a_trial_whose_tools_are_others_is_broken_and_no_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "words_of_shifting", raising=False)
    spec = write_shifting(tmp_path, shifts=True)
    found, played = api.evaluate("random", spec, episodes=2, trials=3)
    broken = [t.outcome for t in played if isinstance(t.outcome, Failure)]
    assert found.num_failed == len(broken) > 0
    assert "got others than in the episode before (say)" in broken[0].message


def test_an_evaluation_goes_on_with_the_python_it_began_with_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "words_of_shifting", raising=False)
    spec, out = write_shifting(tmp_path, shifts=False), tmp_path / "kept"
    asked: dict[str, Any] = {"episodes": 2, "out": out}
    api.evaluate("random", spec, **asked)
    assert api.evaluate("random", spec, **asked)[0].num == 2
    (tmp_path / "words_of_shifting.py").write_text("PROPERTIES = {}")
    with pytest.raises(UsageError, match=r"played with other files: .*words_of_shifting\.py \(changed\)"):
        api.evaluate("random", spec, **asked)
