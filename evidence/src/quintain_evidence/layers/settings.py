"""What of a method's settings is not at its defaults: in a claim's options, and in an arm of the league.

A setting of a method is a field that its own file declares. How much is sampled and trained on (`AMOUNTS`) is none, nor
are learning rates; budgets are compared by what was used.
"""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from quintain.config.fields import renames
from quintain.methods.find import find_method
from quintain.methods.table import MODULES
from quintain_evidence.layers.spec import Signature

AMOUNTS = frozenset(
    (
        "tasks", "group_size", "episodes", "steps", "batch_size", "num_epochs", "num_minibatches", "updates",
        "demonstrations", "learning_rate", "imitation_lr", "imitation_epochs", "eval_every", "environment", "agent",
        "model", "expert_noise", "teacher_noise", "reward_model", "probe_items",
    )
)  # fmt: skip
"""Fields that say where, of what start and how much, whoever declares them."""
AMOUNTS_BEFORE = frozenset(("imitation_rate", "mistakes", "teacher_mistakes"))
"""What some of them were called."""
OWN = "quintain.methods."
"""Where files of methods are."""


def own_defaults(method: str, amounts: Collection[str] = AMOUNTS) -> dict[str, Any]:
    """Return the settings that the file of `method` declares, with their defaults; none where there is no such file.

    Those of `amounts` are none.
    """
    if method not in MODULES:
        return {}
    config = find_method(method).config_class
    declared = {
        name
        for part in config.__mro__
        if part.__module__.startswith(OWN) and is_dataclass(part)
        for name in vars(part).get("__annotations__", {})
    }
    found: dict[str, Any] = {}
    for each in fields(config):
        if each.name in declared and each.name not in amounts:
            made = each.default_factory
            found[each.name] = made() if made is not MISSING else each.default
    return found


def is_same(value: Any, default: Any) -> bool:
    """Return whether a value as a claim's file has it is the default: lists are tuples there, and tables mappings."""
    if isinstance(default, Mapping) and isinstance(value, Mapping):
        return dict(value) == dict(default)  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(default, tuple):
        return isinstance(value, (list, tuple)) and tuple(value) == default  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return bool(value == default)


def differing(method: str, given: Mapping[str, Any], left_out: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return what of `given` sets `method` to something else than its default: ``discount = 0.5 (0.99)``.

    What was registered says options as they were called then, and one that was no amount by its name is none now.
    """
    names = renames(find_method(method).config_class) if method in MODULES else {}
    amounts = AMOUNTS - {
        new for old, new in names.items() if old in given and old not in AMOUNTS | AMOUNTS_BEFORE
    }
    given = {names.get(name, name): value for name, value in given.items()}
    left_out = tuple(names.get(name, name) for name in left_out)
    return tuple(
        f"{name} = {given[name]} ({default})"
        for name, default in own_defaults(method, amounts).items()
        if name in given and name not in left_out and not is_same(given[name], default)
    )


def set_in_claim(signature: Signature) -> tuple[str, ...]:
    """Return what the options of a claim set the method to, where that is not its default."""
    return differing(signature.method, signature.options, signature.other_options)
