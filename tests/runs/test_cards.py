"""Servers that are started get cards of their own, or a share of the learner's."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from quintain.engines.settings import EngineSettings
from quintain.errors import UsageError
from quintain.learning.train_config import GroupConfig
from quintain.runs import resources
from quintain.runs.resources import Card, check_servers, place_servers

GIB = 1 << 30
H100 = Card(80 * GIB)
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
            "got vllm on card 0 of 80.0 GiB, of which the learner takes about 76.0 GiB; train LoRA layers, in bf16",
        ),
    ],
)
def test_too_few_cards(replicas: int, arguments: str, cards: int, message: str) -> None:
    with pytest.raises(UsageError) as found:
        place_servers(
            replace(ONE, replicas=replicas, arguments=arguments), {0}, [H100] * cards, keeps=76 * GIB
        )
    assert message in str(found.value)


def test_cards_that_others_use_are_taken_last_and_in_part() -> None:
    half, full = Card(80 * GIB, held=40 * GIB), Card(80 * GIB, held=78 * GIB)
    assert place_servers(ONE, {0}, [H100, half, H100]).devices == ("2",)
    found = place_servers(ONE, {0}, [H100, half])
    assert found.devices == ("1",) and found.memory == pytest.approx(0.4)
    assert place_servers(replace(ONE, memory=0.45), {0}, [H100, half]).memory == 0.45
    found = place_servers(ONE, {0}, [half], keeps=8 * GIB)
    assert found.memory == pytest.approx(0.3), "the learner and another program are there"
    for settings, card, message in (
        (
            ONE,
            full,
            "got vllm on card 1 of 80.0 GiB, of which other programs hold 78.0 GiB; name another card",
        ),
        (replace(ONE, memory=0.6), half, "got vllm with memory=0.6 on card 1 of 80.0 GiB, of which other"),
        (replace(ONE, devices=("1",)), full, "on card 1 of 80.0 GiB, of which other programs hold 78.0 GiB"),
    ):
        with pytest.raises(UsageError) as found:
            place_servers(settings, {0}, [H100, card])
        assert message in str(found.value)


def test_servers_without_room_are_refused_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "cards", lambda: [Card(80 * GIB, held=78 * GIB)])
    config = GroupConfig(model="tiny", engine="vllm", device="cpu")
    with pytest.raises(
        UsageError, match=r"got vllm on card 0 of 80.0 GiB, of which other programs hold 78.0"
    ):
        check_servers(config, {}, None)
    for fits in (replace(config, engine="local"), replace(config, engine="vllm?url=http://a")):
        check_servers(fits, {}, None)
    monkeypatch.setattr(resources, "cards", lambda: [H100])
    check_servers(config, {}, None)


def test_servers_that_run_are_asked_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[EngineSettings, str, str]] = []

    def build(settings: EngineSettings, model: str, *, policy: str) -> SimpleNamespace:
        asked.append((settings, model, policy))
        return SimpleNamespace(close=lambda: asked.append(asked[-1]))

    monkeypatch.setattr(resources, "build_engine", build)
    config = GroupConfig(model="some/model", engine="vllm?url=http://a", precision="bf16", device="cpu")
    check_servers(config, {}, None)
    first, last = asked
    assert first is last, "it was closed"
    assert (first[0].dtype, first[0].urls) == ("bfloat16", ("http://a",)) and first[1:] == (
        "some/model", "policy"
    )  # fmt: skip
    asked.clear()
    for other in (
        replace(config, model="tiny"),
        replace(config, engine="local"),
        replace(config, cluster="local"),
    ):
        check_servers(other, {}, None)
    assert not asked
