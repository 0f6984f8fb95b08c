"""Agentable: defects of agents are found in rewritten sources; lines that look alike are not, and clean twins pass.

One agent of forty lines, which works, gets one of ten defects; both are rewritten in one of eight ways that keep what
they do. A defect counts only where it misbehaves: every twin of the first replication is run against a scripted model,
the dirty one must do what its defect is about and the clean one must not. The lint has found a defect where it says
`fail` by the rule that the defect is about. The control has as many findings, on files drawn at random; the rival is a
lint of lines: a pattern for each rule, without a tree of the program.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

from quintain.safety.lint import lint_source
from quintain.types import derive_seed

AGENT = '''
import json

from kit import client, function_tool

ORDERS = {7: "a lamp", 8: "a tent"}


@function_tool
def find_order(number: int) -> str:
    """Find an order of the shop by its number."""
    if number in ORDERS:
        return f"Order {number}: {ORDERS[number]}"
    return "There is no such order."


@function_tool
def find_customer(name: str) -> str:
    """Find a customer of the shop by a name."""
    return f"{name} has order 7."


TOOLS = [find_order, find_customer]


def read_answer(text):
    try:
        return json.loads(text)
    except ValueError:
        return {"answer": text}


def use(call):
    by_name = {tool.__name__: tool for tool in TOOLS}
    return by_name[call.name](*call.arguments)


def ask(messages):
    reply = client.chat.completions.create(
        model="m", messages=messages, tools=TOOLS, temperature=0.7, stop=["DONE"], max_tokens=200
    )
    return reply


def run(question, person):
    messages = [
        {"role": "system", "content": f"You help {person}."},
        {"role": "user", "content": question},
    ]
    for _ in range(8):
        try:
            reply = ask(messages)
        except ConnectionError as error:
            return {"error": str(error)}
        if not reply.tool_calls:
            return read_answer(reply.content)
        for call in reply.tool_calls:
            messages.append({"role": "tool", "content": use(call)})
    return {"error": "too many turns"}
'''
TRY = """    try:
        return json.loads(text)
    except ValueError:
        return {"answer": text}
"""
READ = """        if not reply.tool_calls:
            return read_answer(reply.content)
        for call in reply.tool_calls:
            messages.append({"role": "tool", "content": use(call)})
"""
DEFECTS: Mapping[str, tuple[str, str, str]] = {
    "no description": ("tool description", '    """Find an order of the shop by its number."""\n', ""),
    "same description": ("tool description", "a customer of the shop by a name", "an order of the shop by its number"),
    "no result": ("tool result", '    return "There is no such order."\n', "    ORDERS.get(number)\n"),
    "no JSON": ("output parsing", TRY, "    return json.loads(text)\n"),
    "stop word": ("stop word", "has order 7.", "has order 7. DONE"),
    "swallowed": (
        "fault tolerance",
        '        except ConnectionError as error:\n            return {"error": str(error)}\n',
        "        except Exception:\n            continue\n",
    ),
    "endless": ("fault tolerance", "for _ in range(8):", "while True:"),
    "calls unread": ("model interface", READ, "        return read_answer(reply.content)\n"),
    "range": ("model interface", "temperature=0.7", "temperature=7"),
    "unfilled": ("prompt", 'f"You help {person}."', '"You help {person}."'),
}  # fmt: skip
"""defect → the rule that is about it, and what it puts in the place of what"""
LINES: Mapping[str, str] = {
    "tool description": r'"""\s*"""',
    "tool result": r"return( None)?$",
    "output parsing": r"json\.loads\(",
    "stop word": r"return .*DONE",
    "fault tolerance": r"while True|except( Exception)?:$",
    "model interface": r"temperature=([3-9]|\d\d)",
    "prompt": r"""(?<!f)["'][^"'{]*\{[a-z_]+\}""",
}
"""rule → a line that looks like its defect"""
MOST_CALLS = 60


# rewrites: they keep what the program does


