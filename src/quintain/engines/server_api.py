"""What an engine asks of a model's server, whichever program serves: see `engines.vllm` and `engines.sglang`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from quintain.engines.protocol import Grammar, Sampling
from quintain.engines.server_wire import ServerWire
from quintain.engines.settings import EngineSettings
from quintain.errors import UsageError

Row = dict[str, Any]
BROKEN = (LookupError, TypeError, ValueError)
"""What reading an answer of the wrong shape raises."""
SEEDS = 1 << 63
"""Seeds of servers are below this."""
URGENT = 8
"""Requests for which a server has room beside those of turns; see `Request.is_urgent`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What a server says of itself: ``Card(max_length=4095, model="policy")``."""

    max_length: int
    """longest stream that it can hold with room for one token more, which scoring needs"""
    model: str
    has_seeds: bool = True
    """whether a seed gives the same tokens whatever else is served"""
    dtype: str = ""
    """precision that it computes in, as float32 or bfloat16; empty: it does not say"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What a server has said of a completion since its last piece: ``Piece(token_ids=(5,), logprobs=(-0.7,))``."""

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    """of the distribution that they were sampled from"""
    stop: Literal["stop", "length", "abort"] | None = None
    """how the completion ended, in its last piece"""
    versions: tuple[tuple[int, int], ...] = ()
    """(number of the first token, version) over the whole completion, where the server says so"""
    num_read: int = 0
    """tokens of the prompt that were not in its cache, where the server says so"""


class Reader(Protocol):
    """Reads the events of one stream."""

    def __call__(self, event: Row) -> Piece:
        """Return what is new in `event`; raises one of `BROKEN` where it is not what it should be."""
        ...


class ServerApi(Protocol):
    """The HTTP interface of a serving program. Everything raises a `ServerTrouble` where the server does not answer.

    Log-probs of sampled tokens are those of softmax(logits / temperature), of temperature 1 where it is 0; under a
    grammar they may be of the allowed tokens only, because the engine scores such completions anew.
    """

    name: str
    """as the program is called: vLLM, SGLang"""

    def command(
        self, settings: EngineSettings, folder: Path, port: int
    ) -> tuple[list[str], Mapping[str, str]]:
        """Return the command that serves the model in `folder` on `port`, and its variables of the environment.

        Raises:
            UsageError: the program is not here.
        """
        ...

    async def describe(self, wire: ServerWire, seconds: float) -> Card:
        """Return what the server says of itself.

        Raises:
            UsageError: it serves in a way that does not do here; says how to start it.
        """
        ...

    async def decode(self, wire: ServerWire, token_ids: Sequence[int], seconds: float) -> str | None:
        """Return the text that the server's tokenizer makes of `token_ids`; None where it cannot be asked."""
        ...

    def generate(
        self, model: str, ids: Sequence[int], sampling: Sampling, seed: int, most: int
    ) -> tuple[str, Row]:
        """Return path and body of a request that streams a completion of `most` tokens at most."""
        ...

    def reader(self) -> Reader:
        """Return what reads the events of one such stream."""
        ...

    async def prompt_logprobs(
        self, wire: ServerWire, model: str, ids: Sequence[int], seconds: float
    ) -> list[float]:
        """Return the log-prob of each token at temperature 1, given those before it; 0 for the first."""
        ...

    async def next_logprob(
        self, wire: ServerWire, model: str, ids: Sequence[int], token: int, temperature: float, seconds: float
    ) -> float:
        """Return the log-prob of `token` after `ids` at `temperature`."""
        ...

    async def pause(self, wire: ServerWire, seconds: float) -> None:
        """Stop sampling at a token boundary; requests under way stay."""
        ...

    async def resume(self, wire: ServerWire, seconds: float) -> None:
        """Sample again."""
        ...

    async def load(self, wire: ServerWire, folder: Path, version: int, seconds: float) -> str:
        """Let a paused server take new weights and forget what was computed with old ones; return what is wrong."""
        ...

    async def adapt(self, wire: ServerWire, name: str, folder: Path, version: int, seconds: float) -> str:
        """Let a paused server take LoRA layers as adapter `name`; return what is wrong with them."""
        ...


def choices_of(grammar: Grammar) -> list[str]:
    """Return the texts of a grammar of kind ``choice``."""
    return [str(text) for text in json.loads(grammar.text)]


def wrong_start(name: str, url: str, came: str, todo: str) -> UsageError:
    """Return the error of a server that serves in a way that does not do."""
    return UsageError(f"engine {name} at {url}: got {came}; {todo}")
