"""Generated interfaces between an agent and its environment, which add text and nothing else: ALIGN (2505.21055).

An interface is Python that a model or a miner wrote, with two functions:

    def rules():
        'Say what holds in the environment.'
        return "open needs knock first."

    def wrap_step(env, action):
        'Carry out the action, and say what it may have lacked.'
        observation, reward, done = env.step(action)
        if observation.startswith("Nothing happens"):
            observation += " open needs knock first."
        return observation, reward, done

What `rules` says stands behind the first observation, what `wrap_step` adds behind every later one. `load_interface`
is the only way to one, and refuses whatever cheats with one line. Its source is read first (`check_source`): no
imports, no names, attributes or loops but a short list. Then it runs over recorded steps (`check_steps`) in the
sandbox, without the environment: ``env.step`` gives back what was recorded. So it shows whether the action was carried
out once and as it was, whether reward and end are the environment's, whether the text hangs on them, and whether
what was seen still stands in it. In an episode the environment has acted before it is asked, and of its answer the
added text alone is used: nothing that it does can change a transition or a reward. Where it fails, nothing is added.

Differences to the paper: its functions get the task, and theirs may say anything in the place of what was seen, act
more than once or not at all, remember earlier steps, and run beside the agent. Text that depended on the task could
say what to do.
"""

from __future__ import annotations

import ast
import logging
import threading
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from quintain.agents.deliberation import Deliberation, describe_action, with_words
from quintain.agents.protocol import Agent, Brief, Prompt
from quintain.errors import UsageError
from quintain.safety.limits import Limits
from quintain.safety.python import PythonProcess
from quintain.types import Action, Completion, Observation, as_text
from quintain.types.json_text import load_json

_log = logging.getLogger(__name__)
FUNCTIONS: Mapping[str, tuple[str, ...]] = {"rules": (), "wrap_step": ("env", "action")}
"""What an interface has to define → its arguments."""
MAX_SOURCE, MAX_LINE, MAX_TEXT, MAX_KNOWN = 4_000, 120, 600, 4_096
"""Characters of a source, of a line of it, and of a text that is added; answers that are remembered."""
NAMES = frozenset([
    "abs", "all", "any", "bool", "dict", "enumerate", "filter", "float", "frozenset", "int", "isinstance", "len",
    "list", "map", "max", "min", "next", "range", "repr", "reversed", "round", "set", "sorted", "str", "sum", "tuple",
    "zip", "Exception", "IndexError", "KeyError", "TypeError", "ValueError",
])  # fmt: skip
"""What of Python's own names it may use; it sees no others."""
ATTRIBUTES = frozenset(
    name for kind in (str, list, dict, set, tuple) for name in dir(kind) if not name.startswith("_")
) - {"format", "format_map"} | {"step"}  # fmt: skip
REFUSED: Mapping[type[ast.AST], str] = {
    ast.Import: "an import", ast.ImportFrom: "an import", ast.While: "a loop that may not end",
    ast.Global: "a variable that outlives a step", ast.Nonlocal: "a variable that outlives a step",
    ast.ClassDef: "a class", ast.AsyncFunctionDef: "a coroutine", ast.Await: "a coroutine", ast.With: "a with block",
    ast.Yield: "a generator", ast.YieldFrom: "a generator", ast.Delete: "a deletion",
}  # fmt: skip
HONEST = "return what env.step(action) gave, with text behind the observation at most"
PLAIN = "use env.step, methods of text and plain Python"
DRIVER = '''
import builtins, json

def ask(name, action, played):
    """Run a function in a namespace of its own, and print what it returned and which actions it took."""
    space = {"__builtins__": {each: getattr(builtins, each) for each in NAMES}}
    exec(CODE, space)
    asked = []

    class Environment:
        def step(self, action):
            asked.append(action)
            return tuple(played)

    said = space[name](Environment(), action) if name == "wrap_step" else space[name]()
    print(json.dumps([said, asked], default=repr))
'''
"""What runs in the sandbox around an interface."""


class Step(NamedTuple):
    """What an action came to: ``Step("open", "Nothing happens.", has_worked=False)``."""

    action: str
    observation: str
    reward: float = 0.0
    is_done: bool = False
    has_worked: bool = True


PROBES = (
    Step("look", "A table.", 0.5),
    Step("take mug", "Nothing happens. A table.", has_worked=False),
    Step("put", "Done.", 1.0, is_done=True),
)
"""Steps that every interface is tried on."""


