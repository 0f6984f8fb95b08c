"""The trees that each method grows, call by call, on a fixed seed: no change of the search changes one unseen."""

import hashlib
import json
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

import pytest

from quintain.environments.protocol import Environment, Legal, begin
from quintain.methods.preference import agent_r, optima, rro
from quintain.methods.preference.searching import Search
from quintain.methods.selftraining import rest_mcts
from quintain.rollout.collect import Rollout
from quintain.rollout.replay import ReplayedEpisode
from quintain.rollout.request import Limits, Options
from quintain.rollout.views import Prefix
from quintain.search.agent import search
from quintain.testing.pupil import new_pupil, tasks_from
from quintain.types import Action, Group, Observation, StepResult, Task, Trajectory, as_text, derive_seed
from quintain.worlds.sokoban.game import Sokoban

WORLD = "sokoban?size=4&walls=0&view=grid&scramble=20"
DIALOGUE = "twocards?cost=0"


def drawn(environment: Environment, rng: Random, _: Sequence[Observation]) -> Action:
    """Any legal action; an answer that may be wrong where a seat has none."""
    assert isinstance(environment, Legal)
    return Action(text=rng.choice(sorted(environment.legal_actions())))


def worth(text: str) -> float:
    """A value of `text` that is as good as any, and the same on every machine."""
    return zlib.crc32(text.encode()) % 997 / 997


@dataclass(slots=True)
class Played:
    """A collector whose policy acts at random, and which writes down what it is asked."""

    rollout: Rollout
    world: str
    asked: list[Any] = field(default_factory=list[Any])

    def seed(self, *parts: int | str) -> int:
        return derive_seed("fixed", *parts)

    def tasks(self, step: int, count: int) -> list[Task]:
        return tasks_from(self.world, count, first=100 * step)

    def sample(
        self, step: int, tasks: Sequence[Task], *, size: int, max_turns: int | None = None, again: int = 0
    ) -> list[Group]:
        options = Options(limits=Limits(max_turns=max_turns or 8))
        seeds = [self.seed("step", step, again, number) for number in range(size)]
        played = [self.rollout.demonstrations(tasks, drawn, seed=seed, options=options) for seed in seeds]
        groups = [
            Group(
                task=own[0].task,
                trajectories=tuple(replace(g.trajectories[0], index=k) for k, g in enumerate(own)),
            )
            for own in zip(*played, strict=True)
        ]
        return self._write(groups, "sample", step, size, max_turns, again)

    def replay_episodes(self, trajectories: Sequence[Trajectory]) -> list[ReplayedEpisode]:
        return self.rollout.replay_episodes(trajectories, may_differ=True)

    def continue_from(
        self,
        step: int,
        prefixes: Sequence[Prefix],
        *,
        size: int,
        seed: int,
        max_turns: int | None = None,
        phase: str = "branch",
        again: int = 0,
        teacher: Any = None,
    ) -> list[Group]:
        groups = self.rollout.continuations(
            prefixes,
            size=size,
            seed=seed,
            options=Options(limits=Limits(max_turns=max_turns or 8)),
            demonstrator=teacher or drawn,
        )
        lengths = [len(prefix.turns) for prefix in prefixes]
        return self._write(groups, "continue", step, size, seed, max_turns, phase, again, lengths)

    def _write(self, groups: list[Group], *asked: Any) -> list[Group]:
        self.asked.append([*asked, [acts(group.trajectories) for group in groups]])
        return groups


def acts(trajectories: Iterable[Trajectory]) -> list[Any]:
    return [[t.task.id, *(turn.action.text for turn in t.turns), t.stop.name] for t in trajectories]


def families_of(families: Sequence[Sequence[tuple[Trajectory, float]]]) -> list[Any]:
    return [[(acts([t]), round(value, 9)) for t, value in family] for family in families]


def surprise(_: Any, dialogues: Sequence[Trajectory]) -> list[float]:
    return [1 + worth(as_text(t.final_observation) + str(len(t.turns))) for t in dialogues]


