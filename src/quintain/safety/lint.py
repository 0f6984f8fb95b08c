"""Agents' sources, read for what fails in production: eight families of defects (after Agentable, arXiv 2412.18371).

Nothing is run: a file is parsed, its tools are found by their decorators and by where they are registered, and a rule
looks at the tree. A finding says line, what is wrong and how it is mended. ``fail`` is what misbehaves as soon as the
case comes; ``note`` is for a person to judge. What rules cannot see, they do not find: a clean file is no proof.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from quintain.errors import UsageError
from quintain.types.findings import Finding, State

CALLS_MODEL = (
    "create",
    "parse",
    "stream",
    "complete",
    "completion",
    "acompletion",
    "generate",
    "invoke",
    "run_sync",
)
"""Last names of calls that ask a model."""
CLIENTS = frozenset(
    {"OpenAI", "AsyncOpenAI", "Anthropic", "AsyncAnthropic", "Client", "AsyncClient", "ChatOpenAI"}
)
TOOL_MARKS = frozenset(
    {"tool", "function_tool", "tool_plain", "register_tool", "StructuredTool", "FunctionTool", "Tool"}
)
CATCHES = frozenset({"ValueError", "JSONDecodeError", "Exception", "TypeError", "KeyError"})
READS = frozenset({"tool_calls", "function_call", "tool_use", "output", "stop_reason"})
"""What of an answer is looked at by whoever looks for calls in it."""
SECRET = re.compile(r"(?<![\w-])(sk-|ghp_|hf_|AKIA|xox[bp]-)[\w-]{12,}")
PLACEHOLDER = re.compile(r"(?<!\{)\{[a-z_]\w*\}(?!\})")
DANGEROUS = {
    "eval": "evaluates text", "exec": "runs text as code", "os.system": "runs text in a shell",
    "pickle.load": "can run code", "pickle.loads": "can run code", "yaml.load": "can run code",
}  # fmt: skip
EVERYBODY = ".".join("0000")
"""The address that every interface has."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
MIN_WORDS = 3
"""Words that a description of a tool has at least."""


def lint_agent(path: Path) -> list[Finding]:
    """Return what is found in the Python file, or in those below the folder, at `path`.

    Raises:
        UsageError: there is no Python file.
    """
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise UsageError(
            f"agent: got {str(path)!r}, and there is no Python file; give AGENT.py or a folder with some"
        )
    found = [finding for file in files for finding in lint_source(file.read_bytes(), file.name)]
    if path.is_dir():
        found += list(_find_unpinned(path))
    return found or [Finding("production", "pass", f"{len(files)} files, nothing found")]


