import pytest

from quintain.errors import ConfigError
from quintain.learning.train_config import TrainConfig
from quintain.methods.imitation.supervised import imitate_data, numbers_of
from quintain.methods.method import Needs


def test_the_rate_falls_to_the_last_part_and_conversations_need_no_expert() -> None:
    taught = imitate_data(TrainConfig(environment="guess", steps=4), lambda _: [], batch_size=8)
    assert [taught.lr_schedule(step) for step in (1, 2, 3, 4)] == [1, 0.75, 0.5, 0.25]
    assert taught.needs.expert and not taught.has_warm_start and taught.batch_size == 8
    told = imitate_data(
        TrainConfig(environment="guess", demonstrations="chats.jsonl"), lambda _: [], batch_size=8
    )
    assert not told.needs.expert
    asked = imitate_data(
        TrainConfig(environment="guess"), lambda _: [], batch_size=8, needs=Needs(tools=True), held_out=0.1
    )
    assert asked.needs == Needs(tools=True) and asked.held_out == 0.1


def test_numbers_by_name_are_numbers() -> None:
    assert numbers_of("thresholds", {"web": "0.67"}, "web=0.67") == {"web": 0.67}
    with pytest.raises(
        ConfigError, match=r"thresholds: could not convert .*'high'; give numbers, as web=0\.67"
    ):
        numbers_of("thresholds", {"web": "high"}, "web=0.67")
