from typing import Any, cast

import pytest
import torch

from quintain.errors import ConfigError
from quintain.learning.optimizers import make_optimizer
from quintain.learning.sections import OptimizerName


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD), ("adafactor", torch.optim.Adafactor)],
)
def test_each_takes_a_step_downhill(name: OptimizerName, kind: type[torch.optim.Optimizer]) -> None:
    weight = torch.nn.Parameter(torch.ones(3, 4))
    optimizer = make_optimizer(name, [weight], rate=0.1, betas=(0.9, 0.95), weight_decay=0.0)
    assert isinstance(optimizer, kind)
    weight.square().sum().backward()
    optimizer.step()
    assert bool((weight < 1).all())


def test_momentum_of_sgd_is_the_first_beta() -> None:
    optimizer = make_optimizer(
        "sgd", [torch.nn.Parameter(torch.ones(1))], rate=1, betas=(0.7, 0.9), weight_decay=0.5
    )
    assert (optimizer.defaults["momentum"], optimizer.defaults["weight_decay"]) == (0.7, 0.5)


def test_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"optimizer: got 'adam'; .*adamw"):
        make_optimizer(cast(Any, "adam"), [], rate=1, betas=(0.9, 0.95), weight_decay=0)