def grow_rest_mcts(collector: Any) -> Any:
    config = rest_mcts.Config(tasks=4, branches=3, rollout_turns=2, expansions=6, gate=1.0)
    return acts(t for g in rest_mcts.search(config, worth, collector, 1) for t in g.trajectories)


def grow_agent_q(collector: Any) -> Any:
    search = Search(
        tasks=4, branches=3, episodes=6, exploration=1.0, mixing=0.8,
        critic=lambda ways: [worth(as_text(way.final_observation)) for way in ways],
    )  # fmt: skip
    found = [search.grow(collector, step) for step in (1, 2)][-1]
    return families_of(found.families), {name: round(value, 9) for name, value in found.metrics.items()}


def grow_dits(collector: Any) -> Any:
    search = Search(
        tasks=4, branches=4, episodes=6, exploration=1.0, mixing=1.0, critic=lambda ways: [0.0] * len(ways)
    )
    return families_of(search.grow(collector, 1).families)


def grow_agent_r(collector: Any) -> Any:
    config = agent_r.Config(environment=WORLD, tasks=4, branches=3, expansions=4, undo_turns=0)
    revisions = agent_r.Revisions(config, agent_r.good_at(config, 1))
    return acts(t for g in revisions.collect(collector, 1).groups for t in g.trajectories)


def grow_rro(collector: Any) -> Any:
    rising = rro.Rising(rro.Config(tasks=3, rollouts=2, cap=3), collector, 1)
    rising.collect()
    return families_of(rising.families), rising.num_states, rising.num_rollouts


def grow_optima(collector: Any) -> Any:
    made = optima.Dialogues(optima.Config(tasks=4, group_size=5, learn="dpo"), surprise=surprise)
    made.collect(collector, 1)
    return [
        [acts(family.dialogues), [round(value, 9) for value in family.worth]] for family in made.families
    ], [families_of(family.children(-9.0)) for family in made.families]


def grow_search(collector: Any) -> Any:
    """The search in an environment itself, with every action that it carries out."""
    done = list[str]()

    class Written(Sokoban):
        def step(self, action: Action) -> StepResult:
            done.append(action.text)
            return super().step(action)

    found = list[Any]()
    for task in collector.tasks(1, 6):
        for by in ("breadth", "best"):
            for nodes in (7, 200):
                environment = Written(size=4, walls=0, view="grid", scramble=20)
                begin(environment, task)
                before = environment.snapshot()
                way = search(environment, nodes=nodes, by=by)
                found.append([*way.actions, way.is_solved, way.num_nodes, len(done)])
                assert environment.snapshot() == before
    return found, done


GROWN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "agent_q": (grow_agent_q, WORLD),
    "agent_r": (grow_agent_r, WORLD),
    "dits": (grow_dits, WORLD),
    "optima": (grow_optima, DIALOGUE),
    "rest_mcts": (grow_rest_mcts, WORLD),
    "rro": (grow_rro, WORLD),
    "search": (grow_search, WORLD),
}
DIGESTS = {
    "agent_q": "929b5ec8a0940316",
    "agent_r": "36f8de9a8b171cec",
    "dits": "9cc246b7b4c1d6c9",
    "optima": "b837ed77297931aa",
    "rest_mcts": "fe8fc3f1ad01b4b6",
    "rro": "5c21ad1796518c3d",
    "search": "f84d9c057fb6bcc1",
}


@pytest.fixture
def collector(request: pytest.FixtureRequest) -> Generator[Played]:
    world = cast(str, request.param)
    pupil = new_pupil([world], seed=0, model="micro?tokens=words", agent="text")
    with pupil.acting(world) as rollout:
        yield Played(rollout, world)


@pytest.mark.parametrize(
    ("method", "collector"), [(name, world) for name, (_, world) in GROWN.items()], indirect=["collector"]
)
def test_a_method_grows_the_trees_that_it_grew(method: str, collector: Played) -> None:
    found = GROWN[method][0](collector)
    text = json.dumps([collector.asked, found])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[method], text
