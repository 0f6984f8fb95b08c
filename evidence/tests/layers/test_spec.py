"""A claim without what makes it one is refused in a line; seeds hang on what is claimed and on nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quintain.errors import ConfigError, UsageError
from quintain_evidence.layers.spec import Signature, chosen, read, signatures


def test_a_file_is_read(write_claim: Callable[..., Path]) -> None:
    found = read(write_claim(gates=[], league={"baseline": "grpo", "world": "keydoor", "budget": 100}))
    assert (found.row, found.method, found.sign, found.tolerance) == ("toy", "toy", -1.0, 0.1)
    assert found.league is not None and found.league.axis == "steps"
    assert read(write_claim("toy-second", row="toy-second")).method == "toy"
    assert read(write_claim(null_tolerance=None)).tolerance == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"control": None}, "needs control: got nothing"),
        ({"control": " "}, "control of signature toy: got nothing; say it"),
        ({"null": None}, "needs null: got nothing"),
        ({"least": 0.0}, "least of signature toy: got 0; give the least difference"),
        ({"kind": "guess"}, "kind"),
        ({"kind": "training", "blocks": 12}, "got 12; choose from 6, 10, 16"),
        ({"seeds": 3}, "seeds of signature toy: got 3; give 6"),
        ({"registered": "today"}, "got 'today'; write 2026-01-31"),
        ({"row": "other"}, "row of signature toy.toml: got 'other'; write 'toy'"),
        ({"experiment": "rl.nobody"}, "there is no quintain_evidence.experiments.rl.nobody"),
        ({"sample": 3}, "configuration key in toy.toml: got 'sample'"),
        ({"gates": [{"key": "extra.a", "says": "x"}]}, "got no range; give least or most"),
        ({"dose": {"keys": ["extra.a"], "says": "x"}}, "got 1 keys; give 3 doses"),
    ],
)
def test_what_is_missing_or_wrong_is_one_line(
    write_claim: Callable[..., Path], fields: dict[str, Any], told: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=r"\A.*\Z") as error:
        read(write_claim(**fields))
    assert told in str(error.value)


def test_no_toml_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "toy.toml"
    file.write_text("row = ", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"signature toy.toml: got no TOML .*; correct it"):
        read(file)


def test_seeds_follow_the_claim_and_nothing_else(claim: Callable[..., Signature]) -> None:
    one = claim()
    assert one.seed_of(0) == claim().seed_of(0) != one.seed_of(1)
    for fields in ({"least": 0.2}, {"control": "another"}, {"options": {"draws": 8}}, {"blocks": 4}):
        assert claim(**fields).seed_of(0) != one.seed_of(0), fields
    league = {"baseline": "grpo", "world": "keydoor", "budget": 100}
    for fields in ({"title": "T"}, {"minutes": 3.0}, {"departs": "here"}, {"league": league}):
        assert claim(**fields).digest() == one.digest(), fields
    assert all(0 <= one.seed_of(block) < 2**48 for block in range(20))


def test_rows_are_chosen_by_family_and_name(write_claim: Callable[..., Path]) -> None:
    folder = write_claim().parent
    write_claim("toy-more", row="toy-more")
    write_claim("else", row="else", family="others")
    assert [found.row for found in chosen("toys", folder=folder)] == ["toy-more", "toy"]
    assert [found.row for found in chosen("toys", "toy", folder)] == ["toy-more", "toy"], (
        "a row has all its parts"
    )
    assert [found.row for found in chosen("toys", "toy-more", folder)] == ["toy-more"]
    assert [found.row for found in chosen(None, "else,toy-more", folder)] == ["else", "toy-more"]
    with pytest.raises(UsageError, match="--family: got 'toy'; did you mean 'toys'"):
        chosen("toy", folder=folder)
    with pytest.raises(UsageError, match="--only: got 'else'"):
        chosen("toys", "else", folder)


def test_registered_claims_can_be_read() -> None:
    for row, found in signatures().items():
        assert found.row == row
