"""What the project stands on: licences, hashes, known vulnerabilities, a bill of materials: `make test-dependencies`.

It looks at what is installed beside the interpreter that runs it. ``hashes --write`` adds the hashes of the files that
pip would install here to ``hashes.txt``, which is in pip's own form: `pip install --require-hashes --no-deps -r
hashes.txt` installs exactly those. ``constraints.txt`` has none, because with hashes pip would take nothing else, the
project itself included.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.message import Message
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[1]
CONSTRAINTS, HASHES = ROOT / "constraints.txt", ROOT / "hashes.txt"
BILL = ROOT / "dist" / "sbom.json"
PIN = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)")
HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
OUR_OWN = ("quintain", "quintain-evidence", "quintain-studies")
LICENCES = re.compile(
    r"mit\b|bsd|apache|psf|python software foundation|python-2|mpl|mozilla|isc\b|zlib|zpl|unlicense|cc0|0bsd|cnri|hpnd"
    r"|public domain|lgpl|lesser general public|blueoak|boost",
    re.IGNORECASE,
)
"""Licences under which a package may be used beside this one, by the words that name them."""
FORBIDDEN = re.compile(
    r"\bA?GPL|affero|(?<!lesser )general public|non-?commercial|proprietary|sspl|busl", re.IGNORECASE
)
"""Words of licences under which none may."""
KNOWN: Mapping[str, str] = {}
"""Package → licence, of those that do not say it themselves."""


class GateError(Exception):
    """Something that must not be."""


def plain_name(name: str) -> str:
    """Return the name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> dict[str, Distribution]:
    """Return what is installed, by name, but for the project's own."""
    found = {plain_name(each.metadata["Name"]): each for each in distributions()}
    return {name: each for name, each in sorted(found.items()) if name not in OUR_OWN}


def licence_of(package: Distribution) -> str:
    """Return the licence that `package` says it has: the expression, else its classifiers, else a short text."""
    data = cast(Message, package.metadata)
    name = plain_name(data["Name"])
    if name in KNOWN:
        return KNOWN[name]
    if expression := data.get("License-Expression"):
        return expression
    told = [
        each.rpartition("::")[2].strip()
        for each in data.get_all("Classifier") or ()
        if each.startswith("License ::")
    ]
    if told:
        return " AND ".join(told)
    text = " ".join((data.get("License") or "").split())
    if text:
        return text[:80]
    files = [
        str(file)
        for file in package.files or ()
        if re.search(r"licen[cs]e|copying", file.name, re.IGNORECASE)
    ]
    for file in files:
        content = Path(str(package.locate_file(file)))
        if content.is_file() and (words := LICENCES.search(content.read_text(errors="replace")[:600])):
            return words[0]
    return ""


def check_licences(packages: Mapping[str, Distribution]) -> str:
    """Return how many licences there are of which kind.

    Raises:
        GateError: a package says none, or one under which it may not be used.
    """
    told = {name: licence_of(package) for name, package in packages.items()}
    wrong = [
        f"{name}: {licence or 'says no licence'}"
        for name, licence in told.items()
        if not LICENCES.search(licence)
        or (FORBIDDEN.search(licence) and not re.search("lesser|lgpl", licence, re.IGNORECASE))
    ]
    if wrong:
        raise GateError(
            "licences to look at (and to note in tests/dependencies_gate.py): " + "; ".join(wrong)
        )
    return f"{len(told)} packages have licences under which they may be used"


