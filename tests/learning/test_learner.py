import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.learning.streams import streamed
from torch import Tensor
from transformers import GemmaConfig, GemmaForCausalLM, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from quintain.data.pack import micro_batches, pack
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.errors import ConfigError, InvariantError, MemoryShortage, StoreError, UsageError
from quintain.learning.gap import gap
from quintain.learning.learner import Learner, Optimization
from quintain.losses.policy import clip_ratio
from quintain.models.cpu import native
from quintain.models.heads import ValueHead
from quintain.types import Batch, Completion, Loss, LossReport, Outputs, Sample

SHAPE: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
}
CLEAR = Path("/proc/self/clear_refs")
PLAIN = Optimization(learning_rate=0.0, shares_prefixes=False, max_grad_norm=1e9)
SHARED = replace(PLAIN, shares_prefixes=True)


@pytest.fixture(scope="module", params=["kernels", "torch"], autouse=True)
def path(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test here is run twice: on the kernels in C, and on torch as where there is no compiler."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(native, "unavailable", lambda: "switched off")
        yield


def qwen() -> PreTrainedModel:
    torch.manual_seed(1)
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, tie_word_embeddings=True)).eval()


def gemma() -> PreTrainedModel:
    torch.manual_seed(1)
    return GemmaForCausalLM(GemmaConfig(**SHAPE)).eval()


