"""An endpoint is looked at in four layers before anybody plays at it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from quintain.engines.scripted import Scripted
from quintain.errors import EngineFault
from quintain.serve.check import check_endpoint, check_recorder
from quintain.serve.endpoint import Endpoint
from quintain.serve.engine_thread import EngineThread
from quintain.serve.listener import Listener
from quintain.serve.recorder import Node, Recorder
from quintain.text.chat import Chat
from quintain.types import Failure, Turn


def checked(chat: Chat, script: Callable[..., Any], **changes: Any) -> None:
    endpoint = Endpoint(EngineThread(Scripted(script)), chat)
    for name, value in changes.items():
        setattr(endpoint, name, value)
    listener = Listener(endpoint).start()
    try:
        check_endpoint(endpoint, listener.url)
        assert not endpoint.sessions
    finally:
        listener.close()


def test_one_that_works(chat: Chat) -> None:
    checked(chat, lambda request, stream: chat.write("go on"))


def test_one_whose_engine_fails(chat: Chat) -> None:
    fault = Failure(owner="engine", kind="broken", message="no power")
    with pytest.raises(EngineFault, match="layer endpoint: got no power; nothing was played"):
        checked(chat, lambda request, stream: fault)


def test_one_without_ids(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quintain.serve.chat_completions._logprobs", lambda answer: {"content": []})
    with pytest.raises(EngineFault, match=r"layer call: got [1-9] ids and 0 log-probs"):
        checked(chat, lambda request, stream: chat.write("go on"))


class Forgetful(Recorder):
    """It never proposes a parent."""

    def _find_repeated(self, asked: Any, tools: str) -> tuple[Node | None, int]:
        return None, 0

    def _longest_prefix(self, whole: tuple[int, ...], tools: str) -> Node | None:
        return None


class Wrong(Recorder):
    """Its turns say something else than its nodes."""

    def turns(self) -> tuple[Turn, ...]:
        first, second = super().turns()
        return first, replace(second, starts_segment=True, prompt_ids=(7,))


def test_a_recorder_that_does_not_go_on(chat: Chat) -> None:
    check_recorder(chat)
    with pytest.raises(EngineFault, match="layer sequence: got a second call"):
        check_recorder(chat, make=Forgetful)
    with pytest.raises(EngineFault, match=r"layer graph: got the parents \[None, None\], and \[None, 0\]"):
        check_recorder(chat, make=Wrong)
