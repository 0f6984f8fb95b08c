"""Shares of a step, and the speed of cards by name."""

import pytest
import torch

from quintain.runs.usage import Usage, card_speed, peak_memory

CPU = torch.device("cpu")


def test_who_waited() -> None:
    found = dict(
        Usage(engine=4.0, environments=1.0, learner=3.0, tokens=500).since(
            Usage(engine=1.0, learner=1.0, tokens=100), 5.0, CPU, parameters=10, rests=False
        )
    )
    assert found["machine/engine_idle"] == pytest.approx(0.4)
    assert found["machine/environments_idle"] == pytest.approx(0.8)
    assert found["machine/learner_idle"] == pytest.approx(0.6)
    assert found["machine/memory_gib"] == pytest.approx(peak_memory(CPU), rel=0.1)
    assert "machine/mfu" not in found, "nobody knows how fast this processor is"


def test_a_step_without_an_update_has_no_share_of_it() -> None:
    found = dict(Usage(engine=9.0).since(Usage(), 5.0, CPU, parameters=10, rests=True))
    assert found["machine/engine_idle"] == 0.0 and "machine/learner_idle" not in found
    assert "machine/environments_idle" not in found, "nobody saw them work: they are played asynchronously"


def test_the_share_of_a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.runs.usage.peak_memory", lambda _: 1.0)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100 80GB HBM3")
    for rests, work in ((False, 6), (True, 4)):
        now = Usage(learner=2.0, tokens=1000)
        found = dict(now.since(Usage(), 4.0, torch.device("cuda"), parameters=10**9, rests=rests))
        assert found["machine/mfu"] == pytest.approx(work * 1e9 * 1000 / 2.0 / 989e12)


def test_cards_by_name() -> None:
    assert card_speed("NVIDIA A100-SXM4-80GB") == 312e12 and card_speed("NVIDIA L4") == 121e12
    assert card_speed("NVIDIA H100 PCIe") == 756e12 and card_speed("GeForce GTX 970") is None
