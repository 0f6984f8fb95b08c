"""What settings of other trainers are read with: rules, reasons, and the flags of a shell script.

A rule takes what a key says and puts options of ours, or says that it is so anyway; a reason says why there is none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from quintain.errors import DataError

ASSIGNED = re.compile(r"^\s*(?:export\s+)?(?P<name>\w+)=(?P<value>[^\s;]+)\s*$", re.MULTILINE)
VARIABLE = re.compile(r"\$\{?(?P<name>\w+)(?::-(?P<usual>[^}]*))?\}?")
DEPTH = 8
"""References that may follow each other."""
LAUNCHER = re.compile(r"\s*(?:#|ray\s|torchrun\s|deepspeed\s|--runtime-env-json|--working-dir)")
"""The beginning of a line that is none of the trainer's."""
FLAG = re.compile(r"--(?P<key>[A-Za-z][\w.-]*)(?:=(?P<value>.*))?$", re.DOTALL)
"""``--rollout.n_samples_per_prompt`` or ``--learning_rate=1e-6``, as a word of a command."""


@dataclass(frozen=True, slots=True)
class Line:
    """What became of a key: ``Line("algorithm.lam", 0.95, "--gae-lambda 0.95")``; nothing where there is a reason."""

    key: str
    value: Any
    became: str = ""
    reason: str = ""


@dataclass(slots=True)
class Reading:
    """Settings as they are read: a method, its options, and what became of every key."""

    tool: str
    method: str = "grpo"
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    lines: list[Line] = field(default_factory=list[Line])
    run: str = ""


Rule = Callable[["Settings", Any], str | None]
"""(all settings, value of a key) → what became of it, having put options; None: nothing, as `NOT_HERE` says"""


@dataclass(slots=True)
class Settings:
    """The keys of a file, flat, and what is made of them."""

    flat: Mapping[str, Any]
    made: Reading
    options_of: Callable[[str], Collection[str]]
    """method → its options"""

    def get(self, key: str, usual: Any = None) -> Any:
        """Return the value of `key`; `usual` where it is not set, or is a variable that the file does not give."""
        found = self.flat.get(key)
        return found if is_known(found) else usual

    def put(self, option: str, value: Any) -> str:
        """Give `option` a `value`; return the flag, nothing where the method has no such option."""
        if option not in self.options_of(self.made.method):
            return ""
        self.made.options[option] = value
        return f"--{option.replace('_', '-')} {value}"


def as_option(option: str, kind: Callable[[Any], Any] = lambda value: value) -> Rule:
    """Return the rule that gives `option` the value as it is."""
    return lambda settings, value: settings.put(option, kind(value))


def when(rule: Rule, *, is_read: Callable[[Settings, Any], bool]) -> Rule:
    """Return `rule` where the value `is_read`; elsewhere the value says what happens here anyway."""
    return lambda settings, value: rule(settings, value) if is_read(settings, value) else "as it is here"


def in_use(settings: Settings, value: Any) -> bool:
    """Return whether a number or switch is on."""
    return bool(value) and value not in (-1, "null")


def map_method(key: str, value: Any, methods: Mapping[str, str]) -> str:
    """Return which of `methods` the `value` of `key` stands for.

    Raises:
        DataError: for none of them.
    """
    if value not in methods:
        raise DataError(
            f"{key}: got {value}; what is here is {', '.join(methods)}: take another method (quintain methods)"
        )
    return methods[value]


class Trainer(NamedTuple):
    """Another trainer: ``Trainer("verl", VERL, NOT_VERL)``."""

    name: str
    rules: Mapping[str, Rule]
    """key → its rule, those that choose the method first"""
    reasons: Mapping[str, str]
    """key, or what it begins with, ending in a dot or underscore → why it is no option here"""


def put_clip(settings: Settings, value: Any) -> str:
    """Bound the ratio on both sides alike; PPO has one bound."""
    both = [settings.put(option, value) for option in ("clip", "clip_low", "clip_high")]
    return " ".join(filter(None, both))


def put_run(settings: Settings, value: Any) -> str:
    """Name the run."""
    settings.made.run = re.sub(r"[^\w.-]+", "-", str(value))
    return f"--run {settings.made.run}"


def put_trackers(settings: Settings, value: Any) -> str:
    """Show metrics where they were shown; the console has them anyway."""
    named = [value] if isinstance(value, str) else [str(each) for each in value]
    kept = [each for each in named if each in ("wandb", "trackio", "tensorboard", "mlflow")]
    return settings.put("track", ",".join(kept)) if kept else "as it is here"


