"""A registered claim to change, whose experiment is the example of the package."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.config import build
from quintain_evidence.layers.spec import Signature

CLAIM: dict[str, Any] = {
    "row": "toy", "title": "Toy", "family": "toys", "source": "0000.00000", "kind": "tabular", "experiment": "example",
    "number": "distance of a mean from the truth", "direction": "lower", "least": 0.3, "unit": "points",
    "world": "numbers", "control": "one of the same draws in the mean's place", "null": "all draws are equal",
    "null_tolerance": 0.1, "seeds": 24, "blocks": 3, "registered": "2026-01-31", "minutes": 0.1,
    "options": {"draws": 9},
}  # fmt: skip


def toml(values: dict[str, Any]) -> str:
    """Return `values` as TOML, whose texts, numbers and lists are JSON's."""

    def inline(value: Any) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{name} = {inline(inner)}" for name, inner in value.items()) + "}"
        return "[" + ", ".join(map(inline, value)) + "]" if isinstance(value, list) else json.dumps(value)

    return "".join(f"{key} = {inline(value)}\n" for key, value in values.items())


@pytest.fixture
def claim() -> Callable[..., Signature]:
    def make(**fields: Any) -> Signature:
        return build(Signature, {**CLAIM, **fields}, "a test")

    return make


@pytest.fixture(name="write_claim")
def write(tmp_path: Path) -> Callable[..., Path]:
    def to_file(name: str = "toy", **fields: Any) -> Path:
        folder = tmp_path / "signatures"
        folder.mkdir(exist_ok=True)
        file = folder / f"{name}.toml"
        values = {key: value for key, value in {**CLAIM, **fields}.items() if value is not None}
        file.write_text(toml(values), encoding="utf-8")
        return file

    return to_file
