"""From a mapping, or from texts on a command line, to a recipe's `Config`, strictly.

Values of a mapping (a file, keyword arguments) must have the type of their field: no text is read as a number
and no number is rounded. Texts of flags are read as that type. The one rule: an unknown key or a value that
does not fit stops everything, naming the key, what came and what was expected.
"""

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from quintain.config.knobs import Knob, is_list, knobs, parts_of
from quintain.config.wording import expected, wrong_value
from quintain.errors import ConfigError, QuintainError, suggestion
from quintain.training.job import Job

Config = TypeVar("Config")


def build(config_class: type[Config], values: Mapping[str, Any], source: str) -> Config:
    """Return the configuration that `values` describe; `source` names where they come from in errors.

    Raises:
        ConfigError: an unknown or missing key, a wrong type, or values that contradict each other.
    """
    checked = checked_values(config_class, values, source)
    missing = [knob for knob in knobs(config_class) if knob.is_required and knob.name not in checked]
    if missing:
        raise ConfigError(
            f"configuration in {source} needs {missing[0].name}: got nothing; give {expected(missing[0])}"
        )
    try:
        config = config_class(**checked)
        if isinstance(config, Job):
            config.check()
    except QuintainError:
        raise
    except ValueError as error:
        raise ConfigError(f"configuration in {source}: {error}") from error
    return config


def checked_values(config_class: type[Any], values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return `values` with their types checked; lists become the sequence that the field asks for."""
    known = {knob.name: knob for knob in knobs(config_class)}
    check_keys(values, known, source)
    return {key: fitted(known[key], value, f"{key} in {source}") for key, value in values.items()}


def read_texts(config_class: type[Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that the `texts` of flags stand for, by field name.

    ``none`` is None where that is admitted; lists are separated by commas; tables are written as JSON.
    """
    known = {knob.name: knob for knob in knobs(config_class)}
    check_keys(texts, known, "the command line")
    return {key: read_text(known[key], text) for key, text in texts.items()}


def check_keys(given: Iterable[str], known: Iterable[str], source: str) -> None:
    """Raise a `ConfigError` for the first of `given` that is not one of `known`, naming the nearest."""
    names = list(known)
    for key in given:
        if key not in names:
            raise ConfigError(f"configuration key in {source}: got {key!r}; {suggestion(str(key), names)}")


def fitted(knob: Knob, value: object, label: str) -> Any:
    """Return `value` if it has the type of `knob`."""
    adapter = TypeAdapter[Any](knob.annotation)
    try:
        return finite(knob, adapter.validate_python(value, strict=True), label)
    except ValidationError as error:
        first = error
    try:
        # JSON has lists only, so this is where they become tuples, and texts become paths and enum members.
        return finite(knob, adapter.validate_json(json.dumps(value), strict=True), label)
    except (ValidationError, TypeError, ValueError) as error:
        if isinstance(error, QuintainError):
            raise
        raise ConfigError(wrong_value(knob, value, label, first.errors()[0]["msg"])) from error


def read_text(knob: Knob, text: str) -> Any:
    """Return the value that the flag's `text` stands for."""
    parts = parts_of(knob.annotation)
    if text.lower() in ("none", "null") and type(None) in parts:
        return None
    adapter = TypeAdapter[Any](knob.annotation)
    try:
        if text[:1] in ("[", "{") and str not in parts:
            return finite(knob, adapter.validate_json(text), knob.flag)
        value = (
            [item.strip() for item in text.split(",") if item.strip()] if any(map(is_list, parts)) else text
        )
        return finite(knob, adapter.validate_python(value), knob.flag)
    except ValidationError as error:
        raise ConfigError(wrong_value(knob, text, knob.flag, error.errors()[0]["msg"])) from error


def finite(knob: Knob, value: Any, label: str) -> Any:
    """Return `value` unless it is a number that is not finite."""
    if isinstance(value, float) and not isfinite(value):
        raise ConfigError(f"{label} must be finite: got {value}; give {expected(knob)}")
    return value
