"""Every option of every method is read by the code that the method reaches; what needs another option says so."""

import ast
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from quintain.config import build, options, rename
from quintain.config.fields import NAME
from quintain.errors import ConfigError
from quintain.learning.train_config import (
    LOOP_OPTIONS,
    OnPolicyConfig,
    ReplayConfig,
    RoundsConfig,
    SignalsConfig,
    TrainConfig,
    list_unread_options,
)
from quintain.methods.find import find_method
from quintain.methods.loops import on_policy, replay, rounds
from quintain.methods.method import Method, traits_of
from quintain.methods.reading import READERS, is_own, refuse_unread
from quintain.methods.table import MODULES

SOURCE = Path(__file__).parents[2] / "src"
NEEDED: dict[str, dict[str, Any]] = {
    name: {"reward_model": "model"} for name in ("instruct_gpt", "learning_to_summarize", "web_gpt")
} | {"generation": {"description": "anything"}}
EMBEDDERS = frozenset({"dare"})
"""Train no policy, and have the options of those who do: a league gives all of them one budget."""
Place = tuple[str, str]
"""Module and name of a function, a class or a value in it."""


@cache
def file_of(module: str) -> Path | None:
    """The file of `module`, None where there is none of that name."""
    place = SOURCE / module.replace(".", "/")
    return next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file()), None)


@cache
def source(module: str) -> ast.Module:
    file = file_of(module)
    assert file is not None, module
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def list_definitions(module: str) -> dict[str, ast.AST]:
    """What stands in `module`, by name."""
    found: dict[str, ast.AST] = {}
    for node in source(module).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found[node.name] = node
        for name in [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]:
            found.setdefault(name.id, node)
    return found


@cache
def list_imports(module: str) -> dict[str, Place]:
    """What `module` imports of quintain by name, whole modules included."""
    found: dict[str, Place] = {}
    for node in ast.walk(source(module)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("quintain"):
            for alias in node.names:
                found[alias.asname or alias.name] = (str(node.module), alias.name)
    return found


@cache
def uses(place: Place) -> tuple[frozenset[Place], frozenset[str]]:
    """What is named at `place`, and which attributes of something are read there."""
    module, name = place
    node = list_definitions(module).get(name)
    if node is None:
        return frozenset(), frozenset()
    places: set[Place] = set()
    read: set[str] = set()
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load):
            read.add(each.attr)
            if isinstance(each.value, ast.Name):  # a module that is imported whole
                home = list_imports(module).get(each.value.id)
                if home is not None and file_of(".".join(home)) is not None:
                    places.add((".".join(home), each.attr))
        elif isinstance(each, ast.Name):
            if each.id in list_definitions(module):
                places.add((module, each.id))
            elif each.id in list_imports(module):
                places.add(list_imports(module)[each.id])
        elif isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "getattr":
            read |= {str(arg.value) for arg in each.args if isinstance(arg, ast.Constant)}
    return frozenset(places), frozenset(read)


def is_configuration(place: Place) -> bool:
    """Whether `place` declares options, which is not to read them: its checks and properties do not count."""
    return (
        place[0] in ("quintain.learning.train_config", "quintain.learning.sections") or place[1] == "Config"
    )


def follow(first: Iterable[Place], known: frozenset[Place] = frozenset()) -> frozenset[Place]:
    """What is reached from `first`, and what was `known` to be."""
    todo, seen = list(first), set(known)
    while todo:
        place = todo.pop()
        if place not in seen and not is_configuration(place):
            seen.add(place)
            todo += uses(place)[0]
    return frozenset(seen)


def read_at(places: Iterable[Place]) -> set[str]:
    """The attributes that are read at `places`."""
    return {attribute for place in places for attribute in uses(place)[1]}


@cache
def loop_of(module: str) -> tuple[frozenset[Place], frozenset[str]]:
    """What the loop in `module` reaches, and reads there."""
    places = follow((module, each) for each in list_definitions(module))
    return places, frozenset(read_at(places))


def read_by(name: str, method: Method) -> set[str]:
    """What a run of the method `name` reads: in its own file, in its loop, and wherever these lead."""
    known, read = loop_of(type(method).__module__)
    module = MODULES[name]
    return set(read) | read_at(follow(((module, each) for each in list_definitions(module)), known) - known)


@pytest.mark.parametrize("name", [name for name in MODULES if name not in EMBEDDERS])
def test_every_option_of_a_method_is_read(name: str) -> None:
    """Reads of a property that options are behind are reads of these options."""
    found = find_method(name)
    method = found.make(build(found.config_class, NEEDED.get(name, {}), "test"))
    read = read_by(name, method)
    for behind, given in BEHIND.items():
        read |= set(given) if behind in read else set[str]()
    names = {option.name.partition(f".{NAME}")[0] for option in options(found.config_class)}
    assert names - read - CHECKED == set(), "no code that the method reaches reads these"
    unread = names & set(traits_of(method).unread)
    assert {each for each in unread if not is_own(found.config_class, each)} == set(), (
        "it says that it does not"
    )


