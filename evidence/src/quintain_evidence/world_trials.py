"""Can a small model learn each embedded world from its expert, and act through each harness? Imitation, over seeds.

A run is `quintain.methods.imitation.sft` from random weights; afterwards the policy, its most likely token at a time,
and the expert play the same held-out tasks. A run that was begun is continued and one that is done is read, so a
benchmark that was stopped goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from quintain.agents.catalog import AUTO
from quintain.config import build
from quintain.curriculum.streams import draw_held_out
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.baselines import expert, play
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.errors import DataError
from quintain.eval.evaluate import evaluate
from quintain.learning.saved import MODEL
from quintain.methods.imitation import sft
from quintain.models.load import load
from quintain.rollout.collect import Rollout
from quintain.store.files import replace_file
from quintain.store.run import Run
from quintain.types import NOTHING, Task
from quintain.warm_start.start import build_agent

RESULT = "imitation.json"
"""What came of a run, beside it."""
START_MARK = "<!-- imitated: written by `quintain bench worlds --page`, do not edit -->"
END_MARK = "<!-- end of imitated -->"
ENOUGH = 0.9
"""Share of the expert's success that counts as learned."""
SETTINGS: Mapping[str, Any] = {
    "model": "mini",
    "demonstrations": 4000,
    "steps": 1200,
    "batch_size": 16,
    "learning_rate": 3e-3,
    "eval_episodes": 1,
}
EPISODES = 128
"""Held-out tasks on which policy and expert are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A world and how its expert is imitated: ``World(name="guess", settings={"steps": 300})``."""

    name: str
    environment: str = ""
    """with options, where the default is not what is imitated; the name where empty"""
    settings: Mapping[str, Any] = NOTHING
    """settings of `sft` that differ from `SETTINGS`"""

    def config(self, seed: int, overrides: Mapping[str, Any]) -> sft.Config:
        """Return the configuration of one seed; it is evaluated at its end alone."""
        values = {**SETTINGS, **self.settings, **overrides}
        values |= {"environment": self.environment or self.name, "seed": seed, "eval_every": values["steps"]}
        config = build(sft.Config, values, f"benchmark {self.name}")
        config.check()
        return config


WORDS = "mini?tokens=words"


def _world(name: str, environment: str = "", **settings: Any) -> World:
    """Return the imitation of the expert of a world, with `settings` of its own."""
    return World(name=name, environment=environment, settings=settings)


WORLDS: tuple[World, ...] = (
    _world("bandit", "bandit?arms=2&gap=0.8&pulls=8", demonstrations=3000, steps=500),
    _world("calc", "calc?names=0", model=WORDS, steps=1000),
    _world("collab", demonstrations=1500, steps=300),
    _world("craft", "craft?depth=2&places=2", model=WORDS),
    _world("desk", "desk?interface=text", model=WORDS, demonstrations=8000, steps=2000),
    _world("guess", demonstrations=1000, steps=300),
    _world("hopqa", "hopqa?closed=0.1&hops=1", model=WORDS, demonstrations=10000, steps=1600),
    _world("house"),
    _world("keydoor"),
    _world("plan", "plan?blocks=3", demonstrations=10000, steps=3000),
    _world("repo", demonstrations=400, steps=300),
    _world("room", "room?width=4&depth=4&things=2", model=WORDS, steps=800),
    _world(
        "screen", "screen?buttons=3&fields=0&goal=click&height=24&items=0&width=48", model=WORDS, steps=1500
    ),
    _world("shop", "shop?items=12", model=WORDS, steps=1500),
    _world("sokoban", "sokoban?walls=1", demonstrations=8000, steps=1500),
    _world("stream", "stream?facts=1", steps=1500),
    _world("sums", "sums?digits=1"),
    _world("twocards", "twocards?facts=1", model=WORDS, steps=1500),
    _world("web", "web?goal=order", model=WORDS, steps=900),
)


def _through(agent: str, environment: str, name: str = "", **settings: Any) -> World:
    """Return the imitation of the expert of `environment` through `agent`."""
    small = {"agent": agent, "demonstrations": 1500, "steps": 300}
    return World(name=name or agent, environment=environment, settings={**small, **settings})


