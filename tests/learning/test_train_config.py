"""Values that no run can have are refused before anything is made."""

from typing import Any

import pytest

from quintain.config import build, rename
from quintain.errors import ConfigError, UsageError
from quintain.learning.train_config import OnPolicyConfig, TrainConfig
from quintain.methods.find import find_method


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("steps", 0, "steps: got 0; give an integer of 1 or more such as 100"),
        (
            "demonstrations",
            -1,
            "demonstrations: got -1; give an integer of 0 or more or text or none",
        ),
        ("eval_every", 0, "eval_every: got 0; give an integer of 1 or more such as 25"),
        ("eval_episodes", 0, "eval_episodes: got 0; give an integer of 1 or more such as 128"),
        ("max_env_steps", 0, "max_env_steps: got 0; give an integer of 1 or more or none"),
        (
            "max_sampled_tokens",
            -5,
            "max_sampled_tokens: got -5; give an integer of 1 or more or none",
        ),
        ("imitation_lr", 0.0, "imitation_lr: got 0.0; give a number above 0 or none"),
        ("learning_rate", -1.0, "learning_rate: got -1.0; give a number above 0 such as 0.0003"),
        (
            "temperature",
            float("nan"),
            "temperature: got nan; give a finite number above 0 such as 1.0",
        ),
        ("expert_noise", 1.5, "expert_noise: got 1.5; give a share from 0 to 1 such as 0.0"),
        (
            "context_ranks",
            2,
            "context_ranks: got 2 with learner_ranks 0; give a multiple of it as learner_ranks, or 1",
        ),
        ("max_broken", -0.1, "max_broken: got -0.1; give a share from 0 to 1 such as 0.01"),
    ],
)
def test_a_value_that_makes_no_sense(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        OnPolicyConfig(**{field: value}).check()
    assert str(caught.value) == message


def test_the_defaults_and_no_demonstrations_are_fine() -> None:
    TrainConfig().check()
    TrainConfig(demonstrations=0).check()


def test_nobody_errs_without_demonstrations() -> None:
    TrainConfig(expert_noise=0.3).check()
    with pytest.raises(
        ConfigError, match=r"expert_noise: got 0.3 without demonstrations.*; raise demonstrations"
    ):
        TrainConfig(expert_noise=0.3, demonstrations=0).check()


def test_an_agent_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match=r"agent: got 'reakt', in which .*; did you mean 'react'\?"):
        TrainConfig(agent="reakt").check()
    TrainConfig(agent="react?max_tokens=8").check()


@pytest.mark.parametrize(
    ("method", "old", "new"),
    [
        ("grpo", "first_task", "task_offset"),
        ("grpo", "micro_tokens", "tokens_per_microbatch"),
        ("grpo", "mistakes", "expert_noise"),
        ("grpo", "leaves", "train_branches"),
        ("web_rl", "mixing", "value_mix"),
        ("agent_q", "mixing", "outcome_weight"),
        ("eto", "tries", "group_size"),
        ("archer", "critic_rate", "critic_lr_scale"),
    ],
)
def test_an_earlier_name_is_refused_with_the_name_of_now_and_read_in_a_stored_run(
    method: str, old: str, new: str
) -> None:
    config_class = find_method(method).config_class
    with pytest.raises(ConfigError, match=rf"{old}.*: got an earlier name; it is called .*{new}"):
        build(config_class, {old: 1}, "a file")
    stored = rename(config_class, {old: 1}, "a run", is_stored=True)
    assert stored == {new: 1}
