"""What a check says: of an environment, an engine, a model, a run, or of what a method would train on."""

from typing import Literal, NamedTuple

State = Literal["pass", "fail", "skip", "note"]
"""What a probe found is in order, or wrong; skip: it was not run; note: it is for a person to judge."""


class Finding(NamedTuple):
    """What one probe found: ``Finding(name="random play", state="fail", detail="reward: got nan")``."""

    name: str
    state: State
    detail: str = ""

    def __str__(self) -> str:
        """Return it as a line."""
        return f"{self.state}  {self.name}{': ' if self.detail else ''}{self.detail}"
