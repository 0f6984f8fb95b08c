"""What an endpoint must be able to do before anybody plays at it: asked once, in four layers.

A server with the wrong settings returns good-looking text without ids. So: an answer comes over HTTP for the key of its
episode (endpoint), it has ids and finite log-probs as they were sampled (call), a chat that repeats an answer goes on
from it (sequence), and what a trajectory makes of the calls are the parents that were recorded (graph).
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from quintain.errors import EngineFault
from quintain.processes.http_json import HttpServer, HttpTrouble
from quintain.serve.chat_types import AssistantMessage, ChatRequest
from quintain.serve.endpoint import Endpoint, EpisodeLimits
from quintain.serve.recorder import Recorder
from quintain.text.chat import Chat
from quintain.types import Completion
from quintain.types.forest import find_parents

NAME, SEED = "check", 1
IDLE = 0.05
QUESTION = "Is anybody there?"


def check_endpoint(endpoint: Endpoint, url: str, *, seconds: float = 120.0) -> None:
    """Ask the endpoint that listens at `url` once; the caller owns its engine.

    Raises:
        EngineFault: a layer does not hold; the message names it.
    """
    session, key = endpoint.open(NAME, SEED, EpisodeLimits(max_turn_tokens=4))
    found: list[Any] = []
    body = {
        "model": endpoint.pump.policy,
        "messages": [{"role": "user", "content": QUESTION}],
        "return_token_ids": True,
        "logprobs": True,
    }
    server = HttpServer(f"{url}/e/{NAME}/v1", deadline=seconds, key=key)

    def ask() -> None:
        try:
            found.append(server.ask("POST", "/chat/completions", body, read=dict, attempts=1))
        except HttpTrouble as trouble:
            found.append(trouble)

    thread = threading.Thread(target=ask, name="quintain-check", daemon=True)
    thread.start()
    until = time.monotonic() + seconds
    while thread.is_alive() and time.monotonic() < until:
        if not endpoint.pump.work():
            endpoint.pump.wait(IDLE)
    endpoint.close(session)
    if not found or isinstance(found[0], HttpTrouble):
        got = session.failure.message if session.failure else found[0].got if found else "no answer"
        raise _fail_layer("endpoint", f"got {got}")
    choice = found[0]["choices"][0]
    ids, prompt = choice.get("token_ids"), found[0].get("prompt_token_ids")
    logprobs = [row["logprob"] for row in (choice.get("logprobs") or {}).get("content", [])]
    if not ids or not prompt or len(ids) != len(logprobs) or not all(map(math.isfinite, logprobs)):
        raise _fail_layer(
            "call", f"got {len(ids or ())} ids and {len(logprobs)} log-probs: {json.dumps(choice)[:200]}"
        )
    check_recorder(endpoint.chat)


def check_recorder(chat: Chat, *, make: Callable[[Chat], Recorder] = Recorder) -> None:
    """Record a chat of two calls that nobody sampled, and look at what became of it.

    A chat template that rewrites its history starts a new stream with every turn, which is no fault.

    Raises:
        EngineFault: the layer ``sequence`` or ``graph`` does not hold.
    """
    recorder = make(chat)
    messages = (AssistantMessage(role="user", text=QUESTION),)
    said = chat.write("Yes, there is.")
    for _ in range(2):
        plan = recorder.plan(ChatRequest(messages=messages))
        completion = Completion(token_ids=said, logprobs=(-1.0,) * len(said), stop="stop")
        node = recorder.commit(plan, completion)
        messages = (*messages, node.spoken, AssistantMessage(role="user", text="Good."))
    first, second = recorder.nodes
    if chat.is_append_only and second.parent is not first:
        raise _fail_layer("sequence", "got a second call that does not go on from the first one's answer")
    parents = [None if node.parent is None else node.parent.number for node in recorder.nodes]
    found = [parent for parent, _ in find_parents(recorder.turns())]
    if found != parents:
        raise _fail_layer("graph", f"got the parents {found}, and {parents} were recorded")


def _fail_layer(layer: str, got: str) -> EngineFault:
    return EngineFault(
        f"check of the recording endpoint, layer {layer}: {got}; nothing was played, report this"
    )
