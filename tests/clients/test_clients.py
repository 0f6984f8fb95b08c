"""Clients of others, unmodified, each trained at the endpoint until it succeeds more often (`make test-clients`)."""

import gc
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from quintain import api
from quintain.runs.summary import evaluations, rate
from quintain.store.run import Run

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "clients"
CLIENTS = {
    "openai_sdk": ("openai", "lesson:expert"),
    "anthropic_sdk": ("anthropic", "lesson:expert"),
    "langgraph_react": ("langgraph", "lesson:expert"),
    "pydantic_ai_agent": ("pydantic_ai", "lesson:expert"),
    "smolagents_code": ("smolagents", "expert"),
    "smolagents_tools": ("smolagents", "lesson:expert"),
    "mini_swe_agent": ("minisweagent", "expert"),
}
"""Agent → the package that it is of, and who plays its demonstrations."""
QUIET = {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "MSWEA_SILENT_STARTUP": "1",
}
"""Variables under which no package tells anybody anything, or asks for anything but the endpoint."""


@pytest.mark.clients
@pytest.mark.filterwarnings("default")  # what packages of others warn of is theirs
@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_trained(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package, expert = CLIENTS[name]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: run make test-clients")
    for variable, value in QUIET.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("MSWEA_GLOBAL_CONFIG_DIR", str(tmp_path))
    monkeypatch.syspath_prepend(str(FOLDER))
    settings = {
        "agent": f"{name}:run_agent?grade=lesson:grade&expert={expert}&deadline=60&max_tokens=24",
        "environment": "guess?high=6&max_turns=2", "model": "mini", "demonstrations": 64, "imitation_epochs": 8,
        "imitation_lr": 3e-3, "learning_rate": 2e-3, "num_epochs": 1, "steps": 16, "tasks": 4, "group_size": 8,
        "eval_every": 16, "eval_episodes": 48,
    }  # fmt: skip
    started = time.process_time()
    folder = api.train("grpo", run=name, root=tmp_path, config=settings)
    with Run.open(folder, writable=False) as run:
        first, *_, last = evaluations(run)
        lost = [row.get("endpoint/not_recorded", 0.0) for row in run.metrics()]
    took = time.process_time() - started
    print(f"{name}: {rate(first)} -> {rate(last)}, 95 % intervals; {took:.0f} s of processor time")
    gc.collect()  # what clients left open is warned of here, and fails no other test
    assert last["eval/low"] > first["eval/high"]  # the intervals do not meet
    assert not any(lost)
