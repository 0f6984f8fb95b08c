"""Specs of single environments: what ``keydoor?rooms=3`` or ``worlds.py:Guess`` builds.

A spec is a name of the catalogue, ``file.py:Class`` or ``package.module:Class``; adapters take what they adapt after
a slash, options follow a question mark. An unknown name or option is an error that names the nearest one, before
anything is built. `quintain.environments.catalog` adds mixtures of several.
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import types
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, cast

from quintain.config.spec import parameters_of, read_options, split_query, takes_any
from quintain.config.trust import OUTSIDE
from quintain.environments.boundary import place
from quintain.environments.protocol import Environment
from quintain.environments.session import MAIN
from quintain.errors import QuintainError, UsageError, suggestion

CATALOG: dict[str, str] = {
    "agent-issues": "quintain.adapters.agent_issues.environment:AgentIssues",
    "agentdojo": "quintain.adapters.agentdojo.environment:AgentDojo",
    "agentgym": "quintain.adapters.agentgym.environment:AgentGym",
    "alfworld-engine": "quintain.adapters.alfworld.environment:AlfworldEngine",
    "reward-function": "quintain.adapters.reward_function.environment:Answers",
    "api": "quintain.worlds.api.game:Api",
    "babyai": "quintain.adapters.babyai.environment:BabyAI",
    "bandit": "quintain.worlds.bandit.game:Bandit",
    "bfcl": "quintain.adapters.bfcl.environment:Bfcl",
    "calc": "quintain.worlds.calc.game:Calc",
    "collab": "quintain.worlds.collab.game:Collab",
    "craft": "quintain.worlds.craft.game:Craft",
    "crafter": "quintain.adapters.crafter.environment:Crafter",
    "desk": "quintain.worlds.desk.game:Desk",
    "fit": "quintain.worlds.fit.game:Fit",
    "flights": "quintain.worlds.flights.game:Flights",
    "guess": "quintain.worlds.guess.game:Guess",
    "eu-agent-bench": "quintain.adapters.eu_agent_bench.environment:EuAgentBench",
    "files": "quintain.worlds.files.game:FilesWorld",
    "gymnasium": "quintain.adapters.gym.environment:Gymnasium",
    "hopqa": "quintain.worlds.hopqa.game:HopQA",
    "house": "quintain.worlds.house.game:House",
    "http-tools": "quintain.adapters.http_tools.environment:HttpTools",
    "keydoor": "quintain.worlds.keydoor.game:KeyDoor",
    "ledger": "quintain.worlds.ledger.game:LedgerWorld",
    "miniwob": "quintain.adapters.miniwob.environment:MiniWoB",
    "mcp": "quintain.adapters.mcp.environment:MCP",
    "openenv": "quintain.adapters.openenv.environment:OpenEnv",
    "nle": "quintain.adapters.nle.environment:NetHack",
    "pettingzoo": "quintain.adapters.pettingzoo.environment:PettingZoo",
    "plan": "quintain.worlds.plan.game:Planning",
    "reasoning-gym": "quintain.adapters.reasoning_gym.environment:ReasoningGym",
    "repo": "quintain.worlds.repo.game:Repo",
    "rexbench": "quintain.adapters.rexbench.environment:RexBench",
    "research": "quintain.worlds.web.research:Research",
    "room": "quintain.worlds.room.game:BoxRoom",
    "scienceworld": "quintain.adapters.scienceworld.environment:ScienceWorld",
    "screen": "quintain.worlds.screen.game:Screen",
    "shelf": "quintain.worlds.shelf.game:Shelf",
    "shop": "quintain.worlds.shop.game:Shop",
    "solver": "quintain.worlds.solver.game:Solver",
    "sokoban": "quintain.worlds.sokoban.game:Sokoban",
    "stream": "quintain.worlds.stream.game:Stream",
    "sums": "quintain.worlds.sums.game:Sums",
    "tau-bench": "quintain.adapters.tau.environment:TauBench",
    "tau2": "quintain.adapters.tau.environment:Tau2",
    "textarena": "quintain.adapters.textarena.environment:TextArena",
    "textworld": "quintain.adapters.textworld.environment:TextWorld",
    "toolbox": "quintain.worlds.toolbox.game:Toolbox",
    "twenty": "quintain.worlds.twenty.game:Twenty",
    "twocards": "quintain.worlds.twocards.game:TwoCards",
    "verifiers": "quintain.adapters.verifiers.environment:Verifiers",
    "web": "quintain.worlds.web.game:Web",
    "worker": "quintain.environments.worker:Worker",
}
ADAPTERS: dict[str, str] = {
    "agent-issues": "agent-issues/FOLDER",
    "agentdojo": "agentdojo/slack",
    "agentgym": "agentgym/127.0.0.1:36001",
    "alfworld-engine": "alfworld-engine/clean",
    "reward-function": "reward-function/FILE.py:function",
    "babyai": "babyai/GoToRedBallNoDists",
    "bfcl": "bfcl/simple_python",
    "crafter": "crafter/collect_drink",
    "eu-agent-bench": "eu-agent-bench/FILE.json",
    "gymnasium": "gymnasium/FrozenLake-v1",
    "miniwob": "miniwob/login-user",
    "http-tools": "http-tools/FILE.json",
    "mcp": "mcp/FILE.json",
    "openenv": "openenv/127.0.0.1:8000",
    "nle": "nle/NetHackStaircase-v0",
    "pettingzoo": "pettingzoo/tictactoe_v3",
    "reasoning-gym": "reasoning-gym/chain_sum",
    "rexbench": "rexbench/FOLDER",
    "scienceworld": "scienceworld/find-living-thing",
    "tau-bench": "tau-bench/retail",
    "tau2": "tau2/airline",
    "textarena": "textarena/TicTacToe-v0?opponent=random",
    "textworld": "textworld/quest",
    "verifiers": "verifiers/FILE.py",
    "worker": "worker/guess",
}
"""Names that are followed by ``/`` and what to adapt, with an example of each."""
ELSEWHERE = frozenset(OUTSIDE)
"""Adapters of what users bring, such as their own servers: their examples cannot be played."""
GROUP = "quintain.environments"
"""Entry points of packages that bring environments: ``name = "package.module:Class"``."""
CODE_FILE = re.compile(
    r"(?<![^?=&+,:@])[^?=&+,:@\s]+\.py(?=:)|(?<=\bhttp-tools/)[^?,@]+|(?<=\bmcp/)[^?,@]+|(?<=\bverifiers/)[^?,@]+"
    r"|(?<=\beu-agent-bench/)[^?,@]+"
)
"""Files that a spec names: of a class or a function, and what adapters read."""
MIXTURE = "mix:"
"""What a spec begins with that names several environments; see `quintain.environments.mixture`."""
_importing: ContextVar[bool] = ContextVar("importing", default=False)


def is_importing() -> bool:
    """Whether a user's module is being imported for its environments: it must not start to train."""
    return _importing.get()


