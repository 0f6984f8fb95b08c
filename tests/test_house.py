"""The rules of CONTRIBUTING.md that a reader of syntax can hold the code to."""

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import which
from types import FrameType

import pytest

from quintain.methods import table
from quintain.runs.collector import Collector
from quintain.types import Credit, Group

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "quintain"
EVIDENCE = ROOT / "evidence" / "src" / "quintain_evidence"
MODULES = sorted([*PACKAGE.rglob("*.py"), *EVIDENCE.rglob("*.py")])
SCRIPTS = sorted(
    path for folder in ("examples", "speed", "evidence/studies") for path in (ROOT / folder).rglob("*.py")
)
TESTS = sorted(path for folder in ("tests", "evidence/tests") for path in (ROOT / folder).rglob("*.py"))

FIELD_NAMES = {"KLController"}
"""Names of the field, though they end like that."""
VAGUE_ENDINGS = ("Manager", "Controller", "Coordinator", "Factory", "Helper", "Mixin")
VAGUE_MODULES = {"util", "utils", "helper", "helpers", "misc", "common"}
MAY_SWALLOW = {
    "environments/boundary.py", "rollout/stepper.py", "cli/main.py", "runs/trackers.py", "engines/scripted.py",
}  # fmt: skip
"""Where any exception may end: the boundaries around an environment, trackers and scripts, and the command line."""
MAY_RUN_CODE = {"safety/worker.py"}
"""What runs inside the sandbox, for which running code is the purpose."""
MAY_PICKLE = {"environments/probes.py"}
"""Where a pickle may be opened: the checker opens what it has just written, to see that tasks survive it."""
WEAKENED = {"tests/attacks/loading.py", "tests/attacks/templates.py"}
"""Tests that open what is refused elsewhere: in builds whose defences are switched off, to see that it would land."""
MAY_PRINT = {"types/terminal.py", "safety/worker.py"}
"""Where something is printed: the one function for it, and what runs in a sandbox."""
MAY_READ_NAMES = {
    "api.py": "what was admitted",
    "config/trust.py": "the door",
    "eval/compare.py": "notes of what runs differ in",
    "methods/imitation/forgetting.py": "what was admitted",
    "runs/collector.py": "whether episodes were played apart",
    "warm_start/demonstrations.py": "compares the run's settings with its own, or what was admitted",
    "pipelines/episode_sources.py": "what was admitted",
    "warm_start/run_notes.py": "a note",
    "runs/summary.py": "commands that are advised",
}
"""Where names in a stored configuration are read without `quintain.config.trust.admit`, and what for."""
NAMES = {
    "environment",
    "eval_environment",
    "agent",
    "engine",
    "teacher",
    "judge",
    "cluster",
    "track",
    "model",
}
ADVISED = re.compile(
    r"quintain (train|resume|eval|collect|view|play|data|label|export|lab|serve|check)(?! needs) [^:;()`]*$"
)
MAY_WAIT = {
    "rollout/stepper.py": "a thread without work",
    "adapters/mcp/session.py": "a task in a loop of its own, until it is told to leave",
    "serve/openenv.py": "the server's half of a handshake, which does not wait for the client",
    "adapters/miniwob/chromium.py": "a process that was killed",
    "../../evidence/src/quintain_evidence/cli/worlds.py": "trials, each a process with a line of progress",
}
"""Where something may be waited for without a deadline, and what that is."""
WAITS = ("join", "wait", "result", "acquire", "communicate", "recv", "accept")
LOOSENS = {"allow_pickle", "weights_only", "trust_remote_code", "shell"}
"""Arguments that say whether what is opened may run code."""
MOST_READ = 13
"""Files of which a function runs in a step of GRPO, from its tasks to the new weights."""
HEAVY = ("torch", "transformers", "numpy", "pydantic", "gymnasium", "matplotlib")
PARTICIPLES = {
    "begun", "broken", "brought", "built", "caught", "chosen", "done", "drawn", "driven", "fallen", "forgotten",
    "found", "frozen", "given", "gone", "grown", "heard", "held", "hidden", "hung", "kept", "known", "laid",
    "led", "left", "lived", "lost", "made", "meant", "met", "overheard", "paid", "rewritten", "said", "seen",
    "sent", "shown", "spent", "spoken", "taken", "taught", "thrown", "told", "torn", "understood",
    "won", "written",
}  # fmt: skip
"""Those that do not end in -ed."""
ADVERBS = {
    "afterwards", "ahead", "alike", "anew", "apart", "aside", "beside", "elsewhere", "every", "within",
}  # fmt: skip
"""Words that say of a function neither what it does nor what it gives."""
NO_PARTICIPLES = {
    "bleed",
    "embed",
    "exceed",
    "heed",
    "hundred",
    "need",
    "proceed",
    "shed",
    "speed",
    "succeed",
}
"""What ends in -ed and is none."""
NAMED_BY_PARTICIPLE = {
    "src": 53, "evidence/src": 512, "speed": 12, "examples": 1, "evidence/studies": 12, "tests": 448,
    "evidence/tests": 33,
}  # fmt: skip
"""Most functions of each tree whose first word is a participle or an adverb; who renames some lowers the number."""

