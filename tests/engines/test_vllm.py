"""How vLLM is started; see tests/vllm for vLLM itself."""

import os
from pathlib import Path

import pytest

from quintain.engines import vllm
from quintain.engines.settings import EngineSettings


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
