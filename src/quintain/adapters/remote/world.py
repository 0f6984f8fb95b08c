"""A world that a server elsewhere plays: what the clients of both protocols share.

A server of ours tells the whole result under the key ``quintain``: tools, legal actions, ends and reward terms come
through as they are. A server that is gone, late or speaks otherwise is the environment's failure, and what breaks
inside a world of ours keeps its owner.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from quintain.environments.protocol import Environment
from quintain.environments.tools import OwnedFault
from quintain.environments.wire import OURS, read_observation, read_result, read_tool
from quintain.types import Observation, Split, StepResult, Task, ToolSpec

Row = Mapping[str, Any]
OWNERS = ("policy", "environment", "tool", "judge", "engine")
INFINITE = (float("-inf"), float("inf"))


class RemoteFault(OwnedFault):
    """A server did not play its world as the protocol asks."""

    @classmethod
    def of(cls, protocol: str, url: str, kind: str, got: str) -> "RemoteFault":
        """Return the fault of the server at `url`; `kind` is for counting."""
        fault = cls(f"{protocol} server {url}: got {got}; check the server")
        fault.kind = f"{protocol}_{kind}"
        return fault


class RemoteWorld(Environment):
    """Do what the server asks."""

    protocol = "remote"
    parallel = 16
    _tools: tuple[ToolSpec, ...] = ()
    _told: str = ""
    _legal: tuple[str, ...] = ()

    def adopt(self, facts: Row) -> None:
        """Take what a server of ours says of its world."""
        low, high = facts["return_range"]
        self._told = str(facts["instructions"])
        self._tools = tuple(read_tool(row) for row in facts["tools"])
        self.max_turns = int(facts["max_turns"])
        self.evaluation_only = facts.get("evaluation_only") is True
        self.return_range = (
            INFINITE[0] if low is None else float(low),
            INFINITE[1] if high is None else float(high),
        )

    def task(self, split: Split, index: int) -> Task:
        """Return task number `index` of `split`; the server is told both."""
        return replace(super().task(split, index), data={"index": index})

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools of the server's world."""
        return self._tools

    def instructions(self) -> str:
        """Return what the server says of its world."""
        return self._told or super().instructions()

    def first(self, row: Row) -> Observation:
        """Return the first observation in what a server of ours says."""
        self._legal = tuple(row["legal"] or ())
        observation = read_observation(row["observation"])
        prompt = row["prompt"]
        return f"{prompt}\n\n{observation}" if prompt and isinstance(observation, str) else observation

    def result(self, row: Row) -> StepResult:
        """Return the result in what a server of ours says."""
        self._legal = tuple(row["legal"] or ())
        return read_result(row["result"])

    def trouble(self, url: str, row: Row) -> OwnedFault:
        """Return the fault that a server tells of."""
        message, owner = str(row.get("message"))[:300], row.get("owner")
        fault = RemoteFault.of(self.protocol, url, "error", message)
        if owner in OWNERS:
            fault.owner = owner
            fault.kind = str(row.get("kind"))[:60]
        return fault


def is_ours(found: object) -> bool:
    """Whether an answer comes from a server of ours."""
    return isinstance(found, Mapping) and isinstance(cast(Row, found).get(OURS), Mapping)
