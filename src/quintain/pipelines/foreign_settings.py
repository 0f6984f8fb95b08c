"""Settings of other trainers as ours: what maps, what means something else here, what is not here.

verl's configuration (`ppo_trainer.yaml`, whole or what is set over its defaults) and TRL's `GRPOConfig` are read as
YAML, OpenRLHF's flags out of its shell scripts, ms-swift's arguments as either. Every key that is set has a line in the
end: it became an option, or it says why it did not. A key that nobody here knows is of another version, and refused:
what it would have done cannot be said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from quintain.errors import DataError
from quintain.pipelines.foreign import openrlhf, swift, trl, verl
from quintain.pipelines.foreign.rules import (
    DEPTH,
    Line,
    Reading,
    Settings,
    Trainer,
    is_known,
    read_flags,
    reason_of,
    variables_of,
)

OVERRIDE = re.compile(
    r"^\s*(?:\w+=\S+\s+)*[+]{0,2}(?P<key>[a-z_]+(?:\.\w+)+)=(?P<value>.*?)\s*\\?\s*$", re.MULTILINE
)
"""A setting in a shell script: ``algorithm.adv_estimator=grpo \\``."""
REFERENCE = re.compile(r"^\$\{(?:oc\.select:)?(?P<key>[\w.]+)(?:,(?P<usual>.*))?\}$")
OPENRLHF = re.compile(r"\bopenrlhf\.cli\.(?P<program>\w+)")
SWIFT = re.compile(
    r"(?<![\w/#-])(?P<tool>swift|megatron)(?:/cli/|[ \t]+)(?P<program>rlhf|sft|pt|infer|export|deploy)(?:\.py)?(?=\s)"
    r"(?P<flags>(?:.*\\\n)*.*)"
)
"""A command of ms-swift, with the lines that it goes on over."""
PROCESSES = re.compile(rf"\b{swift.PROCESSES}=(\d+)")
EXAMPLE = "give a ppo_trainer.yaml, the fields of a GRPOConfig, or a script of OpenRLHF or ms-swift"


def read_settings(path: Path, options_of: Callable[[str], Collection[str]]) -> Reading:
    """Return the settings of another trainer in the file at `path`; `options_of` a method, what it can be given.

    Raises:
        DataError: it cannot be read, is of no trainer that is known here, or has keys of another version.
    """
    try:
        text = path.read_text(encoding="utf-8")
        trainer, flat = find_trainer(text, path)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        said = " ".join(str(error).split())
        raise DataError(f"settings {path}: got a file that is no YAML ({said:.120}); {EXAMPLE}") from error
    if trainer is verl.TRAINER:
        flat = {key: resolve(flat, value) for key, value in flat.items() if not key.endswith("_target_")}
    refuse_unknown(path, trainer, flat)
    settings = Settings(flat, Reading(tool=trainer.name), options_of)
    said = {key: rule(settings, flat[key]) for key, rule in trainer.rules.items() if is_known(flat.get(key))}
    for key, value in flat.items():
        became = said.get(key)
        reason = ""
        if not became and not is_known(value):
            reason = "a variable that the file does not give"
        elif not became:
            reason = (
                reason_of(key, trainer.reasons) or f"no option of {settings.made.method}, or not this value"
            )
        if value is not None:
            settings.made.lines.append(Line(key, value, became or "", reason))
    return settings.made


def find_trainer(text: str, path: Path) -> tuple[Trainer, dict[str, Any]]:
    """Return whose settings `text` is, and its keys, flat.

    Raises:
        DataError: it has no keys, those of nobody who is known here, or Megatron's.
    """
    if match := OPENRLHF.search(text):
        flags = read_flags(text.replace(match[0], ""), variables_of(text))
        return openrlhf.TRAINER, {openrlhf.PROGRAM: match["program"], **flags}
    if commands := list(SWIFT.finditer(text)):
        match = next((each for each in commands if each["program"] in swift.PROGRAMS), commands[0])
        if match["program"] not in swift.PROGRAMS or match["tool"] == "megatron":
            raise DataError(
                f"settings {path}: got {match['tool']} {match['program']}, which is no training that is known here; "
                f"give swift {' or '.join(swift.PROGRAMS)}, without Megatron"
            )
        processes = {swift.PROCESSES: int(found[1])} if (found := PROCESSES.search(text)) else {}
        flags = read_flags(match["flags"], variables_of(text))
        return swift.TRAINER, {swift.PROGRAM: match["program"], **processes, **flags}
    row: object = read_overrides(text) or yaml.safe_load(text)
    if not isinstance(row, dict) or not row:
        raise DataError(f"settings {path}: got {type(row).__name__}, no keys; {EXAMPLE}")
    flat = dict(flatten(cast("dict[Any, Any]", row)))
    if any(key.startswith(("actor_rollout_ref.", "algorithm.", "trainer.")) for key in flat):
        return verl.TRAINER, flat
    if "model" in flat or "rlhf_type" in flat:
        own = {
            key.removeprefix(next(filter(key.startswith, swift.GROUPS), "")): each
            for key, each in flat.items()
        }
        return swift.TRAINER, {swift.PROGRAM: "rlhf" if "rlhf_type" in flat else "sft", **own}
    if set(trl.TRL) & set(flat):
        return trl.TRAINER, flat
    raise DataError(
        f"settings {path}: got {', '.join(list(flat)[:4])}, which neither verl nor TRL nor ms-swift has; {EXAMPLE}"
    )


def read_overrides(text: str) -> dict[str, Any]:
    """Return the settings that a shell script gives on the command line, by their keys; none where it is no script.

    What the script itself gives its variables is put in their place; a value that needs another one stays as it is
    written, and becomes nothing.
    """
    fill = variables_of(text)
    found: dict[str, Any] = {}
    for match in OVERRIDE.finditer(text):
        value = fill(match["value"].removesuffix('"$@"').removesuffix("$@").strip(" \"'"))
        found[match["key"]] = value if "$" in value else yaml.safe_load(value)
    return found


def refuse_unknown(path: Path, trainer: Trainer, flat: Mapping[str, Any]) -> None:
    """Raise where a key is of another version of `trainer`.

    Raises:
        DataError: there is such a key.
    """
    unknown = [key for key in flat if key not in trainer.rules and not reason_of(key, trainer.reasons)]
    if unknown:
        more = f" and {len(unknown) - 3} more" if len(unknown) > 3 else ""
        raise DataError(
            f"settings {path}: got {', '.join(unknown[:3])}{more}, which no {trainer.name} that is known here has; "
            "take them out, or what they would do is lost"
        )


def flatten(
    row: Mapping[Any, Any], prefix: str = "", above: tuple[object, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield the keys of `row`, which is within those `above`, with dots, and their values; an empty part has nothing.

    Raises:
        DataError: a part holds itself.
    """
    for key, value in row.items():
        name = f"{prefix}{key}"
        if any(value is each for each in (row, *above)):
            raise DataError(f"settings: got {name}, which holds itself (a YAML alias); write its values out")
        if isinstance(value, dict) and value:
            yield from flatten(cast("dict[Any, Any]", value), f"{name}.", (row, *above))
        else:
            yield (f"{name}.", None) if isinstance(value, dict) else (name, value)


def resolve(flat: Mapping[str, Any], value: Any) -> Any:
    """Return `value`, where it names another key what that says, or what is there if it says nothing."""
    for _ in range(DEPTH):
        match = REFERENCE.match(value) if isinstance(value, str) else None
        if match is None:
            return None if value == "???" else value
        found = flat.get(match["key"])
        value = yaml.safe_load(match["usual"] or "null") if found is None else found
    return None
