"""vLLM's HTTP interface: tokens in, tokens and log-probs out (``/inference/v1/generate``), and its development mode.

Weights go through files, through memory (`share_weights`) or over the network (`weight_group`) to a class of ours in
vLLM's workers (`inside_vllm/quintain_vllm.py`), which vLLM loads by ``--worker-extension-cls``. Log-probs are those
that vLLM samples with (``--logprobs-mode processed_logprobs``).
"""

from __future__ import annotations

import asyncio
import shlex
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from safetensors import SafetensorError

from quintain.engines.protocol import Sampling
from quintain.engines.server_api import SEEDS, URGENT, Card, Piece, Row, choices_of, wrong_start
from quintain.engines.server_process import HERE, find_program
from quintain.engines.server_wire import ServerTrouble, ServerWire
from quintain.engines.settings import EngineSettings, Transfer
from quintain.engines.shared_weights import share_weights
from quintain.engines.weight_group import Backend, WeightGroup, check_nccl, in_thread, tensors_of
from quintain.errors import UsageError

EXTENSION = "quintain_vllm.Weights"
PLUGIN = Path(__file__).resolve().parent / "inside_vllm"
"""The folder that vLLM's workers import from."""
ROUTE = "/inference/v1/generate"
RANKS = (64, 128, 256, 320, 512)
"""Largest ranks of LoRA layers that a server can be started for, where those below the first make no difference."""
ADVICE = (
    "install it in an environment of its own (make .venv-vllm/.ready), "
    "and name it: vllm?program=.venv-vllm/bin/vllm"
)
NEEDED = f"--enable-scale-out --logprobs-mode processed_logprobs --worker-extension-cls {EXTENSION} (docs/engines.md)"
FLAGS = f"VLLM_SERVER_DEV_MODE=1 PYTHONPATH={PLUGIN} vllm serve MODEL {NEEDED}"
GRAMMARS = '{"backend": "guidance"}'
"""What compiles grammars there, so that they mean the same here."""
CARDS = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
"""Where drivers of GPUs show themselves. Without one vLLM reads each prompt as a whole: it cannot take back the random
number of a prompt that is half read on a processor, and its engine ends ("CPU Generator does not use offset")."""
RESETS = 3
"""Attempts at emptying the cache, whose blocks may still be held for a moment."""


