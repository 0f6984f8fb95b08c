"""From a mapping, or from texts on a command line, to a configuration; pydantic checks each value.

Values of a mapping (a file, keyword arguments) must have the type of their field as JSON has it: no text is read as a
number and no number is rounded. Texts of flags are read as that type. An unknown key, a value that does not fit or a
missing one stops everything with one line.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

from quintain.config.fields import (
    Option,
    attribute_of,
    config_of,
    entry_of,
    is_list,
    options,
    own_options,
    parts_of,
    renames,
)
from quintain.config.wording import kind_of, words, wrong_value
from quintain.errors import ConfigError, QuintainError, suggestion

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Config = TypeVar("Config")


@runtime_checkable
class Checkable(Protocol):
    """A configuration that knows which of its values contradict each other."""

    def check(self) -> None:
        """Raise a `ConfigError` if it cannot be carried out."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where values come from: ``Source(name="settings.toml", is_stored=False)``."""

    name: str
    """for errors; empty for an instance in Python"""
    is_stored: bool
    """whether they are the whole configuration that a run has kept"""

    def label(self, key: str) -> str:
        """Return how an error calls the value of `key`."""
        return f"{key} in {self.name}" if self.name else key


def build(
    config_class: type[Config], values: Mapping[str, Any], source: str, *, is_stored: bool = False
) -> Config:
    """Return the configuration that `values` describe; what they leave out is as the defaults have it.

    Args:
        config_class: a dataclass; its own `check` is called if it has one.
        values: by name of field; those of a nested configuration are a table, or an instance of it. A table of names
            adds to that of the default.
        source: where the values come from, for errors.
        is_stored: the values are the whole configuration that a run has kept. Old names are read, and a table of names
            replaces that of the default.

    Raises:
        ConfigError: an unknown or missing key, a wrong type, or values that contradict each other.
    """
    try:
        return construct(config_class, values, Source(name=source, is_stored=is_stored))
    except QuintainError:
        raise
    except ValueError as error:
        raise ConfigError(f"configuration in {source}: {error}") from error


def check_ranges(config: object) -> None:
    """Raise a `ConfigError` if a value of `config`, which Python code has made, is not what its field admits."""
    for option in own_options(type(config)):
        fit(option, getattr(config, option.name), Source(name="", is_stored=True))


