"""How many faults: `make test-faults KILLS=100 SIGNALS=50`, `make soak MINUTES=30`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=18, help="runs that are killed")
    parser.addoption("--signals", type=int, default=10, help="runs that are asked to stop")
    parser.addoption("--loop-kills", type=int, default=5, help="kills of the run of each loop")
    parser.addoption("--growth-steps", type=int, default=1000, help="steps of the run that must not grow")
    parser.addoption("--minutes", type=float, default=0.5, help="length of the soak")
    parser.addoption("--pause", type=float, default=5, help="seconds between the faults of the soak")
    parser.addoption("--soak-seed", type=int, default=0, help="seed of the faults of the soak")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "faults":
            item.add_marker(pytest.mark.faults)
