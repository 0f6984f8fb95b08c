"""What a model can do before anything is taught to it: the evaluation before the warm start.

Step 0 of a run is the policy after the warm start. For a pretrained model the question is what it could do without
any of this, on the same held-out tasks with the same seeds.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

from quintain.engines.build import build_engine
from quintain.engines.settings import EngineSettings
from quintain.environments.catalog import find
from quintain.eval.evaluate import evaluate
from quintain.learning.train_config import TrainConfig
from quintain.models.device import find_device
from quintain.rollout.collect import Rollout
from quintain.rollout.progress import Display
from quintain.rollout.request import Limits
from quintain.serve.agent_source import find_source
from quintain.store.run import Run
from quintain.types import derive_seed
from quintain.warm_start.start import harness, read_held_out

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

UNTRAINED = "untrained"
"""The event of a run that holds the result, and the phase of its episodes."""


def evaluate_untrained(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    config: TrainConfig,
    run: Run,
    display: Display,
) -> None:
    """Play the held-out tasks of `config` with `model`, and record episodes and result in `run`."""
    make_environment = find(config.eval_environment or config.environment)
    tasks = read_held_out(config, config.eval_episodes)
    display.phase("evaluation of the untrained model", len(tasks))
    device = model.device
    model.to(cast("Any", find_device(config.device)))
    engine = build_engine(
        EngineSettings(max_length=config.max_context, precision=config.precision), model, tokenizer
    )
    agent = harness(config, tokenizer, make_environment)
    rollout = Rollout(
        agent,
        make_environment,
        engine,
        source=find_source(agent),
        limits=Limits(max_broken_share=config.max_broken, concurrency=config.concurrency),
    )
    with closing(engine), closing(rollout):
        groups = rollout.groups(
            tasks,
            size=1,
            seed=derive_seed("run", config.seed, "evaluation"),
            on_episode=lambda _: display.advance(),
        )
    model.to(cast("Any", device))
    trajectories = [t for group in groups for t in group.trajectories]
    run.append(trajectories, step=0, phase=UNTRAINED)
    found = evaluate(trajectories)
    run.event(UNTRAINED, str(found), **found.metrics())
    display.say(f"untrained: {found}")
