import pytest

from quintain.safety.isolation import find_fault


@pytest.fixture
def isolation() -> None:
    """Skip the test, with the reason, where code cannot be isolated."""
    if find_fault():
        pytest.skip(find_fault())
