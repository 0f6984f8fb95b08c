"""The parts of bfcl-eval that are used: its data, its checkers, its decoder of text and its prompt.

The package imports all vendors' packages to learn one property of a model, and makes folders beside itself. Two small
tables stand in the place of the modules that do so, and the package is installed without dependencies. Its decoder
evaluates sums that it finds in a text: a text whose sums are not of plain numbers is not given to it.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from quintain.environments.extras import extra_module, version_of
from quintain.errors import DataError, MissingExtra

VERSION = "2026.3.23"
PARSERS = "tenacity tree-sitter==0.21.3 tree-sitter-java==0.21.0 tree-sitter-javascript==0.21.4"
COMMAND = f"pip install --no-deps bfcl-eval=={VERSION} && pip install mpmath"
TABLE, PLACES = "bfcl_eval.constants.model_config", "bfcl_eval.constants.eval_config"
SUM = (ast.BinOp, ast.UnaryOp, ast.unaryop, ast.Add, ast.Sub, ast.Mult, ast.Div)
"""What a sum that the decoder evaluates may consist of, beside numbers."""
LONGEST = 20_000
"""Characters of a text that is decoded."""
Decoded = list[dict[str, dict[str, Any]]]


@cache
def data_folder() -> Path:
    """Return the folder of the package's questions.

    Raises:
        MissingExtra: it is not installed, or in another version, whose verdicts would not be comparable.
    """
    place = Path(str(_module("bfcl_eval").__file__)).parent / "data"
    if (found := version_of("bfcl-eval")) != VERSION:
        raise MissingExtra(f"the environment bfcl needs bfcl-eval {VERSION}: got {found}; {COMMAND}")
    return place


@cache
def checker() -> Callable[[Any, Any, Any, str], dict[str, Any]]:
    """Return the AST checker: functions, calls, possible answers and category → ``{"valid": ..., "error": [...]}``."""
    _use_stand_ins()
    language = _module("bfcl_eval.constants.enums").Language
    check = _module("bfcl_eval.eval_checker.ast_eval.ast_checker").ast_checker
    return lambda functions, calls, answers, category: check(
        functions, calls, answers, getattr(language, language_of(category)), category, "quintain"
    )


def language_of(category: str) -> str:
    """Return the language that calls are written in: PYTHON, JAVA or JAVASCRIPT."""
    return next((name for name in ("JAVASCRIPT", "JAVA") if name.lower() in category), "PYTHON")


@cache
def turns() -> tuple[Any, Any]:
    """Return the modules of the multi-turn checker and of what carries out its calls."""
    _use_stand_ins()
    place = "bfcl_eval.eval_checker.multi_turn_eval"
    return _module(f"{place}.multi_turn_checker"), _module(f"{place}.multi_turn_utils")


def describe_functions(functions: Sequence[Mapping[str, Any]], question: str) -> list[dict[str, Any]]:
    """Return `functions` as models are shown them: with the language, and what is not Python as text."""
    _use_stand_ins()
    rows = [{"id": question, "function": deepcopy(list(functions))}]
    return _module("bfcl_eval.utils").add_language_specific_hint_to_function_doc(rows)[0]["function"]


def write_prompt(
    messages: Sequence[Mapping[str, str]], functions: Sequence[Mapping[str, Any]], question: str
) -> str:
    """Return what a model is told that answers in text: the package's instructions, `functions`, `messages`."""
    prompt = _with_parsers().system_prompt_pre_processing_chat_model(
        [dict(message) for message in messages], list(functions), question
    )
    return "\n\n".join(message["content"] for message in prompt)


def more_functions() -> str:
    """Return how the package says that there are functions that were missing before."""
    return _module("bfcl_eval.constants.default_prompts").DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC


def decode(text: str, category: str) -> Decoded:
    """Return the calls in `text` by the package's decoder: ``[f(a=1)]`` → ``[{"f": {"a": 1}}]``.

    Raises:
        DataError: it cannot be read, or holds what the decoder would carry out.
    """
    language = language_of(category)
    if len(text) > LONGEST or (language == "PYTHON" and not is_harmless(text)):
        raise DataError(f"answer: got {text[:60]!r}, which is no list of calls of values; write [f(a=1)]")
    tools = _with_parsers()
    form = getattr(_module("bfcl_eval.constants.enums").ReturnFormat, language)
    try:
        return tools.default_decode_ast_prompting(text, form)
    except (Exception, RecursionError) as error:
        raise DataError(f"answer: got {text[:60]!r}; the package cannot read it: {error}") from error


def is_harmless(text: str) -> bool:
    """Return whether the decoder, which evaluates what is added or multiplied in `text`, would see numbers alone."""
    told = text.strip("`\n ")
    told = told if told.startswith("[") else f"[{told}"
    told = told if told.endswith("]") else f"{told}]"
    try:
        tree = ast.parse(told.strip().strip("'"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    sums = [node for node in ast.walk(tree) if isinstance(node, (ast.BinOp, ast.Lambda))]
    return all(isinstance(part, SUM) or is_number(part) for each in sums for part in ast.walk(each))


def is_number(node: ast.AST) -> bool:
    """Return whether `node` is a number as it is written."""
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def is_call_list(decoded: Any) -> bool:
    """Return whether `decoded` has the form of calls; none at all has it, too."""
    return _module("bfcl_eval.utils").is_function_calling_format_output(decoded)


def is_empty(decoded: Any) -> bool:
    """Return whether `decoded` calls nothing, as the package reads it where calling is what is judged."""
    return _module("bfcl_eval.utils").is_empty_output(decoded)


def file_names() -> dict[str, str]:
    """Return the file that describes the functions of each simulated system."""
    return _module("bfcl_eval.constants.executable_backend_config").MULTI_TURN_FUNC_DOC_FILE_MAPPING


def _with_parsers() -> Any:
    """Return the module of decoder and prompt, which imports parsers of Java and JavaScript."""
    _use_stand_ins()
    try:
        return _module("bfcl_eval.model_handler.utils")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"bfcl/…?answers=text needs the package {error.name}: it is not installed; pip install {PARSERS}"
        ) from error


def _module(name: str) -> Any:
    """Import a module of the package, or say how it is installed."""
    return extra_module(name, package="bfcl-eval", feature="the environment bfcl", command=COMMAND)


def _use_stand_ins() -> None:
    """Put a table that knows no vendor, and one without folders, in the place of the package's."""
    if TABLE not in sys.modules:
        table = ModuleType(TABLE)
        vars(table)["MODEL_CONFIG_MAPPING"] = defaultdict(lambda: SimpleNamespace(underscore_to_dot=False))
        sys.modules[TABLE] = table
    if PLACES not in sys.modules:
        sys.modules[PLACES] = ModuleType(PLACES)