def rename(tree: ast.Module, rng: Random) -> ast.Module:
    """Give every function, argument and variable of the agent another name."""
    methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    own = methods | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)} - {"self"}
    own |= {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    letters = [chr(97 + k) + chr(97 + j) for k in range(26) for j in range(26)]
    names = dict(
        zip(sorted(own), (f"{each}_{k}" for k, each in enumerate(rng.sample(letters, len(own)))), strict=True)
    )
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.FunctionDef):
            node.name = names.get(node.name, node.name)
        elif isinstance(node, ast.Attribute) and node.attr in methods:
            node.attr = names[node.attr]
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
    return tree


def inline(tree: ast.Module, _rng: Random) -> ast.Module:
    """Return what is asked of the model at once, and put the tools where they are named."""
    text = ast.unparse(tree)
    text = re.sub(r"    reply = (client\..*)\n    return reply", r"    return \1", text)
    found = re.search(r"^TOOLS = (\[.*\])\n", text, re.M)
    assert found is not None, "the agent has a list of tools"
    text = text.replace(found[0], "").replace("TOOLS", found[1])
    return ast.parse(text)


def extract(tree: ast.Module, _rng: Random) -> ast.Module:
    """Give every constant that is handed over, and every text of a message, a name at the top."""
    made: list[ast.stmt] = []

    def name_setting(value: ast.expr) -> ast.expr:
        name = f"SETTING_{len(made)}"
        made.append(ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=value, lineno=1))
        return ast.Name(id=name, ctx=ast.Load())

    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for word in node.keywords:
                parts = word.value.elts if isinstance(word.value, ast.List) else [word.value]
                if all(isinstance(part, ast.Constant) for part in parts):
                    word.value = name_setting(word.value)
        if isinstance(node, ast.Dict):
            for place, (key, value) in enumerate(zip(node.keys, node.values, strict=True)):
                is_content = isinstance(key, ast.Constant) and key.value == "content"
                if is_content and isinstance(value, ast.Constant):
                    node.values[place] = name_setting(value)
    tree.body[2:2] = made
    return tree


def alias(tree: ast.Module, rng: Random) -> ast.Module:
    """Import what is used under other names."""
    text = ast.unparse(tree)
    one, two = rng.choice(("read", "load", "decode")), rng.choice(("mark", "offered", "known"))
    text = text.replace("import json\n", f"from json import loads as {one}_text\n").replace(
        "json.loads", f"{one}_text"
    )
    text = text.replace("import client, function_tool", f"import client, function_tool as {two}")
    return ast.parse(text.replace("@function_tool", f"@{two}"))


def reorder(tree: ast.Module, _rng: Random) -> ast.Module:
    """Turn around the order of functions that stand side by side, of keys and of keyword arguments."""
    for is_tool in (True, False):
        own = [
            isinstance(node, ast.FunctionDef) and bool(node.decorator_list) == is_tool for node in tree.body
        ]
        places = [place for place, is_own in enumerate(own) if is_own]
        for place, node in zip(places, [tree.body[each] for each in places[::-1]], strict=True):
            tree.body[place] = node
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords.reverse()
        if isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys):
            node.keys.reverse()
            node.values.reverse()
    return tree


def wrap(tree: ast.Module, rng: Random) -> ast.Module:
    """Make the functions that are no tools methods of a class."""
    inside = [node for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list]
    names = {node.name for node in inside}
    for function in inside:
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                node.func = ast.Attribute(
                    value=ast.Name(id="self", ctx=ast.Load()), attr=node.func.id, ctx=ast.Load()
                )
        function.args.args.insert(0, ast.arg(arg="self"))
    name = rng.choice(("Desk", "Shop", "Worker"))
    made = ast.ClassDef(name=name, bases=[], keywords=[], body=[*inside], decorator_list=[])
    tree.body = [node for node in tree.body if node not in inside]
    tree.body += [made, *ast.parse(f"run = {name}().run").body]
    return tree


