"""Configuration files and the values of flags, made into the `Config` of a recipe.

A file is JSON or TOML with the names of the fields as keys; the ``config.json`` of a run is one too. Flags go
over the file. The one rule: nothing in it is ignored; an unknown key is an error.
"""

import json
import tomllib
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from quintain.cli.flags import PREFIX
from quintain.errors import ConfigError, StoreError, UsageError, suggestion
from quintain.training.configure import build, checked_values, read_texts

KEYS_OF_A_RUN = frozenset(["schema", "name", "recipe", "created", "config"])


def configuration(
    recipe: str, config_class: type[Any], file: str | None, arguments: Namespace
) -> dict[str, Any]:
    """Return the values that the configuration file and the flags in `arguments` give to `config_class`.

    Raises:
        ConfigError: they do not fit together, or do not fit the recipe.
    """
    values: dict[str, Any] = {}
    if file is not None:
        values = checked_values(config_class, read_file(Path(file), recipe), file)
    given = cast("dict[str, str | None]", vars(arguments))
    flags = {name.removeprefix(PREFIX): text for name, text in given.items() if name.startswith(PREFIX)}
    values |= read_texts(config_class, {name: text for name, text in flags.items() if text is not None})
    build(config_class, values, file or "the command line")
    return values


def read_file(path: Path, recipe: str) -> Mapping[str, Any]:
    """Return the table in the configuration file `path`.

    Raises:
        UsageError: there is no such file.
        ConfigError: it is not JSON or TOML, not a table, names a key twice, or belongs to another recipe.
    """
    if path.suffix not in (".json", ".toml"):
        raise UsageError(f"configuration file: got {str(path)!r}; give a .json or a .toml file")
    if not path.is_file():
        raise UsageError(f"configuration file: got {str(path)!r}, which is no file; {beside(path)}")
    try:
        text = path.read_text(encoding="utf-8")
        found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"configuration file {path}: got {error}; correct it") from error
    except OSError as error:
        raise StoreError(f"configuration file {path}: got {error.strerror}; check its permissions") from error
    if not isinstance(found, dict):
        raise ConfigError(
            f"configuration file {path} must hold a table: got {json.dumps(found)[:60]}; use {{…}}"
        )
    table = cast("dict[str, Any]", found)
    if table.keys() != KEYS_OF_A_RUN:
        return table
    if table["recipe"] != recipe:
        raise ConfigError(
            f"configuration file {path} must be one of {recipe}: got one of {table['recipe']}; use that"
        )
    return cast("dict[str, Any]", table["config"])


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return `pairs` as a table; a key that comes twice is an error."""
    table = dict(pairs)
    if len(table) < len(pairs):
        twice = next(key for key, _ in pairs if sum(key == other for other, _ in pairs) > 1)
        raise ValueError(f"the key {twice!r} twice")
    return table


def beside(path: Path) -> str:
    """Return which configuration file next to `path` may have been meant."""
    names = [entry.name for ending in ("json", "toml") for entry in path.parent.glob(f"*.{ending}")]
    return suggestion(path.name, names) if names else "check the path"