Found = Iterator[tuple[int, str]]
Rule = Callable[[ast.AST], Found]


def called(node: ast.Call) -> str:
    """Return the dotted name that `node` calls; where it begins with no name, that is empty: ``.read``."""
    names: list[str] = []
    part: ast.expr = node.func
    while isinstance(part, ast.Attribute):
        names.append(part.attr)
        part = part.value
    return ".".join([part.id if isinstance(part, ast.Name) else "", *reversed(names)])


def opens_code(node: ast.AST) -> Found:
    """Calls that can run what a file or a text says, and a bind to every interface."""
    if isinstance(node, ast.Call):
        name = called(node)
        keywords = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg in LOOSENS}
        if name in ("eval", "exec") or name.split(".")[0] in ("pickle", "cloudpickle", "marshal", "dill"):
            yield node.lineno, f"calls {name}"
        if name in ("yaml.load", "yaml.unsafe_load", "yaml.full_load", "joblib.load", "shelve.open"):
            yield node.lineno, f"calls {name}"
        if name.split(".")[-1] in ("Environment", "Template") and name.startswith("jinja2."):
            yield node.lineno, f"renders outside of Jinja's sandbox: {name}"
        if keywords.get("allow_pickle", "False") != "False":
            yield node.lineno, "reads pickled arrays"
        if name == "torch.load" and keywords.get("weights_only") != "True":
            yield node.lineno, "calls torch.load without weights_only=True"
        if keywords.get("trust_remote_code", "False") != "False":
            yield node.lineno, "trusts remote code"
        if keywords.get("shell", "False") != "False" and name.startswith("subprocess."):
            yield node.lineno, "starts a shell"
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
        if any(name.split(".")[0] in ("pickle", "marshal", "dill") for name in names):
            yield node.lineno, "imports a pickle module"
    if isinstance(node, ast.Constant) and node.value == ".".join("0000"):
        yield node.lineno, "binds to every interface"


def prints(node: ast.AST) -> Found:
    """Calls that write a text to a terminal as it is."""
    if isinstance(node, ast.Call) and called(node) in ("print", "sys.stdout.write", "sys.stderr.write"):
        yield node.lineno, f"calls {called(node)}"


def advises_unquoted(node: ast.AST) -> Found:
    """Commands in a text, with a value in them that no shell was thought of for."""
    text = ""
    if not isinstance(node, ast.JoinedStr):
        return
    for part in node.values:
        if isinstance(part, ast.Constant):
            text += str(part.value)
        elif isinstance(part, ast.FormattedValue) and ADVISED.search(text):
            yield (
                node.lineno,
                f"advises a command with {ast.unparse(part.value)} in it: use write_command",
            )
            return
        else:
            text += "{}"


