"""What a rollout is asked for: which episodes, within which limits, and who plays which seat. Frozen data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from quintain.agents.protocol import Agent
from quintain.errors import UsageError
from quintain.rollout.views import Prefix
from quintain.types import NOTHING, Task

POLICY = "policy"
"""The policy that plays every seat where nothing else is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of a rollout: ``Limits(max_turns=16, step_timeout=10.0)``."""

    max_turns: int | None = None
    """Turns of an episode; the environment's own `max_turns` when None."""
    step_timeout: float = 30.0
    """Seconds that one call into an environment may take."""
    reply_timeout: float = 600.0
    """Seconds without any reply of the engine after which its requests count as lost."""
    max_repeats: int | None = None
    """Times in a row that an action may have the same reply before the episode is cut; None: as often as it likes."""
    attempts: int = 2
    """Times an episode is tried before its failure is recorded."""
    max_failure_share: float = 0.05
    """Share of failed episodes above which `FailureRateError` stops the run."""
    max_broken_share: float = 1.0
    """Share of all attempts so far, retried ones included, that environment, tools or judge may break."""
    silence: float = 60.0
    """Seconds that an episode may wait on one thing before a warning says on what; see `watchdog`."""
    concurrency: int = 256
    """Episodes alive at once; no more than an environment's own `parallel`, where it has one."""
    num_workers: int = 1
    """Threads that step environments in lockstep; an environment's own `parallel`, where that is more. Asynchronous
    rollouts have a thread for every call that is under way."""
    has_state_keys: bool = False
    """Record the identity of every state, for credit that compares actions in equal states."""
    has_same_tools: bool = False
    """An episode whose tools are others than in one of the same task before is broken: its environment changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How some episodes differ from the others of a rollout: ``Options(limits=Limits(max_turns=3))``.

    What is None is as the rollout has it.
    """

    agent: Agent | Mapping[str, Agent] | None = None
    """The harness of the policy `policy`, or harnesses by the name of their policies."""
    limits: Limits | None = None
    seats: Mapping[str, str] | None = None
    """Which policy plays which seat."""


USUAL = Options()
"""Episodes as the rollout has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """Who plays: ``Cast(agents={"policy": agent, "opponent": other}, seats={"A": "policy", "B": "opponent"})``."""

    agents: Mapping[str, Agent]
    """Harnesses by policy."""
    seats: Mapping[str, str] = NOTHING
    """Seat, or role of a seat (``agent/plan``) → the policy that plays it; empty: `policy` plays every seat."""

    def policy(self, seat: str) -> str:
        """Return the name of the policy that plays `seat`, or a role of it: ``agent/plan``.

        A role that has no policy of its own is played by that of its seat.

        Raises:
            UsageError: there is none.
        """
        speaker = seat.partition("/")[0]
        name = self.seats.get(seat, self.seats.get(speaker)) if self.seats else POLICY
        if name is None or name not in self.agents:
            self.check((seat,))
        return str(name)

    def check(self, seats: Iterable[str]) -> None:
        """Refuse `seats` that no policy plays.

        Raises:
            UsageError: there are some; it names them and the policies there are.
        """
        played = self.seats or dict.fromkeys(seats := tuple(seats), POLICY)
        missing = [seat for seat in seats if played.get(seat) not in self.agents]
        if missing:
            there = ", ".join(sorted(self.agents)) or "none"
            raise UsageError(
                f"seat{'s' * (len(missing) > 1)} {', '.join(missing)}: got no policy; there are the policies {there}: "
                f'say which plays each seat, as seats={{"{missing[0]}": "{min(self.agents, default=POLICY)}"}}'
            )

    def changed(self, agent: Agent | Mapping[str, Agent] | None, seats: Mapping[str, str] | None) -> Cast:
        """Return this with other harnesses or seats where they are not None."""
        if agent is None and seats is None:
            return self
        agents = {} if agent is None else dict(by_policy(agent))
        changed = Cast(agents={**self.agents, **agents}, seats=self.seats if seats is None else seats)
        if unknown := sorted(set(agents) - set(self.agents)):
            raise UsageError(
                f"agents of {', '.join(unknown)}: got no such policy; there are {', '.join(sorted(self.agents))}"
            )
        changed.check(changed.seats)
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRequest:
    """Asks for one episode: ``EpisodeRequest(task=task, group="0:guess/train/3", index=1, seed=7)``.

    `group` and `index` name it among the others of a call. What is None is as the rollout has it.
    """

    task: Task
    group: str
    index: int
    seed: int
    """Counter-based: what is sampled depends on it and on nothing that runs beside the episode."""
    agent: Agent | Mapping[str, Agent] | None = None
    max_turns: int | None = None
    seats: Mapping[str, str] | None = None
    """Which policy plays which seat in this episode, as where players change sides."""
    prefix: Prefix | None = None
    """Turns of another episode that this one continues."""


def by_policy(agent: Agent | Mapping[str, Agent]) -> Mapping[str, Agent]:
    """Return harnesses by policy; a single one is that of `policy`."""
    return agent if isinstance(agent, Mapping) else {POLICY: agent}
