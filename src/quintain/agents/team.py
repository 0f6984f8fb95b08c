"""A team as data: who there is, who hears whom, who speaks when.

A team is a TOML file: ``[roles.NAME]`` with what the role `sees`, what it is asked, and who acts; `order` says who
speaks in a round, `rounds` how often that goes around before the acting role does something. All roles are
seats of one environment (`TeamWorld`), so each may be a policy of its own, with its own adapter, optimiser and credit.
A role is shown what it `sees` and nothing else: each of its turns is a conversation of its own. Papers differ in the
file, not in the code (MARTI's debate, Dr. MAS' solver and verifier, a planner with workers, a negotiation).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from quintain.agents.grounded import in_words
from quintain.agents.harness import PlainText
from quintain.agents.plan import whole_plan
from quintain.agents.seated import Anew, SeatedWorld
from quintain.config import build
from quintain.environments.baselines import foreseen
from quintain.environments.noisy import Fallible
from quintain.environments.protocol import (
    Environment,
    Expert,
    Seats,
    SimultaneousSeats,
    Snapshot,
    StateKey,
    advance,
    environment_name,
)
from quintain.errors import ConfigError, UsageError, suggestion
from quintain.text.chat import Chat
from quintain.types import ANSWER, Action, StepResult, as_text

if TYPE_CHECKING:
    from random import Random

    from quintain.agents.protocol import Brief
    from quintain.types import Observation, Task

TEAMS = Path(__file__).parent / "teams"
"""Files of the teams that come along."""
MOST_ROUNDS = 100
TASK, WORLD, DATA = "task", "world", "data."
"""What can be seen beside roles: how the episode began, what the environment shows now, a field of the task's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A member of a team: ``Role(sees=("task", "solver"), asks="Is it right?", ends={"yes": "act"})``."""

    sees: tuple[str, ...] = (TASK, WORLD)
    """what it is shown, in this order: ``task``, which is how the episode began; ``world``, what the environment showed
    since; ``data.FIELD`` of the task; a role, whose last words"""
    asks: str = ""
    """what it is asked, below all that"""
    acts: bool = False
    """whether what it says is done in the environment; one role of a team acts, the last of its order"""
    ends: Mapping[str, Literal["act", "stop"]] = field(default_factory=dict[str, Literal["act", "stop"]])
    """what it may say, alone, to end the talk: then the acting role acts, or the episode stops"""
    answers: bool = False
    """whether what it says is tried as an action, in an environment that then goes back: it has the reward term
    ``answer`` that the environment gives it, or 1 where it would solve the task, and nothing is paid for it"""
    shows: Literal["next", "plan"] = "next"
    """what an expert says in its place: the action that comes next, or all that are to come"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Roles, who speaks after whom, and how often: ``Team(roles={"solver": Role(acts=True)}, order=("solver",))``."""

    roles: Mapping[str, Role]
    order: tuple[str, ...]
    """who speaks in a round, one after the other; who acts stands last"""
    rounds: int = 1
    """times that those who do not act speak before each action"""

    def __post_init__(self) -> None:
        """Refuse a team in which somebody speaks to nobody, is never asked, or talks without end."""
        names = list(self.roles)
        for name in self.order:
            if name not in self.roles:
                raise ConfigError(f"order of a team: got {name!r}; {suggestion(name, names)}")
        if unasked := [name for name in names if name not in self.order]:
            raise ConfigError(
                f"order of a team: got one without {unasked[0]}, which then never speaks; add it"
            )
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise ConfigError(
                f"rounds of a team: got {self.rounds}; give 1 to {MOST_ROUNDS}, which bounds the talk"
            )
        acting = [name for name, role in self.roles.items() if role.acts]
        if len(acting) != 1 or self.order.index(acting[0]) != len(self.order) - 1:
            raise ConfigError(
                f"roles of a team: got {len(acting)} with acts = true ({', '.join(acting) or 'none'}) in the order "
                f"{', '.join(self.order)}; let one act, once and last"
            )
        for name, role in self.roles.items():
            for seen in role.sees:
                if seen not in (TASK, WORLD, *names) and not seen.startswith(DATA):
                    raise ConfigError(
                        f"sees of {name}: got {seen!r}; {suggestion(seen, [TASK, WORLD, *names])}"
                    )
            if role.acts and role.ends:
                raise ConfigError(
                    f"ends of {name}: got some, but what it says is done; let another role end the talk"
                )
        heard = self._find_heard()
        for name in names:
            if name not in heard:
                raise ConfigError(
                    f"roles of a team: got {name}, whom nobody sees that acts, ends the talk, or is heard by one who "
                    "does; let one see it, or leave it out"
                )

    def _find_heard(self) -> set[str]:
        """Return the roles whose words can matter: who acts, who ends the talk, and whom one of these sees."""
        heard = {name for name, role in self.roles.items() if role.acts or role.ends}
        while (
            more := {seen for name in heard for seen in self.roles[name].sees if seen in self.roles} - heard
        ):
            heard |= more
        return heard

    @property
    def talks(self) -> tuple[str, ...]:
        """Who speaks before an action, in order, all rounds."""
        return self.order[:-1] * self.rounds

    @property
    def actor(self) -> str:
        """The role that acts."""
        return self.order[-1]


