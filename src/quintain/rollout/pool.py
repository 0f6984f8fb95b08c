"""The environments of a rollout: made when they are needed, used again, closed at the end; and what broke of them."""

from __future__ import annotations

from collections.abc import Sequence

from quintain.agents.protocol import Agent, equipping
from quintain.environments.boundary import spec_of
from quintain.environments.protocol import Environment, Factory
from quintain.environments.tools import OwnedFault
from quintain.errors import EnvironmentFault, QuintainError
from quintain.rollout.failures import INFRASTRUCTURE, one_line
from quintain.rollout.leaks import Leaks
from quintain.rollout.request import Limits
from quintain.rollout.stepper import Stepper
from quintain.types import Failure


class Pool:
    """Environments made by `make_environment`, as `agents` need them."""

    def __init__(self, make_environment: Factory, agents: Sequence[Agent], limits: Limits) -> None:
        self.make_environment = make_environment
        self.spec = spec_of(make_environment)
        self.stepper = Stepper(timeout=limits.step_timeout, num_workers=limits.num_workers)
        self.leaks = Leaks(make_environment, self.stepper)
        self.num_attempts = 0
        """Attempts at an episode so far."""
        self.broken: list[Failure] = []
        """What environments, tools and judges broke in them."""
        self.parallel = 0
        """`Environment.parallel` of what was made."""
        self._agents = list({id(agent): agent for agent in agents}.values())
        self._limits = limits
        self._idle: list[Environment] = []

    def reuse(self, environment: Environment) -> None:
        """Keep `environment` for a later episode."""
        self._idle.append(environment)

    def idle(self) -> Environment | None:
        """Return an environment that nobody uses, if there is one."""
        return self._idle.pop() if self._idle else None

    def take(self) -> Environment:
        """Return an environment that nobody uses, or a new one."""
        return self.idle() or self.make()

    def attempt(self) -> Environment | QuintainError:
        """Return a new environment, or the error of ours that making it raised; may be called from any thread."""
        return try_make(self.make_environment)

    def make(self) -> Environment:
        """Return a new environment; one whose process broke while it began is tried again.

        Raises:
            EnvironmentFault: its constructor raised, or did not return in time.
            SandboxError: the agent runs code, and isolation is missing.
        """
        for number in range(self._limits.attempts):
            (made,) = self.stepper.run([self.attempt])
            if not self.is_worth_another(made, number):
                return self.admit(made)
        raise AssertionError("the last attempt is worth no other")

    def is_worth_another(self, made: Environment | QuintainError | Failure, number: int) -> bool:
        """Return whether `made`, the outcome of attempt `number` from 0 on, is to be tried again, which is counted."""
        if number + 1 >= self._limits.attempts:
            return False
        if not isinstance(made, OwnedFault) or made.owner not in INFRASTRUCTURE:
            return False
        self.num_attempts += 1
        self.broken.append(Failure(owner=made.owner, kind=made.kind, message=str(made)))
        return True

    def admit(self, made: Environment | QuintainError | Failure) -> Environment:
        """Return the new environment `made`, as the agents need it.

        Raises:
            QuintainError: there is none; see `make`.
        """
        if isinstance(made, QuintainError):
            raise made
        if isinstance(made, Failure):
            reason = made.message if made.kind == "timeout" else f"{made.kind}: {one_line(made.message)}"
            raise EnvironmentFault(f"making environment {self.spec}: got {reason}; mend __init__")
        if made.parallel:
            self.parallel = made.parallel
            self.stepper.num_workers = max(self._limits.num_workers, made.parallel)
        # Policies of one run have harnesses of their own, of one kind: what one of them puts around it serves all.
        kinds = {type(found): found for agent in self._agents if (found := equipping(agent)) is not None}
        for found in kinds.values():
            made = found.equip(made)
        return made

    def close(self) -> None:
        """Close the environments that nobody uses, and say what they leave behind."""
        idle, self._idle = self._idle, []
        self.stepper.run([environment.close for environment in idle])
        self.leaks.report()


def try_make(make: Factory) -> Environment | QuintainError:
    """Return a new environment, or the error of ours that making it raised."""
    try:
        return make()
    except QuintainError as error:
        return error
