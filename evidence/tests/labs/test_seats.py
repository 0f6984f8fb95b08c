"""An executor follows what it is told as often as it says."""

import random
from collections.abc import Sequence

from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, begin
from quintain.types import Action, Observation
from quintain_evidence.labs.seats import executor


def test_an_executor_follows_hints_or_is_deaf() -> None:
    environment = find("sokoban?size=3&walls=0")()
    begin(environment, environment.task("train", 0))

    def do(_: Environment, hint: str) -> Action | None:
        return Action(text=hint) if hint in ("north", "south") else None

    def last_line(seen: Sequence[Observation]) -> str:
        return str(seen[-1]).splitlines()[-1]

    rng = random.Random(0)
    seen = ["look", "a line\nsouth"]
    assert [executor(do, last_line)(environment, rng, seen).text for _ in range(3)] == ["south"] * 3
    deaf = [executor(do, last_line, follows=0.0)(environment, rng, seen).text for _ in range(40)]
    assert len(set(deaf)) > 1 and deaf.count("south") < 40
    lost = executor(do, lambda _: "fly")(environment, rng, seen).text
    assert lost in ("north", "south", "east", "west")