def read_team(of: str) -> Team:
    """Return the team that comes along under the name `of`, or that of the TOML file.

    Raises:
        UsageError: there is none.
        ConfigError: the file is no team.
    """
    path = Path(of) if of.endswith(".toml") else TEAMS / f"{of}.toml"
    names = sorted(file.stem for file in TEAMS.glob("*.toml"))
    if not path.is_file():
        raise UsageError(f"team: got {of!r}; {suggestion(of, names)}, or give a file that ends in .toml")
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"team: got {path}, which is no TOML: {error}; mend it there") from error
    roles = table.get("roles")
    if not isinstance(roles, dict) or not roles:
        raise ConfigError(f"team: got {path} without roles; write [roles.NAME] for each")
    try:
        made = {
            name: build(Role, values, f"role {name}")
            for name, values in cast("dict[str, Any]", roles).items()
        }
        return build(Team, {**table, "roles": made}, "team")
    except ConfigError as error:
        raise ConfigError(f"team {path.name}: {error}") from error


@dataclass(frozen=True, slots=True)
class Together:
    """The harness of a team: ``Together(chat, of="debate")``."""

    chat: Chat
    of: str = "debate"
    """The team: debate, planner, negotiation, or a TOML file."""
    temperature: float = 1.0
    max_tokens: int = 128

    def __post_init__(self) -> None:
        """Refuse a team that is none before anything is played."""
        read_team(self.of)

    def open(self, brief: Brief) -> Anew:
        """See `Agent.open`."""
        return Anew(PlainText(self.chat, self.temperature, self.max_tokens), brief)

    def equip(self, environment: Environment) -> Environment:
        """See `Equips`."""
        kind = TeamWorld if isinstance(environment, Expert) else UnshownTeamWorld
        return kind(environment, read_team(self.of))