def put_warmup(settings: Settings, value: Any) -> str:
    """Let the rate rise over so many steps, or over a share of all of them."""
    steps = settings.get("trainer.total_training_steps", settings.get("max_steps", 100))
    settings.put("lr_schedule", settings.made.options.get("lr_schedule", "constant"))
    return settings.put("lr_warmup", round(value * steps) if 0 < value < 1 else int(value))


def put_schedule(settings: Settings, value: Any) -> str | None:
    """Choose how the rate goes."""
    return settings.put("lr_schedule", value) if value in ("constant", "linear", "cosine") else None


SAMPLES = "of the engine itself: give it to the engine, vllm?program=… (docs/engines.md)"
PASSES = "what a pass holds is measured, or --tokens-per-microbatch"
CHECKPOINTS = "checkpoints are written at every evaluation and a run goes on where it was (quintain resume)"
TASKS = "tasks are a file, --tasks FILE, or come from the environment, --environment (docs/your-agent.md)"
REWARDS = "what pays is the environment (docs/own-environment.md) or a grader (docs/your-agent.md)"
SHARDS = "ranks shard with FSDP2, as it is (docs/scale.md)"
CRITIC = "the critic of ppo is a head on the policy, trained with it by --vf-coef"
TOOLS = "an environment has the tools, and the harness their form: --agent tools?calls=hermes"
KERNELS = "kernels are chosen by what the machine has (quintain doctor)"
REFERENCE_POLICY = "the reference is the policy that the run began with"
PROFILE = "nothing is profiled; where time went is in the metrics of every step"
LOSS = "not an option here: the loss is the method's (quintain methods)"


def is_known(value: Any) -> bool:
    """Return whether a key has a value, and not the name of one."""
    return value is not None and not (isinstance(value, str) and "$" in value)


def reason_of(key: str, reasons: Mapping[str, str]) -> str:
    """Return why `key` is no option here; empty where nobody knows it."""
    if key in reasons:
        return reasons[key]
    fitting = [name for name in reasons if name[-1] in "._" and key.startswith(name)]
    return reasons[max(fitting, key=len)] if fitting else ""


def explain(*pairs: tuple[str, str]) -> dict[str, str]:
    """Return each of the names of a pair, which stand between blanks, with its reason: ``explain(("a b", "why"))``."""
    return {name: why for names, why in pairs for name in names.split()}


def variables_of(text: str) -> Callable[[str], str]:
    """Return what puts the values that the script `text` gives its variables into the place of their names.

    A value that needs another variable stays as it is written.
    """
    known = {match["name"]: match["value"].strip("\"'") for match in ASSIGNED.finditer(text)}

    def put(match: re.Match[str]) -> str:
        own = match["usual"] if match["usual"] is not None else known.get(match["name"])
        return match[0] if own is None else own

    def fill(value: str) -> str:
        for _ in range(DEPTH):
            value = VARIABLE.sub(put, value)
        return value

    return fill


def read_flags(text: str, fill: Callable[[str], str]) -> dict[str, Any]:
    """Return the flags of a shell script by name, their values with variables as `fill` puts them.

    Several values are a list, what a shell computes is the text of it; a flag without a value is true. Comments and
    lines of a launcher (``ray``, ``torchrun``, ``deepspeed``) are left out.
    """
    found: dict[str, Any] = {}
    for line in text.splitlines():
        words = [] if LAUNCHER.match(line) else split_line(line.strip().removesuffix("\\"))
        for at, word in enumerate(words):
            if match := FLAG.match(word):
                values = [] if match["value"] is None else [match["value"]]
                values += take_values(words[at + 1 :])
                if any("$(" in value for value in values):
                    values = [" ".join(values)]
                read = [read_value(fill(value)) for value in values]
                found[match["key"]] = True if not read else read[0] if len(read) == 1 else read
    return found


def split_line(line: str) -> list[str]:
    """Return the words of a line; of one with a quote that another line closes, those between blanks."""
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.split()


def take_values(words: list[str]) -> list[str]:
    """Return the words before the next flag, and before what a shell reads itself."""
    values: list[str] = []
    for word in words:
        if word.startswith("--") or word in ("$@", "\\", ")", "|", "2>&1", "&&", ">", ";", "&"):
            break
        values.append(word)
    return values


def read_value(text: str) -> Any:
    """Return a number, true or false, or the text as it is."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return {"true": True, "false": False}.get(text.lower(), text)