def streams(seed: int, num: int = 6, shared: int = 10) -> list[Sample]:
    """Streams of random turns; the first half opens with the same prompt, and each goes on like the one before."""
    rng = np.random.default_rng(seed)
    prompt = rng.integers(0, 40, shared)
    found = [
        sample(rng, i, prompt if i < num // 2 else rng.integers(0, 40, int(rng.integers(1, 14))))
        for i in range(num)
    ]
    for i in range(1, num // 2):
        before, own = found[i - 1].token_ids, found[i].token_ids
        front = int(rng.integers(0, min(len(before), len(own)) + 1))
        found[i] = replace(found[i], token_ids=np.concatenate([before[:front], own[front:]]))
    return found


def sample(rng: np.random.Generator, index: int, prompt: np.ndarray[Any, Any]) -> Sample:
    turns = int(rng.integers(1, 4))
    ids, turn_id = [prompt], [np.full(len(prompt), -1)]
    for turn in range(turns):
        sampled, observed = int(rng.integers(1, 4)), int(rng.integers(1, 5)) * (turn < turns - 1)
        ids.append(rng.integers(0, 40, sampled + observed))
        turn_id.append(np.repeat([turn, -1], [sampled, observed]))
    turn_ids = np.concatenate(turn_id)
    mask = turn_ids >= 0
    numbers = rng.normal(size=len(mask))
    return Sample(
        token_ids=np.concatenate(ids),
        loss_weight=mask.astype(np.float32),
        logprobs=np.where(mask, -3.7 + 0.1 * numbers, 0).astype(np.float32),
        advantages=np.where(mask, numbers, 0).astype(np.float32),
        returns=np.where(mask, numbers, 0).astype(np.float32),
        turn_id=turn_ids,
        turn_end=np.append(turn_ids[:-1] != turn_ids[1:], True) & mask,
        trajectory=index,
    )


def gradient(learner: Learner, batches: list[Batch], loss: Loss) -> list[Tensor]:
    learner.optimizer.zero_grad(set_to_none=True)
    for batch in batches:
        loss(learner.forward(batch), batch).loss.backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in learner.parameters]


@given(seed=st.integers(0, 10_000), shared=st.integers(1, 20), limit=st.integers(60, 200))
@settings(max_examples=12, deadline=None)
def test_gradients_of_every_layout_equal_the_padded_one(seed: int, shared: int, limit: int) -> None:
    samples = streams(seed, shared=shared)
    model = qwen()
    padded = Learner(model, PLAIN)
    padded.forward.fallback_reason = "compared with"
    expected = gradient(padded, [pack(samples)], clip_ratio())
    for optimization in (PLAIN, SHARED):
        for batches in ([pack(samples)], micro_batches(samples, max_tokens=limit)):
            for got, want in zip(
                gradient(Learner(model, optimization), batches, clip_ratio()), expected, strict=True
            ):
                torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_log_probs_and_entropies_are_those_of_the_plain_model() -> None:
    model = qwen()
    (one,) = streams(3, num=1)
    batch = pack([one])
    outputs = Learner(model, replace(PLAIN, temperature=0.7)).infer(batch)
    with torch.no_grad():
        logits = cast(Any, model)(torch.from_numpy(one.token_ids)[None]).logits[0]
    distribution = torch.log_softmax(logits / 0.7, dim=-1)
    for place in range(len(one.token_ids)):
        if one.turn_id[place] < 0:
            assert outputs.logprobs[place] == 0
            assert outputs.entropy[place] == 0
        else:
            row = distribution[place - 1]
            assert float(outputs.logprobs[place]) == pytest.approx(float(row[one.token_ids[place]]), abs=1e-5)
            assert float(outputs.entropy[place]) == pytest.approx(float(-(row.exp() * row).sum()), abs=1e-5)


def test_a_family_without_a_fast_path_trains_too() -> None:
    samples = streams(5)
    learner = Learner(gemma(), Optimization(learning_rate=1e-2))
    assert learner.forward.fallback_reason is not None
    losses = [learner.step([pack(samples)], nll).loss for _ in range(6)]
    assert losses[-1] < losses[0]


def nll(outputs: Outputs, batch: Batch) -> LossReport:
    return LossReport(loss=-(batch.loss_weight * outputs.logprobs).sum(), metrics={"nll": 1.0})


def test_a_value_head_learns_the_returns() -> None:
    learner = Learner(qwen(), Optimization(learning_rate=1e-2), value_head=ValueHead(16))

    def squared(outputs: Outputs, batch: Batch) -> LossReport:
        assert outputs.values is not None
        return LossReport(loss=(batch.loss_weight * (outputs.values - batch.returns) ** 2).sum())

    batch = pack(streams(1))
    losses = [learner.step([batch], squared).loss for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]


def test_bfloat16_stays_near() -> None:
    model, batch = qwen(), pack(streams(1))
    exact = Learner(model, PLAIN).infer(batch).logprobs
    rough = Learner(model, replace(PLAIN, precision="bf16")).infer(batch).logprobs
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, atol=0.1, rtol=0.05)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("make", [qwen, gemma])
def test_engine_and_learner_of_one_precision_say_the_same(
    make: Callable[[], PreTrainedModel], precision: Literal["fp32", "bf16"]
) -> None:
    model = make()
    engine = Local(model, precision=precision)
    engine.submit(Request(session="a", prompt_ids=(3, 1, 4, 1), seed=1, sampling=Sampling(max_tokens=20)))
    replies = []
    while not replies:
        replies = engine.advance()
    result = replies[0].result
    assert isinstance(result, Completion)
    batch = pack([streamed([3, 1, 4, 1, *result.token_ids], first=4, logprobs=result.logprobs)])
    outputs = Learner(model, replace(PLAIN, precision=precision)).infer(batch)
    found = gap(outputs, batch)
    assert found.total / 20 < (1e-5 if precision == "fp32" else 2e-3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("make", [qwen, gemma])
def test_computing_again_changes_no_gradient(
    make: Callable[[], PreTrainedModel], precision: Literal["fp32", "bf16"], monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, plain = [pack(streams(3))], replace(PLAIN, precision=precision)
    expected = gradient(Learner(make(), plain), batches, nll)
    monkeypatch.setattr("quintain.learning.learner.MAX_LOGITS", 40 * 3)  # three tokens at a time
    found = gradient(Learner(make(), replace(plain, gradient_checkpointing=True)), batches, nll)
    for mine, other in zip(found, expected, strict=True):
        apart = float((mine - other).norm() / other.norm())
        assert apart < (1e-2 if precision == "bf16" else 1e-5)  # sums of pieces are rounded to 16 bits


def test_a_model_with_dropout_is_not_computed_again() -> None:
    model = gemma()
    model.config.attention_dropout = 0.1
    with pytest.raises(ConfigError, match=r"'gemma' with dropout \(attention_dropout = 0.1\); set it to 0"):
        Learner(model, replace(PLAIN, gradient_checkpointing=True))


@pytest.mark.skipif(not CLEAR.exists(), reason="the peak of memory is read from /proc")
@pytest.mark.slow
def test_a_stream_of_32k_tokens_trains_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "quintain.learning.learner.MAX_LOGITS", 1 << 24
    )  # 64 MB, and as much for their gradient
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=4096, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=1 << 15,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval()

    def peak(length: int) -> int:
        rng = np.random.default_rng(0)
        learner = Learner(model, replace(PLAIN, gradient_checkpointing=True, optimizer="sgd"))
        ids = rng.integers(0, 4096, length).tolist()
        batch = pack([streamed(ids, first=8, logprobs=[-8.0] * (length - 8))])
        CLEAR.write_text("5", encoding="ascii")  # forget the peak until now
        before = memory("VmRSS")
        report = learner.step([batch], nll)
        assert np.isfinite(report.loss) and report.grad_norm > 0
        return memory("VmHWM") - before

    short, long = peak(1 << 13), peak(1 << 15)
    logits = 4 * 4096 << 15  # bytes of all logits in fp32; torch alone would hold them, and their gradient
    assert long < 0.6 * logits
    assert long < 3 * short  # four times the tokens


def memory(name: str) -> int:
    """Return what /proc says of this process, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(name))


def test_a_step_that_is_not_finite_changes_nothing_and_the_third_in_a_row_stops() -> None:
    learner = Learner(qwen(), Optimization(learning_rate=1e-2))
    batch = pack(streams(1))
    learner.step([batch], nll)
    weights = [p.detach().clone() for p in learner.parameters]

    def broken(outputs: Outputs, batch: Batch) -> LossReport:
        return LossReport(loss=outputs.logprobs.sum() * float("nan"))

    for _ in range(2):
        assert learner.step([batch], broken).is_skipped
    with pytest.raises(InvariantError, match="3th time in a row"):
        learner.step([batch], broken)
    assert learner.version == 1
    for got, want in zip(learner.parameters, weights, strict=True):
        assert torch.equal(got, want)


def test_a_step_without_memory_is_a_line_and_changes_nothing() -> None:
    learner, asked = Learner(qwen(), Optimization(learning_rate=1e-2)), list[Batch]()
    weights = [p.detach().clone() for p in learner.parameters]

    def full(outputs: Outputs, batch: Batch) -> LossReport:
        asked.append(batch)
        if len(asked) == 2:
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB"
            )
        return nll(outputs, batch)

    batch = pack(streams(1))
    with pytest.raises(MemoryShortage) as found:
        learner.step([batch, batch], full)
    line = str(found.value)
    assert line.startswith("an optimizer step: got no more memory (") and "\n" not in line
    assert "lower --tokens-per-microbatch (now 16,384 at once), give --gradient-checkpointing true" in line
    assert found.value.exit_code == 12 and learner.version == 0
    assert all(torch.equal(got, want) for got, want in zip(learner.parameters, weights, strict=True))
    assert not learner.step([batch], full).is_skipped


def test_the_rate_scale_scales_the_step() -> None:
    def moved(scale: float) -> float:
        learner = Learner(qwen(), Optimization(learning_rate=1e-2))
        before = learner.parameters[0].detach().clone()
        learner.step([pack(streams(1))], nll, rate_scale=scale)
        return float((learner.parameters[0] - before).abs().max().detach())

    assert moved(0.5) == pytest.approx(0.5 * moved(1.0), rel=1e-3)


def test_saved_and_loaded_it_continues_bit_for_bit(tmp_path: Path) -> None:
    def fresh() -> Learner:
        return Learner(qwen(), Optimization(learning_rate=1e-2), value_head=ValueHead(16))

    batches = [pack(streams(i)) for i in range(4)]
    whole = fresh()
    for batch in batches:
        whole.step([batch], nll)
    first = fresh()
    for batch in batches[:2]:
        first.step([batch], nll)
    first.save(tmp_path)
    second = fresh()
    second.load(tmp_path)
    assert second.version == 2
    for batch in batches[2:]:
        second.step([batch], nll)
    for got, want in zip(second.parameters, whole.parameters, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("known", [0, 2])
def test_what_is_tried_is_forgotten_bit_for_bit(known: int) -> None:
    def fresh() -> Learner:
        learner = Learner(qwen(), Optimization(learning_rate=1e-2), value_head=ValueHead(16))
        for seed in range(known):
            learner.step([pack(streams(seed))], nll)
        return learner

    plain, trying = fresh(), fresh()
    with trying.tried():
        trying.step([pack(streams(9))], nll, rate_scale=3.0)
        torch.rand(3)
        assert trying.version == known + 1
    with pytest.raises(UsageError), trying.tried():
        trying.step([pack(streams(8))], nll)
        raise UsageError("broken off")
    assert trying.version == known
    for learner in (plain, trying):
        torch.manual_seed(0)
        learner.step([pack(streams(5))], nll)
    for got, want in zip(trying.parameters, plain.parameters, strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize("spoil", ["missing", "cut", "other"])
def test_a_broken_checkpoint_is_an_error(tmp_path: Path, spoil: str) -> None:
    learner = Learner(qwen(), Optimization())
    learner.save(tmp_path)
    weights = tmp_path / "weights-0.safetensors"
    changes: dict[str, Callable[[], object]] = {
        "missing": weights.unlink,
        "cut": lambda: weights.write_bytes(weights.read_bytes()[:100]),
        "other": lambda: (tmp_path / "learner.json").write_text(json.dumps([1])[:2]),
    }
    changes[spoil]()
    with pytest.raises(StoreError, match="resume from another checkpoint"):
        learner.load(tmp_path)


def test_a_model_without_trainable_parameters_is_refused() -> None:
    with pytest.raises(UsageError, match="without trainable parameters"):
        Learner(qwen().requires_grad_(False))


def test_what_stands_beside_has_its_part_in_the_gradient_and_nothing_else() -> None:
    own, others = streams(3), streams(4)
    batches, beside = micro_batches(own, max_tokens=60), micro_batches(others, max_tokens=60)

    def weighted(weight: float) -> Loss:
        return lambda outputs, batch: LossReport(
            loss=-weight * (batch.loss_weight * outputs.logprobs).sum(), metrics={f"of/{weight}": weight}
        )

    def gradient(learner: Learner) -> Tensor:
        seen: list[Tensor] = []
        learner._update = lambda rate_scale: seen.append(  # pyright: ignore[reportPrivateUsage]
            torch.cat([p.grad.flatten() for p in learner.parameters if p.grad is not None])
        )
        report = learner.step(batches, weighted(1.0), beside=(beside, weighted(0.5)))
        assert report.metrics == {"of/1.0": len(batches), "of/0.5": 0.5 * len(beside)}
        learner.step(batches, weighted(1.0))
        learner.step(beside, weighted(0.5))
        assert torch.allclose(seen[0], seen[1] + seen[2], atol=1e-6)
        return seen[0]

    assert gradient(Learner(qwen(), PLAIN)).abs().sum() > 0