def comprehend(tree: ast.Module, _rng: Random) -> ast.Module:
    """Make every list by a comprehension over its parts."""

    class Lists(ast.NodeTransformer):
        def visit_List(self, node: ast.List) -> ast.AST:
            self.generic_visit(node)
            each = ast.Name(id="each", ctx=ast.Load())
            over = ast.comprehension(
                target=ast.Name(id="each", ctx=ast.Store()),
                iter=ast.Tuple(elts=node.elts, ctx=ast.Load()),
                ifs=[],
                is_async=0,
            )
            return ast.ListComp(elt=each, generators=[over])

    return Lists().visit(tree)


def pad(tree: ast.Module, rng: Random) -> ast.Module:
    """Put code into every function that does nothing, some of it behind its end."""
    for node in [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]:
        place = 1 if ast.get_docstring(node) is not None else 0
        count = rng.randrange(9)
        node.body[place:place] = ast.parse(f"spare = {count}\nif spare > 9:\n    print(spare)").body
        if isinstance(node.body[-1], ast.Return):
            node.body += ast.parse(f"spare = {count} + 1").body
    return tree


REWRITES: Mapping[str, Callable[[ast.Module, Random], ast.Module]] = {
    "inline": inline, "extract": extract, "alias": alias, "reorder": reorder, "wrap": wrap, "comprehend": comprehend,
    "pad": pad, "rename": rename,
}  # fmt: skip
"""In the order in which they can be done one after the other."""


def twin(defect: str, rewrites: Sequence[str], rng: Random) -> str:
    """Return the agent, with `defect` unless that is empty, rewritten."""
    text = AGENT
    if defect:
        _, before, after = DEFECTS[defect]
        assert text.count(before) == 1, f"{defect} has one place"
        text = text.replace(before, after)
    for each in (name for name in REWRITES if name in rewrites):
        tree = REWRITES[each](ast.parse(text), rng)
        text = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return text


# a defect is what misbehaves in a run


class TooManyCallsError(Exception):
    """The model was asked without an end."""


@dataclass
class Kit:
    """What agents import: a mark of tools, and a model that does what a scenario says."""

    scenario: str = ""
    tools: list[Any] = field(default_factory=list[Any])
    heard: list[Any] = field(default_factory=list[Any])
    stops: set[str] = field(default_factory=set[str])
    num_calls: int = 0

    def mark(self, function: Any) -> Any:
        """Take `function` for a tool."""
        self.tools.append(function)
        return function

    def create(self, **asked: Any) -> Any:
        """Answer as the scenario says."""
        self.num_calls += 1
        self.heard += [message["content"] for message in asked["messages"]]
        self.stops |= set(asked["stop"])
        if self.num_calls > MOST_CALLS:
            raise TooManyCallsError
        if asked["temperature"] > 2:
            raise ValueError("temperature")
        if self.scenario == "down":
            raise ConnectionError("down")
        if self.scenario == "forever" or (self.scenario == "calls" and self.num_calls == 1):
            call = SimpleNamespace(name=self.tools[0].__name__, arguments=[7])
            return SimpleNamespace(content="", tool_calls=[call])
        return SimpleNamespace(
            content="hm" if self.scenario == "garbled" else '{"answer": "yes"}', tool_calls=[]
        )


def load_agent(text: str) -> tuple[Any, Kit]:
    """Return the agent in `text` as a module, with what it imports."""
    kit, module = Kit(), ModuleType("kit")
    completions = SimpleNamespace(completions=SimpleNamespace(create=kit.create))
    vars(module).update(client=SimpleNamespace(chat=completions), function_tool=kit.mark)
    sys.modules["kit"] = module
    try:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "agent_twin.py"
            file.write_text(text, encoding="utf-8")
            spec = importlib.util.spec_from_file_location("agent_twin", file)
            assert spec is not None and spec.loader is not None, "a file can be imported"
            made = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(made)
    finally:
        del sys.modules["kit"]
    return made, kit