HARNESSES: tuple[World, ...] = (
    _through("text", "collab"),
    _through("choice", "collab"),
    _through("scored", "collab"),
    _through("glam", "collab?slots=2&values=3"),
    _through("twosome", "collab"),
    _through("tools", "guess"),
    _through("tools?calls=llama", "guess", "tools-llama"),
    _through("tools?calls=mistral", "guess", "tools-mistral"),
    _through("constrained", "guess"),
    _through("react", "guess"),
    _through("roles", "collab"),
    _through("code", "guess", demonstrations=150),
    _through("budget?calls=1", "guess", "budget"),
    _through("capped?calls=9", "guess", "capped"),
    _through("window?turns=2", "collab", "window"),
    _through("summary?every=2", "collab", "summary", model=WORDS, demonstrations=3000, steps=900),
    _through("memory", "collab", model=WORDS, demonstrations=3000, steps=700),
    _through("plan", "collab"),
    _through("rci", "collab"),
    _through("simplified", "collab"),
    _through("pivotal", "collab"),
    _through("labelled", "collab"),
    _through("foresight", "house?kind=put&things=1&errors=typed"),
    _through("experts", "collab"),
    _through(
        "workforce?workers=mover:go;maker:gather,make,eat", "craft?depth=1&places=2", "workforce", model=WORDS
    ),
    _through("tags", "hopqa?hops=1&distractors=4"),
    _through("refined+tags", "hopqa?hops=1&distractors=4", "refined"),
    _through(
        "grounded",
        "screen?interface=text&goal=menu&fields=0&buttons=2&width=48&height=24",
        model="mini?tokens=runs",
    ),
)
"""Every harness and wrapper, each with a small world that it fits: `World.name` is the harness.

But for `advised`: no expert knows what to tell an adviser, so there is nothing to imitate.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Imitated:
    """What came of one run, on the same `EPISODES` tasks: ``Imitated(success=0.97, expert_success=1.0, …)``."""

    success: float
    mean_return: float
    expert_success: float
    expert_return: float
    seconds: float
    """of the whole run, demonstrations included"""
    parameters: int
    run: str

    @property
    def share(self) -> float:
        """The part of the expert's success that is reached."""
        return self.success / self.expert_success if self.expert_success else 0.0


def imitate(world: World, seed: int, root: Path, overrides: Mapping[str, Any] = NOTHING) -> Imitated:
    """Return what imitation with `seed` comes to; the run lies under `root`.

    Raises:
        DataError: there is a run of that name with other settings.
    """
    config = world.config(seed, overrides)
    folder = check_same(world, seed, root, overrides)
    if (folder / RESULT).exists():
        return Imitated(**json.loads((folder / RESULT).read_text(encoding="utf-8")))
    if (folder / "config.json").exists():
        opening = Run.open(folder)
    else:
        opening = Run.create(folder, recipe="sft", config=asdict(config))
    with opening as run:
        sft.method(config).train(run, config)
    found = compared(config, folder)
    replace_file(folder / RESULT, json.dumps(asdict(found)).encode())
    return found


def check_same(world: World, seed: int, root: Path, overrides: Mapping[str, Any]) -> Path:
    """Return the folder of the run of `world` with `seed` below `root`.

    Raises:
        DataError: there is a run with other settings.
    """
    folder = root / f"{world.name}-{seed}"
    if (folder / "config.json").exists():
        with Run.open(folder, writable=False) as run:
            if run.config != json.loads(
                json.dumps(asdict(world.config(seed, overrides)))
            ):  # tuples are lists there
                raise DataError(
                    f"benchmark run {folder}: got one with other settings; delete it, or name another --runs"
                )
    return folder


