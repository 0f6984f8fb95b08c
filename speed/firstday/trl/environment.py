"""The haggling of examples/trade.py with TRL: tools in an environment class, and a model made from nothing.

``environment.py 120`` trains for 120 s of processor time.
"""

import random
import sys
import time

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import qwen3_chat_template

SAID = (
    "Buy for as little as you can. The seller gives way a little each time, and leaves if you are too greedy."
)


class Trade:
    def reset(self, seed=0, **_):
        rng = random.Random(seed)
        self.ask = rng.randrange(14, 20)
        self.least = self.ask - rng.randrange(5, 9)
        self.first, self.patience, self.reward, self.is_over = self.ask, rng.randrange(3, 6), 0.0, False
        return f"The seller asks {self.ask}."

    def accept(self) -> str:
        """Pay what the seller asks."""
        return self._end(f"Sold for {self.ask}.", self.ask)

    def leave(self) -> str:
        """Leave without the thing."""
        return self._end("You left.", None)

    def offer(self, price: int) -> str:
        """
        Offer a price.

        Args:
            price: what you would pay
        """
        if self.is_over:
            return "It is over."
        if price >= self.least:
            return self._end(f"Sold for {price}.", price)
        self.patience -= 1 + (self.least - price > 3)
        if self.patience <= 0:
            return self._end("The seller left.", None)
        self.ask = max(self.least, self.ask - 2)
        return f"No. The seller asks {self.ask}."

    def _end(self, said, price):
        if not self.is_over and price is not None:
            self.reward = (self.first - price) / (self.first - self.least)
        self.is_over = True
        return said


def reward(environments, **_):
    return [environment.reward for environment in environments]


def make_model():
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    texts = [qwen3_chat_template, SAID] + [
        f'{{"name": "offer", "arguments": {{"price": {n}}}}}' for n in range(20)
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=768,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    bare.train_from_iterator(texts, trainer)
    bare.add_tokens(
        ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bare, eos_token="<|im_end|>", pad_token="<|endoftext|>", padding_side="left"
    )
    tokenizer.chat_template = qwen3_chat_template
    torch.manual_seed(0)
    shape = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4, "head_dim": 32}
    config = Qwen3Config(
        vocab_size=len(tokenizer), num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, **shape,
    )  # fmt: skip
    return Qwen3ForCausalLM(config), tokenizer


class Print(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        if logs and "reward" in logs:
            calls = float(logs.get("tools/call_frequency", 0.0))
            seconds = time.process_time()
            print(
                f"step {state.global_step}  reward {float(logs['reward']):.3f}  calls of an episode {calls:.3f}  "
                f"{seconds:.0f} s",
                flush=True,
            )

    def on_step_end(self, args, state, control, **_):
        control.should_training_stop |= time.process_time() > float(sys.argv[1])  # noqa: TID251 (a program of its own)


if __name__ == "__main__":
    model, tokenizer = make_model()
    rows = [{"prompt": [{"role": "user", "content": SAID}], "seed": n} for n in range(4096)]
    GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        train_dataset=Dataset.from_list(rows),
        environment_factory=Trade,
        callbacks=[Print()],
        args=GRPOConfig(
            output_dir="trl-trade", use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_steps=1,
            per_device_train_batch_size=64, num_generations=8, steps_per_generation=1, max_steps=1000,
            max_completion_length=256, max_tool_calling_iterations=8, learning_rate=3e-3, beta=0.0,
            lr_scheduler_type="constant",
            gradient_checkpointing=False, disable_tqdm=True,
        ),
    ).train()  # fmt: skip
