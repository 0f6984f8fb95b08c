"""What samples, scores and learns on a device that refuses float64 and the processor's tensors; run by test_devices."""

import os
from typing import Any, cast

import torch
from tests.models.other_device import CROSSINGS, NAME, install

DEVICE = install()
torch.inference_mode = torch.no_grad  # the device cannot make views of what is made in the former

from tests.learning.streams import streamed  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from quintain.data.pack import pack  # noqa: E402
from quintain.engines.decoder import FastDecoder  # noqa: E402
from quintain.engines.local import Local  # noqa: E402
from quintain.engines.protocol import Request, Sampling  # noqa: E402
from quintain.learning.learner import Forward, Learner, Optimization  # noqa: E402
from quintain.losses.policy import clip_ratio  # noqa: E402
from quintain.models import device as devices  # noqa: E402
from quintain.models.heads import ValueHead  # noqa: E402
from quintain.types import Completion  # noqa: E402

SHAPE: dict[str, Any] = {
    "vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 200,
}  # fmt: skip
PROMPTS = {"a": (3, 1, 4, 1), "b": (3, 1, 4, 1), "c": (5, 9)}


def count_crossings(engine: Local, num: int) -> float:
    """Return how often a token of each of `num` streams goes between the device and the processor."""
    found: list[int] = []
    for most in (4, 8):
        before = len(CROSSINGS)
        for seed in range(num):
            sampling = Sampling(max_tokens=most)
            engine.submit(
                Request(session=f"{seed}/{most}", prompt_ids=(3, seed), seed=seed, sampling=sampling)
            )
        replies = []
        while len(replies) < num:
            replies += engine.advance()
        found.append(len(CROSSINGS) - before)
        for reply in replies:
            engine.release(reply.session)
    return (found[1] - found[0]) / 4


def main() -> None:
    """Sample over two turns, score, and let a learner learn of it."""
    try:
        torch.add(torch.ones(2, device=DEVICE), torch.ones(2))
    except RuntimeError as error:
        assert "same device" in str(error) or "of the processor" in str(error), error
    else:
        raise AssertionError("the device takes tensors of the processor")
    try:
        torch.ones(2, device=DEVICE).double()
    except TypeError as error:
        assert "float64" in str(error), error
    else:
        raise AssertionError("the device takes float64")
    devices.WITHOUT_FLOAT64 = frozenset({NAME})
    torch.manual_seed(0)
    model = cast(Any, Qwen3ForCausalLM(Qwen3Config(**SHAPE)).eval()).to(DEVICE)
    engine = Local(model)
    assert isinstance(engine.decoder, FastDecoder)
    streams = {name: list(prompt) for name, prompt in PROMPTS.items()}
    told: dict[str, list[float]] = {name: [] for name in PROMPTS}
    for turn in range(2):
        sampling = Sampling(max_tokens=5 + 3 * turn)
        for seed, (name, prompt) in enumerate(PROMPTS.items()):
            engine.submit(Request(session=name, prompt_ids=prompt, seed=seed, sampling=sampling))
        replies = []
        while len(replies) < len(PROMPTS):
            replies += engine.advance()
        for reply in replies:
            assert isinstance(reply.result, Completion), reply.result
            streams[reply.session] += [*(PROMPTS[reply.session] if turn else ()), *reply.result.token_ids]
            told[reply.session] += reply.result.logprobs
    (scored,) = engine.score([streams["a"]])
    head = ValueHead(32).to(DEVICE)
    one = {name: ids[: len(PROMPTS[name]) + 5] for name, ids in streams.items()}
    batch = pack([streamed(one[name], first=len(PROMPTS[name]), logprobs=told[name][:5]) for name in PROMPTS])
    outputs = Forward(model, value_head=head).infer(batch)
    assert outputs.logprobs.device.type == NAME and outputs.values is not None
    assert bool(outputs.logprobs.cpu().isfinite().all()) and len(scored) > 0
    learner = Learner(model, Optimization(optimizer="sgd"), value_head=head)
    report = learner.step([batch], clip_ratio())
    assert report.grad_norm > 0 and learner.version == 1
    engine.release("a")
    counts = {num: count_crossings(engine, num) for num in (1, 8)}
    print(f"a token of so many streams crosses {counts} times")
    assert max(counts.values()) <= 12, "it does not grow with the streams"
    scaled = ValueHead(32, has_scales=True).to(DEVICE)
    scaled.standardize(torch.randn(4, 32).to(DEVICE), torch.tensor([True, False, True, False]).to(DEVICE))
    print("done", flush=True)
    os._exit(0)  # the threads that computed the gradient know no end on a device made in Python


if __name__ == "__main__":
    main()