class TeamWorld(SeatedWorld):
    """`inner`, in which a team talks before it acts: ``TeamWorld(Sums(), read_team("debate"))``."""

    own: ClassVar[tuple[str, ...]] = ("_num_done", "_said", "_place", "_now", "_begun", "_fields")

    def __init__(self, inner: Environment, team: Team) -> None:
        """Let `team` act in `inner`.

        Raises:
            UsageError: `inner` has tools, or several seats of its own.
        """
        seats = inner.seats() if isinstance(inner, Seats | SimultaneousSeats) else ()
        if len(seats) > 1:
            raise UsageError(
                f"a team: got {environment_name(inner)}, which has seats of its own ({', '.join(seats)}), each with "
                "what it alone is shown; give these policies (--seats.NAME POLICY), or take an environment of one seat"
            )
        if inner.tools():
            raise UsageError(
                f"a team: got {environment_name(inner)}, which has tools; take an environment of words, or its "
                "interface=text"
            )
        if any(role.answers for role in team.roles.values()) and not isinstance(inner, Snapshot):
            raise UsageError(
                f"a team whose roles answer: got {environment_name(inner)}, which cannot go back; take an environment "
                "with snapshots, or leave answers out"
            )
        self.team = team
        super().__init__(inner)
        self._begun = self._now = ""
        self._said: dict[str, str] = {}
        self._place = 0
        self._fields: dict[str, Any] = {}

    def count_turns(self) -> int:
        """Return the turns of all roles."""
        return self.inner.max_turns * (len(self.team.talks) + 1)

    def seats(self) -> tuple[str, ...]:
        """Return the roles."""
        return tuple(self.team.roles)

    def seat(self) -> str:
        """Return who speaks next."""
        talks = self.team.talks
        return talks[self._place] if self._place < len(talks) else self.team.actor

    def reset(self, task: Task) -> Observation:
        """Begin the episode inside."""
        self._fields, self._said, self._place = dict(task.data), {}, 0
        for role in self.team.roles.values():
            for seen in role.sees:
                if seen.startswith(DATA) and seen.removeprefix(DATA) not in task.data:
                    raise UsageError(
                        f"a team: got {seen!r} to be seen of task {task.id}, whose data has "
                        f"{', '.join(task.data) or 'nothing'}; name one of these"
                    )
        self._begun = self._now = as_text(self.begin_inner(task))
        return self._question()

    def step(self, action: Action) -> StepResult:
        """Take what the role whose turn it is says, or do what the acting one does."""
        name = self.seat()
        role, words = self.team.roles[name], action.text.strip()
        if role.acts:
            result = self._act(action)
            if role.answers:
                result = replace(result, reward_terms={ANSWER: _grade(result), **result.reward_terms})
            self._now, self._place = as_text(result.observation), 0
            self._said[name] = words
            return result if result.is_over else replace(result, observation=self._question())
        self._said[name] = words
        end = role.ends.get(words)
        if end == "stop":
            return StepResult(observation=f"{name} ends it.", is_success=False, is_terminated=True)
        terms = {ANSWER: self._try(action)} if role.answers else {}
        self._place = len(self.team.talks) if end == "act" else self._place + 1
        return StepResult(observation=self._question(), is_valid=bool(words), reward_terms=terms)

    def _try(self, action: Action) -> float:
        """Return what `action` would be worth as an answer; the environment stays as it is."""
        inner = cast(Snapshot, self.inner)
        saved = inner.snapshot()
        result = advance(self.inner, action)
        inner.restore(saved)
        return _grade(result)

    def expert_action(self) -> Action:
        """Return the expert's action of who acts; of who speaks, what the expert does next, or all that it will do."""
        name = self.seat()
        role = self.team.roles[name]
        if role.acts:
            return cast(Expert, self.inner).expert_action()
        said = [word for word, end in role.ends.items() if end == "act"]
        heard = [seen for seen in role.sees if seen in self.team.roles]
        if said and heard and all(seen in self._said for seen in heard):
            return Action(text=said[0])
        if role.shows == "plan":
            return Action(text=whole_plan(foreseen(self.inner), names=True).text)
        return Action(text=in_words(cast(Expert, self.inner).expert_action()))

    def mistaken_action(self, rng: Random) -> Action:
        """Return what the environment calls a mistake where it is acted; talk has none. See `noisy.Fallible`."""
        if self.team.roles[self.seat()].acts and isinstance(self.inner, Fallible):
            return self.inner.mistaken_action(rng)
        return self.expert_action()

    def state_key(self) -> str:
        """Return the state of the environment, who speaks, and what was said."""
        return f"{cast(StateKey, self.inner).state_key()} {self._place} {sorted(self._said.items())}"

    def _question(self) -> str:
        """Return what the role whose turn it is is shown."""
        role = self.team.roles[self.seat()]
        lines = [line for seen in role.sees for line in self._show(seen)]
        return "\n".join([*lines, *([role.asks] if role.asks else [])])

    def _show(self, seen: str) -> Sequence[str]:
        """Return the lines that one entry of `Role.sees` is."""
        if seen == TASK:
            return [self._begun]
        if seen == WORLD:
            return [self._now] if self._now != self._begun else []
        if seen.startswith(DATA):
            name = seen.removeprefix(DATA)
            return [f"{name}: {self._fields[name]}"]
        return [f"{seen}: {self._said[seen]}"] if seen in self._said else []


def _grade(result: StepResult) -> float:
    """Return what the environment says of an answer; where it says nothing, 1 if it solved the task."""
    return float(result.reward_terms.get(ANSWER, result.is_success is True))


class UnshownTeamWorld(TeamWorld):
    """The same around an environment without an expert, which then nobody can show."""

    adds: ClassVar[frozenset[type]] = frozenset({Seats})
