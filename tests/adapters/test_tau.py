import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.chat_model import KEY, ChatModel

from quintain.adapters.tau.environment import Tau2, TauBench
from quintain.config.trust import FIELDS
from quintain.environments.dialogue import STOP, UserFault
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import DataError, MissingExtra, UsageError
from quintain.types import Action, as_text

TAU2 = """
from types import SimpleNamespace as Space

SCHEMA = {"type": "object", "properties": {"room": {"type": "string"}}}


class Kit:
    def __init__(self, names):
        self.names, self.db = names, {}

    def has_tool(self, name):
        return name in self.names

    def tool_type(self, name):
        return Space(value="read" if name == "look" else "write")

    def update_db(self, data):
        self.db.update(data)

    def set_lamp(self, room):
        self.db[room] = "on"

    def is_on(self, room):
        return self.db[room] == "on"


class Environment:
    def __init__(self):
        self.tools, self.user_tools = Kit(("switch_on", "look")), Kit(("open_door",))

    def get_policy(self):
        return "Switch on what is asked for."

    def get_tools(self):
        return [self.tool(name) for name in self.tools.names]

    def get_user_tools(self):
        return [self.tool(name) for name in self.user_tools.names]

    def tool(self, name):
        return Space(openai_schema={"function": {"name": name, "description": "d", "parameters": SCHEMA}})

    def get_response(self, call):
        kit = self.user_tools if call.requestor == "user" else self.tools
        if call.name not in kit.names or set(call.arguments) - {"room"}:
            return Space(content="Error: no", error=True)
        if call.name != "look":
            kit.db[call.arguments.get("room", "door")] = "on"
        return Space(content=str(sorted(kit.db)), error=False)

    def sync_tools(self):
        pass

    def get_db_hash(self):
        return repr(sorted(self.tools.db.items()))

    def get_user_db_hash(self):
        return repr(sorted(self.user_tools.db.items()))


def get_environment():
    return Environment()
"""
INSTRUCTIONS = {
    "reason_for_call": "I want light.",
    "known_info": "In the hall.",
    "task_instructions": "Be brief.",
}
SWITCH = {"name": "switch_on", "arguments": {"room": "hall"}}
DOOR = {"name": "open_door", "arguments": {}, "requestor": "user"}


def row(name: str, **criteria: Any) -> dict[str, Any]:
    return {
        "id": name,
        "user_scenario": {"persona": None, "instructions": INSTRUCTIONS},
        "evaluation_criteria": criteria,
    }


TASKS = [
    row("plain", actions=[SWITCH], communicate_info=[]),
    row(
        "dual", actions=[SWITCH, DOOR], communicate_info=["10"], reward_basis=["DB", "COMMUNICATE", "ACTION"]
    ),
    row("judged", actions=[SWITCH], reward_basis=["DB", "NL_ASSERTION"]),
    row("idle", actions=[{"name": "look", "arguments": {}}]),
    {**row("none"), "evaluation_criteria": None},
    row(
        "checked",
        env_assertions=[{"env_type": "assistant", "func_name": "is_on", "arguments": {"room": "hall"}}],
        actions=[SWITCH],
        reward_basis=["ENV_ASSERTION"],
    )
    | {"initial_state": {"initialization_data": {"agent_data": {"attic": "on"}}}},
]
TOOLS = """
class Cancel:
    @staticmethod
    def invoke(data, order):
        if order not in data["orders"]:
            return "Error: order not found"
        data["orders"][order]["status"] = "cancelled"
        return "cancelled"

    @staticmethod
    def get_info():
        return {"function": {"name": "cancel_order", "description": "d", "parameters": {"type": "object"}}}


class Transfer(Cancel):
    @staticmethod
    def invoke(data, summary):
        return "Transfer successful"

    @staticmethod
    def get_info():
        return {"function": {"name": "transfer_to_human_agents", "description": "d", "parameters": {"type": "object"}}}


ALL_TOOLS = [Cancel, Transfer]
"""
TAU_TASKS = """
from types import SimpleNamespace as Space

TASKS_TEST = [
    Space(
        instruction="You are Ann and cancel order 7.",
        actions=[Space(name="cancel_order", kwargs={"order": "7"}), Space(name="respond", kwargs={"content": "54.0"})],
        outputs=["54.0"],
    ),
    Space(instruction="Say hello.", actions=[], outputs=[]),
]
"""


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    """Forget what a test has imported of a checkout."""
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("tau2", "tau_bench")]:
        del sys.modules[name]


