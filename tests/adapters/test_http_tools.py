import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send
from tests.engines.chat_model import KEY, ChatModel

from quintain import api
from quintain.adapters.http_tools.environment import HttpTools
from quintain.cli.main import main
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.check import check
from quintain.environments.grades import grade_tasks
from quintain.environments.protocol import Environment, Expert, advance, begin, tool_action
from quintain.errors import EnvironmentFault, UsageError
from quintain.processes import http_json
from quintain.rollout.stepper import guard_call
from quintain.serve.json_app import Refusal, Request, json_app
from quintain.serve.listener import Listener
from quintain.store.run import Run
from quintain.types import Action, Failure

Answer = Callable[[dict[str, Any]], Any]
ADD = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
ROWS: list[dict[str, Any]] = [
    {
        "prompt": f"What is {number} + 25?",
        "answer": str(number + 25),
        "solution": [{"tool": "add", "arguments": {"a": number, "b": 25}}, str(number + 25)],
    }
    for number in range(8)
]


class Office(Listener):
    """Endpoints of tools and a grader; `say` decides what each answers, the last of a list for ever."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {
            "/add": [lambda body: {"output": str(body["arguments"]["a"] + body["arguments"]["b"])}],
            "/grade": [lambda body: {"score": float(body["answer"] == body["task"]["answer"])}],
        }
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        self._app = json_app(self.answer)
        super().__init__(self.noting_headers, token="s3cret")

    async def noting_headers(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.headers.append(dict(Headers(scope=scope)))
        await self._app(scope, receive, send)

    def answer(self, request: Request) -> Any:
        self.seen.append((request.path, request.body))
        answers = self.answers[request.path]
        return (answers.pop(0) if len(answers) > 1 else answers[0])(request.body)

    def bodies(self, path: str) -> list[dict[str, Any]]:
        return [body for seen, body in self.seen if seen == path]


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    monkeypatch.setattr(http_json, "PAUSE", 0.001)
    server = Office()
    server.start()
    yield server
    server.released.set()
    server.close()


@pytest.fixture
def file(office: Office, tmp_path: Path) -> Path:
    (tmp_path / "key").write_text("s3cret\n")
    path = tmp_path / "sums.json"
    settings = {
        "tools": [
            {"name": "add", "description": "Add.", "parameters": ADD, "url": f"{office.url}/add"},
        ],
        "grader": f"{office.url}/grade",
        "key_file": str(tmp_path / "key"),
        "instructions": "Add the numbers.",
        "max_turns": 5,
        "tasks": ROWS,
    }
    path.write_text(json.dumps(settings))
    return path


def with_status(status: int) -> Answer:
    def answer(_: dict[str, Any]) -> Any:
        raise Refusal(status, "no")

    return answer


def saying(value: Any) -> Answer:
    return lambda _: value


def started(file: Path, **options: Any) -> Environment:
    made = HttpTools(str(file), **options)
    begin(made, made.task("train", 0))
    return made


def failure(world: Environment, action: Action) -> Failure:
    found = guard_call(lambda: advance(world, action))
    assert isinstance(found, Failure)
    return found


@pytest.mark.slow
def test_it_keeps_the_contract_and_the_expert_wins(file: Path) -> None:
    report = check(f"http-tools/{file}", episodes=6)
    failed = [finding.name for finding in report.findings if finding.state == "fail"]
    assert set(failed) <= {"closing"}, list(report.lines())  # the server's threads are in this process
    assert report.measured["expert/success"] == 1 and report.measured["noop/success"] == 0


def test_calls_and_the_grading_of_an_episode_have_one_rollout_id(office: Office, file: Path) -> None:
    world = find(f"http-tools/{file}")()
    task = world.task("train", 1)
    episode = play(world, task, expert)
    assert episode.observations == ("What is 1 + 25?", "26", "") and episode.total == 1 and episode.is_success
    (call,), (grading,) = office.bodies("/add"), office.bodies("/grade")
    assert call["rollout_id"] == grading["rollout_id"] and call["tool"] == "add"
    assert grading["task_id"] == task.id and "solution" not in grading["task"]
    assert grading["calls"] == [
        {"tool": "add", "arguments": {"a": 1, "b": 25}, "output": "26", "is_error": False}
    ]
    play(world, task, expert)
    assert office.bodies("/add")[1]["rollout_id"] != call["rollout_id"]
    assert world.instructions() == "Add the numbers." and world.max_turns == 5
    world.close()


def test_wrong_calls_never_reach_the_endpoint(office: Office, file: Path) -> None:
    world = started(file)
    for action, told, cause in (
        (tool_action("add", a=1), "Error: add(b): missing", "invalid_call"),
        (tool_action("ad", a=1), "Error: no tool is called \"ad\"; did you mean 'add'?", "invalid_call"),
    ):
        result = advance(world, action)
        assert result.observation == told and not result.is_valid
        assert [error.cause for error in result.tool_errors] == [cause]
    assert advance(world, Action(error="unreadable")).observation == "Error: unreadable"
    assert office.seen == []


def test_what_an_endpoint_says_is_wrong_goes_to_the_agent(office: Office, file: Path) -> None:
    office.answers["/add"] = [saying({"error": "too large"}), with_status(422), saying({"output": "26"})]
    world = started(file)
    for told in ("Error: too large", "Error: the tool refused the call (HTTP status 422)"):
        result = advance(world, tool_action("add", a=1, b=25))
        assert result.observation == told and result.is_valid
        assert [error.cause for error in result.tool_errors] == ["tool_error"]
    assert advance(world, tool_action("add", a=1, b=25)).tool_errors == ()


def test_attempts_of_a_call_have_one_call_id(office: Office, file: Path) -> None:
    office.answers["/add"] = [with_status(503), with_status(500), saying({"output": "26"})]
    world = started(file)
    assert advance(world, tool_action("add", a=1, b=25)).observation == "26"
    ids = [body["call_id"] for body in office.bodies("/add")]
    assert len(ids) == 3 and len(set(ids)) == 1
    advance(world, tool_action("add", a=1, b=25))
    assert office.bodies("/add")[3]["call_id"] != ids[0]


@pytest.mark.parametrize(
    ("answer", "kind", "num_asked"),
    [
        (with_status(500), "unavailable", 3),
        (with_status(429), "unavailable", 3),
        (with_status(401), "refused", 1),
        (saying({"output": 5}), "malformed", 3),
        (saying([1]), "malformed", 3),
        (saying({}), "malformed", 3),
    ],
)
def test_a_broken_tool_is_a_failure_of_the_tool(
    office: Office, file: Path, answer: Answer, kind: str, num_asked: int
) -> None:
    office.answers["/add"] = [answer]
    found = failure(started(file), tool_action("add", a=1, b=2))
    assert (found.owner, found.kind) == ("tool", f"tool_{kind}") and "mend the endpoint" in found.message
    assert len(office.seen) == num_asked


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (with_status(503), "unavailable"),
        (with_status(404), "refused"),
        (saying({"score": float("nan")}), "malformed"),
        (saying({"score": None}), "malformed"),
        (saying({"score": "1"}), "malformed"),
        (saying({"score": 1.5}), "malformed"),
        (saying({}), "malformed"),
        (saying(None), "malformed"),
    ],
)
def test_a_broken_grader_is_a_failure_of_the_judge_and_never_a_score(
    office: Office, file: Path, answer: Answer, kind: str
) -> None:
    office.answers["/grade"] = [answer]
    found = failure(started(file), Action(text="25"))
    assert (found.owner, found.kind) == ("judge", f"grader_{kind}")


def test_a_silent_endpoint_is_given_up_at_the_deadline(office: Office, file: Path) -> None:
    def wait(_: dict[str, Any]) -> Any:
        office.released.wait(60)
        return {"score": 1}

    office.answers["/grade"] = [wait]
    found = failure(started(file, deadline=0.2), Action(text="25"))
    assert (found.owner, found.kind) == ("judge", "grader_timeout")


def test_an_endpoint_that_is_not_there(office: Office, file: Path) -> None:
    world = started(file)
    office.close()
    found = failure(world, tool_action("add", a=1, b=2))
    assert (found.owner, found.kind) == ("tool", "tool_unreachable")
    world.close()
    assert failure(world, tool_action("add", a=1, b=2)).kind == "tool_unreachable"


def test_what_a_query_holds_is_told_to_nobody(office: Office, file: Path) -> None:
    office.answers |= {"/add": [with_status(401)], "/grade": [with_status(401)]}
    tool = {"name": "add", "parameters": ADD, "url": f"{office.url}/add?code=hidden"}
    world = change(file, tools=[tool], grader=f"{office.url}/grade?code=hidden")
    for action in (tool_action("add", a=1, b=2), Action(text="25")):
        begin(world, world.task("train", 0))
        found = failure(world, action)
        assert "hidden" not in found.message and f"{office.url}/" in found.message


def test_a_redirect_is_not_followed(office: Office, file: Path) -> None:
    office.answers["/add"] = [with_status(302)]
    assert failure(started(file), tool_action("add", a=1, b=2)).kind == "tool_refused"


class Local(HttpTools):
    """Add the numbers."""

    rows = ({"prompt": "1 + 1", "answer": "2"}, {"prompt": "2 + 2", "answer": "4", "split": "eval"})


def test_a_class_grades_by_itself() -> None:
    world = Local()
    assert world.task("train", 5).data == {"row": 0} and world.task("eval", 5).data == {"row": 1}
    assert not isinstance(world, Expert) and world.tools() == ()
    assert begin(world, world.task("eval", 0)) == "2 + 2"
    result = advance(world, Action(text=" 4 "))
    assert (result.reward, result.is_terminated, result.is_success) == (1.0, True, True)
    begin(world, world.task("train", 0))
    result = advance(world, Action(text="3"))
    assert (result.reward, result.is_success) == (0.0, False)
    assert advance(world, tool_action("x")).observation == 'Error: no tool is called "x"; there are no tools'


def test_a_function_of_a_file_grades(tmp_path: Path) -> None:
    (tmp_path / "judge.py").write_text(
        "def half(world, row, answer):\n    return 0.5 * (answer == row['word']) + 0.1 * len(world.calls)\n"
        "def broken(world, row, answer):\n    return 1 / 0\n"
        "def odd(world, row, answer):\n    return None\n"
    )
    (tmp_path / "tasks.jsonl").write_text('{"prompt": "Say a word.", "word": "hi"}\n\n')

    def made(grade: str) -> HttpTools:
        file = tmp_path / f"{grade}.json"
        file.write_text(json.dumps({"tools": [], "tasks": "tasks.jsonl", "grade": f"judge.py:{grade}"}))
        world = HttpTools(str(file))
        begin(world, world.task("eval", 3))
        return world

    assert advance(made("half"), Action(text="hi")).reward == 0.5
    for grade in ("broken", "odd"):
        assert failure(made(grade), Action(text="hi")).owner == "judge"
    with pytest.raises(UsageError, match="has no absent"):
        made("absent")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tasks": []}, "no tasks"),
        ({"tasks": [{"answer": "1"}]}, "give it a prompt"),
        ({"tasks": [{"prompt": "a", "split": "test"}]}, "choose train or eval"),
        ({"tasks": "absent.jsonl"}, "JSON object on each line"),
        ({"max_turns": 0}, "positive integer"),
        ({"gradr": "x"}, "did you mean 'grader'"),
        ({"tools": [{"name": "add"}]}, '"url"'),
        ({"tools": ["add"]}, '"url"'),
        ({"tools": [{"name": "add", "url": "ftp://x"}]}, "http://127.0.0.1:8000"),
        ({"tools": [{"name": "add", "url": "http://x", "parameters": {}}]}, '"url"'),
        ({"grader": "http://host:port"}, "http://127.0.0.1:8000"),
        ({"key_file": "/absent"}, "readable text file"),
        ({"grade": "judge.py"}, "choose exact_match, f1, checks"),
        ({"wire": "opneai"}, "did you mean 'openai'"),
        ({"headers": {"Bad Name": "x"}}, "got the header 'Bad Name'; write it as"),
        ({"headers": ["x"]}, "Authorization"),
        ({"grader": {"url": ""}}, "http://127.0.0.1:8000/grade"),
        ({"grader": {"url": "http://x", "headrs": {}}}, "did you mean 'headers'"),
        ({"deadline": "5"}, "positive number of seconds"),
        ({"deadline": -5}, "positive number of seconds"),
        ({"grader": "http://me:hidden@x/grade"}, "got a URL with a name and password; give them as headers"),
        ({"pass_at": 2}, "up to 1"),
        ({"grade_at_limit": "yes"}, "true or false"),
        ({"tools": [{"name": "a", "url": "http://x"}] * 2}, "two tools of one name"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(file: Path, change: dict[str, Any], told: str) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UsageError, match=told) as found:
        HttpTools(str(file))
    assert "\n" not in str(found.value) and "hidden" not in str(found.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "empty").write_text("")
    for name in ("absent.json", "list.json"):
        with pytest.raises(UsageError):
            HttpTools(str(tmp_path / name))
    with pytest.raises(UsageError, match="empty"):
        http_json.key_in(str(tmp_path / "empty"))
    for seconds in (0.0, -1.0, float("inf")):
        with pytest.raises(UsageError, match="positive number of seconds"):
            http_json.HttpServer("http://localhost", deadline=seconds)


def test_a_solution_that_does_not_end_is_told(file: Path) -> None:
    settings = json.loads(file.read_text())
    settings["tasks"] = [{"prompt": "p", "answer": "a", "solution": []}]
    file.write_text(json.dumps(settings))
    world = started(file)
    assert isinstance(world, Expert)
    with pytest.raises(EnvironmentFault, match="let its last entry be the answer"):
        world.expert_action()


def test_grades_before_training_name_tasks_that_teach_nothing(office: Office, file: Path) -> None:
    noise = iter([0.2, 0.8, 0.2, 0.8])

    def grade(body: dict[str, Any]) -> Any:
        prompt, is_right = body["task"]["prompt"], body["answer"] == body["task"]["answer"]
        if prompt.startswith("What is 1 "):
            return {"score": 1}
        if prompt.startswith("What is 2 "):
            return {"score": 0}
        if prompt.startswith("What is 4 "):
            return {"score": next(noise) if is_right else 0}
        if prompt.startswith("What is 5 "):
            raise Refusal(403, "no")
        return {"score": float(is_right)}

    office.answers["/grade"] = [grade]
    found = grade_tasks(find(f"http-tools/{file}"), tasks=5, calls=4)  # rows 0, 1, 2, 4 and 5: 3 is held out
    assert [each.verdict for each in found] == [
        "",
        "always 1, also for doing nothing",
        "always 0, also for the expert",
        "",
        "failed: grader_refused 8×",
    ]
    assert found[0].played.scores == (1.0,) * 4 and found[0].nothing.mean == 0
    assert found[3].played.mean == pytest.approx(0.5) and found[3].played.variance == pytest.approx(0.09)  # pyright: ignore[reportUnknownMemberType]
    assert found[4].played.scores == () and found[4].played.mean == 0 == found[4].played.variance
    assert found[3].detail.startswith("expert 0.5 (variance 0.09, n=4); nothing 0 (variance 0, n=4)")


def test_the_command_that_grades(office: Office, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = f"http-tools/{file}"
    assert main(["check", spec, "--grades", "2", "--episodes", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["has_passed"] and len(told["findings"]) == 3
    assert told["measured"]["sums/train/0/expert/mean"] == 1
    office.answers["/grade"] = [saying({"score": 1})]
    assert main(["check", spec, "--grades", "2", "--episodes", "3"]) == 3
    assert "always 1, also for doing nothing" in capsys.readouterr().out


def named(file: Path, grade: str, *rows: dict[str, Any]) -> Environment:
    settings = json.loads(file.read_text())
    settings.pop("grader", None)
    file.write_text(json.dumps({**settings, "grade": grade, "tasks": list(rows)}))
    return started(file)


@pytest.mark.parametrize(
    ("grade", "said", "reward"),
    [
        ("exact_match", "The Red car.", 1.0),
        ("exact_match", "red", 0.0),
        ("f1", "a red bus", 0.5),
        ("f1", "red car", 1),
    ],
)
def test_graders_by_name_compare_words(file: Path, grade: str, said: str, reward: float) -> None:
    world = named(file, grade, {"prompt": "Which?", "answers": ["red car", "blue ship"]})
    result = advance(world, Action(text=said))
    assert (result.reward, result.is_success) == (reward, reward == 1)


@pytest.mark.parametrize(("sums", "reward"), [(("3", "5"), 1.0), (("3", "6"), 0.5), (("4", "6"), 0.0)])
def test_a_grader_by_name_looks_at_what_tools_say_at_the_end(
    file: Path, sums: tuple[str, str], reward: float
) -> None:
    checks = [
        {"tool": "add", "arguments": {"a": 1, "b": 2}, "equals": sums[0]},
        {"tool": "add", "arguments": {"a": 2, "b": 3}, "equals": f" {sums[1]} "},
    ]
    result = advance(named(file, "checks", {"prompt": "Add.", "checks": checks}), Action(text="done"))
    assert (result.reward, result.is_success) == (reward, reward == 1)


@pytest.mark.parametrize(("grade", "missing"), [("checks", "checks"), ("f1", "answers or answer")])
def test_tasks_that_a_grader_by_name_cannot_grade_are_refused(file: Path, grade: str, missing: str) -> None:
    with pytest.raises(UsageError, match=f"with grade={grade}; give it {missing}"):
        named(file, grade, {"prompt": "Which?"})
    with pytest.raises(UsageError, match=r"choose exact_match, f1, checks, or name a function as file\.py:"):
        named(file, "exact")


def change(file: Path, **settings: Any) -> Environment:
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))
    return started(file)


def test_the_grader_is_sent_all_that_was_said(office: Office, file: Path) -> None:
    world = started(file)
    advance(world, Action(error="unreadable", text="{"))
    advance(world, tool_action("add", a=0, b=25))
    advance(world, Action(text="25"))
    (grading,) = office.bodies("/grade")
    roles = [message["role"] for message in grading["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "assistant"]
    call = grading["messages"][4]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"a": 0, "b": 25}
    assert grading["messages"][5] == {"role": "tool", "tool_call_id": call["id"], "content": "25"}
    assert grading["messages"][6] == {"role": "assistant", "content": "25"}


def test_attempts_of_a_request_have_one_idempotency_key(office: Office, file: Path) -> None:
    office.answers["/add"] = [with_status(503), saying({"output": "26"})]
    office.answers["/grade"] = [with_status(500), saying({"score": 1})]
    world = started(file)
    advance(world, tool_action("add", a=1, b=25))
    advance(world, Action(text="26"))
    first, again, graded, regraded = (headers["idempotency-key"] for headers in office.headers)
    rollout = office.bodies("/grade")[0]["rollout_id"]
    assert first == again == office.bodies("/add")[0]["call_id"]
    assert graded == regraded == f"{rollout}-grade"


def test_a_file_of_toml_with_secrets_of_the_environment(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sums.toml"
    path.write_text(
        f"""
