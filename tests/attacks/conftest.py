"""The canaries, and the table of counts that `make test-attacks` prints."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.attack import MINIMUM, TITLES, Scene
from tests.attacks.box import plain_user
from tests.attacks.canaries import Canaries

from quintain.safety.isolation import find_fault

COUNTED = pytest.StashKey[Counter[tuple[str, str]]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "attacks":
            item.add_marker(pytest.mark.attacks)


@pytest.fixture(scope="session")
def canaries() -> Iterator[Canaries]:
    """Plant the canaries; without isolation every attack fails, with the reason."""
    assert not find_fault(), find_fault()
    found = Canaries(plain_user())
    yield found
    found.close()


@pytest.fixture
def scene(canaries: Canaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a place for one attempt."""
    return Scene(canaries=canaries, folder=tmp_path, patch=monkeypatch)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Iterator[None]:
    report = yield
    if report.when == "call" or report.failed:
        counted = item.config.stash.setdefault(COUNTED, Counter[tuple[str, str]]())
        for kind in (mark.args[0] for mark in item.iter_markers("attack")):
            counted[kind, f"{getattr(item, 'originalname', '')}:{report.outcome}"] += 1
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how many attacks of each class were denied, and how many weakened builds were caught."""
    counted = config.stash.get(COUNTED, None)
    if not counted:
        return
    write = terminalreporter.write_line
    heads = f"{'denied':>8} {'let in':>8} {'weakened caught':>16} {'missed':>8} {'untried':>8} {'least':>6}"
    write(f"{'':4} {'':28} {heads}")
    for kind, title in TITLES.items():
        denied = counted[kind, "test_it_is_denied_and_reported:passed"]
        let_in = counted[kind, "test_it_is_denied_and_reported:failed"]
        caught = counted[kind, "test_a_weakened_build_is_caught:passed"]
        missed = counted[kind, "test_a_weakened_build_is_caught:failed"]
        untried = counted[kind, "test_a_weakened_build_is_caught:skipped"]
        write(
            f"{kind:4} {title:28} {denied:8} {let_in:8} {caught:16} {missed:8} {untried:8} {MINIMUM[kind]:6}"
        )
    for report in terminalreporter.getreports("skipped"):
        write(
            f"{report.nodeid}: {report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr}"
        )