BEHIND = {
    "main_policy": (
        "lora_rank",
        "lora_alpha",
        "lora_targets",
        "device",
        "precision",
        "engine",
        "max_context",
    ),
    "tokens_per_pass": ("tokens_per_microbatch",),
    "passes": ("num_epochs",),
    "parts": ("num_minibatches",),
}
"""Property of a configuration → the options that it tells."""
CHECKED = frozenset({"teacher"})
"""Read before a run begins, by quintain.api: the teacher plays first."""


def test_an_option_that_nothing_reads_would_be_found() -> None:
    assert "whole_groups" in loop_of(on_policy.__name__)[1]
    assert "whole_groups" not in loop_of(rounds.__name__)[1]
    assert "records_signals" not in loop_of(replay.__name__)[1]


def test_every_option_of_a_loop_is_refused_by_the_others_without_being_listed() -> None:
    """What is added to a loop's configuration is unread by the loops that do not take it, by itself."""
    assert {
        "normalise_by",
        "num_epochs",
        "num_minibatches",
        "records_signals",
        "train_branches",
        "whole_groups",
    } == LOOP_OPTIONS
    assert list_unread_options(OnPolicyConfig) == set()
    for name, kind in (("eto", RoundsConfig), ("archer", ReplayConfig), ("sft", SignalsConfig)):
        found = find_method(name)
        assert list_unread_options(kind) <= set(traits_of(found.make(found.config_class())).unread)


def refuse(method: str, **given: Any) -> None:
    found = find_method(method)
    config = found.config_class(**rename(found.config_class, given, "test", is_stored=True))
    refuse_unread(found, found.make(config), config, given)


@pytest.mark.parametrize(
    ("methods", "gone"),
    [
        (("eto", "rft", "m_dpo", "pae"), {"whole_groups", "train_branches"}),
        (("star", "e2cl", "steca"), {"whole_groups", "train_branches", "num_epochs", "num_minibatches"}),
        (("archer", "digi_rl", "digi_q", "web_rl"), {"whole_groups", "train_branches", "records_signals"}),
        (("sft", "xlam"), {"whole_groups", "num_epochs"}),
        (("agent_evol",), {"whole_groups", "train_branches"}),
    ],
)
def test_what_a_loop_does_not_read_is_no_option_and_left_out_of_what_runs_have_kept(
    methods: tuple[str, ...], gone: set[str]
) -> None:
    for method in methods:
        kind = find_method(method).config_class
        assert not gone & set(kind.__dataclass_fields__)
        assert build(kind, dict.fromkeys(gone), "config.json", is_stored=True) == kind()
        for name in gone:
            with pytest.raises(ConfigError, match=f"configuration key in f: got '{name}'"):
                build(kind, {name: None}, "f")


def test_settings_that_need_another_are_refused_without_it() -> None:
    with pytest.raises(
        ConfigError, match=r"lr_warmup: got 3 with grpo, .* it is read with lr_schedule constant, linear"
    ):
        refuse("grpo", lr_warmup=3)
    refuse("grpo", lr_warmup=3, lr_schedule="linear")
    with pytest.raises(
        ConfigError, match=r"lora_alpha: got 8.0 with grpo, .* it is read with a lora_rank of 1 or more"
    ):
        refuse("grpo", lora_alpha=8.0)
    refuse("grpo", lora_alpha=8.0, lora_rank=4)
    for method in ("sft", "agent_evol", "dare"):
        with pytest.raises(
            ConfigError, match=rf"imitation_epochs: got 5 with {method}, .* by methods with a warm"
        ):
            refuse(method, imitation_epochs=5)


def test_the_whole_configuration_of_a_run_can_be_given_again() -> None:
    found = find_method("eto")
    whole = {name: getattr(found.config_class(), name) for name in found.config_class.__dataclass_fields__}
    refuse_unread(found, found.make(found.config_class()), found.config_class(), whole)


def test_an_option_of_another_loop_than_the_methods_own_is_refused() -> None:
    eto, grpo = find_method("eto"), find_method("grpo").config_class(whole_groups=True)
    with pytest.raises(
        ConfigError, match=r"whole_groups: got True with eto, .* by methods that learn from groups"
    ):
        refuse_unread(
            replace(eto, config_class=type(grpo)), eto.make(eto.config_class()), grpo, {"whole_groups": True}
        )


def test_every_rule_is_of_an_option_that_several_methods_share() -> None:
    assert set(READERS) <= set(OnPolicyConfig.__dataclass_fields__)
    assert not is_own(TrainConfig, "lora_alpha") and is_own(find_method("digi_rl").config_class, "num_epochs")
