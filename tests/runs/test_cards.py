"""Servers that are started get cards of their own, or a share of the learner's."""

from dataclasses import replace

import pytest

from quintain.engines.settings import EngineSettings
from quintain.errors import UsageError
from quintain.runs.resources import place_servers

GIB = 1 << 30
H100 = 80 * GIB
ONE = EngineSettings(kind="vllm")


@pytest.mark.parametrize(
    ("replicas", "arguments", "taken", "devices"),
    [
        (1, "", {0}, ("1",)),
        (3, "", {0}, ("1", "2", "3")),
        (3, "", {1}, ("0", "2", "3")),
        (1, "--tensor-parallel-size 3", {0}, ("1,2,3",)),
        (2, "-tp=1 -pp 1", {0, 1}, ("2", "3")),
        (2, "--tensor-parallel-size=2", set[int](), ("0,1", "2,3")),
    ],
)
def test_servers_get_cards_beside_the_learners(
    replicas: int, arguments: str, taken: set[int], devices: tuple[str, ...]
) -> None:
    settings = replace(ONE, replicas=replicas, arguments=arguments)
    found = place_servers(settings, taken, [H100] * 4, keeps=10 * GIB)
    assert found == replace(settings, devices=devices)


def test_one_card_is_shared_by_what_the_learner_leaves() -> None:
    found = place_servers(ONE, {0}, [H100], keeps=32 * GIB)
    assert found.devices == ("0",) and found.memory == pytest.approx(0.5)
    assert place_servers(replace(ONE, memory=0.3), {0}, [H100], keeps=32 * GIB).memory == 0.3


@pytest.mark.parametrize(
    "settings",
    [
        EngineSettings(),
        EngineSettings(kind="process"),
        EngineSettings(kind="vllm", urls=("http://a",)),
        EngineSettings(kind="vllm", devices=("0",)),
    ],
)
def test_what_is_not_ours_to_place_stays(settings: EngineSettings) -> None:
    assert place_servers(settings, {0}, [H100] * 2) == settings
    assert place_servers(ONE, set(), []) == ONE, "there is no card"


@pytest.mark.parametrize(
    ("replicas", "arguments", "cards", "message"),
    [
        (
            4,
            "",
            4,
            "got 4 × vllm of 1 card, and 3 of the 4 cards here are free beside the learner's; give replicas=3",
        ),
        (1, "-tp 4", 4, "got 1 × vllm of 4 cards, and 3 of the 4 cards here are free"),
        (2, "", 1, "got 2 × vllm of 1 card, and 0 of the 1 cards here are free"),
        (
            1,
            "",
            1,
            "got vllm on card 0 of 80 GiB, of which the learner takes about 76 GiB; train LoRA layers, in bf16",
        ),
    ],
)
def test_too_few_cards(replicas: int, arguments: str, cards: int, message: str) -> None:
    with pytest.raises(UsageError) as found:
        place_servers(
            replace(ONE, replicas=replicas, arguments=arguments), {0}, [H100] * cards, keeps=76 * GIB
        )
    assert message in str(found.value)