@contextmanager
def _importing_now() -> Generator[None]:
    """Make `is_importing` true within."""
    token = _importing.set(True)
    try:
        yield
    finally:
        _importing.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentSpec:
    """How to build an environment: calling it gives a fresh one.

    Example: ``find("keydoor?rooms=3")`` is ``EnvironmentSpec(spec=..., kind=KeyDoor, options={"rooms": 3})``.
    """

    spec: str
    kind: type[Environment]
    subject: tuple[str, ...] = ()
    """What an adapter adapts."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __call__(self) -> Environment:
        """Build the environment."""
        return cast(Any, self.kind)(*self.subject, **self.options)


def names_of_environments() -> list[str]:
    """Return the names that environments have: those in the catalogue, and those that installed packages bring."""
    return sorted(
        {*CATALOG, *ADAPTERS, *ADAPTERS.values(), *(point.name for point in entry_points(group=GROUP))}
    )


def find_single(spec: str | type[Environment]) -> EnvironmentSpec:
    """Return how to build the one environment that `spec` names; `catalog.find` knows mixtures, too.

    Raises:
        UsageError: the name, class, file or option does not exist, or an option's value has the wrong type.
        MissingExtra: the environment's package is not installed (when it is built).
    """
    if not isinstance(spec, str):
        return EnvironmentSpec(spec=spec.__name__, kind=_check_class(spec, spec.__name__))
    place, _, query = spec.partition("?")
    name, slash, subject = place.partition("/")
    if name in CATALOG and (":" not in name):
        kind = _load(CATALOG[name], spec)
        if (name in ADAPTERS) != bool(subject) or (slash and not subject):
            raise UsageError(_find_subject_fault(spec, name))
        return EnvironmentSpec(
            spec=spec,
            kind=kind,
            subject=(subject,) if subject else (),
            options=read_arguments(kind, spec, query),
        )
    if brought := entry_points(group=GROUP, name=place):
        kind = _load_entry_point(next(iter(brought)), spec)
        return EnvironmentSpec(spec=spec, kind=kind, options=read_arguments(kind, spec, query))
    if ":" not in place and not place.endswith(".py"):
        names = sorted({*CATALOG, *ADAPTERS.values()} - set(ADAPTERS))
        raise UsageError(f"environment: got {spec!r}; {suggestion(place, names)}, or give file.py:Class")
    kind = _load(place, spec)
    options = read_arguments(kind, spec, query)
    refuse_missing(kind, spec, options)
    return EnvironmentSpec(spec=spec, kind=kind, options=options)


def place_files(spec: str) -> str:
    """Return `spec`, of an environment or an agent, with the files that it names by their whole paths.

    Example: ``"shop.py:Shop?price=3"`` → ``"/home/ann/shop.py:Shop?price=3"``, where there is such a file.
    """

    def place(found: re.Match[str]) -> str:
        file = Path(found[0])
        whole = str(file.absolute())
        return whole if file.is_file() and not set(whole) & set("?=&+,:@") else found[0]

    return CODE_FILE.sub(place, spec)


def refuse_missing(kind: type[Environment], spec: str, options: Mapping[str, Any]) -> None:
    """Raise a `UsageError` where `kind` cannot be built without an argument that `options` lack."""
    needed = [
        name
        for name, each in inspect.signature(kind).parameters.items()
        if each.default is each.empty and not _is_subject(each) and name not in options
    ]
    if needed:
        given = "&".join(f"{name}=…" for name in needed)
        raise UsageError(
            f"environment: got {spec!r}, which cannot be built without {', '.join(needed)}; give it: "
            f"{spec}{'&' if '?' in spec else '?'}{given}"
        )


def _find_subject_fault(spec: str, name: str) -> str:
    """Return what is wrong with the part of `spec` after the slash."""
    if name in ADAPTERS:
        return f"environment: got {spec!r}, which says nothing to adapt; write it as {ADAPTERS[name]}"
    return f"environment: got {spec!r}; {name} takes nothing after a slash, give its options after a question mark"


def _load_entry_point(point: EntryPoint, spec: str) -> type[Environment]:
    """Return the environment that a package brings by the entry point `point`."""
    try:
        loaded = point.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        raise UsageError(
            f"environment: got {spec!r}, whose entry point {point.value!r} fails with {type(error).__name__}: {error}; "
            "mend or uninstall its package"
        ) from error
    return _check_class(loaded, spec)


def _load(place: str, spec: str) -> type[Environment]:
    """Return the class at ``file.py:Class`` or ``package.module:Class``; for ``file.py``, its only one."""
    if place.endswith(".py"):
        return _only_class(Path(place), spec)
    where, _, name = place.rpartition(":")
    if not where or not name:
        raise UsageError(f"environment: got {spec!r}; write it as file.py:Class or package.module:Class")
    module = _file_module(Path(where), spec) if where.endswith(".py") else _import_module(where, spec)
    members = vars(module)
    if where == MAIN and name not in members:
        raise UsageError(
            f"environment: got {spec!r}, a class of another session; define {name} in this one, or write it to a file "
            "and name it as file.py:Class (its run keeps its source in environment.py, if it was known)"
        )
    if name not in members:
        classes = list(_environments(module))
        raise UsageError(f"environment: got {spec!r}, but {where} has no {name}; {suggestion(name, classes)}")
    return _check_class(members[name], spec)


def _only_class(path: Path, spec: str) -> type[Environment]:
    """Return the environment that the file at `path` defines, where it is the only one.

    Raises:
        UsageError: there is none, or there are several.
    """
    own = _own_environments(_file_module(path, spec))
    if len(own) == 1:
        return _check_class(own[0], spec)
    what = f"{len(own)} environments: name one" if own else "no environment: write a class, and name it"
    example = own[0].__name__ if own else "Class"
    raise UsageError(f"environment: got {spec!r}, a file with {what}, as {path.name}:{example}")


def defines_environment(path: Path) -> bool:
    """Whether the Python file at `path` is there and defines an environment."""
    return path.is_file() and bool(_own_environments(import_file(path)))


def _own_environments(module: types.ModuleType) -> list[type[Environment]]:
    """Return the environments that `module` defines, and does not only import."""
    return [found for found in _environments(module).values() if found.__module__ == module.__name__]


def _environments(module: types.ModuleType) -> dict[str, Any]:
    """Return the environments that can be named in `module`, by name."""
    return {
        key: value
        for key, value in vars(module).items()
        if _is_environment(value) and value is not Environment
    }


def file_member(path: Path, name: str, spec: str, what: str = "function") -> Any:
    """Return what is called `name` in the Python file at `path`, which `spec` asks for as `what`.

    Raises:
        UsageError: there is no such file, its import breaks, or there is nothing of that name in it.
    """
    try:
        members = vars(_file_module(path, spec, what))
    except QuintainError:
        raise
    except Exception as error:
        raise UsageError(
            f"{what}: got {spec!r}, whose import ends with {type(error).__name__}: {error}{place(error)}; mend the file"
        ) from error
    if name not in members:
        near = suggestion(name, [key for key in members if not key.startswith("_")])
        raise UsageError(f"{what}: got {spec!r}, but {path} has no {name or 'name'}; {near}")
    return members[name]


def _import_module(name: str, spec: str) -> types.ModuleType:
    """Import module `name`; what breaks inside it is raised as it is."""
    try:
        with _importing_now():
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise UsageError(
            f"environment: got {spec!r}, but there is no module {error.name}; check its name"
        ) from error


def _file_module(path: Path, spec: str, what: str = "environment") -> types.ModuleType:
    """Import the file at `path`, which `spec` asks for as `what`."""
    if not path.is_file():
        raise UsageError(f"{what}: got {spec!r}, but there is no file {path}; check the path")
    return import_file(path)


def import_file(path: Path) -> types.ModuleType:
    """Import the file at `path` once, under a name of its own; the program that runs is there already.

    What it imports may lie beside it, as for a script; what has the same name and is installed comes first.
    """
    resolved = path.resolve()
    program = sys.modules["__main__"]
    if Path(vars(program).get("__file__") or "").resolve() == resolved:
        return program
    name = (
        f"quintain_user_{resolved.stem}_{hashlib.blake2b(str(resolved).encode(), digest_size=6).hexdigest()}"
    )
    if name in sys.modules:
        return sys.modules[name]
    found = importlib.util.spec_from_file_location(name, resolved)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    # Tools' annotations are resolved through sys.modules, so the module must be there while it runs.
    sys.modules[name] = module
    try:
        with _importing_now(), _reaching(resolved.parent):
            found.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _reaching(folder: Path) -> Generator[None]:
    """Let modules in `folder` be imported within."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        with suppress(ValueError):  # the file may have set sys.path itself
            sys.path.reverse()
            sys.path.remove(str(folder))
            sys.path.reverse()


def _is_environment(value: object) -> bool:
    """Whether `value` is an environment class."""
    return isinstance(value, type) and issubclass(value, Environment)


def _check_class(value: object, spec: str) -> type[Environment]:
    """Return `value` if it is an environment class."""
    if not _is_environment(value):
        raise UsageError(
            f"environment: got {spec!r}, which is no quintain.Environment; give a subclass of it"
        )
    return cast("type[Environment]", value)


def read_arguments(kind: type[Environment], spec: str, query: str) -> dict[str, Any]:
    """Return the keyword arguments in `query`, checked against the constructor of `kind`."""
    if not query:
        return {}
    whose = repr(spec)
    pairs = split_query(query, whose)
    return read_options(pairs, parameters_of(kind), whose, takes_any=takes_any(kind))


def _is_subject(parameter: inspect.Parameter) -> bool:
    """Whether `parameter` is filled by something else than an option."""
    return parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY)
