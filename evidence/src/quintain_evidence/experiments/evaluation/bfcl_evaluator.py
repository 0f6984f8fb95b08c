"""Runs the leaderboard's own evaluator on files, in a process of its own in which nothing else of ours is imported.

In the place of the package's table of vendors' models stands one that knows a single kind: a model that answers in
text, read by the package's default decoder.
"""

import sys
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

TABLE = "bfcl_eval.constants.model_config"


class Reader:
    """A handler as the evaluator asks for it; it decodes as the package does for models without calls of their own."""

    def __init__(self, **_: Any) -> None:
        self._utils: Any = import_module("bfcl_eval.model_handler.utils")

    def decode_ast(self, result: str, language: Any, has_tool_call_tag: bool) -> Any:
        """Return the calls in `result`."""
        return self._utils.default_decode_ast_prompting(result, language, has_tool_call_tag)

    def decode_execute(self, result: str, has_tool_call_tag: bool) -> Any:
        """Return the calls in `result` as they are carried out."""
        return self._utils.default_decode_execute_prompting(result, has_tool_call_tag)


class Models(dict[str, SimpleNamespace]):
    """What the evaluator knows of a model, the same of any but for its name."""

    def __missing__(self, name: str) -> SimpleNamespace:
        """Return the model `name`."""
        return SimpleNamespace(
            display_name=name, url="", org="", license="", input_price=None, output_price=None, model_name=name,
            underscore_to_dot=False, is_fc_model=False, model_handler=Reader,
        )  # fmt: skip


def main(results: str, scores: str, categories: list[str]) -> None:
    """Evaluate every model's folder in `results`; what failed is written into `scores`, with the summary."""
    table = ModuleType(TABLE)
    vars(table)["MODEL_CONFIG_MAPPING"] = Models()
    sys.modules[TABLE] = table
    helper: Any = import_module("bfcl_eval.eval_checker.eval_runner_helper")
    runner: Any = import_module("bfcl_eval.eval_checker.eval_runner")
    # the summary counts the questions of what a model did not answer, from the files anew for every model
    helper.load_dataset_entry = cache(helper.load_dataset_entry)
    runner.runner(None, categories, Path(results), Path(scores), allow_missing=True)
