"""The peer's side, run by its own interpreter: python peer.py grpo|turns|decode|batching|sft FOLDER [--size 30M].

Prints one line of JSON. Settings are the peer's own, with what costs time and is not compared switched off:
logging, saving, gradient checkpointing, reference model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import tempfile
import time
import warnings

import torch
import transformers
import trl
import workload
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
torch.set_flush_denormal(True)


class Clock(TrainerCallback):
    """Notes when each step began and ended."""

    def __init__(self):
        self.begun, self.seconds, self.ends = 0.0, [], []

    def on_step_begin(self, *_, **__):
        self.begun = time.perf_counter()

    def on_step_end(self, *_, **__):
        self.ends.append(time.perf_counter())
        self.seconds.append(self.ends[-1] - self.begun)


def settings(steps, **more):
    """Return the arguments that every trainer of the peer gets."""
    return {
        "output_dir": tempfile.mkdtemp(),
        "use_cpu": True,
        "bf16": False,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "max_steps": steps,
        "seed": 0,
        **more,
    }


def grpo(folder, steps=3, turns=workload.MAX_TURNS, episodes=workload.NUM_EPISODES, never=False):
    """Time whole GRPO steps; the first is dropped. With `never` the number is not among those that are tried."""
    rng = random.Random(0)
    rows = [
        {
            "prompt": [{"role": "user", "content": workload.PROMPT}],
            "secret": 0 if never else rng.randint(1, workload.HIGH),
        }
        for _ in range(workload.TASKS * (steps + 1))
    ]
    clock = Clock()
    lengths = []
    config = trl.GRPOConfig(
        **settings(
            steps,
            per_device_train_batch_size=episodes,
            num_generations=workload.GROUP_SIZE,
            steps_per_generation=1,
            max_completion_length=2048,
            max_tool_calling_iterations=turns,
            temperature=1.0,
            beta=0.0,
            learning_rate=1e-6,
        )
    )
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
        environment_factory=workload.GuessTool,
        callbacks=[clock],
    )
    original = trainer._generate_and_score_completions

    def noted(inputs):
        output = original(inputs)
        sampled = output["completion_mask"]
        if "tool_mask" in output and output["tool_mask"] is not None:
            sampled = sampled * output["tool_mask"]
        lengths.append(float(sampled.sum()) / len(inputs))
        return output

    trainer._generate_and_score_completions = noted
    started = time.perf_counter()
    trainer.train()
    moments = [started, *clock.ends]
    seconds = [after - before for before, after in itertools.pairwise(moments)]
    return {"seconds": statistics.median(seconds[1:]), "sampled_per_episode": statistics.mean(lengths)}


def turns(folder):
    """Time GRPO steps of 16 episodes that go on for 4, 8, 16 and 32 turns."""
    rows = []
    for number in workload.GROWTH:
        result = grpo(folder, steps=2, turns=number, episodes=workload.GROWTH_EPISODES, never=True)
        rows.append({"turns": number, **result})
    return {"rows": rows}


def decode(folder, size):
    """Time steady decoding of `transformers.generate`: so many rows (64), prompts of 256 tokens."""
    from transformers import StoppingCriteria

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ids = torch.tensor(workload.prompts(model.config.vocab_size, size.decode_rows, workload.DECODE_PROMPT))
    moments = []

    class Note(StoppingCriteria):
        def __call__(self, ids, scores, **_):
            moments.append(time.perf_counter())
            return torch.zeros(ids.shape[0], dtype=torch.bool)

    best = []
    for _ in range(3):
        moments.clear()
        with torch.inference_mode():
            model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=True,
                top_k=0,
                max_new_tokens=size.decode_new,
                eos_token_id=None,
                pad_token_id=0,
                stopping_criteria=[Note()],
            )
        best.append((moments[-1] - moments[0]) / (len(moments) - 1))
    return {"seconds": statistics.median(best[1:]), "tokens": size.decode_rows}


def batching(folder):
    """Time the peer's continuous batching on a few requests."""
    from transformers import GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    inputs = workload.prompts(model.config.vocab_size, workload.BATCHING_REQUESTS, workload.DECODE_PROMPT)
    config = GenerationConfig(
        max_new_tokens=workload.BATCHING_NEW, do_sample=True, eos_token_id=-1, pad_token_id=0
    )
    started = time.perf_counter()
    outputs = model.generate_batch(inputs, generation_config=config, progress_bar=False)
    seconds = time.perf_counter() - started
    tokens = sum(len(output.generated_tokens) for output in outputs.values())
    return {"seconds": seconds, "tokens": tokens}


def sft(folder, size):
    """Time supervised steps of so many streams (32) of 50 to 600 tokens; the first is dropped."""
    steps = size.sft_steps
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = workload.streams(model.config.vocab_size, steps, size.sft_rows)
    clock = Clock()
    config = trl.SFTConfig(
        **settings(
            steps,
            per_device_train_batch_size=size.sft_rows,
            max_length=None,
            packing=False,
            learning_rate=1e-6,
            shuffle_dataset=False,
        )
    )
    trainer = trl.SFTTrainer(
        model=model,
        args=config,
        train_dataset=Dataset.from_dict({"input_ids": rows}),
        processing_class=AutoTokenizer.from_pretrained(folder),
        callbacks=[clock],
    )
    trainer.train()
    tokens = sum(map(len, rows)) / steps
    return {"seconds": statistics.median(clock.seconds[1:]), "tokens": tokens}


def main():
    """Run what the command line names."""
    known = {"grpo": grpo, "turns": turns, "decode": decode, "batching": batching, "sft": sft}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=sorted(known))
    parser.add_argument("folder", help="the model")
    parser.add_argument("--size", choices=workload.SIZES, default=workload.TAUGHT)
    arguments = parser.parse_args()
    sized = (workload.SIZES[arguments.size],) if arguments.what in ("decode", "sft") else ()
    result = known[arguments.what](arguments.folder, *sized)
    versions = {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    print(json.dumps(result | {"versions": versions}))


if __name__ == "__main__":
    main()
