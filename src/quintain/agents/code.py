"""Code as actions: the model writes Python, which runs in the sandbox; what it prints is the observation.

CodeAct (arXiv 2402.01030): tools are functions, variables live on from turn to turn. CaveAgent (2601.01569): objects
go in and come out as they are. DynaSaur (2411.01747): functions of solved episodes are kept, and shown to later ones.
`quintain.agents.code_world` carries the code out. One process per episode, never shared.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from quintain.agents.code_world import InCode, code_of
from quintain.agents.harness import ChatSession, Wording, sampling_of, system_text
from quintain.agents.library import ActionLibrary, load_library
from quintain.agents.protocol import Agent, Brief
from quintain.environments.protocol import Environment
from quintain.errors import UsageError
from quintain.safety.isolation import require
from quintain.safety.limits import MEBIBYTE, Limits
from quintain.text.chat import Chat
from quintain.text.code import FORMS, Style, parse_code, write_code
from quintain.types import Action


@dataclass(frozen=True, slots=True)
class CodeAct:
    """Python in a block: ``CodeAct(chat, seconds=5.0)``, in the catalogue ``code?seconds=5``.

    Code can call the functions in the file `library`, as a run of `dynasaur` keeps them; `shown` of those that fit the
    task are listed to an episode, and it may look for others. No episode writes them.
    """

    chat: Chat
    temperature: float = 1.0
    max_tokens: int = 512
    style: Style = "fence"
    """How a block is written; both ways are read."""
    seconds: float = 5.0
    """Time of one turn's code; the time of the tools is not counted."""
    memory: int = 512
    """Memory in MiB."""
    max_calls: int = 64
    """Calls of tools in one turn."""
    max_output: int = 2_000
    """Characters of a turn's output that are shown."""
    withhold: bool = False
    """Whether longer output is not shown at all, and said to be withheld (CaveAgent), where else its beginning is."""
    shows_state: bool = False
    """Whether the observation ends with the variables that are new or have another type (CaveAgent)."""
    turns: int = 0
    """Turns of an episode; how many are left is told after each. 0: those of the environment, untold."""
    proposals: int = 1
    """Answers that may be given: a wrong one before the last does not end the episode, but is told to be wrong."""
    library: str = ""
    """File of functions that code can call."""
    shown: int = 5
    """Functions that an episode is told at its beginning."""
    shelf: ActionLibrary = field(default_factory=ActionLibrary, init=False, compare=False)
    """The library, read."""

    def __post_init__(self) -> None:
        """Open the library.

        Raises:
            UsageError: a number is not positive, or the style unknown.
            DataError: the file `library` holds none.
        """
        small = {
            name: getattr(self, name)
            for name in ("seconds", "memory", "max_calls", "max_output")
            if getattr(self, name) <= 0
        }
        rest = {name: getattr(self, name) for name in ("shown", "turns", "proposals", "style")}
        if small or min(self.shown, self.turns, self.proposals - 1) < 0 or self.style not in FORMS:
            raise UsageError(
                f"harness code: got {small or rest}; "
                f"give positive numbers, and a style of {' or '.join(FORMS)}"
            )
        if self.library:
            object.__setattr__(self, "shelf", load_library(Path(self.library)))

    def open(self, brief: Brief) -> ChatSession:
        """See `Agent.open`."""
        sampling = sampling_of(self.chat, self.temperature, self.max_tokens)
        wording = Wording(parse=partial(parse_code, style=self.style), write=self._write)
        told = f"Write Python:\n{FORMS[self.style]}"
        return ChatSession(self.chat, sampling, wording, system_text(brief, told))

    def equip(self, environment: Environment) -> Environment:
        """Return `environment` with a Python in front of it.

        Raises:
            SandboxError: isolation is missing or does not work.
            UsageError: answers are to be taken back where the environment cannot be.
        """
        require()
        return InCode(
            environment,
            limits=Limits(seconds=self.seconds, memory_bytes=self.memory * MEBIBYTE),
            max_calls=self.max_calls,
            max_output=self.max_output,
            withhold=self.withhold,
            shows_state=self.shows_state,
            turns=self.turns,
            proposals=self.proposals,
            library=self.shelf,
            shown=self.shown,
        )

    def _write(self, action: Action) -> str:
        """Return `action` as the policy writes it; calls of tools become code."""
        return write_code(code_of(action) if action.tool_calls else action.text, self.style)


def find_shelf(agent: Agent) -> ActionLibrary:
    """Return the library from which `agent`, or what it wraps, has its functions; who puts a bank in it shares it.

    Raises:
        UsageError: it does not write code.
    """
    inner: Agent | None = agent
    while inner is not None:
        if isinstance(inner, CodeAct):
            return inner.shelf
        inner = getattr(inner, "agent", None)
    raise UsageError(f"library of an agent: got {type(agent).__name__}, which writes no code; use agent=code")
