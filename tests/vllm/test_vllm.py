"""The real vLLM, in an environment of its own (make test-vllm): every promise of an engine, and GRPO that learns."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from quintain.engines.build import build_engine, hand_over
from quintain.engines.http_engine import HttpEngine
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.models.adapters import add_lora
from quintain.models.save import save
from quintain.models.tiny import TinySize, build_tiny
from quintain.models.weights import write_weights
from quintain.processes.tree import below
from quintain.testing.engines import CHECKS, check_engine
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]
ROOT = Path(__file__).resolve().parents[2]
PROGRAM = str(ROOT / ".venv-vllm" / "bin" / "vllm")
ARGUMENTS = "--enforce-eager --block-size 32"
"""Blocks are small, so that short streams share some of them."""
SIZE = TinySize(num_layers=2, hidden=64, num_heads=2, num_key_value_heads=1, intermediate=96)
"""vLLM's attention on CPUs asks for heads of 32 numbers or more."""
TRAIN = [
    "grpo", "--environment", "guess?high=4&max_turns=3", "--model", "tiny", "--steps", "30", "--eval-every", "15",
    "--eval-episodes", "128", "--demonstrations", "32", "--imitation-epochs", "5", "--learning-rate", "5e-4",
    "--max-turn-tokens", "16", "--max-context", "512", "--run", "guess",
]  # fmt: skip
Start = tuple[PreTrainedModel, PreTrainedTokenizerBase]


@pytest.fixture(scope="module", name="start")
def _start() -> Start:  # pyright: ignore[reportUnusedFunction]
    tokenizer = train_tokenizer(["open the red door, go to the blue ball"] * 20, 300)
    return build_tiny(tokenizer, size=SIZE), tokenizer


def settings(**more: Any) -> EngineSettings:
    return EngineSettings(
        kind="vllm", program=PROGRAM, arguments=ARGUMENTS, max_length=500, start_timeout=900.0, **more
    )


@pytest.fixture(scope="module", name="engine")
def _engine(start: Start) -> Iterator[HttpEngine]:  # pyright: ignore[reportUnusedFunction]
    engine = build_engine(settings(), *start, policy="actor")
    assert isinstance(engine, HttpEngine)
    yield engine
    engine.close()


def ask(engine: HttpEngine, name: str, *ids: int, most: int = 8) -> Completion:
    """Return what `engine` says."""
    request = Request(session=name, prompt_ids=ids, seed=1, sampling=Sampling(max_tokens=most))
    engine.submit(request)
    while not (replies := engine.advance()):
        pass
    result = replies[0].result
    assert isinstance(result, Completion)
    return result


def kill(numbers: list[int]) -> None:
    """End the servers that `numbers` keep, as a crash would."""
    for number in [each for process in numbers for each in below(process)]:
        os.kill(number, signal.SIGKILL)


def test_turns_are_cached_and_a_released_request_ends(engine: HttpEngine) -> None:
    read: list[int] = []
    for _ in range(4):
        before = engine.stats().num_prefilled
        ask(engine, "turns", *range(30, 130))
        read.append(engine.stats().num_prefilled - before)
    assert read[0] == 100 and max(read[1:]) < 108 + 32, "a turn reads what is new, and a block at most"
    engine.submit(Request(session="long", prompt_ids=(9,), seed=1, sampling=Sampling(max_tokens=450)))
    engine.advance()
    engine.release("long")
    began = time.monotonic()
    ask(engine, "short", 9)
    assert time.monotonic() - began < 30 and engine.stats().num_released == 1


def test_it_passes_what_every_engine_must(engine: HttpEngine, start: Start, tmp_path: Path) -> None:
    model, tokenizer = start

    def update() -> Path:
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.05 * torch.randn(weight.shape))
        return write_weights(model, tmp_path / "weights")

    findings = list(
        check_engine(
            engine,
            ids=range(30, 70),
            stop_id=tokenizer.eos_token_id,  # type: ignore[arg-type] # pyright: ignore
            decode=lambda ids: str(tokenizer.decode(list(ids))),
            update=update,
            spoil=lambda: kill(engine.process_ids),
            seconds=300.0,
        )
    )
    assert [str(finding) for finding in findings if finding.state != "pass"] == []
    assert len(findings) == len(CHECKS)
    version = engine.policy_version
    (served,), (here,) = engine.score([[40, 41, 42, 43]]), Local(model).score([[40, 41, 42, 43]])
    assert served == pytest.approx(here, abs=1e-4), "it was started again with the weights that it had"
    assert engine.policy_version == version