def reads_names(node: ast.AST) -> Found:
    """Reads of what a run's configuration names: ``run.config["agent"]``, ``config.get("environment")``."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        owner, key = node.value, node.slice.value
    elif (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "get"
        and node.args
    ):
        owner, key = node.func.value, node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    else:
        return
    if key in NAMES and re.search(r"\b(config|stored)('\])?$", ast.unparse(owner)):
        yield node.lineno, f"reads {key} of a configuration"


def swallows(node: ast.AST) -> Found:
    """Handlers of every exception that do not raise one."""
    if isinstance(node, ast.ExceptHandler):
        kind = ast.unparse(node.type) if node.type else "everything"
        is_broad = any(name in kind.split(", ") for name in ("Exception", "BaseException", "everything"))
        if is_broad and not any(isinstance(part, ast.Raise) for part in ast.walk(node)):
            yield node.lineno, f"swallows {kind}"


def reads_deep_json(node: ast.AST) -> Found:
    """JSON of somebody else, whose nesting is no ValueError, where one is caught."""
    if isinstance(node, ast.Try) and any(
        isinstance(part, ast.Call) and called(part) in ("json.loads", "json.load")
        for line in node.body
        for part in ast.walk(line)
    ):
        kinds = ", ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
        if "ValueError" in kinds and "RecursionError" not in kinds:
            yield node.lineno, "reads JSON that may be nested too deeply: use load_json"


def waits_forever(node: ast.AST) -> Found:
    """Waits without a deadline."""
    if not isinstance(node, ast.Call):
        return
    name, words = called(node), {word.arg for word in node.keywords}
    if name == "subprocess.run" and not words & {"timeout", None}:
        yield node.lineno, "runs a program without a timeout"
    if not isinstance(node.func, ast.Attribute) or node.args or words:
        return
    is_queue = node.func.attr == "get" and name.split(".")[-2] in ("inbox", "queue", "_inbox", "_queue")
    if node.func.attr in WAITS or is_queue:
        yield node.lineno, f"waits without a deadline: {name}()"


def is_vague(node: ast.AST) -> Found:
    """Classes whose name says that they manage, not what they do."""
    if isinstance(node, ast.ClassDef) and node.name.endswith(VAGUE_ENDINGS) and node.name not in FIELD_NAMES:
        yield node.lineno, f"class {node.name} says that it manages, not what it does"


def is_participle(node: ast.AST) -> Found:
    """Functions whose first word is a participle or an adverb; properties, questions and tests may have one."""
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return
    if node.name.startswith(("is_", "has_", "__", "test_")):
        return
    if any("property" in ast.unparse(each) for each in node.decorator_list):
        return
    first = node.name.strip("_").partition("_")[0]
    ends_like_one = first.endswith("ed") and len(first) > 4 and first not in NO_PARTICIPLES
    if ends_like_one or first in PARTICIPLES | ADVERBS:
        yield node.lineno, f"{node.name} does not say what it does: begin with a verb"


def is_untyped(node: ast.AST) -> Found:
    """Functions with a parameter or a result that is not annotated."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        arguments = node.args
        named = [
            *arguments.posonlyargs,
            *arguments.args,
            *arguments.kwonlyargs,
            arguments.vararg,
            arguments.kwarg,
        ]
        bare = [a.arg for a in named if a and not a.annotation and a.arg not in ("self", "cls")]
        if bare or node.returns is None:
            yield node.lineno, f"{node.name} is not fully typed"


RULES: tuple[Rule, ...] = (
    opens_code,
    prints,
    advises_unquoted,
    reads_names,
    swallows,
    reads_deep_json,
    waits_forever,
    is_vague,
    is_participle,
    is_untyped,
)
ASKED = (
    ast.Call,
    ast.Import,
    ast.ImportFrom,
    ast.Constant,
    ast.JoinedStr,
    ast.Subscript,
    ast.ExceptHandler,
    ast.Try,
    ast.ClassDef,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
)
"""The kinds of nodes that any rule looks at."""


