"""An agent from a file: which harness it acts through, which tools it sees, what it is told (Youtu-Agent, 2512.24615).

``--agent agent.toml`` is the harness that the file names, behind `Configured`. A configuration is data: it names
harnesses, tools and options of quintain's own, and nothing else. What names a tool or a harness that does not exist is
refused, and said why; `quintain.methods.agents.generation` writes such files.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from quintain.agents.deliberation import Deliberation
from quintain.agents.protocol import Agent, Brief
from quintain.config.trust import find_names
from quintain.environments.protocol import Environment, environment_name
from quintain.errors import DataError, UsageError, suggestion
from quintain.store.files import replace_file
from quintain.types import Action, Completion

MAX_INSTRUCTIONS = 2_000
"""Characters that a configuration tells an agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """How an agent acts: ``Configuration(agent="react", tools=("lookup", "answer"), instructions="Look first.")``."""

    agent: str
    """a harness of the catalogue"""
    tools: tuple[str, ...] = ()
    """those of the environment that it sees; none: all"""
    instructions: str = ""
    """what it is told beside what the environment says"""

    def to_toml(self) -> str:
        """Return it as a file has it; strings of JSON are strings of TOML."""
        rows = {name: value for name, value in asdict(self).items() if value}
        return "".join(f"{name} = {json.dumps(value, ensure_ascii=True)}\n" for name, value in rows.items())

    def save(self, path: Path) -> None:
        """Write it to `path`."""
        replace_file(path, self.to_toml().encode())


def read_configuration(values: object) -> Configuration:
    """Return the configuration that `values` say.

    Raises:
        UsageError: it is none, or names what is not quintain's own.
    """
    if not isinstance(values, Mapping):
        raise UsageError(
            f"configuration of an agent: got {type(values).__name__}; give agent, tools, instructions"
        )
    known = cast("Mapping[str, Any]", values)
    names = ("agent", "tools", "instructions")
    if unknown := next((name for name in known if name not in names), None):
        raise UsageError(
            f"configuration of an agent: got {str(unknown)[:40]!r}; {suggestion(str(unknown), names)}"
        )
    agent, tools, told = known.get("agent"), known.get("tools", ()), known.get("instructions", "")
    is_list = isinstance(tools, (list, tuple)) and all(
        isinstance(t, str) for t in cast("list[object]", tools)
    )
    if not isinstance(agent, str) or not isinstance(told, str) or not is_list:
        raise UsageError(
            "configuration of an agent: got other things than texts and a list of texts; give agent = TEXT, "
            "tools = [TEXT, …], instructions = TEXT"
        )
    if len(told) > MAX_INSTRUCTIONS:
        raise UsageError(
            f"instructions of an agent: got {len(told)} characters; give at most {MAX_INSTRUCTIONS}"
        )
    if named := next(iter(find_names({"agent": agent})), None):
        raise UsageError(f"configuration of an agent: got {named}; name a harness of quintain's own")
    return Configuration(agent=agent, tools=tuple(cast("list[str]", tools)), instructions=told)


def load_configuration(path: Path) -> Configuration:
    """Return the configuration in the file at `path`.

    Raises:
        DataError: there is none.
        UsageError: see `read_configuration`.
    """
    try:
        return read_configuration(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise DataError(
            f"configuration of an agent: got {path}, which is no TOML ({error}); name another"
        ) from error


def check_tools(found: Configuration, environment: Environment) -> None:
    """Raise a `UsageError` where `found` names a tool that `environment` does not have."""
    there = [tool.name for tool in environment.tools()]
    if unknown := next((name for name in found.tools if name not in there), None):
        raise UsageError(
            f"tools of an agent: got {unknown[:40]!r}, which {environment_name(environment)} does not have; "
            f"{suggestion(unknown, there) if there else 'it has no tools, leave them out'}"
        )


@dataclass(frozen=True, slots=True)
class Configured:
    """A harness that sees chosen tools and is told more: ``configured?file=agent.toml+react``."""

    agent: Agent
    file: str = ""
    """File of the configuration."""
    configuration: Configuration | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Read the file, where one is named.

        Raises:
            DataError: it holds none.
        """
        if self.file:
            object.__setattr__(self, "configuration", load_configuration(Path(self.file)))

    def require(self, environment: Environment) -> None:
        """Raise a `UsageError` where `environment` does not have what is configured."""
        if self.configuration is not None:
            check_tools(self.configuration, environment)

    def open(self, brief: Brief) -> ConfiguredSession:
        """See `Agent.open`."""
        found = self.configuration or Configuration(agent="")
        told = "\n\n".join(part for part in (brief.instructions, found.instructions) if part)
        tools = tuple(tool for tool in brief.tools if not found.tools or tool.name in found.tools)
        return ConfiguredSession(self.agent, replace(brief, instructions=told, tools=tools))


class ConfiguredSession(Deliberation):
    """An episode of `Configured`: a call of a tool that it does not see is an error, and nothing is carried out."""

    def read(self, completion: Completion) -> Action:
        """See `Session.read`."""
        action = self._inner_read(completion)
        seen = [tool.name for tool in self._brief.tools]
        other = next((call.name for call in action.tool_calls if call.name not in seen), None)
        if other is None or action.error is not None:
            return action
        return replace(action, error=f"there is no tool {other[:40]}; there is {', '.join(seen)}")


def configure(agent: Agent, found: Configuration) -> Configured:
    """Return `agent` as `found` tells it what to see."""
    made = Configured(agent)
    object.__setattr__(made, "configuration", found)
    return made
