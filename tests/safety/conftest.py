import pytest

from quintain.safety.isolation import fault


@pytest.fixture
def isolation() -> None:
    """Skip the test, with the reason, where code cannot be isolated."""
    if fault():
        pytest.skip(fault())
