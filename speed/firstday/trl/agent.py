"""An agent that talks to a base_url with TRL: an endpoint of one's own, behind the trainer's `rollout_func`.

It records one call of an episode; what goes on from it, tools and other dialects are not there.
"""

import itertools
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import torch
from datasets import Dataset
from environment import Print, make_model
from trl import GRPOConfig, GRPOTrainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from letter_agent import grade, run_agent

LOCK, KEYS, CALLS = threading.Lock(), itertools.count(), {}
AT_ONCE = 8


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Authorization"].removeprefix("Bearer ")
        answer = {"role": "assistant", "content": self.sample(key, body["messages"], body["max_tokens"])}
        told = json.dumps({
            "id": key, "object": "chat.completion", "created": 0, "model": "policy",
            "choices": [{"index": 0, "message": answer, "finish_reason": "stop"}],
        }).encode()  # fmt: skip
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    def sample(self, key, messages, max_tokens):
        model, tokenizer = self.server.model, self.server.tokenizer
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        with LOCK, torch.no_grad():
            made = model.generate(
                torch.tensor([prompt]), do_sample=True, top_k=0, max_new_tokens=max_tokens,
                return_dict_in_generate=True, output_logits=True,
            )  # fmt: skip
        ids = made.sequences[0, len(prompt) :].tolist()
        logprobs = [
            logits[0].log_softmax(-1)[token].item() for token, logits in zip(ids, made.logits, strict=True)
        ]
        CALLS[key] = (prompt, ids, logprobs)
        return tokenizer.decode(ids, skip_special_tokens=True)

    def log_message(self, *_):
        pass


def rollout(prompts, trainer):
    keys = [f"episode-{next(KEYS)}" for _ in prompts]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda key: run_agent(URL, key, None), keys))
    called = [CALLS.pop(key) for key in keys]
    prompt_ids, completion_ids, logprobs = (list(part) for part in zip(*called, strict=True))
    return {
        "prompt_ids": prompt_ids, "completion_ids": completion_ids, "logprobs": logprobs, "answers": answers,
    }  # fmt: skip


def reward(answers, **_):
    return [grade(None, answer) for answer in answers]


if __name__ == "__main__":
    model, tokenizer = make_model()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    server.model, server.tokenizer = model, tokenizer
    threading.Thread(target=server.serve_forever, daemon=True).start()
    URL = f"http://127.0.0.1:{server.server_port}/v1"
    GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=Dataset.from_list([{"prompt": "Say a digit."}] * 1024),
        rollout_func=rollout,
        callbacks=[Print()],
        args=GRPOConfig(
            output_dir="trl-agent", use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_steps=1,
            per_device_train_batch_size=32, num_generations=8, steps_per_generation=1, max_steps=20,
            max_completion_length=8, learning_rate=3e-3, beta=0.0,
            gradient_checkpointing=False, disable_tqdm=True,
        ),
    ).train()  # fmt: skip
