"""Make the model folder of the comparison: python prepare.py TEMPLATE FOLDER [--size 30M].

A Qwen3 of 1.7M parameters with a byte-level tokenizer and the chat template in the file TEMPLATE (the peer
ships Qwen3's), taught by imitation to guess numbers with the tool; of another size it has random weights. Nothing is
downloaded.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from pathlib import Path

import torch
import workload
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import get_json_schema

from quintain.curriculum.streams import TaskStream
from quintain.data.pack import micro_batches
from quintain.data.samples import imitation_samples
from quintain.environments.catalog import find
from quintain.learning.learner import Learner, Optimization
from quintain.learning.train_config import TrainConfig
from quintain.losses.imitation import imitation
from quintain.models.save import save
from quintain.models.tiny import build_tiny
from quintain.rollout.collect import Limits, Rollout
from quintain.types import Task, Trajectory
from quintain.warm_start.start import demonstrate, harness, valid_action
from quintain.worlds.guess.game import Guess

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]
UPDATES = 150


def tokenizer(template: str) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer of 768 tokens, with the markup of Qwen3."""
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=768, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    call = '\n{"name": "guess", "arguments": {"number": %d}}\n'
    texts = [template, workload.PROMPT, "higher lower correct", *(call % n for n in range(100))]
    bare.train_from_iterator(texts, trainer)
    bare.add_tokens(MARKUP)
    return PreTrainedTokenizerFast(
        tokenizer_object=bare,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=template,
        padding_side="left",
    )


def untaught(tokens: PreTrainedTokenizerFast, size: workload.Size) -> Qwen3ForCausalLM:
    """Return a model of `size` with random weights."""
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(vocab_size=len(tokens), tie_word_embeddings=True, **size.shape)
    ).eval()


class Never(Guess):
    """The world with a number that no guess names."""

    def reset(self, task: Task) -> str:
        """Hide 0, which is below the range."""
        said = super().reset(task)
        self._secret = 0
        return said


def searches(tokens: PreTrainedTokenizerFast) -> list[Trajectory]:
    """Return searches of the expert, who halves what is left."""
    make = find(f"guess?high={workload.HIGH}&max_turns={workload.MAX_TURNS}")
    return demonstrate(harness(TrainConfig(), tokens, make), make, count=192, seed=0)


def long_searches(tokens: PreTrainedTokenizerFast) -> list[Trajectory]:
    """Return searches at random for what is not there: the measurement of growth needs the model to go on."""
    limits = Limits(max_turns=workload.LONGEST + 2)
    rollout = Rollout(harness(TrainConfig(), tokens, Never), Never, None, limits=limits)
    groups = rollout.demonstrations(TaskStream(Never).draw(0, 48), valid_action, seed=1)
    rollout.close()
    return [trajectory for group in groups for trajectory in group.scored]


def as_the_peer_asks(trajectory: Trajectory, tokens: PreTrainedTokenizerFast) -> Trajectory:
    """Return `trajectory` under the peer's prompt, with the closing turn that ends an episode of the peer."""
    chat = [{"role": "user", "content": workload.PROMPT}]
    tool = get_json_schema(workload.GuessTool.guess)
    opening = tokens.apply_chat_template(chat, tools=[tool], add_generation_prompt=True, return_dict=False)
    first, *rest = trajectory.turns
    closing = tokens.encode(
        "\n<|im_start|>user\n<tool_response>\ncorrect\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )
    last = replace(
        trajectory.turns[-1],
        prompt_ids=tuple(closing),
        starts_segment=False,
        completion=replace(
            first.completion,
            token_ids=tuple(tokens.encode("done<|im_end|>")),
            logprobs=(0.0,) * len(tokens.encode("done<|im_end|>")),
        ),
    )
    return replace(trajectory, turns=(replace(first, prompt_ids=tuple(opening)), *rest, last))


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("template", type=Path, help="file with the chat template")
    parser.add_argument("folder", type=Path, help="where the model goes")
    parser.add_argument("--size", choices=workload.SIZES, default=workload.TAUGHT)
    parser.add_argument("--long", action="store_true", help="also teach searches at random that go on")
    arguments = parser.parse_args()
    tokens = tokenizer(arguments.template.read_text(encoding="utf-8"))
    if arguments.size != workload.TAUGHT:
        save(untaught(tokens, workload.SIZES[arguments.size]), tokens, arguments.folder)
        return
    model = build_tiny(tokens, size="small")
    shown = searches(tokens) + (long_searches(tokens) if arguments.long else [])
    shown += [as_the_peer_asks(trajectory, tokens) for trajectory in shown]
    samples = imitation_samples(shown)
    learner = Learner(model, Optimization(learning_rate=2e-3))
    rng = random.Random(0)
    for update in range(UPDATES):
        chosen = rng.sample(samples, 24)
        report = learner.step(
            micro_batches(chosen, max_tokens=16_384), imitation(), rate_scale=1 - update / UPDATES
        )
    print(f"imitation loss {report.loss:.3f}")
    save(model, tokens, arguments.folder)


if __name__ == "__main__":
    main()