def check_source(source: str) -> None:
    """Refuse a source that is no interface, is hard to read, or reaches for more than what it is given.

    Raises:
        UsageError: says what and where.
    """
    if len(source) > MAX_SOURCE:
        raise refuse(f"{len(source)} characters", f"write {MAX_SOURCE} at most")
    if (longest := max(map(len, source.splitlines()), default=0)) > MAX_LINE:
        raise refuse(f"a line of {longest} characters", f"write {MAX_LINE} at most")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise refuse(
            f"no Python ({error})", f"write the functions {' and '.join(FUNCTIONS)} alone"
        ) from error
    nodes = list(ast.walk(tree))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    own |= {
        node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ExceptHandler)) and node.name
    }
    for node in sorted(nodes, key=_place):
        _check_node(node, own | NAMES)
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, arguments in FUNCTIONS.items():
        found = functions.get(name)
        if found is None or tuple(each.arg for each in found.args.args) != arguments:
            raise refuse(f"no function {name}({', '.join(arguments)})", "define it")
    for node in tree.body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.FunctionDef) and not ast.get_docstring(node):
            raise refuse(f"{node.name} without a docstring", "say what it does")
        if not is_text and not isinstance(node, ast.FunctionDef) and not _is_written_out(node):
            raise refuse(f"line {node.lineno} outside of a function", "leave functions and values there")


