"""Whole runs on a device that refuses float64 and the processor's tensors, as on a Mac; run by test_devices."""

import os
import tempfile
from typing import Any, cast

import torch
from tests.models.other_device import NAME, install

install()
torch.inference_mode = torch.no_grad  # the device cannot make views of what is made in the former
for call in ("pidfd_open", "sched_getaffinity"):  # Linux has them alone
    delattr(os, call)

from transformers import PreTrainedModel  # noqa: E402

import quintain  # noqa: E402
from quintain.models import device as devices  # noqa: E402

FIELDS: dict[str, Any] = {
    "model": "micro", "environment": "guess?high=4&max_turns=3", "steps": 1, "eval_every": 1, "eval_episodes": 2,
    "demonstrations": 8, "imitation_epochs": 2, "max_turn_tokens": 6, "max_context": 256, "device": NAME,
}  # fmt: skip
METHODS: dict[str, dict[str, Any]] = {
    "grpo": {"tasks": 2, "group_size": 2, "lora_rank": 4},
    "ppo": {"episodes": 2},
    "archer": {"tasks": 2, "group_size": 2, "critic_first": 0, "critic_explains": 0.0, "critic_updates": 2},
    "eto": {"tasks": 4},
}
UPDATED = ("ppo", "archer", "eto")
"""Those that learn of failures alone, too."""


def main(method: str) -> None:
    """Train by `method`; what stands for a tensor has no address, so that files are written from the processor."""
    devices.WITHOUT_FLOAT64 = frozenset({NAME})
    save = PreTrainedModel.save_pretrained

    def save_from_processor(model: Any, folder: Any, **more: Any) -> None:
        tensors = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
        save(model, folder, state_dict=tensors, **more)

    PreTrainedModel.save_pretrained = cast(Any, save_from_processor)
    with tempfile.TemporaryDirectory() as root:
        run = quintain.train(method, run=method, root=root, **FIELDS, **METHODS[method])
        rows = run.metrics
        assert [row["step"] for row in rows] == [0, 1]
        assert all(row["gap/canary"] < 1e-4 for row in rows), "its numbers are those of the learner"
        assert rows[1].get("gap/mean", 0.0) < 1e-4 and rows[1].get("train/failures", 0.0) == 0.0
        assert method not in UPDATED or rows[1]["train/grad_norm"] > 0
    print("done", flush=True)
    os._exit(0)  # the threads that computed the gradient know no end on a device made in Python