def read_flags(config_class: type[Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that the `texts` of flags stand for; ``{"policy.device": "cpu"}`` gives a table `policy`.

    ``none`` is None where that is admitted; lists are separated by commas or written as JSON.

    Raises:
        ConfigError: there is no such option, or a text does not fit.
    """
    known = options(config_class)
    values: dict[str, Any] = {}
    for name, text in texts.items():
        option = next((option for option in known if option.matches(name)), None)
        if option is None:
            names = [option.name for option in known]
            raise ConfigError(
                f"configuration key in the command line: got {name!r}; {suggestion(name, names)}"
            )
        flag = "--" + name.replace("_", "-")
        if not option.is_named(name):
            raise ConfigError(f"{flag}: got an earlier name; it is called {option.flag} now")
        put(values, name, read_text(option, text, flag))
    return values


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values `below` with those `above` over them, tables key by key."""
    merged = dict(below)
    for key, value in above.items():
        under, over = as_table(merged.get(key)), as_table(value)
        merged[key] = value if under is None or over is None else merge(under, over)
    return merged


def rename(
    config_class: type[Any], values: Mapping[str, Any], source: str, *, is_stored: bool = False
) -> dict[str, Any]:
    """Return `values`, which may be `is_stored` in a run, under the names that the options of `config_class` have now.

    Of what is stored, options that the class has no longer are left out, and those that are written otherwise now are.

    Raises:
        ConfigError: an option is called by an old name, though not stored; or is there under its old and its new name.
    """
    table = dict(values)
    if is_stored:
        for old, rewrite in attribute_of(config_class, "rewritten").items():
            table |= rewrite(table.pop(old)) if old in table else {}
    known = config_class.__dataclass_fields__
    for old, new in renames(config_class).items():
        if old in table and (is_stored or new.partition(".")[0] in known):
            if not is_stored:
                raise ConfigError(f"{old} in {source}: got an earlier name; it is called {new} now")
            if not put(table, new, table.pop(old)):
                raise ConfigError(
                    f"configuration in {source}: got {old} and {new}, its new name; give {new} only"
                )
    gone = attribute_of(config_class, "forgotten") if is_stored else {}
    return {name: value for name, value in table.items() if name in known or name not in gone}


def construct(
    config_class: type[Config],
    values: Mapping[str, Any],
    source: Source,
    prefix: str = "",
    default: object = None,
) -> Config:
    """Return the configuration of `values`; what they leave out is as in `default`, or as the class has it.

    The names of its options in errors begin with `prefix`: "policy.".
    """
    table = rename(config_class, values, source.name, is_stored=source.is_stored)
    known = {option.name: option for option in own_options(config_class)}
    for key in table:
        if key not in known:
            raise ConfigError(
                f"configuration key in {source.name}: got {f'{prefix}{key}'!r}; {suggestion(str(key), known)}"
            )
    given: dict[str, Any] = {}
    for key, option in known.items():
        start = getattr(default, key) if isinstance(default, config_class) else option.default
        if key in table:
            given[key] = fit(replace(option, name=prefix + key, default=start), table[key], source)
        elif start is MISSING:
            needs = f"configuration in {source.name} needs {prefix}{key}"
            raise ConfigError(f"{needs}: got nothing; give {words(option.annotation)}")
        else:
            given[key] = start
    config = config_class(**given)
    if isinstance(config, Checkable):
        config.check()
    return config


def fit(option: Option, value: Any, source: Source) -> Any:
    """Return `value` as the field of `option` has it: a list as a tuple, a table as a configuration, …; strictly."""
    entry, nested = entry_of(option.annotation), config_of(option.annotation)
    if entry is None and nested is None:
        return read_json(option, value, source)
    if value is None and type(None) in parts_of(option.annotation):
        return None
    table = as_table(value)
    if table is None:
        raise wrong_json(option, value, source)
    if nested is not None:
        return construct(nested, table, source, f"{option.name}.", option.default)
    start = {} if source.is_stored else as_table(option.default) or {}
    fitted = dict(start)
    for name, item in table.items():
        names = [str(name)] if config_of(entry) is not None else str(name).split("/")
        if not all(each.isidentifier() for each in names):
            raise ConfigError(
                f"a name in {source.label(option.name)}: got {name!r}; use letters, digits and _"
            )
        inner = replace(
            option, name=f"{option.name}.{name}", annotation=entry, default=start.get(name, MISSING)
        )
        fitted[name] = fit(inner, item, source)
    return fitted


def read_json(option: Option, value: Any, source: Source) -> Any:
    """Return the `value` of a single option with the type of its field."""
    from pydantic import ValidationError
    from pydantic_core import PydanticSerializationError, to_json

    try:
        return adapter(option.annotation).validate_json(to_json(value, inf_nan_mode="constants"))
    except (ValidationError, PydanticSerializationError) as error:
        raise wrong_json(option, value, source) from error


def wrong_json(option: Option, value: Any, source: Source) -> ConfigError:
    """Return the error about a `value` that does not fit."""
    came = f"{json.dumps(value, default=repr)} ({kind_of(value)})" if source.name else repr(value)
    return ConfigError(wrong_value(option, value, source.label(option.name), came))


def read_text(option: Option, text: str, flag: str) -> Any:
    """Return the value of `option` that the `text` of `flag` stands for."""
    from pydantic import ValidationError

    parts = parts_of(option.annotation)
    if text.lower() in ("none", "null") and type(None) in parts:
        return None
    checker = adapter(option.annotation)
    try:
        if str in parts and int in parts and re.fullmatch(r"[+-]?\d+", text.strip()):
            return checker.validate_python(int(text))
        if text[:1] in ("[", "{") and str not in parts:
            return checker.validate_json(text)
        items = [item.strip() for item in text.split(",") if item.strip()]
        return checker.validate_python(items if any(map(is_list, parts)) else text, strict=False)
    except ValidationError as error:
        raise ConfigError(wrong_value(option, text, flag, repr(text))) from error


@cache
def adapter(annotation: Any) -> "TypeAdapter[Any]":
    """Return pydantic's strict checker of `annotation`; numbers must be finite."""
    from pydantic import ConfigDict, TypeAdapter

    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


def put(table: dict[str, Any], name: str, value: Any) -> bool:
    """Set the dotted `name` in `table` to `value` unless something is there; return whether it was set."""
    first, dot, rest = name.partition(".")
    if not dot:
        return first not in table and table.setdefault(first, value) is value
    inner = as_table(table.get(first, {}))
    if inner is None:
        return False
    table[first] = inner
    return put(inner, rest, value)


def as_table(value: object) -> dict[str, Any] | None:
    """Return the table that `value` is, or the fields of the dataclass that it is; else None."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    return None
