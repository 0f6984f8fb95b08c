"""A small server that speaks the interfaces of vLLM and SGLang, as far as `engines.served` uses them.

Its model is a table: what a token says of the next one. It samples a token at a time, so it can be paused between two.
As a program (``python -m tests.engines.fake_server serve FOLDER --port 8000``) it stands for the real ones.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from quintain.engines.grammar import Grammars
from quintain.engines.protocol import Grammar
from quintain.engines.sampling import uniforms
from quintain.errors import QuintainError
from quintain.serve.listener import Listener
from quintain.text.tokenizer import train_tokenizer

Row = dict[str, Any]
VLLM = {
    "model_config": {"logprobs_mode": "processed_logprobs"},
    "parallel_config": {"worker_extension_cls": "quintain_vllm.Weights"},
}
SGLANG: Row = {
    "model_path": "/a/model",
    "grammar_backend": "llguidance",
    "enable_deterministic_inference": True,
}
TOKENIZER = train_tokenizer(["open the red door, go to the blue ball"] * 20, 300)
VOCABULARY = len(TOKENIZER)
LENGTH = 513
NAMES = {
    "grammar": "lark",
    "ebnf": "lark",
    "json": "json_schema",
    "json_schema": "json_schema",
    "regex": "regex",
}


def write_table(folder: Path, seed: int, *, size: int = VOCABULARY, file: str = "model.safetensors") -> Path:
    """Write a model into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    table = np.random.default_rng(seed).normal(size=(size, size)).astype(np.float32)
    save_file({"table": table}, folder / file)
    return folder


