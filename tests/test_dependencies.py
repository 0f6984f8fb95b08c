"""What the gate of dependencies reads, writes and refuses; nothing is asked of an index here."""

from email.message import Message
from importlib.metadata import Distribution
from typing import Any

import pytest
from tests.dependencies_gate import (
    CONSTRAINTS,
    HASHES,
    GateError,
    bill,
    check_licences,
    differing,
    licence_of,
    pins,
    read_audit,
    read_hashes,
    reported,
    write_hashes,
)

A, B = "a" * 64, "b" * 64


class Package:
    """A package that says what `fields` hold of itself."""

    version, files = "1.0", ()

    def __init__(self, *fields: tuple[str, str]) -> None:
        self.metadata = Message()
        for name, value in (("Name", "some_package"), *fields):
            self.metadata[name] = value


def package(*fields: tuple[str, str]) -> Distribution:
    made: Any = Package(*fields)
    return made


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("License-Expression", "MIT AND BSD-3-Clause")], "MIT AND BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: MIT License"), ("License", "x")], "MIT License"),
        ([("License", "Apache\n 2.0")], "Apache 2.0"),
        ([], ""),
    ],
)
def test_a_licence_is_what_a_package_says(fields: list[tuple[str, str]], licence: str) -> None:
    assert licence_of(package(*fields)) == licence


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "AGPL-3.0", "Proprietary", "CC-BY-NC, non-commercial", "", "Mine"]
)
def test_a_package_without_a_licence_that_fits_is_refused(licence: str) -> None:
    with pytest.raises(GateError, match=r"licences to look at .*: some-package: "):
        check_licences({"some-package": package(*([("License", licence)] if licence else []))})


def test_a_lesser_licence_fits() -> None:
    known = {"a": package(("License-Expression", "LGPL-2.1-only")), "b": package(("License", "MIT"))}
    assert check_licences(known) == "2 packages have licences under which they may be used"


def test_hashes_are_in_the_form_of_pip_and_come_back() -> None:
    known = {"a==1.0": frozenset([A, B]), "b-c==2": frozenset([B])}
    assert read_hashes(write_hashes(known)) == known
    assert f"a==1.0 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n" in write_hashes(known)
    assert pins("# x\nA_b==1.0\nc==2 ; python_version<'3'\n") == {"a-b": "1.0", "c": "2"}


def test_another_file_than_the_known_ones_is_found() -> None:
    item = {
        "metadata": {"name": "A_b", "version": "1.0+cpu"},
        "download_info": {"archive_info": {"hashes": {"sha256": A}}},
    }
    folder = {"metadata": {"name": "c", "version": "1"}, "download_info": {"dir_info": {}}}
    found = reported({"install": [item, folder]})
    assert found == {"a-b==1.0": frozenset([A])}
    assert differing(found, {"a-b==1.0": frozenset([A, B])}) == []
    assert differing(found, {"a-b==1.0": frozenset([B])}) == differing(found, {}) == ["a-b==1.0"]


def test_the_bill_names_packages_with_licences_and_hashes() -> None:
    found = bill({"a": package(("License", "MIT"))}, {"a==1.0": frozenset([A])})
    (part,) = found["components"]
    assert found["bomFormat"] == "CycloneDX" and part["purl"] == "pkg:pypi/a@1.0"
    assert part["licenses"] == [{"license": {"name": "MIT"}}] and part["hashes"] == [
        {"alg": "SHA-256", "content": A}
    ]


def test_every_hash_is_of_a_pin() -> None:
    versions = pins(CONSTRAINTS.read_text(encoding="utf-8"))
    names = [name.partition("==") for name in read_hashes(HASHES.read_text(encoding="utf-8"))]
    assert len(names) > 90 and [name for name, _, version in names if versions.get(name) != version] == []


def test_what_no_index_knows_is_not_called_safe() -> None:
    unknown: dict[str, Any] = {"name": "a", "skip_reason": "not found"}
    safe: dict[str, Any] = {"name": "b", "version": "1", "vulns": []}
    broken: dict[str, Any] = {"name": "c", "version": "2", "vulns": [{"id": "X"}]}
    assert read_audit({"dependencies": [unknown]}, 1) == "skipped: no index knows any of 1 packages"
    assert read_audit({"dependencies": [unknown, safe]}, 2) == (
        "no known vulnerability in 1 packages; 1 could not be looked up"
    )
    assert read_audit({"dependencies": [safe]}, 1) == "no known vulnerability in 1 packages"
    with pytest.raises(GateError, match="known vulnerabilities: c 2"):
        read_audit({"dependencies": [unknown, safe, broken]}, 3)