def asked(module: ast.Module) -> list[ast.AST]:
    """Return the nodes of `module` that rules look at; a rule is tried on these alone, too (`found_in`)."""
    return [node for node in ast.walk(module) if isinstance(node, ASKED)]


@dataclass(frozen=True)
class Read:
    """What the tests ask of a file, from one pass over its syntax."""

    has_docstring: bool
    broken: tuple[tuple[Rule, int, str], ...]
    """The rules that it breaks, in which line, and how."""
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    programs: tuple[tuple[str, str], ...]
    """Modules, and what programs in its strings import of them."""


@functools.cache
def read(path: Path) -> Read:
    """Return what the file `path` says."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    nodes = asked(module)
    return Read(
        has_docstring=bool(ast.get_docstring(module)),
        broken=tuple((rule, line, what) for rule in RULES for node in nodes for line, what in rule(node)),
        imports=tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))),
        programs=tuple(
            found
            for node in nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            for found in re.findall(r"\bfrom (quintain\.[.\w]+) import (\w+)", node.value)
        ),
    )


def broken(paths: list[Path], *rules: Rule) -> list[str]:
    """Return a line for every place in `paths` that breaks one of `rules`."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in paths
        for rule, line, what in read(path).broken
        if rule in rules
    ]


def found_in(source: str, rule: Rule) -> list[str]:
    return [what for node in asked(ast.parse(source)) for _, what in rule(node)]


def test_nothing_opens_code() -> None:
    allowed = {PACKAGE / place for place in MAY_PICKLE | MAY_RUN_CODE} | {ROOT / place for place in WEAKENED}
    assert broken([path for path in (*MODULES, *TESTS, *SCRIPTS) if path not in allowed], opens_code) == []


def test_nothing_swallows_every_exception() -> None:
    allowed = {PACKAGE / place for place in MAY_SWALLOW}
    assert broken([path for path in MODULES if path not in allowed], swallows) == []


def test_json_that_is_nested_too_deeply_is_an_error_of_its_place() -> None:
    assert broken(MODULES, reads_deep_json) == []


def test_every_wait_has_a_deadline() -> None:
    allowed = {(PACKAGE / place).resolve() for place in MAY_WAIT}
    assert broken([path for path in MODULES if path not in allowed], waits_forever) == []
    assert all(broken([place], waits_forever) for place in allowed), "what waits no longer needs no leave"


def test_one_function_prints() -> None:
    allowed = {PACKAGE / place for place in MAY_PRINT}
    ours = [path for path in MODULES if path.is_relative_to(PACKAGE) and path not in allowed]
    assert broken(ours, prints) == []


def test_every_word_of_an_advised_command_is_quoted() -> None:
    assert broken(MODULES, advises_unquoted) == []


def test_programs_in_strings_import_what_exists() -> None:
    """A name that is changed must be changed in what other processes run, too."""
    found = [(path, *each) for path in MODULES for each in read(path).programs]
    assert found
    for path, module, name in found:
        assert hasattr(importlib.import_module(module), name), f"{path}: {module}.{name}"


def test_names_in_stored_configurations_go_through_the_door() -> None:
    allowed = {PACKAGE / place for place in MAY_READ_NAMES}
    ours = [path for path in MODULES if path not in allowed]
    assert broken(ours, reads_names) == []
    assert all(broken([place], reads_names) for place in allowed - {PACKAGE / "config/trust.py"})


def test_names_and_types() -> None:
    assert broken(MODULES, is_vague, is_untyped) == []
    assert [path for path in MODULES if path.stem in VAGUE_MODULES] == []


@pytest.mark.parametrize("tree", NAMED_BY_PARTICIPLE)
def test_fewer_and_fewer_functions_are_named_by_a_participle(tree: str) -> None:
    """A function is named by a verb and what it gives: `split_seats`, not `separated`. Some are older than the rule."""
    own = [path for path in (*MODULES, *SCRIPTS, *TESTS) if path.is_relative_to(ROOT / tree)]
    found = broken(own, is_participle)
    assert own and len(found) <= NAMED_BY_PARTICIPLE[tree], "\n".join(found)


