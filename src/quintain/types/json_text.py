"""JSON that others wrote is read, with one kind of error for all that it may be."""

import json
from typing import Any


def load_json(text: str | bytes) -> Any:
    """Return the value that `text` is as JSON: ``load_json("[1]")`` is ``[1]``.

    Raises:
        ValueError: it is none, or is nested more deeply than can be read, which is no `ValueError` of json's.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply to be read") from None