def lint_source(text: str | bytes, name: str) -> list[Finding]:
    """Return what is found in the source `text` of the file `name`, by line; bytes are decoded as Python would."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [Finding("source", "fail", f"{name}: it cannot be parsed ({error}); mend it")]
    source = _Source(tree)
    rows = sorted(set(source.find_all()))
    return [Finding(rule, state, f"{name}:{line}: {detail}") for line, rule, state, detail in rows]


Row = tuple[int, str, State, str]
"""line, rule, how bad, what and its mend"""


class _Source:
    """A parsed file: its tools, its calls of models, what its names stand for, and what is around each node."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.functions = {node.name: node for node in ast.walk(tree) if isinstance(node, Function)}
        self.aliases = dict(_find_aliases(tree))
        self.settings = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        self.calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        self.asked = [call for call in self.calls if self._asks_model(call)]
        self.asking = self._find_asking()
        self.tools = list(self._find_tools())

    def find_all(self) -> Iterator[Row]:
        """Yield what every rule finds."""
        yield from self.check_descriptions()
        yield from self.check_returns()
        yield from self.check_parsing()
        yield from self.check_stops()
        yield from self.check_faults()
        yield from self.check_calls()
        yield from self.check_prompts()
        yield from self.check_hardening()

    def check_descriptions(self) -> Iterator[Row]:
        """Yield tools that a model cannot know how to use: no description, no types, one name or description twice."""
        described: dict[str, list[Function]] = {}
        for tool in self.tools:
            text = " ".join((ast.get_docstring(tool) or "").split())
            if len(text.split()) < MIN_WORDS:
                yield (
                    tool.lineno,
                    "tool description",
                    "fail",
                    f"the tool {tool.name} says not what it does; write a docstring",
                )
            else:
                described.setdefault(text, []).append(tool)
            arguments = [*tool.args.posonlyargs, *tool.args.args, *tool.args.kwonlyargs]
            for each in arguments:
                if each.annotation is None and each.arg not in ("self", "cls", "ctx", "context"):
                    yield (
                        tool.lineno,
                        "tool description",
                        "fail",
                        f"{each.arg} of the tool {tool.name} has no type; annotate it",
                    )
        for same in described.values():
            if len(same) > 1:
                names = " and ".join(tool.name for tool in same)
                yield (
                    same[-1].lineno,
                    "tool description",
                    "fail",
                    f"the tools {names} say the same of themselves; say how they differ",
                )
        rows = [node for node in ast.walk(self.tree) if isinstance(node, ast.Dict)]
        named: Counter[str] = Counter()
        for row in rows:
            keys = {
                key.value: value
                for key, value in zip(row.keys, row.values, strict=True)
                if isinstance(key, ast.Constant)
            }
            if "name" in keys and ("parameters" in keys or "input_schema" in keys):
                said = keys.get("description")
                if said is None or (
                    isinstance(said, ast.Constant) and len(str(said.value).split()) < MIN_WORDS
                ):
                    yield (
                        row.lineno,
                        "tool description",
                        "fail",
                        "a tool's schema has no description; say what it does and when",
                    )
                if isinstance(keys["name"], ast.Constant):
                    named[str(keys["name"].value)] += 1
                    if named[str(keys["name"].value)] == 2:
                        yield (
                            row.lineno,
                            "tool description",
                            "fail",
                            f"two tools are called {keys['name'].value}; rename one",
                        )

    def check_returns(self) -> Iterator[Row]:
        """Yield tools of which a path returns nothing, while others return something."""
        for tool in self.tools:
            own = [
                node
                for node in ast.walk(tool)
                if isinstance(node, ast.Return) and self._function_of(node) is tool
            ]
            gives = [node for node in own if node.value is not None and not _is_none(node.value)]
            empty = [node for node in own if node not in gives]
            if gives and empty:
                yield (
                    empty[0].lineno,
                    "tool result",
                    "fail",
                    f"a path of the tool {tool.name} returns nothing; return a text that says so",
                )
            elif gives and not _always_ends(tool.body):
                yield (
                    tool.lineno,
                    "tool result",
                    "fail",
                    f"the tool {tool.name} may end without a result; return a text on every path",
                )

    def check_parsing(self) -> Iterator[Row]:
        """Yield what a model wrote that is parsed as if it could not be wrong."""
        if not self.asked:
            return
        for call in self.calls:
            if self._name(call.func) in (
                "json.loads",
                "loads",
                "literal_eval",
                "ast.literal_eval",
            ) and not (self._is_caught(call) or _reads_file(call)):
                yield (
                    call.lineno,
                    "output parsing",
                    "fail",
                    "what the model wrote is parsed and may be no JSON; catch ValueError and tell the model",
                )
        for node in ast.walk(self.tree):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.value, ast.Call)
                and not self._is_caught(node)
            ):
                called = self._name(node.value.func)
                if (
                    called.endswith((".split", ".findall"))
                    and isinstance(node.slice, ast.Constant)
                    and node.slice.value not in (0, -1)
                ):
                    yield (
                        node.lineno,
                        "output parsing",
                        "note",
                        "a part of a split text may not be there; look how many there are",
                    )

    def check_stops(self) -> Iterator[Row]:
        """Yield stop words that a tool's own results hold."""
        stops = [
            str(each.value)
            for call in self.calls
            for word in call.keywords
            if word.arg in ("stop", "stop_sequences")
            for each in ast.walk(self._value(word.value))
            if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        for tool in self.tools:
            for node in ast.walk(tool):
                if isinstance(node, ast.Return) and node.value is not None:
                    texts = [
                        str(each.value) for each in ast.walk(node.value) if isinstance(each, ast.Constant)
                    ]
                    for stop in stops:
                        if stop and any(stop in text for text in texts):
                            yield (
                                node.lineno,
                                "stop word",
                                "fail",
                                f"the stop word {stop!r} is in a result of the tool {tool.name}; take another",
                            )

    def check_faults(self) -> Iterator[Row]:
        """Yield faults that are swallowed, and loops and requests without a bound."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ExceptHandler):
                is_wide = node.type is None or self._name(node.type) in ("Exception", "BaseException")
                if is_wide and all(isinstance(each, (ast.Pass, ast.Continue)) for each in node.body):
                    yield (
                        node.lineno,
                        "fault tolerance",
                        "fail",
                        "every error is swallowed here; catch what you expect, and say it",
                    )
            if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
                asks = any(
                    self._leads_to_model(call) for call in ast.walk(node) if isinstance(call, ast.Call)
                )
                if asks and not _counts(node):
                    yield (
                        node.lineno,
                        "fault tolerance",
                        "fail",
                        "the model is asked in a loop without a limit; use for _ in range(…)",
                    )
        for call in self.calls:
            if self._name(call.func).rpartition(".")[2] in CLIENTS:
                words = {word.arg for word in call.keywords}
                if "timeout" not in words and None not in words:
                    yield (
                        call.lineno,
                        "fault tolerance",
                        "note",
                        "the client has no timeout of its own; give timeout=",
                    )

    def check_calls(self) -> Iterator[Row]:
        """Yield requests that misuse a model's interface."""
        for call in self.asked:
            words = {word.arg: self._value(word.value) for word in call.keywords}
            for name, low, high in (("temperature", 0.0, 2.0), ("top_p", 0.0, 1.0)):
                value = words.get(name)
                if (
                    isinstance(value, ast.Constant)
                    and isinstance(value.value, (int, float))
                    and not low <= value.value <= high
                ):
                    yield (
                        call.lineno,
                        "model interface",
                        "fail",
                        f"{name}={value.value} is out of its range; give {low:g} to {high:g}",
                    )
            if "messages" in words and not words.keys() & {"max_tokens", "max_completion_tokens", None}:
                yield (
                    call.lineno,
                    "model and context",
                    "note",
                    "an answer has no limit of tokens; give max_tokens=",
                )
            if isinstance(words.get("model"), ast.Constant) and not words["model"].value:  # pyright: ignore[reportAttributeAccessIssue]
                yield call.lineno, "model and context", "fail", "the request names no model; give its name"
            if "tools" in words and not self._reads_calls():
                yield (
                    call.lineno,
                    "model interface",
                    "fail",
                    "tools are offered, and nothing looks for tool calls in the answer; read them",
                )

    def check_prompts(self) -> Iterator[Row]:
        """Yield prompts in which a place for a value was not filled."""
        for node in (each for each in ast.walk(self.tree) if isinstance(each, ast.Dict)):
            for key, value in zip(node.keys, node.values, strict=True):
                if not (isinstance(key, ast.Constant) and key.value == "content"):
                    continue
                given = self._value(value)
                text = given.value if isinstance(given, ast.Constant) else None
                found = PLACEHOLDER.search(text) if isinstance(text, str) else None
                if found:
                    yield (
                        value.lineno,
                        "prompt",
                        "fail",
                        f"{found[0]} in a message is never filled; write an f-string",
                    )

    def check_hardening(self) -> Iterator[Row]:
        """Yield what nobody leaves open in production."""
        for call in self.calls:
            name = self._name(call.func)
            if name in DANGEROUS and not (
                name == "yaml.load" and any(w.arg == "Loader" for w in call.keywords)
            ):
                yield (
                    call.lineno,
                    "hardening",
                    "fail",
                    f"{name} {DANGEROUS[name]}; use a sandbox, or data that cannot run",
                )
            for word in call.keywords:
                value = word.value.value if isinstance(word.value, ast.Constant) else None
                if (word.arg, value) == ("shell", True):
                    yield (
                        call.lineno,
                        "hardening",
                        "fail",
                        "a shell reads what may be a model's text; give a list of arguments",
                    )
                if (word.arg, value) == ("verify", False):
                    yield call.lineno, "hardening", "fail", "certificates are not looked at; leave verify out"
                if (word.arg, value) == ("host", EVERYBODY):
                    yield (
                        call.lineno,
                        "hardening",
                        "note",
                        "it listens for everybody; give an address, and a token",
                    )
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and SECRET.search(node.value):
                yield (
                    node.lineno,
                    "hardening",
                    "fail",
                    "a key stands in the source; read it from a file or the environment",
                )

    def _asks_model(self, call: ast.Call) -> bool:
        """Whether `call` asks a model for an answer."""
        name = self._name(call.func)
        words = {word.arg for word in call.keywords}
        return name.rpartition(".")[2] in CALLS_MODEL and bool(
            words & {"messages", "prompt", "input", "model"}
        )

    def _name(self, node: ast.AST) -> str:
        """Return the dotted name that `node` is, by the name that it was imported under."""
        first, dot, rest = _name_of(node).partition(".")
        return f"{self.aliases.get(first, first)}{dot}{rest}"

    def _value(self, node: ast.expr) -> ast.expr:
        """Return what `node` stands for: itself, or what a name of the module was set to."""
        return self.settings.get(node.id, node) if isinstance(node, ast.Name) else node

    def _find_asking(self) -> set[str]:
        """Return the names of the functions that ask a model, by themselves or through others."""
        found: set[str] = set()
        calls = {
            name: [each for each in ast.walk(node) if isinstance(each, ast.Call)]
            for name, node in self.functions.items()
        }
        while True:
            more = {
                name
                for name, own in calls.items()
                if any(call in self.asked or _get_callee(call) in found for call in own)
            }
            if more <= found:
                return found
            found |= more

    def _leads_to_model(self, call: ast.Call) -> bool:
        """Whether `call` asks a model, or calls a function of the file that does."""
        return call in self.asked or _get_callee(call) in self.asking

    def _find_tools(self) -> Iterator[Function]:
        """Yield the functions that are tools: marked so, or handed over as tools by name."""
        handed: set[str] = set()
        for call in self.calls:
            is_maker = self._name(call.func).rpartition(".")[2] in {
                *TOOL_MARKS,
                "from_function",
                "from_defaults",
            }
            given = [word.value for word in call.keywords if word.arg in ("tools", "functions", "func", "fn")]
            given += list(call.args[:1]) if is_maker else []
            handed |= {name for value in given for name in _names_in(value)}
        lists = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and isinstance(node.value, (ast.List, ast.Tuple, ast.ListComp))
        ]
        for node in lists:
            if any(isinstance(target, ast.Name) and target.id in handed for target in node.targets):
                handed |= {*_names_in(node.value)}
        for function in self.functions.values():
            marks = {
                self._name(each.func if isinstance(each, ast.Call) else each).rpartition(".")[2]
                for each in function.decorator_list
            }
            if marks & TOOL_MARKS or function.name in handed:
                yield function

    def _function_of(self, node: ast.AST) -> ast.AST | None:
        """Return the function that `node` is in."""
        at = self.parents.get(node)
        while at is not None and not isinstance(at, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            at = self.parents.get(at)
        return at

    def _is_caught(self, node: ast.AST) -> bool:
        """Whether what `node` raises is caught around it, in its function."""
        child, at = node, self.parents.get(node)
        while at is not None and not isinstance(at, Function):
            if isinstance(at, ast.Try) and child in at.body:
                names = {
                    self._name(part).rpartition(".")[2]
                    for handler in at.handlers
                    for part in (handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type])
                    if part is not None
                }
                if names & CATCHES or any(handler.type is None for handler in at.handlers):
                    return True
            child, at = at, self.parents.get(at)
        return False

    def _reads_calls(self) -> bool:
        """Whether the file looks at tool calls anywhere."""
        return any(
            (isinstance(node, ast.Attribute) and node.attr in READS)
            or (isinstance(node, ast.Constant) and node.value in READS)
            for node in ast.walk(self.tree)
        )


