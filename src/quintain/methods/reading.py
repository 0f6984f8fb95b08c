"""Which options say nothing without another: one that would be ignored is refused, with what it needs.

What a loop does not read is no option of its methods at all (`quintain.learning.train_config`), as a test of every
method holds; here is what depends on the value of another option, or on what the method says of itself (`Traits`),
which may also have options of another loop than its own. What a method's own `Config` declares is its own, and read. A
class with a training of its own, in a file of its own, reads of the options of loops those that its file names, or
leaves to what it calls (`LEFT_TO`). An option that is added to a loop's configuration is among them by itself.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from typing import Any

from quintain.config import rename
from quintain.errors import ConfigError
from quintain.learning.sections import ModelSection
from quintain.learning.train_config import LOOP_OPTIONS, TrainConfig
from quintain.methods.find import FoundMethod
from quintain.methods.method import Method, traits_of

IN_EPOCHS = "by methods that go through a step's data in epochs and minibatches, such as ppo and eto"
WARM = "by methods with a warm start, such as grpo and eto; one that imitates all the time has learning_rate"
WITH_LORA = "with a lora_rank of 1 or more, where there are LoRA layers"
READERS: Mapping[str, str] = {
    "whole_groups": "by methods that learn from groups as they come, such as grpo and rloo",
    "normalise_by": "by methods that assign credit to the episodes of a step, such as grpo and ppo",
    "train_branches": "by methods that assign credit to the episodes of a step, such as grpo and ppo",
    "num_epochs": IN_EPOCHS,
    "num_minibatches": IN_EPOCHS,
    "records_signals": "by methods without a replay buffer, such as grpo and sft",
    "imitation_lr": WARM,
    "imitation_epochs": WARM,
    "lr_warmup": "with lr_schedule constant, linear or cosine, where the schedule is not the method's own",
    "lora_alpha": WITH_LORA,
    "lora_targets": WITH_LORA,
    "keeps_adapter": WITH_LORA,
}
"""Option of every method, or of several, that not all of them read → who does, after "it is read …"."""
BY_LOOPS = "by methods whose loop does, as --help of each says"
"""Of an option of loops that `READERS` does not name."""
COUNTING = ("learn(", "learn_all(", "OnPolicy(", "Rounds(", "Replay(")
LEFT_TO: Mapping[str, tuple[str, ...]] = {"num_epochs": COUNTING, "num_minibatches": COUNTING}
"""Option of loops → calls that read it of the configuration that they are given."""


def find_unread(method: Method, config: TrainConfig) -> set[str]:
    """Return which options of every method the `method` made of `config` does not read."""
    traits = traits_of(method)
    return {
        *traits.unread,
        *find_unnamed(method),
        *(() if traits.has_warm_start else ("imitation_lr", "imitation_epochs")),
        *(("lr_warmup",) if config.lr_schedule == "method" else ()),
        *(() if config.lora_rank > 0 else ("lora_alpha", "lora_targets", "keeps_adapter")),
    }


def find_unnamed(method: Method) -> set[str]:
    """Return which options of loops a training that is somebody's own does not name in its file."""
    train = type(method).train
    if train.__module__.startswith(f"{__package__}."):
        return set()
    text = "".join(linecache.getlines(train.__code__.co_filename))
    return {name for name in LOOP_OPTIONS if not is_named(name, text)}


def is_named(name: str, text: str) -> bool:
    """Whether `text` names the option `name`, or makes a call that reads it."""
    calls = "".join(f"|{re.escape(call)}" for call in LEFT_TO.get(name, ()))
    return re.search(rf"\b({name}\b{calls})", text) is not None


def refuse_unread(found: FoundMethod, method: Method, config: TrainConfig, given: Mapping[str, Any]) -> None:
    """Raise where one of the `given` values is of an option that `method`, made of `config`, does not read.

    A value that is the default anyway, as in the whole configuration of a run, is let pass.

    Raises:
        ConfigError: naming the option, and when it is read.
    """
    defaults = {each.name: each.default for each in found.config_class.__dataclass_fields__.values()}
    unread = find_unread(method, config)
    for name in rename(found.config_class, given, "", is_stored=True):
        if name not in unread or getattr(config, name) == defaults[name]:
            continue
        if not is_own(found.config_class, name):
            raise ConfigError(
                f"{name}: got {getattr(config, name)!r} with {found.label}, which does not read it; leave it out: "
                f"it is read {READERS.get(name, BY_LOOPS)}"
            )


def is_own(config_class: type[Any], name: str) -> bool:
    """Whether a method's own configuration declares the option `name`, and not a section that all share."""
    return any(
        name in vars(each).get("__annotations__", ())
        for each in config_class.__mro__
        if each.__module__ not in (TrainConfig.__module__, ModelSection.__module__)
    )
