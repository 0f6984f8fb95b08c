"""MCP: against real servers over stdio and HTTP, and against programs that are none."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.environments.local_server import serving

from quintain.adapters.mcp import session as mcp_session
from quintain.adapters.mcp.environment import MCP
from quintain.adapters.mcp.session import ServerFault
from quintain.environments.baselines import expert, play
from quintain.environments.catalog import find
from quintain.environments.check import check
from quintain.environments.protocol import Environment, advance, begin, tool_action
from quintain.errors import MissingExtra, UsageError
from quintain.rollout.stepper import guard_call
from quintain.types import Action, Failure

pytestmark = pytest.mark.timeout(900)  # a busy machine takes long to start servers
SERVER = Path(__file__).with_name("mcp_server.py")
ROWS: list[dict[str, Any]] = [
    {
        "prompt": f"What is {number} + 25?",
        "answer": str(number + 25),
        "solution": [{"tool": "add", "arguments": {"a": number, "b": 25}}, str(number + 25)],
    }
    for number in range(4)
]
NEWER = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    elif "id" in asked:
        error = {"code": -32601, "message": "no such method"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""
GARBAGE = "import sys, time\nprint('hello, I am no MCP server' * 3, flush=True)\ntime.sleep(1000)"


def settings(tmp_path: Path, server: dict[str, Any], **more: Any) -> str:
    """Write a file of settings and return its path."""
    path = tmp_path / "shop.json"
    path.write_text(json.dumps({"server": server, "tasks": ROWS, **more}))
    return str(path)


def stdio(*arguments: str) -> dict[str, Any]:
    return {"command": [sys.executable, *arguments]}


def failure(world: Environment, action: Action) -> Failure:
    found = guard_call(lambda: advance(world, action))
    assert isinstance(found, Failure)
    return found


def test_a_missing_package_is_one_line_with_the_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra, match=r'pip install -e "\.\[mcp\]"'):
        MCP(settings(tmp_path, stdio(str(SERVER))))


@pytest.mark.parametrize(
    "server",
    [
        {},
        {"command": []},
        {"command": "python"},
        {"url": "http://x", "env": {}},
        {"command": ["a"], "env": 1},
    ],
)
def test_a_server_that_is_none_is_one_line(tmp_path: Path, server: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r'give {"command"'):
        MCP(settings(tmp_path, server))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Environment]:
    made = find(f"mcp/{settings(tmp_path, stdio(str(SERVER), '--hazards'))}?deadline=60")()
    yield made
    made.close()


@pytest.mark.real("mcp")
def test_it_keeps_the_contract_and_the_expert_wins(tmp_path: Path) -> None:
    file = settings(tmp_path, stdio(str(SERVER)), reset_tool="refill", max_turns=3)
    report = check(f"mcp/{file}", episodes=2, deadline=300)
    assert report.has_passed, list(report.lines())
    with_expert = find(f"mcp/{file}")()
    for index in range(3):
        assert play(with_expert, with_expert.task("train", index), expert).is_success
    assert "refill" not in [tool.name for tool in with_expert.tools()]
    with_expert.close()


@pytest.mark.real("mcp")
def test_calls_are_checked_and_errors_of_tools_are_told(world: Environment) -> None:
    begin(world, world.task("train", 0))
    assert advance(world, tool_action("add", a=1, b=2)).observation == "3"
    wrong = advance(world, tool_action("add", a="x", b=2))
    assert wrong.observation == 'Error: add(a): expected integer, got "x"' and not wrong.is_valid
    told = advance(world, tool_action("buy", item="pear"))
    assert str(told.observation).startswith("Error: ") and told.is_valid
    assert [(error.tool, error.cause) for error in told.tool_errors] == [("buy", "tool_error")]


@pytest.mark.real("mcp")
def test_an_episode_sees_nothing_of_the_one_before(world: Environment) -> None:
    for _ in range(2):
        begin(world, world.task("train", 0))
        assert advance(world, tool_action("buy", item="apple")).observation == "2 left"


@pytest.mark.real("mcp")
def test_a_server_that_dies_is_a_failure_of_the_environment(world: Environment) -> None:
    begin(world, world.task("train", 0))
    for action in (tool_action("die"), tool_action("add", a=1, b=2)):
        found = failure(world, action)
        assert (found.owner, found.kind) == ("environment", "mcp_closed")
    begin(world, world.task("train", 0))
    assert advance(world, tool_action("add", a=1, b=2)).observation == "3"


@pytest.mark.real("mcp")
def test_a_tool_that_hangs_is_a_failure_of_the_tool(tmp_path: Path) -> None:
    world = MCP(settings(tmp_path, stdio(str(SERVER), "--hazards")), deadline=1)
    begin(world, world.task("train", 0))
    found = failure(world, tool_action("hang"))
    assert (found.owner, found.kind) == ("tool", "tool_timeout") and "hang took longer" in found.message
    world.close()


@pytest.mark.real("mcp")
def test_a_deadline_that_the_sdk_does_not_report_in_time_is_the_tools_failure_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp_session, "SPARE", -0.9)
    world = MCP(settings(tmp_path, stdio(str(SERVER), "--hazards")), deadline=1)
    begin(world, world.task("train", 0))
    found = failure(world, tool_action("hang"))
    assert (found.owner, found.kind) == ("tool", "tool_timeout") and "hang took longer" in found.message
    world.close()


@pytest.mark.real("mcp")
@pytest.mark.parametrize(
    ("program", "opening", "told"),
    [
        (NEWER, 120.0, "Unsupported protocol version from the server: 1999-01-01"),
        (GARBAGE, 5.0, "no answer within 5 s"),
        ("import sys; sys.exit('cannot start')", 120.0, "cannot start"),
    ],
    ids=["newer", "garbage", "ends"],
)
def test_programs_that_are_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, opening: float, told: str
) -> None:
    monkeypatch.setattr(mcp_session, "OPENING", opening)
    with pytest.raises(ServerFault, match=told) as found:
        MCP(settings(tmp_path, stdio("-c", program)), deadline=5)
    assert found.value.owner == "environment" and found.value.kind == "mcp_start"


@pytest.mark.real("mcp")
def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(ServerFault, match="FileNotFoundError"):
        MCP(settings(tmp_path, {"command": ["/absent/program"]}))


@pytest.mark.real("mcp")
def test_a_server_over_http(tmp_path: Path) -> None:
    with serving(
        lambda port: [sys.executable, str(SERVER), "--port", str(port)],
        patience=300,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as (port, process):
        world = MCP(settings(tmp_path, {"url": f"http://127.0.0.1:{port}/mcp"}), restart=False, deadline=60)
        assert play(world, world.task("train", 1), expert).is_success
        begin(world, world.task("train", 0))
        process.kill()
        process.wait(10)
        found = failure(world, tool_action("add", a=1, b=2))
        assert found.owner in ("environment", "tool")
        world.close()