def _find_aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield names that something is imported under, and what that is called where it comes from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((each.asname or each.name, f"{node.module}.{each.name}") for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.asname, each.name) for each in node.names if each.asname)


def _reads_file(call: ast.Call) -> bool:
    """Whether what `call` is given was just read from a file, which no model wrote."""
    inner = [node for value in call.args for node in ast.walk(value) if isinstance(node, ast.Call)]
    return any(
        _name_of(each.func).rpartition(".")[2] in ("read_text", "read_bytes", "open") for each in inner
    )


def _get_callee(call: ast.Call) -> str:
    """Return the name of the function, or of the method of the same object, that is called; empty for all others."""
    name = _name_of(call.func).removeprefix("self.").removeprefix("cls.")
    return "" if "." in name else name


def _names_in(value: ast.expr) -> Iterator[str]:
    """Yield the names that `value` holds; what it calls to be made is none of them."""
    called = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and id(node) not in called:
            yield node.id


def _find_unpinned(folder: Path) -> Iterator[Finding]:
    """Yield requirements of the agent in `folder` that may be another version tomorrow."""
    for file in sorted(folder.glob("requirements*.txt")):
        for number, line in enumerate(
            file.read_text(encoding="utf-8", errors="replace").splitlines(), start=1
        ):
            text = line.partition("#")[0].strip()
            if text and not text.startswith("-") and "==" not in text and "@" not in text:
                yield Finding(
                    "dependency", "note", f"{file.name}:{number}: {text} has no version; pin it with =="
                )