@pytest.fixture
def checkout(tmp_path: Path) -> Callable[..., str]:
    def make(tasks: Any = TASKS, splits: Any = None) -> str:
        code, data = tmp_path / "src/tau2/domains/lamps", tmp_path / "data/tau2/domains/lamps"
        for folder in (code, data):
            folder.mkdir(parents=True, exist_ok=True)
        (code / "environment.py").write_text(TAU2)
        (data / "tasks.json").write_text(json.dumps(tasks))
        if splits:
            (data / "split_tasks.json").write_text(json.dumps(splits))
        return str(tmp_path)

    return make


@pytest.fixture
def old(tmp_path: Path) -> str:
    folder = tmp_path / "tau_bench/envs/shop"
    (folder / "tools").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "tools/__init__.py").write_text(TOOLS)
    (folder / "data/__init__.py").write_text(
        'def load_data():\n    return {"orders": {"7": {"status": "pending", "sum": 54.0}}}\n'
    )
    (folder / "tasks_test.py").write_text(TAU_TASKS)
    (folder / "wiki.md").write_text("Cancel what is pending.")
    (folder.parent / "__init__.py").write_text("raise RuntimeError('a vendor is needed')\n")
    return str(tmp_path)


def play(world: Any, name: str, *actions: Action) -> Any:
    task = next(
        task for task in (world.task("eval", number) for number in range(9)) if task.data["task"] == name
    )
    begin(world, task)
    return [advance(world, action) for action in actions][-1]


def follow(world: Any, name: str) -> Any:
    task = next(
        task for task in (world.task("eval", number) for number in range(9)) if task.data["task"] == name
    )
    begin(world, task)
    for _ in range(9):
        result = advance(world, world.expert_action())
        if result.is_terminated:
            return result
    raise AssertionError("the expert does not end")


DONE = Action(text="All is done.")


def test_tau2_reads_tasks_policy_and_tools(checkout: Callable[..., str]) -> None:
    world = Tau2("lamps", checkout=checkout())
    assert [spec.name for spec in world.tools()] == ["switch_on", "look"]
    assert world.instructions().startswith("Switch on what is asked for.")
    assert world.num_tasks("eval") == 3 and world.evaluation_only
    assert set(world.left_out) == {"judged", "idle", "none"}
    assert world.left_out["judged"] == "only a judge could say"
    assert as_text(begin(world, world.task("eval", 0))) == "I want light."


@pytest.mark.parametrize("name", ["plain", "dual", "checked"])
def test_tau2_pays_the_reference_and_not_silence(checkout: Callable[..., str], name: str) -> None:
    world = Tau2("lamps", checkout=checkout())
    assert follow(world, name).reward == 1.0
    assert play(world, name, DONE).reward == 0.0
    assert play(world, name, tool_action("switch_on", room="attic"), DONE).reward == 0.0


def test_tau2_hashes_the_users_database_too(checkout: Callable[..., str]) -> None:
    world = Tau2("lamps", checkout=checkout())
    switch = tool_action("switch_on", room="hall")
    without = play(world, "dual", switch, Action(text="It costs 10."), DONE)
    assert without.reward_terms == {"database": 0.0, "outputs": 1.0, "actions": 0.0}
    told = play(world, "dual", switch, Action(text="It costs 10. Please open door."), DONE)
    assert told.reward == 1.0


def test_tau2_failing_calls_are_the_tools_errors(checkout: Callable[..., str]) -> None:
    world = Tau2("lamps", checkout=checkout())
    failed = play(world, "plain", tool_action("switch_on", lamp="hall"))
    assert [error.cause for error in failed.tool_errors] == ["tool_error"]


def test_tau2_splits(checkout: Callable[..., str]) -> None:
    world = Tau2("lamps", checkout=checkout(splits={"train": ["plain"], "test": ["dual", "checked"]}))
    assert (world.num_tasks("train"), world.num_tasks("eval"), world.evaluation_only) == (1, 2, False)