@pytest.mark.parametrize("way", ["shared", "gloo"])
def test_weights_go_another_way_than_by_files(start: Start, tmp_path: Path, way: str) -> None:
    model, tokenizer = build_tiny(start[1], size=SIZE, seed=3), start[1]
    engine = build_engine(settings(weights=way), save(model, tokenizer, tmp_path / "base"), policy="actor")
    try:
        for version in (1, 2):
            with torch.no_grad():
                for weight in model.parameters():
                    weight.add_(0.05 * torch.randn(weight.shape))
            hand_over(engine, model, version, tmp_path / "weights")
            (served,), (here,) = engine.score([[40, 41, 42, 43]]), Local(model).score([[40, 41, 42, 43]])
            assert served == pytest.approx(here, abs=1e-4)
            assert engine.policy_version == version
    finally:
        engine.close()


def test_adapters_are_served_by_name(start: Start, tmp_path: Path) -> None:
    model, tokenizer = build_tiny(start[1], size=SIZE, seed=3), start[1]
    folder = save(model, tokenizer, tmp_path / "base")
    engine = build_engine(settings(adapters=True), folder, policy="actor")
    try:
        (base,) = engine.score([[40, 41, 42, 43]])
        assert base == pytest.approx(Local(model).score([[40, 41, 42, 43]])[0], abs=1e-4)
        add_lora(model, 4, 8.0)
        for version in (1, 2):
            with torch.no_grad():
                for name, weight in model.named_parameters():
                    if "lora_B" in name:
                        weight.add_(0.1 * torch.randn(weight.shape))
            hand_over(engine, model, version, tmp_path / "weights")
            (served,), (here,) = engine.score([[40, 41, 42, 43]]), Local(model).score([[40, 41, 42, 43]])
            assert served == pytest.approx(here, abs=1e-4)
            assert max(abs(a - b) for a, b in zip(served, base, strict=True)) > 1e-3
            base = served
    finally:
        engine.close()


def test_grpo_learns_through_a_server_that_is_killed(tmp_path: Path) -> None:
    spec = f"vllm?program={PROGRAM}&arguments={ARGUMENTS.replace(' ', '+')}&start_timeout=900"
    command = [
        sys.executable,
        "-m",
        "quintain.cli",
        "train",
        *TRAIN,
        "--runs",
        str(tmp_path),
        "--engine",
        spec,
    ]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    metrics = tmp_path / "guess" / "metrics.jsonl"
    try:
        deadline = time.monotonic() + 1200
        while run.poll() is None and (not metrics.exists() or len(metrics.read_text().splitlines()) < 6):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        lines = {number: Path(f"/proc/{number}/cmdline").read_bytes() for number in below(run.pid)}
        servers = [
            number
            for number, line in lines.items()
            if b"vllm\0serve" in line and b"fork_keeper()" not in line
        ]
        for number in servers:
            os.kill(number, signal.SIGKILL)
        said, _ = run.communicate(timeout=1200)
    finally:
        run.kill()
        run.wait(60)
    assert run.returncode == 0 and servers, said
    rows = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in rows] == list(range(31))
    assert max(row.get("gap/mean", 0.0) for row in rows) < 1e-3 and rows[-1]["gap/canary"] < 1e-3
    assert all(row.get("train/failures", 0.0) == 0.0 for row in rows), "no episode was lost"
    first, last = rows[0]["eval/success"], rows[-1]["eval/success"]
    print(f"GRPO on guess through vLLM: held-out success {first:.2f} -> {last:.2f}")
    assert last > first + 0.1
