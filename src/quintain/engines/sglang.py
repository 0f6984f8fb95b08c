"""SGLang's HTTP interface: tokens in, tokens and log-probs out (``/generate``), weights from a folder.

Log-probs of sampled tokens are tempered, as long as ``SGLANG_RETURN_ORIGINAL_LOGPROB`` is not set there. Seeds count
where the server computes deterministically.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from quintain.engines.protocol import Sampling
from quintain.engines.server_api import SEEDS, URGENT, Card, Piece, Row, choices_of, wrong_start
from quintain.engines.server_process import HERE, find_program
from quintain.engines.server_wire import ServerTrouble, ServerWire
from quintain.engines.settings import EngineSettings

ROUTE = "/generate"
ADVICE = (
    "install SGLang in an environment of its own, and name its Python: sglang?program=.venv-sglang/bin/python"
)
GRAMMARS = "llguidance"
"""What must compile grammars there, so that they mean the same here."""
SMALL_SEEDS = 1 << 31
"""Seeds of SGLang are below this."""
TEXTS = {"lark": "ebnf", "json_schema": "json_schema", "regex": "regex"}
"""Kind of grammar → its name in SGLang, choices apart; with llguidance, what it calls EBNF is read as Lark."""


class Sglang:
    """See `server_api.ServerApi`."""

    name = "SGLang"

    def command(
        self, settings: EngineSettings, folder: Path, port: int
    ) -> tuple[list[str], Mapping[str, str]]:
        """See `ServerApi.command`."""
        program = find_program(settings.program, "python3", kind="sglang", advice=ADVICE)
        limit = [] if settings.max_length is None else ["--context-length", str(settings.max_length + 1)]
        rank = str(max(64, settings.lora_rank))
        lora = ["--enable-lora", "--max-lora-rank", rank, "--lora-target-modules", "all"]
        share = [] if settings.memory is None else ["--mem-fraction-static", f"{settings.memory:.3g}"]
        command = [
            program, "-m", "sglang.launch_server", "--model-path", str(folder), "--host", HERE, "--port", str(port),
            "--dtype", settings.dtype, "--max-running-requests", str(settings.max_batch + URGENT),
            "--enable-deterministic-inference", "--grammar-backend", GRAMMARS, *limit,
            *(lora if settings.adapters else []), *share, *shlex.split(settings.arguments),
        ]  # fmt: skip
        return command, {"HF_HUB_OFFLINE": "1"}

    async def describe(self, wire: ServerWire, seconds: float) -> Card:
        """See `ServerApi.describe`."""
        try:
            told = cast(Row, await wire.ask("GET", "/server_info", seconds=seconds))
        except ServerTrouble as error:
            if error.status != 404:
                raise
            told = cast(Row, await wire.ask("GET", "/get_server_info", seconds=seconds))
        limit = told.get("context_length") or told["max_req_input_len"]
        if (found := told.get("grammar_backend")) != GRAMMARS:
            raise wrong_start(
                self.name,
                wire.url,
                f"--grammar-backend {found}",
                f"start it with --grammar-backend {GRAMMARS}",
            )
        return Card(
            max_length=int(limit) - 1,
            model=str(told["model_path"]),
            has_seeds=bool(told.get("enable_deterministic_inference")),
            dtype=str(told.get("dtype", "")).rpartition(".")[2],
        )

    async def decode(self, wire: ServerWire, token_ids: Sequence[int], seconds: float) -> str | None:
        """See `ServerApi.decode`; servers that are older cannot be asked."""
        try:
            told = await wire.ask(
                "POST",
                "/detokenize",
                {"tokens": list(token_ids), "skip_special_tokens": False},
                seconds=seconds,
            )
        except ServerTrouble as error:
            if error.status != 404:
                raise
            return None
        return str(told["text"])

    def generate(
        self, model: str, ids: Sequence[int], sampling: Sampling, seed: int, most: int
    ) -> tuple[str, Row]:
        """See `ServerApi.generate`."""
        grammar = sampling.constraint
        more: Row = {}
        if grammar is not None and grammar.kind == "choice":
            more["ebnf"] = "start: " + " | ".join(json.dumps(text) for text in choices_of(grammar))
        elif grammar is not None:
            more[TEXTS[grammar.kind]] = grammar.text
        params: Row = {
            "temperature": sampling.temperature,
            "sampling_seed": seed % SEEDS % SMALL_SEEDS,
            "max_new_tokens": most,
            "stop_token_ids": sorted(sampling.stop_ids),
            "no_stop_trim": True,
            **more,
        }
        return ROUTE, {**self._body(model, ids, params), "stream": True}

    def reader(self) -> _Reader:
        """See `ServerApi.reader`."""
        return _Reader()

    async def prompt_logprobs(
        self, wire: ServerWire, model: str, ids: Sequence[int], seconds: float
    ) -> list[float]:
        """See `ServerApi.prompt_logprobs`."""
        body = {**self._body(model, ids, {"max_new_tokens": 1, "temperature": 0.0}), "logprob_start_len": 0}
        told = await wire.ask("POST", ROUTE, body, seconds=seconds)
        rows = cast("list[Any]", told["meta_info"]["input_token_logprobs"])[1:]
        if [int(row[1]) for row in rows] != list(ids[1:]):
            raise ValueError(f"log-probs of {len(rows)} tokens that are not those of the stream")
        return [0.0, *(float(row[0]) for row in rows)]

    async def next_logprob(
        self, wire: ServerWire, model: str, ids: Sequence[int], token: int, temperature: float, seconds: float
    ) -> float:
        """See `ServerApi.next_logprob`."""
        params: Row = {"max_new_tokens": 1, "temperature": temperature}
        body = {**self._body(model, ids, params), "token_ids_logprob": [token]}
        told = await wire.ask("POST", ROUTE, body, seconds=seconds)
        return float(told["meta_info"]["output_token_ids_logprobs"][0][0][0])

    async def pause(self, wire: ServerWire, seconds: float) -> None:
        """See `ServerApi.pause`: what is under way goes back to the queue, so that its cache may be emptied."""
        await wire.ask("POST", "/pause_generation", {"mode": "retract"}, seconds=seconds)

    async def resume(self, wire: ServerWire, seconds: float) -> None:
        """See `ServerApi.resume`."""
        await wire.ask("POST", "/continue_generation", {}, seconds=seconds)

    async def load(self, wire: ServerWire, folder: Path, version: int, seconds: float) -> str:
        """See `ServerApi.load`."""
        body: Row = {
            "model_path": str(folder),
            "flush_cache": True,
            "abort_all_requests": False,
            "weight_version": str(version),
        }
        return await self._change(wire, "/update_weights_from_disk", body, seconds)

    async def adapt(self, wire: ServerWire, name: str, folder: Path, version: int, seconds: float) -> str:
        """See `ServerApi.adapt`: the adapter of that name is taken out first, unless it is the first."""
        if version:
            await self._change(wire, "/unload_lora_adapter", {"lora_name": name}, seconds)
        body: Row = {"lora_name": name, "lora_path": str(folder)}
        wrong = await self._change(wire, "/load_lora_adapter", body, seconds)
        await wire.ask("POST", "/flush_cache", {}, seconds=seconds)
        return wrong

    async def _change(self, wire: ServerWire, path: str, body: Row, seconds: float) -> str:
        """Ask for a change; return why it was not made."""
        try:
            told = await wire.ask("POST", path, body, seconds=seconds)
        except ServerTrouble as error:
            if error.kind != "refused":
                raise
            return error.got
        return "" if told["success"] else str(told.get("message") or told.get("error_message") or "a refusal")

    def _body(self, model: str, ids: Sequence[int], params: Row) -> Row:
        """Return a request for tokens; `model` is an adapter's name, or that of the server."""
        body: Row = {
            "input_ids": list(ids),
            "sampling_params": {"ignore_eos": True, "skip_special_tokens": False, **params},
            "return_logprob": True,
            "logprob_start_len": -1,
        }
        return body | ({"lora_path": model} if model and "/" not in model else {})


class _Reader:
    """Reads a stream whose events repeat what was said before; see `server_api.Reader`."""

    def __init__(self) -> None:
        self._num_said = 0
        self._has_counted = False

    def __call__(self, event: Row) -> Piece:
        told = event["meta_info"]
        rows = cast("list[Any]", told.get("output_token_logprobs") or [])
        new = rows[self._num_said :]
        self._num_said = len(rows)
        num_read = (
            0 if self._has_counted else int(told["prompt_tokens"]) - int(told.get("cached_tokens") or 0)
        )
        self._has_counted = True
        reason = told.get("finish_reason")
        kind = None if reason is None else str(reason["type"])
        return Piece(
            token_ids=tuple(int(row[1]) for row in new),
            logprobs=tuple(float(row[0]) for row in new),
            stop=kind if kind in ("stop", "length") or kind is None else "abort",
            num_read=num_read,
        )
