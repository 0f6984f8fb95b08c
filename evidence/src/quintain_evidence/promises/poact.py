"""PoAct on real input: functions of Python's own library are found for questions in words, and its sources reviewed.

What Python ships is nobody's test data. Its functions, with the first line of their own documentation, are the tools;
questions are asked as a person would, a script thinks nothing but the question itself and calls the function that it
means if that is listed. Every module of the library is reviewed as code: all of it runs, so nothing may be refused.
Then a letter of a function's name is lost in each, where a module calls one that it has not bound.
"""

import ast
import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from quintain.agents.code import CodeAct
from quintain.agents.code_review import find_bound, review_code
from quintain.agents.functions import BUILTINS
from quintain.agents.poact import QUESTIONS, PoAct
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.environments.protocol import Environment
from quintain.rollout.collect import Rollout
from quintain.text.chat import Chat
from quintain.types import Action, StepResult, Task, ToolSpec, flatten_scored
from quintain_evidence.labs.mind import mind_tokenizer
from quintain_evidence.layers.verdict import Check

MODEL = "functions of the standard library"
MODULES = (
    "bisect", "calendar", "colorsys", "difflib", "fnmatch", "html", "keyword", "math", "operator", "posixpath", "shlex",
    "statistics", "textwrap", "unicodedata", "urllib.parse", "zlib",
)  # fmt: skip
QUESTIONS_ASKED: Mapping[str, tuple[str, str, Sequence[Any]]] = {
    "What is the median of these numeric data?": ("statistics", "median", ([3, 1, 2],)),
    "What is the greatest common divisor of two integers?": ("math", "gcd", (12, 18)),
    "How many days are there in the month February 2024, and on which weekday does it begin?": (
        "calendar", "monthrange", (2024, 2),
    ),
    "Is 2024 a leap year?": ("calendar", "isleap", (2024,)),
    "Wrap this paragraph of text to lines.": ("textwrap", "wrap", ("a long text of words", 8)),
    "Remove common leading whitespace from every line in this text.": ("textwrap", "dedent", ("  a\n  b",)),
    "Convert the characters &, < and > to HTML-safe sequences.": ("html", "escape", ("a < b",)),
    "Which words are the best good enough matches for applr?": (
        "difflib", "get_close_matches", ("applr", ["apple", "pear"]),
    ),
    "Does the filename match the pattern?": ("fnmatch", "fnmatch", ("a.txt", "*.txt")),
    "Split the string with shell-like syntax.": ("shlex", "split", ("ls 'a b'",)),
    "Parse the URL into its components.": ("urllib.parse", "urlparse", ("http://a.org/b?c=d",)),
    "What is the factorial of a number?": ("math", "factorial", (6,)),
}  # fmt: skip
"""question → module, function and arguments that answer it"""


def name_tool(module: str, name: str) -> str:
    """Return the name of a function as a tool: ``urllib_parse_urlparse``."""
    return f"{module.replace('.', '_')}_{name}"


def list_tools() -> dict[str, ToolSpec]:
    """Return every public function of the modules that says what it does."""
    found: dict[str, ToolSpec] = {}
    for module in MODULES:
        for name, function in sorted(vars(importlib.import_module(module)).items()):
            own = str(getattr(function, "__module__", module))
            if (
                name.startswith("_")
                or isinstance(function, type)
                or not callable(function)
                or module not in own
            ):
                continue
            try:
                given = [*inspect.signature(function).parameters.values()]
            except ValueError:
                continue
            plain = [
                each for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
            ]
            takes_more = any(each.kind == each.VAR_POSITIONAL for each in given)
            names = [each.name for each in plain] + ["integers", "more"] * takes_more
            told = (inspect.getdoc(function) or "").strip().partition("\n")[0]
            schema = {
                "type": "object",
                "properties": {each: {} for each in names},
                "required": [each.name for each in plain if each.default is each.empty],
            }
            if told:
                tool = name_tool(module, name)
                found[tool] = ToolSpec(name=tool, description=told, parameters=schema)
    return found


TOOLS = list_tools()


