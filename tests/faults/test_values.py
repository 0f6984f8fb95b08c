"""Whatever environments, agents and files hold, no command ends with an error inside quintain."""

from pathlib import Path

import pytest
from tests.faults.test_runs import ran

pytestmark = [pytest.mark.timeout(36_000), pytest.mark.slow]


@pytest.mark.parametrize(
    "place",
    ["instructions", "prompt", "shown", "observation", "key", "legal", "expert", "reward", "success", "terminated",
     "terms", "data", "max_turns", "return_range", "at_reset", "at_step", "agent", "line"],
)  # fmt: skip
def test_no_value_is_an_error_inside(place: str, tmp_path: Path) -> None:
    report = ran("values_program.py", tmp_path, place)
    print(f"{place}: {report['cases']} values")
    assert report["wrong"] == {}
    assert report["cases"] > 3
