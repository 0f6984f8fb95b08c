"""What `quintain doctor` says of a machine, and of one that lacks things."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from quintain.cli import doctor

Cli = Callable[..., Any]


def test_it_says_what_is_there(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "MIN_DISK", 0)
    found = cli("doctor", "--runs", str(tmp_path), "--json")
    rows = {row["name"]: row for row in json.loads(found.out)["findings"]}
    assert found.status == 0
    assert {"python", "torch", "kernels", "processor", "sandbox", "runs", "peft", "vLLM"} <= set(rows)
    assert (
        "trains all weights of" in rows["processor"]["detail"] or "made here" in rows["processor"]["detail"]
    )
    assert rows["peft"]["state"] == "pass"


def test_what_is_missing_names_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    lines = {each.name: each for each in (*doctor.extra_lines(), *doctor.engine_lines())}
    assert lines["peft"].state == "skip" and 'pip install -e ".[peft]"' in lines["peft"].detail
    assert "make .venv-vllm/.ready" in lines["vLLM"].detail


def test_a_full_disk_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    usage = type("Usage", (), {"free": 1 << 20})()
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    lines = list(doctor.disk_lines(tmp_path / "new"))
    assert {line.state for line in lines} == {"fail"}
    assert "1 MiB free" in lines[0].detail and "free space" in lines[0].detail


def test_a_card_that_others_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gib = 1 << 30
    for name, value in {
        "is_available": True, "device_count": 1, "get_device_name": "NVIDIA H100", "mem_get_info": (40 * gib, 80 * gib),
        "memory_reserved": 0, "memory_allocated": 0,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)  # pyright: ignore
    (line,) = [each for each in doctor.device_lines() if each.name == "cuda:0"]
    assert line.detail == (
        "NVIDIA H100, 40.0 GiB of 80.0 GiB free, 40.0 GiB held by others; trains all weights of Qwen3-1.7B, LoRA "
        "layers of Qwen3-14B"
    )


def test_what_memory_can_train() -> None:
    assert doctor.find_trainable(1 << 20, "cpu") == "trains models that are made here"
    assert (
        doctor.find_trainable(60 << 30, "cuda")
        == "trains all weights of Qwen3-1.7B, LoRA layers of Qwen3-14B"
    )
