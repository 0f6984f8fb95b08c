"""Where the batch of the credit laboratory comes from: the journal of a run, or a recipe that collects one.

Of a run the newest step is taken whose weights are still there: a checkpoint sampled the episodes of the step after
it, the start those of step 1. A recipe's start (model, demonstrations, environment) is made in a new run, which records
the batch as its step 1; so it can be looked at again, and nothing is trained.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from quintain.config import build
from quintain.config.trust import admit
from quintain.credit_lab.credit import Material
from quintain.curriculum.streams import TaskStream
from quintain.data.seats import split_seats
from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import ask, tasks_of
from quintain.environments.catalog import find
from quintain.environments.protocol import StateKey
from quintain.errors import DataError
from quintain.learning.policies import load_main
from quintain.learning.saved import START
from quintain.learning.train_config import MAIN, TrainConfig
from quintain.methods.find import find_method
from quintain.methods.loops.on_policy import OnPolicy
from quintain.models.load import load
from quintain.rollout.collect import Rollout
from quintain.rollout.progress import Display
from quintain.rollout.request import Limits
from quintain.runs.collector import read_groups
from quintain.runs.context import prepare_start
from quintain.store.checkpoints import Checkpoints
from quintain.store.creation import CHECKPOINTS
from quintain.store.run import Run
from quintain.types import Group, derive_seed
from quintain.warm_start.start import harness


def collect_batch(
    recipe: str, settings: Any, folder: Path, *, groups: int, size: int, display: Display
) -> Path:
    """Make the start of `recipe` in a new run in `folder`, record `groups` groups of `size` episodes, and return it.

    Raises:
        StoreError: the folder is there already.
    """
    config: TrainConfig = settings
    with Run.create(folder, recipe=recipe, config=asdict(settings)) as run:
        prepare_start(config, run, display, has_warm_start=True)
        loaded = load(str(run.folder / START))
        make_environment = find(config.environment)
        has_keys = ask(make_environment, lambda environment: isinstance(environment, StateKey))
        rollout = Rollout(
            harness(config, loaded.tokenizer, make_environment),
            make_environment,
            build_engine(EngineSettings(), loaded.model, loaded.tokenizer),
            limits=Limits(has_state_keys=has_keys, max_broken_share=config.max_broken),
        )
        display.phase("episodes", groups * size)
        try:
            found = rollout.groups(
                TaskStream(tasks_of(make_environment)).draw(0, groups),
                size=size,
                seed=derive_seed("lab", config.seed),
                on_episode=lambda _: display.advance(),
            )
        finally:
            rollout.close()
        run.append([t for group in found for t in group.trajectories], step=1, phase="train")
        run.finish("done")
    return folder


def read_batch(folder: Path, *, step: int | None = None, is_trusted: bool = False) -> Material:
    """Return the newest batch in the journal of the run in `folder` whose weights are there, and these weights.

    `step` names another one.

    Raises:
        DataError: there is no such batch.
        ConfigError: its method or its settings are somebody else's, and not to be trusted.
    """
    with Run.open(folder, writable=False) as run:
        config, recipe = admit(run, is_trusted=is_trusted, to="looking at the credit of"), run.recipe
        known = [each for each in Checkpoints(folder / CHECKPOINTS, lambda *_: None).all() if each.step]
        places = {each.step + 1: each.folder for each in known} | {1: None}
        steps = [step] if step is not None else sorted(places, reverse=True)
        if step is not None and step not in places:
            there = ", ".join(map(str, sorted(places)))
            raise DataError(f"step of {folder}: got {step}, whose weights are not kept; those of {there} are")
        groups: list[Group] = []
        found = 0
        for found in steps:
            groups = read_groups(run, found)
            if groups:
                break
    if not groups:
        raise DataError(
            f"episodes of {folder}: got none of a step whose weights are kept; train the run further, or collect a "
            "batch: quintain lab RECIPE"
        )
    method = find_method(recipe)
    settings = build(method.config_class, config, f"{folder}/config.json", is_stored=True)
    made = method.make(settings)
    loaded = load(str(folder / START))
    if (checkpoint := places[found]) is not None:
        load_main(loaded.model, config, checkpoint)
    played = of_policy(split_seats(groups))
    return Material(
        model=loaded.model,
        groups=made.reward(played) if isinstance(made, OnPolicy) else played,
        source=f"step {found} of {folder.name}",
        environment=settings.environment,
        recipe=method.label,
        temperature=settings.temperature,
        learning_rate=settings.learning_rate,
        tokens_per_microbatch=settings.tokens_per_pass,
    )


def of_policy(groups: list[Group]) -> list[Group]:
    """Return `groups` with the episodes that the main policy sampled."""
    return [
        replace(
            group,
            trajectories=tuple(
                t for t in group.trajectories if t.turns and t.turns[0].completion.policy == MAIN
            ),
        )
        for group in groups
    ]
