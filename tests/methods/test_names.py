"""The table of recipes."""

import importlib.util
import sys
from types import ModuleType

import pytest

from quintain.errors import UsageError
from quintain.methods.table import MODULES


def test_every_recipe_of_the_table_can_be_found() -> None:
    for name, module in MODULES.items():
        assert importlib.util.find_spec(module) is not None, name


def test_a_recipe_is_its_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("quintain_test_recipe")
    monkeypatch.setitem(sys.modules, "quintain_test_recipe", module)
    monkeypatch.setitem(MODULES, "test", "quintain_test_recipe")
    assert recipe_module("test") is module


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"^recipe: got 'grop'; did you mean 'grpo'\?$"):
        recipe_module("grop")
    with pytest.raises(UsageError, match=r"got 'xyzzy'; choose from .*grpo, .*ppo"):
        recipe_module("xyzzy")
