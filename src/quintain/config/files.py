"""Configuration files: TOML or JSON tables with the names of the fields as keys."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from quintain.errors import ConfigError, StoreError, UsageError, suggestion


def read_file(path: Path) -> Mapping[str, Any]:
    """Return the table in the configuration file `path`.

    Raises:
        UsageError: there is no such file, or it is of another kind.
        ConfigError: it is not UTF-8, not JSON or TOML, not a table, or names a key twice.
        StoreError: it cannot be read.
    """
    if path.suffix not in (".json", ".toml"):
        what = ", which holds rows of data, not a configuration" if path.suffix == ".jsonl" else ""
        raise UsageError(f"configuration file: got {str(path)!r}{what}; give a .json or a .toml file")
    if not path.is_file():
        raise UsageError(f"configuration file: got {str(path)!r}, which is no file; {find_near(path)}")
    try:
        # A byte-order mark, which some editors put in front, is no part of the text.
        text = path.read_text(encoding="utf-8-sig")
        found = (
            tomllib.loads(text)
            if path.suffix == ".toml"
            else json.loads(text, object_pairs_hook=refuse_twice)
        )
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"configuration file {path}: got byte {error.start}, which is not UTF-8; save as UTF-8"
        ) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"configuration file {path}: got {error}; correct it") from error
    except OSError as error:
        raise StoreError(f"configuration file {path}: got {error.strerror}; check its permissions") from error
    if not isinstance(found, dict):
        raise ConfigError(
            f"configuration file {path} must hold a table: got {json.dumps(found)[:60]}; use {{…}}"
        )
    return cast("dict[str, Any]", found)


def refuse_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return `pairs` as a table; a key that comes twice is a `ValueError`."""
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} twice")
    return table


def find_near(path: Path) -> str:
    """Return which configuration file next to `path` may have been meant."""
    names = [entry.name for ending in ("json", "toml") for entry in path.parent.glob(f"*.{ending}")]
    return suggestion(path.name, names) if names else "check the path"