class Library(Environment):
    """Answer by functions of a library."""

    def reset(self, task: Task) -> str:
        """Ask one of the questions."""
        self._question = [*QUESTIONS_ASKED][int(task.id.rpartition("/")[2]) % len(QUESTIONS_ASKED)]
        return self._question

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the functions."""
        return tuple(TOOLS.values())

    def step(self, action: Action) -> StepResult:
        """Call the function itself; what the question's own answers ends the episode."""
        (call,) = action.tool_calls
        module, name, arguments = QUESTIONS_ASKED[self._question]
        is_right = (call.name, [*call.arguments.values()]) == (name_tool(module, name), [*arguments])
        told = (
            repr(getattr(importlib.import_module(module), name)(*arguments)) if is_right else "something else"
        )
        return StepResult(observation=told, reward=float(is_right), is_terminated=True, is_success=is_right)


def keep(runs: Path) -> tuple[Sequence[Check], Mapping[str, float]]:
    """Ask the questions, and review the library's modules, whole and broken."""
    chat, listed = Chat(mind_tokenizer()), list[int]()

    def answer(_request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        prompt = chat.encoder.decode(stream)
        asked = prompt.rpartition("<|assistant|>")[0].rpartition("<|assistant|>")[2]
        question = next(each for each in QUESTIONS_ASKED if each in prompt)
        if QUESTIONS["code"] not in asked and "refused" not in asked:
            return chat.write(question)
        module, name, arguments = QUESTIONS_ASKED[question]
        tool = name_tool(module, name)
        if "refused" not in asked:
            listed.append(sum(line.partition("(")[0] in TOOLS for line in asked.splitlines()))
            is_found = f"\n{tool}(" in asked
            extra = ", 0" * 9  # a draft that is certain to fail comes first
            return chat.write(f"```python\nprint({tool if is_found else 'print'}(0{extra}))\n```")
        return chat.write(f"```python\nprint({tool}({', '.join(map(repr, arguments))}))\n```")

    agent = PoAct(CodeAct(chat, seconds=30.0), chat, max_tokens=400)
    rollout = Rollout(agent, Library, Scripted(answer, chat.tokenizer))
    played = [
        *flatten_scored(
            rollout.groups([Library().task("eval", n) for n in range(len(QUESTIONS_ASKED))], size=1, seed=0)
        )
    ]
    rollout.close()
    solved, steps = (
        sum(t.is_success for t in played),
        [sum(not u.is_internal for u in t.turns) for t in played],
    )
    whole, broken, refused_whole, refused_broken = 0, 0, list[str](), 0
    for path in sorted(Path(json.__file__).parents[1].glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        bound = find_bound(text)
        whole += 1
        refused_whole += [f"{path.name}: {fault}"] if (fault := review_code(text, ())) else []
        tree = ast.parse(text)
        calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
        names = [each for each in calls if isinstance(each, ast.Name) and each.id in BUILTINS - bound]
        if names and "*" not in bound:
            names[0].id = f"{names[0].id[:-1]}_"
            broken += 1
            refused_broken += bool(review_code(ast.unparse(tree), ()))
    checks = [
        Check(
            name="functions",
            has_passed=solved >= len(QUESTIONS_ASKED) - 2 and max(listed) <= 8,
            detail=f"{solved} of {len(QUESTIONS_ASKED)} questions are answered by the function that does it, which is "
            f"among the {max(listed)} listed of {len(TOOLS)}",
        ),
        Check(
            name="refused",
            has_passed=all(count == 1 for count in steps),
            detail=f"{len(steps)} drafts with ten arguments were no step, and the next was",
        ),
        Check(
            name="lets go",
            has_passed=not refused_whole,
            detail=f"{len(refused_whole)} of {whole} modules, which all run, are refused"
            + "; ".join(refused_whole),
        ),
        Check(
            name="finds",
            has_passed=broken > 0 and refused_broken == broken,
            detail=f"{refused_broken} of {broken} modules in which a called name lost its last letter are refused",
        ),
    ]
    return checks, {"solved": float(solved), "modules": float(whole)}