def find_misbehaviour(text: str, entry: str = "run") -> set[str]:
    """Return the defects that show when the agent in `text` runs in every scenario."""
    found: set[str] = set()
    for scenario in ("", "calls", "garbled", "down", "forever"):
        module, kit = load_agent(text)
        run = getattr(module, entry, None) or last_function(module, text)
        kit.scenario = scenario
        try:
            answer = run("Is order 7 there?", "Ann")
        except TooManyCallsError:
            found.add("swallowed" if scenario == "down" else "endless")
            continue
        except ValueError as error:
            found.add("range" if str(error) == "temperature" else "no JSON")
            continue
        said = str(answer)
        if scenario == "down" and "down" not in said:
            found.add("swallowed")
        if scenario == "calls" and not any(
            "a lamp" in str(each) or "has order" in str(each) for each in kit.heard
        ):
            found.add("calls unread")
        if any("{" in str(each) for each in kit.heard[:1]):
            found.add("unfilled")
        described = [" ".join((tool.__doc__ or "").split()) for tool in kit.tools]
        if "" in described:
            found.add("no description")
        if len({*described}) < len(described):
            found.add("same description")
        results = [tool(given) for tool in kit.tools for given in (7, 9, "Ann")]
        if None in results:
            found.add("no result")
        if any(stop in str(result) for stop in kit.stops for result in results):
            found.add("stop word")
    return found


def last_function(module: Any, text: str) -> Any:
    """Return the function of two arguments of a renamed agent that is no tool."""
    names = [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    taken = [name for name in names if getattr(module, name, None) is not None]
    (found,) = {name for name in taken if len(inspect.signature(getattr(module, name)).parameters) == 2}
    return getattr(module, found)


# what is found


def find_rules(text: str) -> set[str]:
    """Return the rules by which the lint says that it fails."""
    return {finding.name for finding in lint_source(text, "agent.py") if finding.state == "fail"}


def match_rules(text: str) -> set[str]:
    """Return the rules of which a line looks like the defect."""
    return {rule for rule, line in LINES.items() if re.search(line, text, re.M)}


def f1(pairs: Sequence[tuple[bool, bool]]) -> float:
    """Return F1 of (is dirty, is found)."""
    right = sum(dirty and found for dirty, found in pairs)
    wrong = sum(dirty != found for dirty, found in pairs)
    return 2 * right / max(1, 2 * right + wrong)


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return F1 of the lint, of as many findings at random and of patterns of lines, in each replication."""
    combined = int(options.get("combined", 1))
    found: list[Mapping[str, float]] = []
    for number in range(int(options["seeds"])):
        rng = Random(derive_seed("agentable", seed, number))
        files: list[tuple[str, str, str]] = []
        for first in REWRITES:
            chosen = [first, *rng.sample([each for each in REWRITES if each != first], combined - 1)]
            for defect, (rule, _, _) in DEFECTS.items():
                state = rng.getstate()
                dirty = twin(defect, chosen, rng)
                rng.setstate(state)
                files += [(defect, rule, dirty), ("", rule, twin("", chosen, rng))]
        ours = [(bool(defect), rule in find_rules(text)) for defect, rule, text in files]
        dealt = [hit for _, hit in ours]
        rng.shuffle(dealt)
        lines = [(bool(defect), rule in match_rules(text)) for defect, rule, text in files]
        clean = [len(find_rules(text)) for defect, _, text in files if not defect]
        row = {
            "method": f1(ours),
            "control": f1([(dirty, hit) for (dirty, _), hit in zip(ours, dealt, strict=True)]),
            "null_method": sum(clean) / len(clean),
            "null_control": 0.0,
            "extra.lines": f1(lines),
        }
        if number == 0:
            row["extra.false"] = sum(
                find_misbehaviour(text) != ({defect} if defect else set()) for defect, _, text in files
            )
        found.append(row)
    return found