tasks = "tasks.jsonl"
deadline = 5
pass_at = 0.8
headers = {{Authorization = "Bearer ${{SHOP_KEY}}"}}

[[tools]]
name = "add"
url = "{office.url}/add"
headers = {{X-Shop = "${{SHOP_NAME}}-1"}}
parameters = {{type = "object", properties = {{a = {{type = "integer"}}, b = {{type = "integer"}}}}}}

[grader]
url = "{office.url}/grade"
deadline = 9.5
"""
    )
    (tmp_path / "tasks.jsonl").write_text(json.dumps(ROWS[0]))
    with pytest.raises(
        UsageError, match=r"\$\{SHOP_KEY\} in the header Authorization, which is not set; export"
    ):
        HttpTools(str(path))
    monkeypatch.setenv("SHOP_KEY", "s3cret")
    monkeypatch.setenv("SHOP_NAME", "corner")
    world = started(path)
    office.answers["/grade"] = [saying({"score": 0.7}), saying({"score": 0.8})]
    assert advance(world, tool_action("add", a=1, b=25)).observation == "26"
    assert office.headers[0]["x-shop"] == "corner-1"
    for score, is_success in ((0.7, False), (0.8, True)):
        begin(world, world.task("train", 0))
        result = advance(world, Action(text="25"))
        assert (result.reward, result.is_success) == (score, is_success)
    assert "x-shop" not in office.headers[-1]
    monkeypatch.setenv("SHOP_NAME", "two\nlines")
    with pytest.raises(UsageError, match="whose value is no line of ASCII") as found:
        HttpTools(str(path))
    assert "two" not in str(found.value)
    (tmp_path / "broken.toml").write_text("tasks = [")
    with pytest.raises(UsageError, match=r"TOMLDecodeError.*or of TOML"):
        HttpTools(str(tmp_path / "broken.toml"))


def test_endpoints_that_were_written_for_openai_serve_as_they_are(office: Office, file: Path) -> None:
    office.answers["/add"] = [
        lambda body: {
            "type": "function_call_output",
            "call_id": body["call_id"],
            "id": body["id"],
            "output": str(sum(json.loads(body["arguments"]).values())),
        },
        saying({"call_id": "another", "output": "26"}),
    ]
    office.answers["/grade"] = [
        lambda body: {"score": float(body["sample"]["output_text"] == body["item"]["answer"])}
    ]
    world = change(
        file, wire="openai", tools=[{"name": "add", "parameters": ADD, "server_url": f"{office.url}/add"}]
    )
    assert advance(world, tool_action("add", a=1, b=24)).observation == "25"
    result = advance(world, Action(text="25"))
    assert (result.reward, result.is_success) == (1.0, True)
    (call,), (grading,) = office.bodies("/add"), office.bodies("/grade")
    assert call["type"] == "function_call" and call["name"] == "add"
    assert call["trace_id"] == grading["trace_id"] and call["trace_id"].startswith("trace_")
    assert grading["sample"]["choices"][0]["message"] == {"role": "assistant", "content": "25"}
    assert [each["function"]["name"] for each in grading["sample"]["output_tools"]] == ["add"]
    assert "solution" not in grading["item"]
    begin(world, world.task("train", 0))
    assert failure(world, tool_action("add", a=1, b=24)).kind == "tool_malformed"
    office.answers["/add"] = [saying({"type": "message", "output": "26"})]
    begin(world, world.task("train", 0))
    assert failure(world, tool_action("add", a=1, b=24)).kind == "tool_malformed"


def test_an_episode_without_an_answer_is_graded_where_that_is_asked_for(office: Office, file: Path) -> None:
    office.answers["/grade"] = [lambda body: {"score": len(body["calls"]) / 4}]
    for is_asked in (False, True):
        world = change(file, max_turns=2, grade_at_limit=is_asked)
        first = advance(world, tool_action("add", a=1, b=25))
        assert (first.reward, first.is_truncated) == (0.0, False)
        last = advance(world, tool_action("add", a=1, b=25))
        assert last.observation == "26" and last.is_truncated is is_asked
        assert (last.reward, last.is_success) == ((0.5, True) if is_asked else (0.0, None))
    assert [body["answer"] for body in office.bodies("/grade")] == [""]
    begin(world, world.task("train", 0))
    advance(world, Action(error="unreadable"))
    assert advance(world, Action(error="unreadable")).is_success is False
    office.answers["/grade"] = [with_status(503)]
    begin(world, world.task("train", 0))
    advance(world, Action(error="unreadable"))
    assert failure(world, Action(error="unreadable")).owner == "judge"


@pytest.mark.slow
def test_a_moment_of_training_leaves_no_key_behind(
    office: Office, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret")
    settings = {**json.loads(file.read_text()), "headers": {"Authorization": "Bearer ${SHOP_KEY}"}}
    del settings["key_file"]
    file.write_text(json.dumps(settings))
    office.answers["/grade"] = [lambda body: {"score": (len(body["answer"]) % 5) / 4}]
    folder = api.train(
        "grpo", environment=f"http-tools/{file}", model="micro", demonstrations=16, imitation_epochs=2,
        steps=1, tasks=2, group_size=4, eval_episodes=2, max_turn_tokens=24, run="shop", root=tmp_path / "runs",
    )  # fmt: skip
    with Run.open(folder, writable=False) as run:
        sampled = [t for t in run.trajectories() if t.id and t.turns[0].completion.logprobs]
    assert len(sampled) >= 8
    ids = {body["rollout_id"] for body in office.bodies("/grade")}
    assert len(ids) == len(office.bodies("/grade"))  # each episode has its own, and is graded once
    calls = [body["rollout_id"] for body in office.bodies("/add")]
    assert len(set(calls)) > 1
    assert all(b"s3cret" not in each.read_bytes() for each in folder.rglob("*") if each.is_file())


def test_a_model_behind_an_endpoint_grades(file: Path, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []

    def say(body: dict[str, Any]) -> str | int:
        told.append(json.loads(body["messages"][1]["content"]))
        return {"25": "SCORE: 6", "24": "SCORE: 4"}.get(told[-1]["answer"], 503)

    model = ChatModel(say)
    try:
        (tmp_path / "key2").write_text(KEY)
        (tmp_path / "rubric.md").write_text("Is it right?")
        settings = json.loads(file.read_text())
        del settings["grader"]
        spec = f"{model.url}?model=m&key_file=key2&rubric=rubric.md&tape=tape.jsonl&calls=2"
        file.write_text(json.dumps({**settings, "judge": spec}))
        worlds = [started(file), started(file)]
        for answer, world, is_success in (("25", worlds[0], True), ("24", worlds[1], False)):
            result = advance(world, Action(text=answer))
            assert result.is_success is is_success and result.reward == (0.6 if is_success else 0.4)
        assert told[0]["messages"][-1]["content"] == "25" and "solution" not in told[0]["task"]
        assert len((tmp_path / "tape.jsonl").read_text().splitlines()) == 2
        begin(worlds[0], worlds[0].task("train", 0))
        found = failure(worlds[0], Action(text="23"))  # both worlds have one budget
        assert (found.owner, found.kind) == ("judge", "judge_refused")
        with pytest.raises(UsageError, match="grade='f1' beside a judge; give one of them"):
            change(file, grade="f1")
    finally:
        model.listener.close()