def test_tau2_keeps_idle_tasks_where_asked(checkout: Callable[..., str]) -> None:
    assert play(Tau2("lamps", checkout=checkout(), idle_tasks=True), "idle", DONE).reward == 1.0


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ({"tasks": []}, "got dict; give a list of tasks"),
        ([{"id": "a"}], "got KeyError: 'user_scenario'; it is of another version"),
        ([row("a", rubric=[])], "the unknown criteria rubric"),
        ([row("a", reward_basis=["TASTE"])], "the unknown basis TASTE"),
        (
            [row("a", reward_basis=["NL_ASSERTION"])],
            r"got 1, none of which can be judged \(only a judge could say\)",
        ),
    ],
)
def test_tau2_files_of_another_version_are_refused(
    checkout: Callable[..., str], tasks: Any, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        Tau2("lamps", checkout=checkout(tasks))


def test_checkouts_that_are_none_are_refused(checkout: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="which has no tau2; give a clone"):
        Tau2("lamps", checkout=str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match="domain of tau2: got 'lamp'; did you mean 'lamps'"):
        Tau2("lamp", checkout=checkout())
    other = tmp_path / "other/src/tau2"
    other.mkdir(parents=True)
    with pytest.raises(UsageError, match="tau2 is imported from elsewhere; give one checkout to a process"):
        Tau2("lamps", checkout=str(tmp_path / "other"))
    with pytest.raises(MissingExtra, match="tau-bench: got no checkout"):
        TauBench("retail")
    with pytest.raises(UsageError, match="patience=-1"):
        Tau2("lamps", checkout=checkout(), patience=-1)


def test_a_checkout_in_a_stored_configuration_names_code() -> None:
    assert FIELDS["checkout"] == "Python module"


def test_tau_bench_runs_its_tools_without_its_vendors(old: str) -> None:
    world = TauBench("shop", checkout=old)
    assert world.num_tasks("eval") == 1 and set(world.left_out) == {"test-1"} and world.evaluation_only
    assert [spec.name for spec in world.tools()] == ["cancel_order", "transfer_to_human_agents"]
    assert follow(world, "test-0").reward == 1.0
    cancel = tool_action("cancel_order", order="7")
    assert play(world, "test-0", cancel, DONE).reward_terms == {"database": 1.0, "outputs": 0.0}
    assert play(world, "test-0", cancel, Action(text="You get 540 back."), DONE).reward == 0.0
    assert play(world, "test-0", Action(text="You get 54."), DONE).reward == 0.0


def test_a_model_plays_the_user_and_may_never_stop(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_KEY", KEY)
    model = ChatModel(lambda _: "And one more thing, please.")
    user = f"{model.url}?model=m&key_env=USER_KEY&temperature=0.6"
    try:
        world = TauBench("shop", checkout=old, user=user, max_turns=3)
        cut = play(world, "test-0", *[Action(text="Anything else?")] * 3)
        assert cut.is_truncated and cut.reward == 0.0 and not cut.is_success
        assert as_text(cut.observation) == "The talk is over: the user did not end it within 3 turns."
        assert {body["temperature"] for body in model.seen} == {0.6}
        assert "You are Ann and cancel order 7." in model.seen[0]["messages"][0]["content"]
        roles = [line["role"] for line in model.seen[1]["messages"]]
        assert roles == ["system", "user", "assistant", "user"], "who plays the user is the assistant there"
        model.say = lambda _: f"Thanks. {STOP}"
        cancel = tool_action("cancel_order", order="7")
        assert play(world, "test-0", cancel, Action(text="You get 54.0 back.")).reward == 1.0
        model.say = lambda _: 400
        with pytest.raises(UserFault, match=r"simulated user at http.*check the endpoint"):
            play(world, "test-0", DONE)
        world.close()
    finally:
        model.listener.close()


def test_tau_bench_ends_with_a_transfer(old: str) -> None:
    world = TauBench("shop", checkout=old)
    done = play(world, "test-0", tool_action("transfer_to_human_agents", summary="x"))
    assert done.is_terminated and done.reward == 0.0 and as_text(done.observation) == "Transfer successful"


@pytest.mark.parametrize(("name", "is_known"), [("TASKS", True), ("TASKS_TEST", True), ("CASES", False)])
def test_tau_bench_lists_are_called_as_its_domains_do(old: str, name: str, is_known: bool) -> None:
    (Path(old) / "tau_bench/envs/shop/tasks_test.py").write_text(TAU_TASKS.replace("TASKS_TEST", name))
    if is_known:
        assert TauBench("shop", checkout=old).num_tasks("eval") == 1
    else:
        with pytest.raises(DataError, match="got no TASKS; it is of another version"):
            TauBench("shop", checkout=old)


def test_tau_bench_numbers_are_numbers(old: str) -> None:
    world = TauBench("shop", checkout=old)
    begin(world, world.task("eval", 0))
    talk = world.open(world.task("eval", 0))
    data: Any = vars(talk.domain)["_data"]
    before = talk.domain.digests()
    data["orders"]["7"]["sum"] = 54
    assert talk.domain.digests() == before, "54 and 54.0 are one state"
    data["orders"]["7"]["sum"] = "54"
    assert talk.domain.digests() != before