def _place(node: ast.AST) -> tuple[int, int, bool]:
    """Return where `node` stands: what an attribute is taken of comes before it."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0), isinstance(node, ast.Attribute)


def _is_written_out(node: ast.stmt) -> bool:
    """Whether `node` sets a variable to a value that is not computed."""
    if not isinstance(node, ast.Assign):
        return False
    try:
        ast.literal_eval(node.value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _check_node(node: ast.AST, names: set[str]) -> None:
    """Refuse what no text needs; `names` are known."""
    line = getattr(node, "lineno", 0)
    if type(node) in REFUSED:
        raise refuse(f"{REFUSED[type(node)]} in line {line}", PLAIN)
    if isinstance(node, ast.FunctionDef):
        given = node.args
        if node.decorator_list or given.defaults or given.kwonlyargs or given.vararg or given.kwarg:
            raise refuse(f"{node.name} with more than plain arguments", "leave out decorators and defaults")
    name = node.id if isinstance(node, ast.Name) else node.arg if isinstance(node, ast.arg) else ""
    if name and (name not in names or (name.startswith("_") and name != "_")):
        raise refuse(f"the name {name!r} in line {line}", PLAIN)
    if isinstance(node, ast.Attribute) and (
        node.attr not in ATTRIBUTES or not isinstance(node.ctx, ast.Load)
    ):
        raise refuse(f"the hidden attribute {node.attr!r} in line {line}", PLAIN)


def refuse(what: str, instead: str) -> UsageError:
    """Return the error that an interface is refused with."""
    return UsageError(f"interface: got {what}; {instead}")


class Reply(NamedTuple):
    """What an interface adds to an observation, or what is wrong with its answer: ``Reply("open needs knock.")``."""

    text: str
    fault: str = ""


class Interface:
    """A source in the sandbox, made by `load_interface`; ``.explain("open", "Nothing happens.")`` adds text."""

    def __init__(self, source: str, *, seconds: float = 10.0) -> None:
        """Let a call of `source` take so many `seconds`. Nothing runs yet."""
        self.source = source
        self.faults = Counter[str]()
        """what was wrong in episodes, and how often"""
        setup = f"NAMES = {sorted(NAMES)!r}\nCODE = compile({source!r}, 'interface', 'exec')\n{DRIVER}"
        self._python = PythonProcess(Limits(seconds=seconds), setup=setup)
        self._rules: Reply | None = None
        self._known: dict[tuple[str, str], Reply] = {}
        self._lock, self._is_killed = threading.Lock(), False
        weakref.finalize(self, self._python.close)

    def read_rules(self) -> Reply:
        """Return what holds in the environment; asked for once."""
        if self._rules is None:
            found = self._ask("rules", "", ())
            if isinstance(found, str):
                self._rules = Reply("", found)
            elif not isinstance(found[0], str) or len(found[0]) > MAX_TEXT:
                self._rules = Reply("", f"rules that are no text of {MAX_TEXT} characters at most")
            else:
                self._rules = Reply(found[0].strip())
        return self._rules

    def play(self, step: Step) -> Reply:
        """Return what is added to a recorded `step`, or what is wrong."""
        found = self._ask("wrap_step", step.action, step[1:4])
        if isinstance(found, str):
            return Reply("", found)
        said, asked = found
        if asked != [step.action]:
            carried = ", ".join(map(repr, asked)) or "nothing, and an answer without the environment"
            return Reply("", f"the action {step.action!r}, of which it carried out {carried}"[:200])
        if not isinstance(said, list) or len(cast("list[Any]", said)) != 3 or not isinstance(said[0], str):
            return Reply("", f"the answer {said!r:.60} in the place of observation, reward and end")
        text, reward, is_done = cast("list[Any]", said)
        if reward != step.reward:
            return Reply("", f"a reward of {reward!r:.20} where the environment paid {step.reward:g}")
        if is_done != step.is_done:
            return Reply("", f"an end ({is_done!r:.20}) that is not the environment's ({step.is_done})")
        place = text.find(step.observation)
        if place < 0:
            return Reply("", f"an observation without what was seen after {step.action[:40]!r}")
        added = f"{text[:place].strip()} {text[place + len(step.observation) :].strip()}".strip()
        if len(added) > MAX_TEXT:
            return Reply("", f"{len(added)} characters more after an action, above {MAX_TEXT}")
        return Reply(added)

    def explain(self, action: str, observation: str) -> str:
        """Return what is added in an episode; nothing, and a fault more, where the answer is wrong."""
        asked = (action, observation)
        if asked not in self._known:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[asked] = self.play(Step(action, observation))
        reply = self._known[asked]
        if reply.fault:
            self.faults[reply.fault] += 1
            if self.faults[reply.fault] == 1:
                _log.warning("interface: got %s; nothing is added there", reply.fault)
        return reply.text

    def _ask(self, name: str, action: str, played: Sequence[Any]) -> tuple[Any, list[Any]] | str:
        """Return what a function returned and which actions it took, or what went wrong."""
        with self._lock:
            if self._is_killed:
                return "another call after one that was ended"
            cell = self._python.run(f"ask({name!r}, {action!r}, {tuple(played)!r})")
            if cell.was_killed:
                self._is_killed = True
                return f"a call that was ended ({cell.reason})"
        if cell.error:
            return f"a call that raised {cell.error.strip().splitlines()[-1][:80]}"
        try:
            said, asked = load_json(cell.output)
        except (ValueError, TypeError):
            return "an answer that cannot be read"
        return said, asked

    def close(self) -> None:
        """End the process; may be repeated."""
        self._python.close()


def check_steps(interface: Interface, steps: Sequence[Step]) -> None:
    """Refuse an interface under which recorded `steps` were others, or which tells what they paid.

    Each is played as it was, and with another reward and end: both are handed on, and the text is the same.

    Raises:
        UsageError: says what.
    """
    if fault := interface.read_rules().fault:
        raise refuse(fault, "return a short text")
    for step in dict.fromkeys((*PROBES, *steps)):
        as_was = interface.play(step)
        other = interface.play(step._replace(reward=step.reward + 1.0, is_done=not step.is_done))
        if fault := as_was.fault or other.fault:
            raise refuse(fault, HONEST)
        if as_was.text != other.text:
            raise refuse(f"a text after {step.action[:40]!r} that tells reward or end", HONEST)


def load_interface(source: str, steps: Sequence[Step] = ()) -> Interface:
    """Return the interface that `source` writes, once it was read, and played over recorded `steps`.

    Raises:
        UsageError: it is refused; says why in one line.
        SandboxError: isolation is missing.
    """
    check_source(source)
    made = Interface(source)
    try:
        check_steps(made, steps)
    except BaseException:
        made.close()
        raise
    return made


@dataclass(frozen=True, slots=True)
class Interfaced:
    """A harness behind a generated interface: ``interface?file=interface.txt+text``."""

    agent: Agent
    file: str = ""
    """File of the interface, as a run of `align` keeps one; empty: nothing is added."""
    interface: Interface | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Read and check the file, where one is named.

        Raises:
            UsageError: there is none, or it is refused.
        """
        if self.file:
            if not Path(self.file).is_file():
                raise UsageError(f"interface: got {self.file!r}, which is no file; name one that is there")
            text = Path(self.file).read_text(encoding="utf-8", errors="replace")
            object.__setattr__(self, "interface", load_interface(text))

    def open(self, brief: Brief) -> InterfacedSession:
        """See `Agent.open`."""
        return InterfacedSession(self, brief)


def put_interface(agent: Agent, interface: Interface | None) -> Interfaced:
    """Return `agent` behind `interface`."""
    made = Interfaced(agent)
    object.__setattr__(made, "interface", interface)
    return made


class InterfacedSession(Deliberation):
    """An episode of `Interfaced`."""

    def __init__(self, settings: Interfaced, brief: Brief) -> None:
        """Open the inner session."""
        super().__init__(settings.agent, brief)
        self._interface = settings.interface
        self._action: str | None = None

    def observe(self, observation: Observation, legal_actions: tuple[str, ...] = ()) -> Prompt:
        """See `Session.observe`; what the interface says stands below."""
        said = ""
        if self._interface is not None and self._action is None:
            said = self._interface.read_rules().text
        elif self._interface is not None and self._action is not None:
            said = self._interface.explain(self._action, as_text(observation))
        return super().observe(with_words(observation, said) if said else observation, legal_actions)

    def read(self, completion: Completion) -> Action:
        """See `Session.read`; the action stays as it is."""
        action = self._inner_read(completion)
        if self._next is None:
            self._action = describe_action(action)
        return action
