"""What vLLM shows a trained folder by its chat template, and what it reads of the answers, is what we do."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from tests.text.families import FAMILIES, as_row, as_tools
from tests.text.test_trained_folders import EPISODE, LOOK, MOST, saved
from tests.vllm.test_vllm import ARGUMENTS, PROGRAM, SIZE

from quintain.engines.build import build_engine
from quintain.engines.protocol import Request, Sampling
from quintain.engines.settings import EngineSettings
from quintain.models.load import LoadedModel, load
from quintain.text.chat import Chat
from quintain.types import Completion, Message, ToolCall

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]
START_SECONDS = 900.0
SETTINGS = ("HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1")


@pytest.fixture(scope="module", name="folder", params=["qwen"])
def _folder(  # pyright: ignore[reportUnusedFunction]
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return saved(FAMILIES[request.param], tmp_path_factory.mktemp("models") / request.param, 60, SIZE)


@pytest.fixture(scope="module", name="url")
def _url(folder: Path) -> Iterator[str]:  # pyright: ignore[reportUnusedFunction]
    """A server as anybody starts one, which reads calls by the table of the folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        PROGRAM, "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--served-model-name", "m",
        "--dtype", "float32", "--max-model-len", "1500", *ARGUMENTS.split(),
        "--enable-auto-tool-choice", "--tool-call-parser", "hf",
    ]  # fmt: skip
    log = folder.with_suffix(".log")
    with log.open("wb") as said:
        server = subprocess.Popen(["env", *SETTINGS, *command], stdout=said, stderr=subprocess.STDOUT)
    url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + START_SECONDS
    try:
        while True:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-4000:]
            try:
                if httpx2.get(f"{url}/health", timeout=5).status_code == 200:
                    break
            except httpx2.HTTPError:
                time.sleep(0.5)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def test_prompts_and_answers_are_those_of_our_engine(folder: Path, url: str) -> None:
    loaded: LoadedModel = load(str(folder))
    chat = Chat(loaded.tokenizer)
    engine = build_engine(EngineSettings(), loaded.model, loaded.tokenizer)
    conversation = chat.conversation((LOOK,))
    history: list[Message] = []
    stream: list[int] = []
    for given, answer in EPISODE:
        prompt = conversation.prompt(given)
        history += given
        stream = [*prompt.token_ids] if prompt.starts_segment else [*stream, *prompt.token_ids]
        sampling = Sampling(temperature=0.0, max_tokens=MOST, stop_ids=chat.stop_ids)
        engine.submit(Request(session="s", prompt_ids=prompt.token_ids, seed=1, sampling=sampling))
        while not (replies := engine.advance()):
            pass
        ours = cast("Completion", replies[0].result)
        rows = [as_row(message) for message in history]
        for row in rows:
            for call in row.get("tool_calls", ()):  # the wire has arguments as text
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        body = {
            "model": "m", "messages": rows, "tools": as_tools((LOOK,)), "temperature": 0, "max_tokens": MOST,
            "return_token_ids": True,
        }  # fmt: skip
        told: Any = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=300).json()
        (choice,) = told["choices"]
        assert told["prompt_token_ids"] == stream
        assert choice["token_ids"] == [*ours.token_ids]
        functions = [call["function"] for call in choice["message"].get("tool_calls") or ()]
        read = [ToolCall(name=each["name"], arguments=json.loads(each["arguments"])) for each in functions]
        assert read == [*answer.tool_calls]
        if not answer.reasoning:
            assert choice["message"]["content"].strip() == "In the sun."
        conversation.record(ours.token_ids)
        history.append(answer)
        stream += ours.token_ids
    engine.close()
