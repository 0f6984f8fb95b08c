"""A method that fits no loop is a class in a file of its own; what `examples/one_by_one.py` shows."""

import ast
import re
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.methods.test_training import interrupting, rows, weights

import quintain
from quintain import methods
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import TrainConfig
from quintain.methods.find import find_method
from quintain.methods.method import Traits, traits_of
from quintain.methods.reading import find_unread, is_named, refuse_unread
from quintain.store.run import Run

EXAMPLE = Path(__file__).parents[2] / "examples" / "one_by_one.py"
LOOP = EXAMPLE.with_name("grpo_loop.py")
SMALL: dict[str, Any] = {
    "environment": "guess?max_turns=2&high=4", "model": "micro", "demonstrations": 4, "imitation_epochs": 1,
    "steps": 3, "episodes": 3, "eval_every": 3, "eval_episodes": 2, "max_turn_tokens": 8,
}  # fmt: skip


def test_a_class_with_needs_and_train_is_a_method() -> None:
    found = find_method(str(EXAMPLE))
    config = found.config_class(**SMALL)
    method = found.make(config)
    assert (found.label, method.needs.policies) == ("one_by_one", {})
    assert traits_of(method) == Traits(), "it says nothing of itself, and so all is asked of it"
    model = {"lr_warmup", "lora_alpha", "lora_targets", "keeps_adapter"}
    loop = {"train_branches", "whole_groups", "normalise_by"}
    assert find_unread(method, config) == model | loop, "by what the configuration and its file say"


def test_an_option_of_loops_that_its_file_does_not_name_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "deaf.py"
    file.write_text(EXAMPLE.read_text().replace("config.records_signals", "True"))
    found = find_method(str(file))
    config = found.config_class(**SMALL, records_signals=False)
    with pytest.raises(ConfigError, match=r"^records_signals: got False with deaf, which does not read it"):
        refuse_unread(found, found.make(config), config, {"records_signals": False})
    heard = find_method(str(EXAMPLE))
    config = heard.config_class(**SMALL, records_signals=False)
    refuse_unread(heard, heard.make(config), config, {"records_signals": False})


def test_an_option_that_a_loop_gets_is_refused_where_the_file_of_a_class_has_no_word_of_it() -> None:
    found = find_method(str(LOOP))
    assert {"num_epochs", "num_minibatches", "whole_groups"} <= set(found.config_class.__dataclass_fields__)
    config = found.config_class(num_epochs=3)
    with pytest.raises(ConfigError, match=r"^num_epochs: got 3 with grpo_loop, which does not read it"):
        refuse_unread(found, found.make(config), config, {"num_epochs": 3})
    assert is_named("num_epochs", "learned = learn(policies, credit, update, config)")
    assert not is_named("whole_groups", "learn(policies)") and not is_named("num_epochs", "relearn(x)")


def test_its_function_may_have_any_name_where_it_says_what_it_returns(tmp_path: Path) -> None:
    file = tmp_path / "named.py"
    file.write_text(EXAMPLE.read_text().replace("def method(", "def online("))
    assert find_method(str(file)).function.__name__ == "online"


def test_what_returns_no_method_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "number.py"
    file.write_text(EXAMPLE.read_text().replace("return OneByOne(episodes=config.episodes)", "return 3"))
    found = find_method(str(file))
    with pytest.raises(
        UsageError, match=r"^method: got a int from '.*number.py'; return a method: OnPolicy, Offline, "
    ):
        found.make(found.config_class(**SMALL))


def test_its_page_shows_the_training_as_it_is() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "own-method.md").read_text()
    (shown,) = re.findall(r"```python\n(def train\(.*?)```", page, re.DOTALL)
    (own,) = (
        node
        for node in ast.walk(ast.parse(EXAMPLE.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name == "train"
    )
    assert ast.unparse(ast.parse(shown)) == ast.unparse(own)


@pytest.mark.slow
def test_it_trains_and_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr("quintain.warm_start.corpus.NUM_EPISODES", 4)
    values = {**SMALL, "environment": f"{Path(__file__).with_name('test_training.py')}:Coin"}
    whole = quintain.train(str(EXAMPLE), run="whole", root=tmp_path, config=values)
    assert any("train/loss" in row for row in rows(whole))
    with monkeypatch.context() as patched:
        interrupting(patched, 1)
        with pytest.raises(KeyboardInterrupt):
            quintain.train(str(EXAMPLE), run="parts", root=tmp_path, config=values)
    quintain.resume(tmp_path / "parts")
    assert rows(tmp_path / "parts") == rows(whole)
    with Run.open(whole, writable=False) as run:
        assert all(use.signals is not None for _, use in run.uses(1)), (
            "and says what tokens were trained with"
        )
    assert weights(tmp_path / "parts" / "model") == weights(whole / "model") != weights(whole / "start")


@pytest.mark.parametrize(
    ("kind", "base"), [("OnPolicy", "OnPolicyConfig"), ("Offline", "Config"), ("Rounds", "Config")]
)
def test_a_configuration_without_what_the_loop_reads_is_refused_with_who_has_it(kind: str, base: str) -> None:
    method = getattr(methods, kind)
    fields = {name: None for name, each in method.__dataclass_fields__.items() if each.default is MISSING}
    with pytest.raises(UsageError, match=rf"got TrainConfig, .*; derive it from quintain\.methods\.{base}$"):
        method(**fields).train(None, TrainConfig())
