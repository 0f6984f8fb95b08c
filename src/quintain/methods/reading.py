"""Which options a method reads: one that it would ignore is refused, with who reads it.

Whether an option is read follows from the method's value (`quintain.methods.method`): from the loop that it stands in,
and from what it leaves to the configuration. An option that a method's own `Config` declares is its own, and read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quintain.config import rename
from quintain.errors import ConfigError
from quintain.learning.job import Job
from quintain.learning.update import Update
from quintain.methods.find import FoundMethod
from quintain.methods.method import Contrastive, Method, Offline, OnPolicy, Replay, Rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads an option: ``Reader(is_read=lambda method, job: isinstance(method, OnPolicy), who="…")``."""

    is_read: Callable[[Method, Job], bool]
    who: str
    """in words, after "it is read …\""""


def learns_at_once(method: Method, _: Job) -> bool:
    """Whether each step learns from the episodes that it has sampled."""
    return isinstance(method, OnPolicy)


def learns_streams(method: Method, _: Job) -> bool:
    """Whether whole episodes are learned from as token streams with credit."""
    return isinstance(method, OnPolicy | Replay)


def updates_of(method: Method) -> Iterator[Update]:
    """Yield the updates of `method` that are made in epochs of minibatches."""
    if isinstance(method, OnPolicy):
        yield method.update
        if method.critic is not None:
            yield method.critic
    elif isinstance(method, Rounds) and method.steps is None:
        for improve in method.improves:
            yield improve.update or method.update
    elif isinstance(method, Replay):
        for each in method.updates:
            yield each.update


def leaves_epochs(method: Method, _: Job) -> bool:
    """Whether the configuration says how often a step's data is gone through."""
    return any(update.num_epochs is None for update in updates_of(method))


def leaves_minibatches(method: Method, _: Job) -> bool:
    """Whether the configuration says in how many optimizer steps."""
    return any(update.num_minibatches is None for update in updates_of(method))


def imitates_first(method: Method, _: Job) -> bool:
    """Whether demonstrations are imitated before the first step."""
    if isinstance(method, Offline | Rounds):
        return method.has_warm_start
    return not isinstance(method, Contrastive)


IN_EPOCHS = "by methods that go through a step's data in epochs and minibatches, such as ppo and eto"
WARM = "by methods with a warm start, such as grpo and eto; one that imitates all the time has learning_rate"
READERS: Mapping[str, Reader] = {
    "whole_groups": Reader(
        is_read=learns_at_once, who="by methods that learn from groups as they come, such as grpo and rloo"
    ),
    "leaves": Reader(
        is_read=learns_streams, who="by methods that assign credit to episodes, such as grpo, ppo and digi_rl"
    ),
    "num_epochs": Reader(is_read=leaves_epochs, who=IN_EPOCHS),
    "num_minibatches": Reader(is_read=leaves_minibatches, who=IN_EPOCHS),
    "records_signals": Reader(
        is_read=lambda method, _: not isinstance(method, Replay | Contrastive),
        who="by methods without a replay buffer, such as grpo and sft",
    ),
    "imitation_rate": Reader(is_read=imitates_first, who=WARM),
    "imitation_epochs": Reader(is_read=imitates_first, who=WARM),
    "lr_warmup": Reader(
        is_read=lambda _, job: job.lr_schedule != "method",
        who="with lr_schedule constant, linear or cosine, where the schedule is not the method's own",
    ),
    "lora_alpha": Reader(
        is_read=lambda _, job: job.lora_rank > 0,
        who="with a lora_rank of 1 or more, where there are LoRA layers",
    ),
}
"""Option of every method, or of several → who reads it; others are read by whoever has them."""


def refuse_unread(found: FoundMethod, method: Method, job: Job, given: Mapping[str, Any]) -> None:
    """Raise where one of the `given` values is of an option that the `method` made of `job` does not read.

    A value that is the default anyway, as in the whole configuration of a run, is let pass.

    Raises:
        ConfigError: naming the option, and who reads it.
    """
    defaults = {each.name: each.default for each in found.config_class.__dataclass_fields__.values()}
    for name in rename(found.config_class, given, "", is_stored=True):
        reader = READERS.get(name)
        if reader is None or reader.is_read(method, job) or getattr(job, name) == defaults[name]:
            continue
        if not is_own(found.config_class, name):
            raise ConfigError(
                f"{name}: got {getattr(job, name)!r} with {found.label}, which does not read it; leave it out: it is "
                f"read {reader.who}"
            )


def is_own(config_class: type[Any], name: str) -> bool:
    """Whether a method's own configuration declares the option `name`, and not one that several share."""
    return any(
        name in vars(each).get("__annotations__", ())
        for each in config_class.__mro__
        if each.__module__ != Job.__module__
    )