def _name_of(node: ast.AST) -> str:
    """Return the dotted name that `node` is: ``client.chat.completions.create``; ``.create`` of what has no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_name_of(node.value)}.{node.attr}"
    return ""


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _always_ends(body: Sequence[ast.stmt]) -> bool:
    """Whether `body` always returns or raises: one of its statements does."""
    return any(map(_ends, body))


def _ends(statement: ast.stmt) -> bool:
    """Whether nothing that stands behind `statement` is reached."""
    if isinstance(statement, (ast.Return, ast.Raise)):
        return True
    if isinstance(statement, ast.If):
        return bool(statement.orelse) and _always_ends(statement.body) and _always_ends(statement.orelse)
    if isinstance(statement, ast.Try):
        main = _always_ends([*statement.body, *statement.orelse]) and all(
            _always_ends(each.body) for each in statement.handlers
        )
        return main or _always_ends(statement.finalbody)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return _always_ends(statement.body)
    if isinstance(statement, ast.Match):
        has_rest = any(
            isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None and case.guard is None
            for case in statement.cases
        )
        return has_rest and all(_always_ends(case.body) for case in statement.cases)
    is_endless = (
        isinstance(statement, ast.While)
        and isinstance(statement.test, ast.Constant)
        and bool(statement.test.value)
    )
    return is_endless and not _breaks(statement)


def _breaks(node: ast.AST) -> bool:
    """Whether a break that stands in `node`, a loop, leaves it."""
    return any(
        isinstance(child, ast.Break)
        or (not isinstance(child, (ast.For, ast.AsyncFor, ast.While)) and _breaks(child))
        for child in ast.iter_child_nodes(node)
    )


def _counts(loop: ast.While) -> bool:
    """Whether a number grows in `loop` and is compared there."""
    grown = {
        node.target.id
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    compared = {
        part.id
        for node in ast.walk(loop)
        if isinstance(node, ast.Compare)
        for part in ast.walk(node)
        if isinstance(part, ast.Name)
    }
    return bool(grown & compared)