class FakeServer:
    """Serves the table in `folder`; attributes may be changed to have it go wrong."""

    def __init__(self, folder: Path, *, tokenizer: Any = TOKENIZER) -> None:
        self.table = load_file(folder / "model.safetensors")["table"]
        self.adapters: dict[str, NDArray[np.float32]] = {}
        self.grammars = Grammars(VOCABULARY, tokenizer)
        self.tokenizer = tokenizer
        self.version = "default"
        self.info: Row = {"vllm_config": VLLM, **SGLANG, "context_length": LENGTH}
        self.streams: list[list[int]] = []
        self.asked: list[Row] = []
        self.wrong: dict[str, Any] = {}
        """path → what is answered instead: a status, or a text"""
        self.is_running = asyncio.Event()
        self.is_running.set()
        self.num_under_way = 0
        self.seconds_per_token = 0.001
        paths = {
            "/health": self.ok, "/v1/models": self.models, "/server_info": self.server_info,
            "/detokenize": self.detokenize, "/inference/v1/generate": self.vllm, "/generate": self.sglang,
            "/pause": self.pause, "/pause_generation": self.pause, "/resume": self.resume,
            "/continue_generation": self.resume, "/collective_rpc": self.load, "/update_weights_from_disk": self.load,
            "/reset_prefix_cache": self.forget, "/flush_cache": self.forget, "/update_weight_version": self.label,
            "/v1/load_lora_adapter": self.adapt, "/load_lora_adapter": self.adapt, "/unload_lora_adapter": self.ok,
        }  # fmt: skip
        self.app = Starlette(
            routes=[Route(path, self.watched(call), methods=["GET", "POST"]) for path, call in paths.items()]
        )

    def watched(self, call: Any) -> Any:
        async def answer(request: Request) -> Response:
            text = await request.body()
            body = json.loads(text) if text else {}
            self.asked.append({"path": request.url.path, **body})
            wrong = self.wrong.get(request.url.path)
            if isinstance(wrong, int):
                return JSONResponse({"error": {"message": "not today"}}, wrong)
            if isinstance(wrong, str):
                return Response(wrong)
            return await call(body)

        return answer

    async def ok(self, _: Row) -> Response:
        return JSONResponse({"success": True})

    async def models(self, _: Row) -> Response:
        return JSONResponse({"data": [{"id": "base", "max_model_len": LENGTH}]})

    async def server_info(self, _: Row) -> Response:
        return JSONResponse(self.info)

    async def detokenize(self, body: Row) -> Response:
        text = self.tokenizer.decode(body["tokens"])
        return JSONResponse({"prompt": text, "text": text})

    async def pause(self, _: Row) -> Response:
        self.is_running.clear()
        return JSONResponse({"status": "paused"})

    async def resume(self, _: Row) -> Response:
        self.is_running.set()
        return JSONResponse({"status": "resumed"})

    async def forget(self, _: Row) -> Response:
        self.streams.clear()
        return JSONResponse({"success": True})

    async def label(self, body: Row) -> Response:
        self.version = body["new_version"]
        return JSONResponse({"success": True})

    async def load(self, body: Row) -> Response:
        assert not self.is_running.is_set(), "weights change while nothing is sampled"
        if body.get("method", "load_quintain_weights") != "load_quintain_weights":
            told = await asyncio.to_thread(getattr(self, body["method"]), **body["kwargs"])
            return JSONResponse({"results": [told]})
        folder = Path(body.get("model_path") or body["kwargs"]["folder"])
        file, wrong = folder / "model.safetensors", ""
        if not file.exists():
            wrong = "no safetensors file"
        elif (table := load_file(file)["table"]).shape != self.table.shape:
            wrong = f"table of shape {table.shape} for {self.table.shape}"
        else:
            self.table = table
        if "model_path" in body:
            self.streams.clear()
            return JSONResponse({"success": not wrong, "message": wrong})
        return JSONResponse({"results": [{"wrong": wrong} if wrong else {"tensors": 1}]})

    def expect_quintain_weights(self, tensors: list[tuple[str, list[int], str]]) -> Row:
        ((_, shape, dtype),) = tensors
        fits = tuple(shape) == self.table.shape and dtype == "float32"
        return {} if fits else {"wrong": f"table of shape {tuple(shape)} for {self.table.shape}"}

    def join_quintain(self, host: str, port: int, count: int, backend: str, patience: float) -> Row:
        assert backend == "gloo" and not hasattr(self, "group"), "a group is made once"
        distributed: Any = torch.distributed
        within = timedelta(seconds=patience)
        store = distributed.TCPStore(host, port, None, False, within, wait_for_workers=False)
        self.group = distributed.ProcessGroupGloo(store, 1, count, within)
        return {}

    def take_quintain_weights(self) -> Row:
        taken = torch.empty(self.table.shape)
        options = torch.distributed.BroadcastOptions()
        self.group.broadcast([taken.view(-1).view(torch.uint8)], options).wait()
        self.table = taken.numpy()
        return {"tensors": 1}

    def map_quintain_weights(
        self, tensors: list[tuple[str, list[int], str, int]], size: int, path: str
    ) -> Row:
        if wrong := self.expect_quintain_weights([(name, shape, kind) for name, shape, kind, _ in tensors]):
            return wrong
        memory = torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
        self.table = memory[: self.table.nbytes].view(torch.float32).view(self.table.shape).clone().numpy()
        return {"tensors": 1}

    async def adapt(self, body: Row) -> Response:
        file = Path(body["lora_path"]) / "adapter_model.safetensors"
        if not file.exists():
            return JSONResponse({"error": {"message": "no adapter there"}}, 400)
        self.adapters[body["lora_name"]] = load_file(file)["table"]
        return Response("Success: added") if "load_inplace" in body else JSONResponse({"success": True})

    def logits(self, ids: Sequence[int], model: str, heat: float) -> NDArray[np.float64]:
        table = self.table + self.adapters.get(model, 0.0)
        return np.asarray(table[ids[-1]], dtype=np.float64) / (heat or 1.0)

    def logprob(self, ids: Sequence[int], token: int, model: str, heat: float = 1.0) -> float:
        logits = self.logits(ids, model, heat)
        return float(logits[token] - np.logaddexp.reduce(logits))

    def num_cached(self, ids: Sequence[int]) -> int:
        """Return how many of the first of `ids` are in the cache, all but the last at most."""
        found = 0
        for known in self.streams:
            same = 0
            while same < min(len(known), len(ids) - 1) and known[same] == ids[same]:
                same += 1
            found = max(found, same)
        return found

    async def tokens(
        self, ids: list[int], model: str, params: Row, most: int, seed: int
    ) -> AsyncIterator[tuple[int, float, str | None, str]]:
        """Yield tokens with log-prob, reason to end, and version."""
        stops: frozenset[int] = frozenset(params.get("stop_token_ids") or ())
        heat = params["temperature"]
        told = params.get("structured_outputs") or params
        names = [name for name in (*NAMES, "choice") if name in told]
        guide = None
        if names:
            text = json.dumps(told["choice"]) if names[0] == "choice" else told[names[0]]
            guide = self.grammars.begin(Grammar(kind=NAMES.get(names[0], "choice"), text=text), stops)  # type: ignore[arg-type] # pyright: ignore
        stream = list(ids)
        for place in range(most):
            await self.is_running.wait()
            logits = self.logits(stream, model, heat)
            if guide is not None:
                allowed = np.zeros(VOCABULARY, dtype=bool)
                mask = guide.allow_tokens()[:VOCABULARY]
                allowed[: len(mask)] = mask
                logits = np.where(allowed, logits, -np.inf)
            with np.errstate(invalid="ignore"):
                logprobs = logits - np.logaddexp.reduce(logits)
            number = uniforms(np.array([seed], dtype=np.uint64), np.array([place], dtype=np.uint64))[0]
            cumulative = np.exp(logprobs).cumsum()
            token = (
                int(logits.argmax())
                if heat == 0
                else min(int(np.searchsorted(cumulative, number * cumulative[-1])), VOCABULARY - 1)
            )
            if guide is not None:
                guide.take(token)
            stream.append(token)
            reason = "stop" if token in stops else "length" if place + 1 == most else None
            yield token, float(logprobs[token]), reason, self.version
            if reason:
                break
            await asyncio.sleep(self.seconds_per_token)
        self.streams.append(stream)

    async def vllm(self, body: Row) -> Response:
        params, ids, model = body["sampling_params"], body["token_ids"], body["model"]
        most = min(params["max_tokens"], LENGTH - len(ids))
        if not body.get("stream"):
            if "prompt_logprobs" in params:
                rows = [
                    {str(token): {"logprob": self.logprob(ids[:n], token, model)}}
                    for n, token in enumerate(ids)
                    if n
                ]
                return JSONResponse({"prompt_logprobs": [None, *rows]})
            token = params["logprob_token_ids"][0]
            value = self.logprob(ids, token, model, params["temperature"])
            row = {"top_logprobs": [{"token_id": 0, "logprob": -1.0}, {"token_id": token, "logprob": value}]}
            return JSONResponse({"choices": [{"logprobs": {"content": [row]}}]})
        usage = {"prompt_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": self.num_cached(ids)}}

        async def events() -> AsyncIterator[str]:
            self.num_under_way += 1
            spans: list[Row] = []
            num_said = 0
            try:
                async for token, logprob, reason, version in self.tokens(
                    ids, model, params, most, params["seed"]
                ):
                    if not spans or spans[-1]["version"] != version:
                        spans.append({"version": version, "start": num_said})
                    num_said += 1
                    spans[-1]["end"] = num_said
                    choice = {
                        "token_ids": [token],
                        "logprobs": {"content": [{"logprob": logprob}]},
                        "finish_reason": reason,
                        "weight_versions": spans if reason else None,
                    }
                    yield f"data: {json.dumps({'choices': [choice], 'usage': None})}\n\n"
                yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"
            except QuintainError as error:
                yield f"data: {json.dumps({'error': {'message': str(error)}})}\n\n"
            finally:
                self.num_under_way -= 1

        return StreamingResponse(events(), media_type="text/event-stream")

    async def sglang(self, body: Row) -> Response:
        params, ids = body["sampling_params"], body["input_ids"]
        model = body.get("lora_path", "")
        meta: Row = {"prompt_tokens": len(ids), "cached_tokens": self.num_cached(ids)}
        if not body.get("stream"):
            if body["logprob_start_len"] == 0:
                rows = [
                    [self.logprob(ids[:n], token, model) if n else None, token, None]
                    for n, token in enumerate(ids)
                ]
                return JSONResponse({"meta_info": {"input_token_logprobs": rows}})
            token = body["token_ids_logprob"][0]
            value = self.logprob(ids, token, model, params["temperature"])
            return JSONResponse({"meta_info": {"output_token_ids_logprobs": [[[value, token, None]]]}})

        async def events() -> AsyncIterator[str]:
            self.num_under_way += 1
            said: list[Any] = []
            try:
                seed, most = params["sampling_seed"], params["max_new_tokens"]
                async for token, logprob, reason, _ in self.tokens(ids, model, params, most, seed):
                    said.append([logprob, token, None])
                    told = {"output_token_logprobs": said, "finish_reason": reason and {"type": reason}}
                    yield f"data: {json.dumps({'meta_info': meta | told})}\n\n"
                yield "data: [DONE]\n\n"
            finally:
                self.num_under_way -= 1

        return StreamingResponse(events(), media_type="text/event-stream")


def main() -> None:
    """Serve the folder that is named, as the real program would."""
    words = sys.argv[1:]  # noqa: TID251 - it is a program
    folder = Path(words[words.index("--model-path") + 1] if "--model-path" in words else words[1])
    if folder.name == "broken":
        print("RuntimeError: head size 16 is not supported\nsee root cause above", flush=True)
        sys.exit(3)
    Listener(FakeServer(folder).app, port=int(words[words.index("--port") + 1])).start()
    time.sleep(600)


if __name__ == "__main__":
    main()
