"""Fits what nobody gave of a method's configuration to the model: `quintain.warm_start.recommended` says to what.

What was given stays: by flag, file or keyword, by a method's file of one's own, and by a method whose `Config` names
the pretrained model that it was measured with. A model that was made here from nothing changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from quintain.agents.catalog import check as check_agent
from quintain.agents.catalog import is_outside
from quintain.config import rename
from quintain.data.files import read_objects
from quintain.data.records import read_records
from quintain.environments.task_files import split_spec
from quintain.errors import ConfigError
from quintain.learning.saved import tokenizer_folder
from quintain.learning.sections import DataSection, PolicySettings
from quintain.learning.train_config import ImitationConfig, TrainConfig
from quintain.methods.find import FoundMethod
from quintain.methods.method import Method, traits_of
from quintain.models.device import find_device
from quintain.models.origin import Origin, find_origin
from quintain.store.creation import JOURNAL
from quintain.warm_start.auto_warm_start import is_taught
from quintain.warm_start.recommended import PAGE, Kind, Recommended, is_too_high, recommend, steps_through
from quintain.warm_start.start import FITTING, new_model

OUTSIDE_MODEL, OUTSIDE_DEMONSTRATIONS, OUTSIDE_RATE = "mini?tokens=words", 256, 7e-4
"""Of a new model for an agent that lives outside, which writes words of its own."""
OUTSIDE_EPOCHS = 4
"""Times that a batch of its episodes is gone through where the method clips its ratios: an agent's episodes are dear,
and updates are not."""
OUTSIDE_ENTROPY = 0.01
"""Bonus for entropy where a method takes one and has none: without it a new model settled on its first guess of every
kind of ticket, right or wrong, before it had tried the others (docs/your-agent.md)."""
OUTSIDE_SCHEDULE = "linear"
"""Goes with that bonus, which falls with the rate: at a constant one it scattered what was learned, once it was."""
AGENT_PAGE = "docs/your-agent.md"
UNTAUGHT = (
    "warning: nothing shows the new model how an answer is written, and what is never written is never paid: give "
    f"--agent …&expert=FUNCTION ({AGENT_PAGE}#an-agent-and-a-file-of-tasks), or a pretrained --model"
)
"""Of a new model whose agent has a file of tasks and no expert."""
REWARD_RATE = "reward_lr"
"""Option of a method whose reward models learn at a rate that does not depend on the policy's."""
LORA_OPTIONS = ("lora_rank", "lora_alpha", "lora_targets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A configuration that fits its model: ``Fitted(config=config, notes=["Qwen3-1.7B is pretrained …"])``."""

    config: TrainConfig
    notes: list[str] = field(default_factory=list[str])
    """what was set and why, and what was given that is too much; a line each"""


def fit_to_model(found: FoundMethod, config: TrainConfig, given: Mapping[str, Any]) -> Fitted:
    """Return `config`, a configuration of the method `found`, with what is not among the `given` values as its model
    asks.

    Raises:
        ModelError: the model is missing or broken.
    """
    suited = fit_to_agent(found, config, given)
    config = suited.config
    if new_model(config.model) is not None or traits_of(found.make(config)).learns is None:
        return suited
    found_more = fit_config(found, config, given, find_origin(str(tokenizer_folder(config.model))))
    return replace(found_more, notes=[*suited.notes, *found_more.notes])


def fit_to_agent(found: FoundMethod, config: TrainConfig, given: Mapping[str, Any]) -> Fitted:
    """Return `config` with what is not among the `given` values as an agent that lives outside asks, if it is one.

    It is not let play until it solves enough, so how much it imitates is fixed; and what nobody can show is not
    imitated: random words in the place of an answer to a task of a file.
    """
    if not is_outside(config.agent):
        return Fitted(config=config)
    wanted: dict[str, Any] = {}
    has_expert = "expert" in check_agent(config.agent)[-1].options
    if new_model(config.model) is not None:
        wanted["model"] = OUTSIDE_MODEL
        if has_expert:
            wanted["demonstrations"] = OUTSIDE_DEMONSTRATIONS
        if traits_of(found.make(config)).is_on_policy:
            wanted["learning_rate"] = OUTSIDE_RATE
            if {"num_epochs", "clip_high"} <= {each.name for each in fields(config)}:
                wanted["num_epochs"] = OUTSIDE_EPOCHS
            if getattr(config, "entropy_coef", None) == 0 and "entropy_coef" not in given:
                wanted |= {"entropy_coef": OUTSIDE_ENTROPY, "lr_schedule": OUTSIDE_SCHEDULE}
    inner, path = split_spec(config.environment)
    is_untaught = bool(path) and not inner and not has_expert
    if is_untaught:
        wanted["demonstrations"] = 0
    free = free_options(found.config_class, given) - ({"model"} if config.model != FITTING else set[str]())
    changes = {key: value for key, value in wanted.items() if key in free and getattr(config, key) != value}
    if not changes:
        return Fitted(config=config)
    said = ", ".join(f"{key} {text_of(value)}" for key, value in changes.items())
    name = config.agent.partition("?")[0]
    notes = [f"the agent {name} lives outside, and what was not given fits that: {said} ({AGENT_PAGE})"]
    if is_untaught and "demonstrations" in changes and new_model(config.model) is not None:
        notes.append(UNTAUGHT)
    return Fitted(config=replace(config, **changes), notes=notes)


def fit_config(found: FoundMethod, config: TrainConfig, given: Mapping[str, Any], origin: Origin) -> Fitted:
    """Return `config` with what is not `given` as a model of this `origin` asks; see `fit_to_model`."""
    if not origin.is_pretrained:
        return Fitted(config=config)
    free = free_options(found.config_class, given)
    method = found.make(config)
    kind = traits_of(method).learns
    assert kind is not None, "there is a policy to be trained"
    has_lora = None if free.issuperset(LORA_OPTIONS) else config.main_policy().lora_rank > 0
    has_gpu = find_device(config.device).type == "cuda"
    advice = advise(origin, kind, has_lora, has_gpu=has_gpu)
    if advice.lora_rank and not takes_lora(found, config, advice.lora_rank):
        advice = advise(origin, kind, has_lora=False, has_gpu=has_gpu)
    by_layers = bool(advice.lora_rank or config.main_policy().lora_rank)
    shown = advise(origin, "imitation", has_lora=by_layers)
    """of the warm start, which trains what the policy trains"""
    wanted: dict[str, Any] = {
        "learning_rate": advice.learning_rate,
        "lora_rank": advice.lora_rank or None,
        "lora_alpha": advice.lora_alpha,
        "imitation_lr": shown.learning_rate if has_warm_start(method, config) else None,
        "imitation_epochs": advice.passes
        if has_warm_start(method, config) and not is_taught(config)
        else None,
        "max_turn_tokens": advice.turn_tokens,
        "gradient_checkpointing": advice.checkpoints,
        "precision": advice.precision,
        REWARD_RATE: advise(origin, "critic", has_lora=False).learning_rate,
    }
    if not traits_of(method).acts:
        wanted |= offline_settings(config, free, kind, advice.passes)
        steps = wanted.get("steps") or config.steps
        if "lr_schedule" in free and advice.schedule is not None:
            wanted["lr_schedule"] = advice.schedule
            wanted["lr_warmup"] = max(1, round(advice.rising * steps))
    own = {each.name for each in fields(config)}
    changes = {
        key: value
        for key, value in wanted.items()
        if value is not None and key in own & free and getattr(config, key) != value
    }
    changes |= policies_of(method, config, origin, kind)
    notes = [*too_high(config, free, wanted, origin)]
    if changes:
        said = ", ".join(f"{key} {text_of(value)}" for key, value in changes.items())
        why = f"; the learning rate: {advice.reason}" if "learning_rate" in changes else ""
        notes.insert(
            0, f"{name_of(config.model)} is pretrained ({size_of(origin)}), and what was not given fits it: "
            f"{said}{why} ({PAGE})",
        )  # fmt: skip
    return Fitted(config=replace(config, **changes), notes=notes)


def advise(origin: Origin, kind: Kind, has_lora: bool | None, *, has_gpu: bool = False) -> Recommended:
    """Return what is recommended for a model of this `origin`."""
    return recommend(
        is_pretrained=origin.is_pretrained,
        num_parameters=origin.num_parameters,
        has_lora=has_lora,
        kind=kind,
        has_gpu=has_gpu,
    )


def free_options(config_class: type[Any], given: Mapping[str, Any]) -> set[str]:
    """Return the options that nobody has set, of a configuration whose `given` values are these.

    A default counts as given where a class outside of this package has it, or one that names a pretrained model.
    """
    named = set(rename(config_class, given, "", is_stored=True))
    free = {each.name for each in fields(config_class)} - named
    for each in config_class.__mro__:
        own = set(vars(each).get("__annotations__", ()))
        is_foreign = each.__module__.partition(".")[0] != __name__.partition(".")[0]
        if is_foreign or ("model" in own and is_pretrained_name(default_of(each, "model"))):
            free -= own
    return free


def default_of(config_class: type[Any], name: str) -> object:
    """Return the default of the field `name` of `config_class`."""
    return next(each.default for each in fields(config_class) if each.name == name)


def is_pretrained_name(model: object) -> bool:
    """Whether the default `model` of a configuration names one that is not made from nothing."""
    return isinstance(model, str) and bool(model) and new_model(model) is None


def has_warm_start(method: Method, config: DataSection) -> bool:
    """Whether demonstrations are imitated before the first step."""
    return config.demonstrations != 0 and traits_of(method).has_warm_start


def takes_lora(found: FoundMethod, config: TrainConfig, rank: int) -> bool:
    """Whether the method trains LoRA layers."""
    try:
        with_layers = replace(config, lora_rank=rank)
        with_layers.check()
        found.make(with_layers)
    except ConfigError:
        return False
    return True


def offline_settings(config: TrainConfig, free: set[str], kind: Kind, passes: int | None) -> dict[str, Any]:
    """Return the steps and the conversations of each that go `passes` times through what `config` imitates.

    Where they cannot be counted before they are written, or one of the two was given, it stays as the method has it.
    """
    is_free = {"steps", "batch_size"} <= free
    if kind != "imitation" or passes is None or not is_free or not isinstance(config, ImitationConfig):
        return {}
    count = num_conversations(config.demonstrations)
    if not count:
        return {}
    steps, batch = steps_through(count, passes)
    return {"steps": steps, "batch_size": batch}


def num_conversations(demonstrations: int | str | None) -> int | None:
    """Return how many conversations the option `demonstrations` comes to; None where that is not known yet."""
    if not isinstance(demonstrations, str):
        return demonstrations
    source = Path(demonstrations)
    if (source / JOURNAL).is_file():
        return None
    return sum(1 for _ in read_records(read_objects(source)))


def policies_of(method: Method, config: TrainConfig, origin: Origin, kind: Kind) -> dict[str, Any]:
    """Return the policies of `config` with the learning rates of those beside the main one that are trained.

    They train all weights unless the configuration says otherwise. A critic whose updates have a factor on the rate
    (`critic_lr_scale`) has it on that of a policy; one without has a rate of its own.
    """
    changed: dict[str, PolicySettings] = {}
    for name, spec in method.needs.policies.items():
        settings = config.policies.get(name, config.main_policy(is_copy=True))
        is_trained = spec.is_trained if settings.is_trained is None else settings.is_trained
        if not is_trained or settings.learning_rate is not None or name in traits_of(method).own_rates:
            continue
        has_lora = settings.lora_rank > 0
        if spec.size and not settings.model:
            rate: float | None = type(config)().learning_rate
        elif spec.head == "value" and traits_of(method).rates.get(name, 1.0) == 1.0:
            rate = advise(origin, "critic", has_lora).learning_rate
        else:
            rate = advise(origin, kind, has_lora).learning_rate
        changed[name] = replace(settings, learning_rate=rate)
    return {"policies": {**config.policies, **changed}} if changed else {}


def too_high(config: TrainConfig, free: set[str], wanted: Mapping[str, Any], origin: Origin) -> Iterator[str]:
    """Yield a line for each given rate that is ten times what such a model bears, or more."""
    for key in ("learning_rate", "imitation_lr", REWARD_RATE):
        rate, usual = getattr(config, key, None), wanted.get(key)
        if key in free or rate is None or usual is None or not is_too_high(rate, usual):
            continue
        yield (
            f"warning: {key} {rate:g} is {rate / usual:.3g} times what a pretrained model of {size_of(origin)} bears "
            f"here ({usual:g}); it may forget what it knows: leave it out, or give less ({PAGE})"
        )


def name_of(model: str) -> str:
    """Return the last part of the name of `model`."""
    return Path(model).name or model


def size_of(origin: Origin) -> str:
    """Return how many parameters a model has: ``135M parameters``."""
    count = origin.num_parameters
    return f"{count / 1e9:.1f}B parameters" if count >= 1e9 else f"{count / 1e6:.0f}M parameters"


def text_of(value: object) -> str:
    """Return how a setting is written in a line."""
    if isinstance(value, Mapping):
        rates = {name: each.learning_rate for name, each in value.items() if isinstance(each, PolicySettings)}
        return " and ".join(f"{name} at {rate:g}" for name, rate in rates.items() if rate is not None)
    return str(value) if isinstance(value, bool) or not isinstance(value, float | int) else f"{value:g}"