def bill(packages: Mapping[str, Distribution], known: Mapping[str, frozenset[str]]) -> dict[str, Any]:
    """Return the bill of materials of `packages` in the form of CycloneDX 1.6, with the hashes that are `known`."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": {"type": "library", "name": "quintain", "bom-ref": "quintain"},
        },
        "components": [
            {
                "type": "library",
                "bom-ref": f"pkg:pypi/{name}@{package.version}",
                "purl": f"pkg:pypi/{name}@{package.version}",
                "name": name,
                "version": package.version,
                "licenses": [{"license": {"name": licence_of(package) or "unknown"}}],
                "hashes": [
                    {"alg": "SHA-256", "content": digest}
                    for digest in sorted(known.get(f"{name}=={package.version.partition('+')[0]}", ()))
                ],
            }
            for name, package in packages.items()
        ],
    }


def pins(text: str) -> dict[str, str]:
    """Return name → version of the lines of a file of constraints."""
    found = (PIN.match(line) for line in text.splitlines())
    return {plain_name(match[1]): match[2] for match in found if match is not None}


def read_hashes(text: str) -> dict[str, frozenset[str]]:
    """Return ``name==version`` → SHA-256 of its files, of a file in pip's form."""
    found: dict[str, frozenset[str]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if match := PIN.match(line):
            found[f"{plain_name(match[1])}=={match[2]}"] = frozenset(HASH.findall(line))
    return found


def write_hashes(known: Mapping[str, Iterable[str]]) -> str:
    """Return `known` in pip's form."""
    head = (
        "# SHA-256 of the files of the pinned packages that this was tested with; see tests/dependencies_gate.py.\n"
        "# pip install --require-hashes --no-deps -r hashes.txt\n"
    )
    lines = [
        f"{name} \\\n" + " \\\n".join(f"    --hash=sha256:{digest}" for digest in sorted(digests))
        for name, digests in sorted(known.items())
    ]
    return head + "\n".join(lines) + "\n"


def reported(report: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return ``name==version`` → SHA-256 of the file that pip says it would install."""
    found: dict[str, frozenset[str]] = {}
    for item in cast("Sequence[Mapping[str, Any]]", report["install"]):
        data = item["metadata"]
        digest = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        if digest:
            version = str(data["version"]).partition("+")[
                0
            ]  # a build for one kind of hardware satisfies the pin
            found[f"{plain_name(data['name'])}=={version}"] = frozenset([digest])
    return found


def asked(names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return what pip says of the files of the pins `names` on this machine; nothing is downloaded to stay.

    Raises:
        GateError: pip failed, as where no index answers.
    """
    with TemporaryDirectory() as place:
        file = Path(place) / "report.json"
        line = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--ignore-installed"]
        done = subprocess.run(
            [*line, "--report", str(file), *names], capture_output=True, text=True, timeout=1800, check=False
        )
        if done.returncode:
            raise GateError(f"pip says: {done.stderr.strip().splitlines()[-1:]}")
        return reported(json.loads(file.read_text(encoding="utf-8")))


def differing(found: Mapping[str, frozenset[str]], known: Mapping[str, frozenset[str]]) -> list[str]:
    """Return which of the files `found` are not among those that are `known`."""
    return sorted(name for name, digests in found.items() if not digests <= known.get(name, frozenset()))


def check_hashes(packages: Mapping[str, Distribution], *, write: bool = False) -> str:
    """Compare the hashes of what pip would install for the pins of what is installed; with `write` add them.

    Raises:
        GateError: a pin has no hash, or pip would install another file.
    """
    wanted = {
        name: version
        for name, version in pins(CONSTRAINTS.read_text(encoding="utf-8")).items()
        if name in packages
    }
    found = asked(f"{name}=={version}" for name, version in wanted.items())
    known = read_hashes(HASHES.read_text(encoding="utf-8")) if HASHES.exists() else {}
    if write:
        kept = {
            name: digests
            for name, digests in known.items()
            if name.partition("==")[2]
            == pins(CONSTRAINTS.read_text(encoding="utf-8")).get(name.partition("==")[0])
        }
        merged = {
            name: kept.get(name, frozenset()) | found.get(name, frozenset())
            for name in kept.keys() | found.keys()
        }
        HASHES.write_text(write_hashes(merged), encoding="utf-8")
        return f"{len(found)} packages are in {HASHES.name}, which has {len(merged)}"
    if wrong := differing(found, known):
        raise GateError(
            f"{len(wrong)} files have hashes that are not in {HASHES.name}: {', '.join(wrong[:5])}; where that is a "
            "new version, machine or Python, look at them, then: make hashes"
        )
    return f"the files of {len(found)} pins have the hashes of {HASHES.name}"


def check_vulnerabilities(packages: Mapping[str, Distribution]) -> str:
    """Return what pip-audit says of what is installed, or why nobody could ask.

    Raises:
        GateError: a package has a known vulnerability.
    """
    if find_spec("pip_audit") is None:
        return "skipped: pip-audit is not installed (pip install pip-audit)"
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", "--skip-editable", "--progress-spinner", "off", "-f", "json"],
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    try:
        told: Mapping[str, Any] = json.loads(done.stdout)
    except ValueError:
        return f"skipped: no index answers ({(done.stderr.strip().splitlines() or ['no word'])[-1][:200]})"
    return read_audit(told, len(packages))


def read_audit(told: Mapping[str, Any], num_packages: int) -> str:
    """Return what pip-audit `told`: a package that no index knows was not looked up, and is not without fault.

    Raises:
        GateError: a package has a known vulnerability.
    """
    looked_up = [each for each in told["dependencies"] if "skip_reason" not in each]
    wrong = [f"{each['name']} {each['version']}" for each in looked_up if each.get("vulns")]
    if wrong:
        raise GateError(f"known vulnerabilities: {', '.join(wrong)}; pip-audit says more")
    if not looked_up:
        return f"skipped: no index knows any of {num_packages} packages"
    num_others = len(told["dependencies"]) - len(looked_up)
    more = f"; {num_others} could not be looked up" if num_others else ""
    return f"no known vulnerability in {len(looked_up)} packages{more}"


def write_bill(packages: Mapping[str, Distribution]) -> str:
    """Write the bill of materials and say where it is."""
    known = read_hashes(HASHES.read_text(encoding="utf-8")) if HASHES.exists() else {}
    BILL.parent.mkdir(exist_ok=True)
    BILL.write_text(json.dumps(bill(packages, known), indent=2) + "\n", encoding="utf-8")
    return f"{len(packages)} packages are in {BILL.relative_to(ROOT)}"


COMMANDS: Mapping[str, Callable[[Mapping[str, Distribution]], str]] = {
    "licences": check_licences,
    "sbom": write_bill,
    "hashes": check_hashes,
    "audit": check_vulnerabilities,
}


def main(arguments: Sequence[str]) -> int:
    """Do the commands in `arguments` and return how many found something that must not be."""
    packages, failed = installed(), 0
    for name in arguments or tuple(COMMANDS):
        if name == "--write":
            continue
        try:
            is_written = name == "hashes" and "--write" in arguments
            said = check_hashes(packages, write=True) if is_written else COMMANDS[name](packages)
            print(f"{name}: {said}")
        except GateError as error:
            failed += 1
            print(f"{name}: FAILED: {error}")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))  # noqa: TID251 - a program, not the package
