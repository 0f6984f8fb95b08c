import sys
from collections.abc import Generator

import pytest
from tests.distributed.fake_ray import FakeRay


@pytest.fixture(name="fake")
def _fake(monkeypatch: pytest.MonkeyPatch) -> Generator[FakeRay]:  # pyright: ignore[reportUnusedFunction]
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)  # pyright: ignore[reportArgumentType]
    yield fake
    fake.loop.close()
