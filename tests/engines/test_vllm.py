"""How vLLM is started; see tests/vllm for vLLM itself."""

import os
from pathlib import Path
from typing import Any

import pytest

from quintain.engines import vllm
from quintain.engines.server_api import URGENT
from quintain.engines.settings import EngineSettings, read_engine
from quintain.errors import UsageError
from quintain.learning.sections import PolicySettings
from quintain.models.precision import Precision
from quintain.runs.resources import engine_settings


@pytest.mark.parametrize("has_card", [False, True])
def test_prompts_are_read_as_a_whole_without_a_gpu(
    has_card: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "CARDS", (tmp_path / "none", tmp_path if has_card else tmp_path / "neither"))
    program = tmp_path / "vllm"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    settings = EngineSettings(kind="vllm", program=str(program), arguments="--enable-chunked-prefill")
    command, variables = vllm.Vllm().command(settings, tmp_path / "model", 8000)
    assert command[:3] == [str(program), "serve", str(tmp_path / "model")]
    assert ("--no-enable-chunked-prefill" in command) is not has_card
    assert command[-1] == "--enable-chunked-prefill", "what the user says comes last, and counts"
    assert str(vllm.PLUGIN) in variables["PYTHONPATH"].split(os.pathsep)


def command_of(program: Path, folder: Path, **fields: Any) -> list[str]:
    settings = EngineSettings(kind="vllm", program=str(program), **fields)
    command, _ = vllm.Vllm().command(settings, folder / "model", 8000)
    return command


def after(command: list[str], flag: str) -> str | None:
    """Return what stands behind `flag`; None where it is not there."""
    return command[command.index(flag) + 1] if flag in command else None


@pytest.fixture
def program(tmp_path: Path) -> Path:
    found = tmp_path / "vllm"
    found.write_text("#!/bin/sh\n")
    found.chmod(0o700)
    return found


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("has_adapter", [False, True])
@pytest.mark.parametrize("given", ["", "&dtype=float16", "&adapters=0", "&memory=0.3&devices=2"])
def test_what_is_not_said_follows_from_the_policy(
    precision: Precision, has_adapter: bool, given: str, program: Path, tmp_path: Path
) -> None:
    policy = PolicySettings(
        precision=precision, lora_rank=96 * has_adapter, engine=f"vllm?program={program}{given}"
    )
    found = engine_settings(policy, has_adapter=has_adapter)
    command, variables = vllm.Vllm().command(found, tmp_path / "model", 8000)
    usual = {"fp32": "float32", "bf16": "bfloat16"}[precision]
    assert after(command, "--dtype") == ("float16" if "dtype" in given else usual)
    serves_adapters = has_adapter and "adapters" not in given
    assert after(command, "--max-lora-rank") == ("128" if serves_adapters else None)
    assert ("--enable-lora" in command) is serves_adapters
    assert variables["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == str(int(serves_adapters))
    assert after(command, "--gpu-memory-utilization") == ("0.3" if "memory" in given else None)
    assert found.devices == (("2",) if "devices" in given else ())
    assert after(command, "--max-num-seqs") == str(found.max_batch + URGENT)


def test_adapters_that_vllm_does_not_serve(program: Path, tmp_path: Path) -> None:
    assert vllm.largest_rank(0) == vllm.largest_rank(16) == 64 and vllm.largest_rank(65) == 128
    with pytest.raises(
        UsageError, match=r"got rank 1024, and it takes up to 512; lower lora_rank, or send merged"
    ):
        command_of(program, tmp_path, adapters=True, lora_rank=1024)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vllm?devices=a", "got devices=a for 1 server in 'vllm?devices=a'; give numbers of cards"),
        ("vllm?devices=0,1,2&replicas=2", "got devices=0,1,2 for 2 servers"),
        (
            "vllm?memory=1.5",
            "memory of the engine 'vllm?memory=1.5': got '1.5'; give a share above 0, up to 1",
        ),
        ("vllm?url=http://a&devices=1", "got devices and a url"),
    ],
)
def test_cards_and_shares_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(UsageError) as found:
        read_engine(text)
    assert message in str(found.value)


def test_cards_are_dealt_out_in_turns() -> None:
    assert read_engine("vllm?devices=4,5,6,7&replicas=2")["devices"] == ("4,5", "6,7")
