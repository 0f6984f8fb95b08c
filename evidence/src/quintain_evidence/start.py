"""The policy that a benchmark starts from: it imitates until it solves enough training tasks, and no further.

A start that solves nothing or everything shows no difference between methods; how many demonstrations lie between
depends on world and seed, so success is measured on the way. Only training tasks are looked at.
"""

from __future__ import annotations

from quintain.environments.catalog import find
from quintain.learning.learner import Learner, Optimization
from quintain.learning.saved import START
from quintain.learning.train_config import TrainConfig
from quintain.models.save import save
from quintain.rollout.progress import Display
from quintain.store.run import Run
from quintain.warm_start.probe import Probe, probe_steps
from quintain.warm_start.start import Imitation, imitation_lr, load_demonstrations, make_start


def imitated(config: TrainConfig, run: Run, display: Display, *, enough: float) -> float:
    """Save the policy that `run` starts from and return the success it was stopped at.

    It imitates the demonstrations of `config` in up to `imitation_epochs` passes, until its success on training
    tasks is `enough` or more.
    """
    make_environment = find(config.environment)
    model, tokenizer = make_start(config.model, make_environment, seed=config.seed)
    kept = load_demonstrations(config, make_environment, tokenizer, run, display)
    learner = Learner(
        model,
        Optimization(learning_rate=imitation_lr(model, config.imitation_lr), temperature=config.temperature),
    )
    updates = Imitation(learner, kept, config.imitation_epochs, config.seed)
    probes, found = probe_steps(updates.total), 0.0
    with Probe(config, make_environment, model, tokenizer) as probe:
        display.phase("warm start", updates.total)
        for update in updates.run():
            display.advance()
            if update + 1 in probes:
                found = probe.success(learner.version)
                if found >= enough:
                    break
    save(model, tokenizer, run.folder / START)
    return found
