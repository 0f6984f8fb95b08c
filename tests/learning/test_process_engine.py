"""GRPO with the policy sampling in a process of its own, which serves what is trained."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import pytest
import torch

from quintain.credit.group import group_relative
from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.engines.build import build_engine, hand_over
from quintain.engines.settings import EngineSettings
from quintain.environments.boundary import tasks_of
from quintain.environments.catalog import find
from quintain.errors import InvariantError
from quintain.learning import gap
from quintain.learning.canary import Canary
from quintain.learning.learner import Learner, Optimization
from quintain.learning.train_config import TrainConfig
from quintain.losses.policy import clip_ratio
from quintain.models.fingerprint import fingerprint
from quintain.models.weights import write_weights
from quintain.rollout.collect import Rollout
from quintain.testing.engines import check_engine
from quintain.types import Group, Score
from quintain.warm_start.start import harness, make_start

STEPS = 3


def rewarded(group: Group, rng: Random) -> Group:
    """Return `group` with scores by chance: a model that was never taught earns the same everywhere."""
    return replace(
        group,
        trajectories=tuple(
            replace(t, outcome=Score(value=rng.random(), is_success=False)) for t in group.trajectories
        ),
    )


@pytest.mark.slow
def test_grpo_through_a_process(tmp_path: Path) -> None:
    make = find("guess?high=4&max_turns=2")
    model, tokenizer = make_start("micro", make, seed=0)
    engine = build_engine(EngineSettings(kind="process", max_batch=16), model, tokenizer)
    learner = Learner(model, Optimization(learning_rate=1e-2))
    canary, tasks, rng = Canary(learner), TaskStream(tasks_of(make)), Random(0)
    rollout = Rollout(harness(TrainConfig(max_turn_tokens=8), tokenizer, make), make, engine)
    names = [fingerprint(model)]
    try:
        for step in range(STEPS):
            groups = rollout.groups(tasks.draw(step, 2), size=4, seed=step)
            turns = [turn for group in groups for t in group.trajectories for turn in t.turns]
            assert {turn.completion.policy_version for turn in turns} == {step}
            samples = samples_from(group_relative([rewarded(group, rng) for group in groups]))
            batches = micro_batches(samples, max_tokens=4096)
            for batch in batches:
                assert gap.gap(learner.infer(batch), batch).largest < 1e-3
            learner.step(batches, clip_ratio())
            with pytest.raises(InvariantError, match=f"got version {step} of the learner's {step + 1}"):
                canary.check(engine)
            hand_over(engine, model, learner.version, tmp_path)
            assert canary.check(engine) < 1e-4
            names.append(fingerprint(model))
        assert len(set(names)) == STEPS + 1, "every step changed the weights"
        assert engine.fingerprint() == names[-1] and engine.stats().num_weight_loads == STEPS

        def update() -> Path:
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(0.05 * torch.randn(weight.shape))
            return write_weights(model, tmp_path / "check")

        findings = check_engine(
            engine,
            stop_id=cast(int, tokenizer.eos_token_id),
            decode=lambda ids: str(tokenizer.decode(list(ids))),
            update=update,
            ids=range(30, 70),
        )
        unproved = [str(found) for found in findings if found.state != "pass"]
        assert unproved == ["skip  failures are data: no spoil was given"]
    finally:
        rollout.close()
        engine.close()