@functools.cache
def imports_of(module: str, path: Path) -> set[str]:
    """Return what `module` imports of the package, wherever it does so, as dotted names of modules and members."""
    home = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in read(path).imports:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            base = home[: len(home) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{stem}.{alias.name}" for alias in node.names}
    return found


def circles_in(files: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other; `files` maps a module to the names that it imports."""
    edges = {
        module: {
            name if name in files else name.rpartition(".")[0]
            for name in names
            if name in files or name.rpartition(".")[0] in files
        }
        - {module}
        for module, names in files.items()
    }
    order = graphlib.TopologicalSorter(edges)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        return [error.args[1]]
    return []


def name_of(path: Path) -> str:
    """Return the dotted name of a module of ours."""
    root = EVIDENCE if path.is_relative_to(EVIDENCE) else PACKAGE
    return ".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")


def test_no_two_files_import_each_other() -> None:
    names = {name_of(path): path for path in MODULES}
    assert circles_in({module: imports_of(module, path) for module, path in names.items()}) == []


def test_package_tests_and_scripts_need_no_evidence() -> None:
    """What is shown of the package stands beside it: neither it nor its tests nor the speed scripts import that."""
    own = [path for path in (*MODULES, *TESTS, *SCRIPTS) if not path.is_relative_to(ROOT / "evidence")]
    asking = {
        path for path in own if any(n.startswith("quintain_evidence") for n in imports_of(path.stem, path))
    }
    assert asking == set()
    assert imports_of("layers", EVIDENCE / "layers" / "league.py") & {"quintain_evidence.sweep.workers"}


def test_a_circle_is_found() -> None:
    assert circles_in({"a": {"b.x"}, "b": {"c"}, "c": set()}) == []
    assert circles_in({"a": {"b.x"}, "b": {"c"}, "c": {"a.y"}}) != []


def engines_named(module: str, names: set[str]) -> set[str]:
    """Return which classes of engines `module` names, where it should ask `engines.build` for one."""
    if module.startswith(("quintain.engines", "quintain.learning", "quintain.warm_start", "quintain.runs")):
        return set()
    classes = {"quintain.engines.local.Local", "quintain.engines.process.ProcessEngine"}
    return names & (classes | {name.rpartition(".")[0] for name in classes})


def test_nobody_builds_an_engine_by_its_class() -> None:
    """A policy is served by the engine that its settings name; only `engines` and who trains know them."""
    found = {str(path): engines_named(path.stem, imports_of(path.stem, path)) for path in SCRIPTS}
    for path in MODULES:
        found[str(path)] = engines_named(name_of(path), imports_of(name_of(path), path))
    assert {path: sorted(names) for path, names in found.items() if names} == {}
    assert engines_named("quintain.api", {"quintain.engines.local.Local"})
    assert not engines_named("quintain.learning.work", {"quintain.engines.local.Local"})


def test_every_module_says_what_it_is() -> None:
    silent = [path for path in MODULES if not read(path).has_docstring]
    assert silent == []


@pytest.mark.parametrize(
    ("source", "rule", "expected"),
    [
        ("torch.load(f)", opens_code, ["calls torch.load without weights_only=True"]),
        ("torch.load(f, weights_only=True)", opens_code, []),
        ("model.eval()", opens_code, []),
        ("yaml.full_load(f)", opens_code, ["calls yaml.full_load"]),
        ("jinja2.Environment()", opens_code, ["renders outside of Jinja's sandbox: jinja2.Environment"]),
        ("jinja2.sandbox.ImmutableSandboxedEnvironment()", opens_code, []),
        ("numpy.load(f, allow_pickle=True)", opens_code, ["reads pickled arrays"]),
        ("eval(text)", opens_code, ["calls eval"]),
        ("from pickle import loads", opens_code, ["imports a pickle module"]),
        ("AutoModel.from_pretrained(p, trust_remote_code=True)", opens_code, ["trusts remote code"]),
        ("server.bind('0.0." + "0.0')", opens_code, ["binds to every interface"]),
        ("try: f()\nexcept Exception: pass", swallows, ["swallows Exception"]),
        ("try: f()\nexcept: pass", swallows, ["swallows everything"]),
        ("try: f()\nexcept Exception as e: raise ValueError from e", swallows, []),
        ("try: f()\nexcept OSError: pass", swallows, []),
        (
            "try: json.loads(text)\nexcept ValueError: pass",
            reads_deep_json,
            ["reads JSON that may be nested too deeply: use load_json"],
        ),
        ("try: json.loads(text)\nexcept (ValueError, RecursionError): pass", reads_deep_json, []),
        ("try: load_json(text)\nexcept ValueError: pass", reads_deep_json, []),
        ("print(text)", prints, ["calls print"]),
        ("sys.stderr.write(text)", prints, ["calls sys.stderr.write"]),
        ("write_line(text)", prints, []),
        (
            "f'go on: quintain resume {folder}'",
            advises_unquoted,
            ["advises a command with folder in it: use write_command"],
        ),
        ("f'quintain resume: got {folder}'", advises_unquoted, []),
        ("f'{write_command(a)} --to hf'", advises_unquoted, []),
        ("run.config['agent']", reads_names, ["reads agent of a configuration"]),
        ("run.config.get('environment', '')", reads_names, ["reads environment of a configuration"]),
        ("run.config['steps']", reads_names, []),
        ("thread.join()", waits_forever, ["waits without a deadline: thread.join()"]),
        ("thread.join(1.0)", waits_forever, []),
        ("self.inbox.get()", waits_forever, ["waits without a deadline: self.inbox.get()"]),
        ("subprocess.run(command)", waits_forever, ["runs a program without a timeout"]),
        ("subprocess.run(command, timeout=9)", waits_forever, []),
        ("def f(a, *, b: int) -> int: ...", is_untyped, ["f is not fully typed"]),
        ("def f(self, a: int) -> None: ...", is_untyped, []),
        ("def told(a): ...", is_participle, ["told does not say what it does: begin with a verb"]),
        (
            "def _measured_alone(a): ...",
            is_participle,
            ["_measured_alone does not say what it does: begin with a verb"],
        ),
        ("def embed(a): ...", is_participle, []),
        ("def has_given(a): ...", is_participle, []),
        ("@property\ndef scored(self): ...", is_participle, []),
        ("class RunManager: ...", is_vague, ["class RunManager says that it manages, not what it does"]),
    ],
)
def test_the_rules_find_what_they_are_for(source: str, rule: Rule, expected: list[str]) -> None:
    assert found_in(source, rule) == expected


@pytest.mark.parametrize("start", ["import quintain", "import quintain.types, quintain.errors"])
def test_importing_quintain_loads_nothing_heavy(start: str) -> None:
    assert loaded_by(start) == []


@pytest.mark.parametrize(
    ("arguments", "allowed"), [(["--help"], []), (["--version"], []), (["train", "--help"], ["pydantic"])]
)
def test_the_command_line_starts_light(arguments: list[str], allowed: list[str]) -> None:
    start = f"from quintain.cli.main import main; raise SystemExit(main({arguments}))"
    loaded = loaded_by(f"try:\n    {start}\nexcept SystemExit as stop:\n    assert not stop.code")
    assert set(loaded) <= set(allowed)


def test_no_method_is_made_of_another_methods_file() -> None:
    """What methods share stands in a room, or in a file of methods that is none; a preset may stand on a method."""
    methods = set(table.MODULES.values())
    presets = {"quintain.methods.quickstart", "quintain.methods.quickstart_real"}
    assert presets < methods
    asked = {
        module: {name if name in methods else name.rpartition(".")[0] for name in imports_of(module, path)}
        for path in MODULES
        if (module := name_of(path)).startswith("quintain.methods.") and module not in presets
    }
    assert len(asked) > len(methods)
    assert {module: names & methods for module, names in asked.items() if names & methods - {module}} == {}


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_step_of_grpo_can_be_read_in_few_files(tmp_path: Path) -> None:
    """From its tasks to the new weights, with its loop and its update: every file of the rooms that say how a method
    learns of which a function runs. What is measured and recorded of a step afterwards is not read to know what it is.
    """
    from quintain.methods.loops.on_policy import Companion
    from quintain.methods.rl import grpo
    from quintain.store.run import Run

    rooms = ("methods", "credit", "losses", "rewards", "learning", "warm_start", "runs")
    ran, updated = set[str](), list[float]()

    def trace(frame: FrameType, _: str, __: object) -> None:
        ran.add(frame.f_code.co_filename)

    class Stops(Companion):
        """Ends the trace once the policy has learned."""

        own_rates, has_teacher = (), False

        def start(self, *_: object) -> Companion:
            return self

        def learn(self, step: int, credit: Credit) -> Mapping[str, float]:
            sys.setprofile(None)
            return {}

        def observe(self, metrics: Mapping[str, float]) -> None:
            updated.append(metrics.get("train/grad_norm", 0.0))

        def update(self, _: Sequence[Group]) -> None: ...

    config = grpo.Config(
        environment=f"{ROOT / 'tests' / 'methods' / 'test_training.py'}:Coin", model="micro", demonstrations=4,
        imitation_epochs=1, steps=2, eval_every=5, eval_episodes=4, max_turn_tokens=16, tasks=2, group_size=4,
        learning_rate=3e-3, records_signals=False,
    )  # fmt: skip
    made = grpo.method(config)

    def collect(collector: Collector, step: int) -> list[Group]:
        sys.setprofile(trace)
        return made.collect(collector, step)

    try:
        with Run.create(tmp_path / "run", recipe="grpo", config=asdict(config)) as run:
            replace(made, collect=collect, companion=Stops()).train(run, config)
    finally:
        sys.setprofile(None)
    assert any(updated), "a step that learned"
    inside = {Path(name).relative_to(PACKAGE) for name in ran if Path(name).is_relative_to(PACKAGE)}
    read = {str(path) for path in inside if path.parts[0] in rooms}
    assert {"methods/rl/grpo.py", "methods/loops/on_policy.py", "learning/update.py"} <= read
    assert len(read) <= MOST_READ, sorted(read)


@pytest.mark.slow
def test_what_trains_loads_nothing_of_evidence_or_of_the_laboratory() -> None:
    start = "import quintain.api, quintain.methods.rl.grpo, quintain.methods.loops.on_policy"
    rooms = ("quintain_evidence", "quintain.credit_lab", "quintain.api")
    assert listed_by(start, f"name.startswith({rooms})") == ["quintain.api"]


def loaded_by(start: str) -> list[str]:
    """Return the heavy packages that a fresh interpreter has loaded after `start`."""
    return listed_by(start, f"name in {HEAVY}")


def listed_by(start: str, which: str) -> list[str]:
    """Return the modules of a fresh interpreter after `start` whose `name` fits the expression `which`."""
    report = f"import sys; print('LOADED', *[name for name in sys.modules if {which}])"
    done = subprocess.run(
        [sys.executable, "-c", f"{start}\n{report}"],
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'evidence' / 'src'}", "PATH": ""},
    )
    return done.stdout.splitlines()[-1].split()[1:]


@pytest.mark.skipif(which("git") is None, reason="git applies the patches")
def test_the_bugs_of_the_mutation_gate_can_be_put_in() -> None:
    for patch in sorted((ROOT / "tests" / "mutations").glob("*.patch")):
        done = subprocess.run(
            ["git", "apply", "--check", str(patch)], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{patch.name}: {done.stderr}"
