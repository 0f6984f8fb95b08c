"""A teacher that never succeeds is refused before anything is trained, with the stage at which its episodes ended."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from quintain.errors import DataError
from quintain.methods.find import find_method
from quintain.types import Trajectory

SOLVED = "got 3 episodes into solved and none out of it, because each did not solve its task"
SAYS = {
    "sft": "imitating 3 demonstrations: got none that solved its task; raise demonstrations, or give the environment",
    "atlas": f"imitating critical turns: {SOLVED}; loosen solved, or collect more",
    "xlam": "imitating 3 demonstrations: got none that solved its task; raise demonstrations",
    "agent_tuning": "got 3 episodes into enough and none out of it, because each did not solve its task, or earns less",
    "agent_flan": SOLVED,
    "fireact": "did not solve its task",
}


@pytest.mark.parametrize("name", SAYS)
def test_a_teacher_that_never_succeeds(name: str, trajectory: Callable[..., Trajectory], shows: Any) -> None:
    failed = [trajectory([((1,), (10, 2))], value=0.0, task=f"t{n}", environment="guess") for n in range(3)]
    found = find_method(name)
    made: Any = found.make(found.config_class())
    with pytest.raises(DataError, match=re.escape(SAYS[name])):
        made.data(shows(failed))