def compared(config: sft.Config, folder: Path) -> Imitated:
    """Return how the policy of the finished run in `folder` and the expert do on the same held-out tasks."""
    make_environment = find(config.environment)
    tasks = draw_held_out(tasks_of(make_environment), EPISODES)
    loaded = load(str(folder / MODEL))
    # An expert does not sample either.
    agent = build_agent(loaded.tokenizer, make_environment, temperature=0.0, agent=config.agent)
    engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    with closing(Rollout(agent, make_environment, engine)) as rollout:
        groups = rollout.groups(tasks, size=1, seed=config.seed)
    found = evaluate([t for group in groups for t in group.trajectories])
    success, mean_return = demonstrated(config.environment, tasks)
    with Run.open(folder, writable=False) as run:
        seconds = float(run.metrics()[-1]["time/seconds"])
    return Imitated(
        success=found.success,
        mean_return=found.mean_return,
        expert_success=success,
        expert_return=mean_return,
        seconds=seconds,
        parameters=sum(weight.numel() for weight in loaded.model.parameters()),
        run=str(folder),
    )


def demonstrated(spec: str, tasks: Sequence[Task]) -> tuple[float, float]:
    """Return success and mean return of the expert of `spec` on `tasks`."""
    with closing(find(spec)()) as environment:
        episodes = [play(environment, task, expert) for task in tasks]
    wins = sum(episode.is_success for episode in episodes)
    return wins / len(episodes), sum(episode.total for episode in episodes) / len(episodes)


def row(
    world: World, seeds: Mapping[int, Imitated], overrides: Mapping[str, Any], command: str, date: str
) -> dict[str, Any]:
    """Return the result of `world` as it is stored: the share of the expert's success, of the mean and of the lowest
    and the highest seed: too few seeds for an interval.
    """
    order = sorted(seeds)
    shares = [seeds[seed].share for seed in order]
    config = world.config(order[0], overrides)
    return {
        "environment": config.environment,
        "model": config.model,
        "agent": config.agent,
        "demonstrations": config.demonstrations,
        "steps": config.steps,
        "batch_size": config.batch_size,
        "learning_rate": config.learning_rate,
        "episodes": EPISODES,
        "seeds": order,
        "share": {"mean": sum(shares) / len(shares), "low": min(shares), "high": max(shares)},
        "by_seed": [asdict(seeds[seed]) for seed in order],
        "seconds": sum(found.seconds for found in seeds.values()) / len(seeds),
        "command": command,
        "date": date,
    }


def with_table(page: str, results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return `page` with the table of `results` (name → row) between its marks.

    Raises:
        DataError: the page has no marks.
    """
    before, start, rest = page.partition(START_MARK)
    _, end, after = rest.partition(END_MARK)
    if not start or not end:
        raise DataError(
            f"the page of worlds: got none with {START_MARK!r} and {END_MARK!r}; put these into it"
        )
    return before + "\n\n".join([START_MARK, *table(results), END_MARK]) + after


def table(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what `results` say, as paragraphs of Markdown."""
    num = sum(found["share"]["mean"] >= ENOUGH for found in results.values())
    has_agents = any(found["agent"] != AUTO for found in results.values())
    head = ["share of the expert's success [lowest, highest seed]", "imitator", "expert", "model"]
    head = [*(["agent"] if has_agents else []), "world", *head, "demonstrations", "steps", "minutes", "seeds"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for _, found in sorted(results.items()):
        share, runs = found["share"], found["by_seed"]
        own, teacher = (sum(run[key] for run in runs) / len(runs) for key in ("success", "expert_success"))
        agent = f"| `{found['agent']}` " if has_agents else ""
        lines.append(
            f"{agent}| `{found['environment']}` | {100 * share['mean']:.1f} [{100 * share['low']:.1f}, "
            f"{100 * share['high']:.1f}] | {100 * own:.1f} | {100 * teacher:.1f} | `{found['model']}` | "
            f"{found['demonstrations']:,} | "
            f"{found['steps']:,} | {found['seconds'] / 60:.1f} | {len(runs)} |"
        )
    commands = sorted({(found["date"], found["command"]) for found in results.values()})
    told = "\n".join(f"{command}   # {date}" for date, command in commands)
    return [
        f"{num} of {len(results)} reach {100 * ENOUGH:.0f} % of the expert's success.",
        "\n".join(lines),
        f"```\n{told}\n```",
    ]