class Vllm:
    """See `server_api.ServerApi`."""

    name = "vLLM"

    def __init__(self, weights: Transfer = "files") -> None:
        """Have servers take `weights` from files, from memory that is shared, or over the network.

        Raises:
            UsageError: NCCL without a GPU.
        """
        if weights == "nccl":
            check_nccl()
        self._weights: Transfer = weights
        self._groups: weakref.WeakKeyDictionary[ServerWire, WeightGroup] = weakref.WeakKeyDictionary()
        """of servers that have taken weights"""

    def command(
        self, settings: EngineSettings, folder: Path, port: int
    ) -> tuple[list[str], Mapping[str, str]]:
        """See `ServerApi.command`."""
        program = find_program(settings.program, "vllm", kind="vllm", advice=ADVICE)
        limit = [] if settings.max_length is None else ["--max-model-len", str(settings.max_length + 1)]
        lora = (
            ["--enable-lora", "--max-lora-rank", str(largest_rank(settings.lora_rank))]
            if settings.adapters
            else []
        )
        share = [] if settings.memory is None else ["--gpu-memory-utilization", f"{settings.memory:.3g}"]
        whole = [] if any(card.exists() for card in CARDS) else ["--no-enable-chunked-prefill"]
        command = [
            program, "serve", str(folder), "--host", HERE, "--port", str(port), "--served-model-name", "policy",
            "--dtype", settings.dtype, "--max-num-seqs", str(settings.max_batch + URGENT), "--enable-scale-out",
            "--logprobs-mode", "processed_logprobs", "--enable-prompt-tokens-details",
            "--worker-extension-cls", EXTENSION, "--structured-outputs-config", GRAMMARS,
            *whole, *limit, *lora, *share, *shlex.split(settings.arguments),
        ]  # fmt: skip
        return command, {
            "PYTHONPATH": str(PLUGIN),
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1" if settings.adapters else "0",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TORCHINDUCTOR_CACHE_DIR": str(Path.home() / ".cache" / "quintain" / "torchinductor"),
        }

    async def describe(self, wire: ServerWire, seconds: float) -> Card:
        """See `ServerApi.describe`."""
        listed = cast(Row, await wire.ask("GET", "/v1/models", seconds=seconds))
        model = listed["data"][0]
        try:
            told = await wire.ask("GET", "/server_info?config_format=json", seconds=seconds)
        except ServerTrouble as error:
            if error.status != 404:
                raise
            raise wrong_start(
                self.name, wire.url, "a server without development mode", f"start it as: {FLAGS}"
            ) from error
        config = told["vllm_config"]
        mode, extension = (
            config["model_config"]["logprobs_mode"],
            config["parallel_config"]["worker_extension_cls"],
        )
        if mode != "processed_logprobs":
            raise wrong_start(self.name, wire.url, f"--logprobs-mode {mode}", f"start it as: {FLAGS}")
        if extension != EXTENSION:
            raise wrong_start(
                self.name,
                wire.url,
                f"--worker-extension-cls {extension or 'nothing'}",
                f"start it as: {FLAGS}",
            )
        return Card(
            max_length=int(model["max_model_len"]) - 1,
            model=str(model["id"]),
            dtype=str(config["model_config"].get("dtype", "")).rpartition(".")[2],
        )

    async def decode(self, wire: ServerWire, token_ids: Sequence[int], seconds: float) -> str | None:
        """See `ServerApi.decode`."""
        told = await wire.ask("POST", "/detokenize", {"tokens": list(token_ids)}, seconds=seconds)
        return str(told["prompt"])

    def generate(
        self, model: str, ids: Sequence[int], sampling: Sampling, seed: int, most: int
    ) -> tuple[str, Row]:
        """See `ServerApi.generate`."""
        grammar = sampling.constraint
        more: Row = {}
        if grammar is not None and grammar.kind == "choice":
            more["structured_outputs"] = {"choice": choices_of(grammar)}
        elif grammar is not None and grammar.kind == "regex":
            more["structured_outputs"] = {"regex": grammar.text}
        elif grammar is not None:  # vLLM would read a schema with options of its own
            is_schema = grammar.kind == "json_schema"
            more["structured_outputs"] = {
                "grammar": f"start: %json {grammar.text}" if is_schema else grammar.text
            }
        params: Row = {
            "temperature": sampling.temperature,
            "seed": seed % SEEDS,
            "max_tokens": most,
            "stop_token_ids": sorted(sampling.stop_ids),
            "logprobs": 0,
            **more,
        }
        body = self._body(model, ids, params)
        return ROUTE, {**body, "stream": True, "stream_options": {"include_usage": True}}

    def reader(self) -> _Reader:
        """See `ServerApi.reader`."""
        return _Reader()

    async def prompt_logprobs(
        self, wire: ServerWire, model: str, ids: Sequence[int], seconds: float
    ) -> list[float]:
        """See `ServerApi.prompt_logprobs`."""
        body = self._body(model, ids, {"max_tokens": 1, "prompt_logprobs": 0})
        told = await wire.ask("POST", ROUTE, body, seconds=seconds)
        rows = cast("list[Row]", told["prompt_logprobs"])[1:]
        return [0.0, *(float(row[str(token)]["logprob"]) for row, token in zip(rows, ids[1:], strict=True))]

    async def next_logprob(
        self, wire: ServerWire, model: str, ids: Sequence[int], token: int, temperature: float, seconds: float
    ) -> float:
        """See `ServerApi.next_logprob`; vLLM leaves out the last of the tokens that are named, so it is named twice."""
        params: Row = {
            "max_tokens": 1,
            "temperature": temperature,
            "logprobs": 2,
            "logprob_token_ids": [token, token],
        }
        told = await wire.ask("POST", ROUTE, self._body(model, ids, params), seconds=seconds)
        rows = told["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        return next(float(row["logprob"]) for row in rows if row["token_id"] == token)

    async def pause(self, wire: ServerWire, seconds: float) -> None:
        """See `ServerApi.pause`."""
        await wire.ask("POST", "/pause?mode=keep", {}, seconds=seconds)

    async def resume(self, wire: ServerWire, seconds: float) -> None:
        """See `ServerApi.resume`."""
        await wire.ask("POST", "/resume", {}, seconds=seconds)

    async def load(self, wire: ServerWire, folder: Path, version: int, seconds: float) -> str:
        """See `ServerApi.load`."""
        try:
            if self._weights == "files":
                wrong = _wrong_in(await _call(wire, "load_quintain_weights", seconds, folder=str(folder)))
            elif self._weights == "shared":
                with share_weights(folder) as where:
                    wrong = _wrong_in(await _call(wire, "map_quintain_weights", seconds, **where))
            else:
                wrong = await self._send(self._weights, wire, folder, seconds)
        except (SafetensorError, OSError) as error:
            return f"a file that cannot be read ({_first_line(error)})"
        if not wrong:
            await self._forget(wire, seconds)
            await wire.ask("POST", "/update_weight_version", {"new_version": str(version)}, seconds=seconds)
        return wrong

    async def _send(self, backend: Backend, wire: ServerWire, folder: Path, seconds: float) -> str:
        """Send the weights in `folder` over the network; return what is wrong with them."""
        expecting = await _call(wire, "expect_quintain_weights", seconds, tensors=tensors_of(folder))
        if wrong := _wrong_in(expecting):
            return wrong
        try:
            if wire not in self._groups:
                group = WeightGroup(backend, wire.url, len(expecting), seconds)
                host, port = group.address
                meeting: Row = {"host": host, "port": port, "count": len(expecting) + 1, "backend": backend}
                meeting["patience"] = seconds
                await asyncio.gather(_call(wire, "join_quintain", seconds, **meeting), in_thread(group.join))
                self._groups[wire] = group
            sending = in_thread(partial(self._groups[wire].send, folder))
            took, _ = await asyncio.gather(_call(wire, "take_quintain_weights", seconds), sending)
        except (RuntimeError, OSError) as error:
            raise ServerTrouble(
                "crash", f"weights that did not arrive over {backend} ({_first_line(error)})"
            ) from error
        return _wrong_in(took)

    async def adapt(self, wire: ServerWire, name: str, folder: Path, version: int, seconds: float) -> str:
        """See `ServerApi.adapt`."""
        body = {"lora_name": name, "lora_path": str(folder), "load_inplace": True}
        try:
            await wire.ask("POST", "/v1/load_lora_adapter", body, seconds=seconds, is_json=False)
        except ServerTrouble as error:
            if error.kind != "refused":
                raise
            return error.got
        await self._forget(wire, seconds)
        return ""

    async def _forget(self, wire: ServerWire, seconds: float) -> None:
        """Have everything computed anew, requests under way, too."""
        for _ in range(RESETS):
            told = await wire.ask(
                "POST", "/reset_prefix_cache?reset_running_requests=true", {}, seconds=seconds
            )
            if told["success"]:
                break
        else:
            raise ServerTrouble("crash", "a cache that cannot be emptied")

    def _body(self, model: str, ids: Sequence[int], params: Row) -> Row:
        """Return a request for tokens."""
        return {
            "model": model,
            "token_ids": list(ids),
            "sampling_params": {"detokenize": False, "ignore_eos": True, **params},
        }


def largest_rank(rank: int) -> int:
    """Return the largest rank of LoRA layers that a server is started for which serves layers of `rank`.

    Raises:
        UsageError: vLLM serves none so large.
    """
    found = next((each for each in RANKS if rank <= each), None)
    if found is None:
        raise UsageError(
            f"LoRA layers that vLLM serves: got rank {rank}, and it takes up to {RANKS[-1]}; lower lora_rank, or send "
            "merged weights: vllm?adapters=0"
        )
    return found


class _Reader:
    """Reads a stream of tokens; see `server_api.Reader`."""

    def __call__(self, event: Row) -> Piece:
        choices, usage = event["choices"], event.get("usage")
        num_read = 0
        if usage:
            cached = (usage.get("prompt_tokens_details") or {"cached_tokens": 0})["cached_tokens"]
            num_read = int(usage["prompt_tokens"]) - int(cached or 0)
        if not choices:
            return Piece(num_read=num_read)
        told: Any = choices[0]
        reason = told["finish_reason"]
        spans = [(int(span["start"]), str(span["version"])) for span in told.get("weight_versions") or ()]
        return Piece(
            token_ids=tuple(map(int, told["token_ids"] or ())),
            logprobs=tuple(float(row["logprob"]) for row in (told["logprobs"] or {"content": ()})["content"]),
            stop=None if reason is None else _stop(str(reason)),
            versions=tuple((start, int(name)) for start, name in spans)
            if all(name.isdigit() for _, name in spans)
            else (),
            num_read=num_read,
        )


def _stop(reason: str) -> Literal["stop", "length", "abort"]:
    return "stop" if reason == "stop" else "length" if reason == "length" else "abort"


async def _call(wire: ServerWire, method: str, seconds: float, **arguments: object) -> list[Row]:
    """Have every worker of a server run a method of `quintain_vllm.Weights`; return what each said."""
    call = {"method": method, "kwargs": arguments, "timeout": seconds}
    return cast("list[Row]", (await wire.ask("POST", "/collective_rpc", call, seconds=seconds))["results"])


def _wrong_in(results: Sequence[Row]) -> str:
    return next((str(result["wrong"]) for result in results if "wrong" in result), "")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
