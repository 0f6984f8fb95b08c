from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from quintain.models.cpu import fused
from quintain.models.cpu.fused import Families, Rotation, Sizes
from quintain.models.cpu.half import HalfProducts, is_entered
from quintain.models.cpu.native import unavailable
from quintain.models.packed import Stream, families_of, rotate

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))

STREAMS = (
    Stream(0, 5),
    Stream(5, 70),
    Stream(75, 33, ((5, 70),)),
    Stream(108, 1, ((5, 70),)),
    Stream(109, 17, ((5, 70), (75, 33))),
    Stream(126, 9, ((5, 70), (75, 33), (109, 17))),
    Stream(135, 40, ((5, 70), (75, 33))),
    Stream(175, 120),
)


def same(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("width", [48, 192, 20])
def test_rms_norm_and_its_gradients(width: int) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(37, width, requires_grad=True), torch.randn(width, requires_grad=True)
    grad = torch.randn(37, width)
    ours = fused.rms_norm(hidden, weight, 1e-6)
    theirs = F.rms_norm(hidden, (width,), weight, 1e-6)
    same([ours], [theirs])
    same(
        torch.autograd.grad(ours, (hidden, weight), grad), torch.autograd.grad(theirs, (hidden, weight), grad)
    )


def test_rms_norm_by_hand() -> None:
    normed = fused.rms_norm(torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 2.0]), 0.0)
    rms = (12.5) ** 0.5
    same([normed], [torch.tensor([[3 / rms, 8 / rms]])])


@pytest.mark.parametrize("width", [512, 24])
def test_gated_and_its_gradient(width: int) -> None:
    torch.manual_seed(0)
    joined, grad = (torch.randn(33, 2 * width) * 4).requires_grad_(), torch.randn(33, width)
    ours = fused.gate_silu(joined)
    theirs = F.silu(joined[:, :width]) * joined[:, width:]
    same([ours], [theirs])
    same(torch.autograd.grad(ours, joined, grad), torch.autograd.grad(theirs, joined, grad))


def test_gated_of_large_numbers_stays_finite() -> None:
    joined = torch.tensor([[200.0] * 16 + [1.0] * 16, [-200.0] * 16 + [1.0] * 16])
    same([fused.gate_silu(joined)], [torch.tensor([[200.0] * 16, [0.0] * 16])])


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("vocabulary", [777, 5])
def test_logprobs_entropies_and_their_gradient(temperature: float, vocabulary: int) -> None:
    torch.manual_seed(0)
    logits = (torch.randn(50, vocabulary) * 3).requires_grad_()
    chosen = torch.randint(0, vocabulary, (50,))
    first, second = torch.randn(50), torch.randn(50)
    ours = fused.logprobs(logits, chosen, temperature)
    whole = torch.log_softmax(logits / temperature, dim=-1)
    theirs = whole.gather(1, chosen[:, None])[:, 0], -(whole.exp() * whole).sum(dim=-1)
    same(ours, theirs)
    same(
        torch.autograd.grad((ours[0] * first + ours[1] * second).sum(), logits),
        torch.autograd.grad((theirs[0] * first + theirs[1] * second).sum(), logits),
    )


def test_logprobs_of_what_is_not_finite_are_not_finite() -> None:
    logits = torch.zeros(2, 40)
    logits[0, 3], logits[1, 17] = float("nan"), float("inf")
    found, _ = fused.logprobs(logits, torch.tensor([0, 0]), 1.0)
    assert not found.isfinite().any()


def near(exact: Tensor) -> Tensor:
    """Return `exact` rounded to bfloat16, with the gradient of `exact`."""
    return exact + (exact.bfloat16().float() - exact).detach()


def reference(
    joined: Tensor,
    norms: tuple[Tensor, Tensor, float] | None,
    rotation: Rotation,
    sizes: Sizes,
    *,
    is_rounded: bool = False,
) -> Tensor:
    heads, kv, dimension = sizes.heads, sizes.kv, sizes.dimension
    parts = joined.split([heads * dimension, kv * dimension, kv * dimension], dim=-1)
    query, key = parts[0].view(-1, heads, dimension), parts[1].view(-1, kv, dimension)
    value = parts[2].view(-1, kv, dimension)
    if norms:
        query = F.rms_norm(query, (dimension,), norms[0], norms[2])
        key = F.rms_norm(key, (dimension,), norms[1], norms[2])
    angles = rotation.cosine[rotation.positions], rotation.sine[rotation.positions]
    query, key = rotate(query, *angles), rotate(key, *angles)
    if is_rounded:
        query, key, value = (near(part) for part in (query, key, value))
    outputs: list[Tensor] = []
    for stream in STREAMS:
        own = slice(stream.start, stream.start + stream.length)
        parts = [slice(start, start + length) for start, length in stream.prefix]
        keys, values = (torch.cat([whole[part] for part in (*parts, own)]) for whole in (key, value))
        keys, values = (part.repeat_interleave(heads // kv, dim=1).transpose(0, 1) for part in (keys, values))
        hidden = torch.ones(stream.length, keys.shape[1]).triu(stream.prefix_length + 1).bool()
        scores = query[own].transpose(0, 1) @ keys.mT / dimension**0.5
        weights = scores.masked_fill(hidden, float("-inf")).softmax(dim=-1)
        mixed = (near(weights) if is_rounded else weights) @ values
        outputs.append(mixed.transpose(0, 1).reshape(stream.length, -1))
    return torch.cat(outputs)


@pytest.mark.parametrize("has_norms", [True, False])
@pytest.mark.parametrize("shape", [(4, 2, 48), (4, 4, 32), (6, 2, 20), (2, 1, 64), (2, 1, 128), (3, 1, 80)])
def test_attention_over_packed_streams_and_its_gradients(
    shape: tuple[int, int, int], has_norms: bool
) -> None:
    torch.manual_seed(0)
    sizes = Sizes(*shape)
    positions = torch.cat([torch.arange(s.length) + s.prefix_length for s in STREAMS])
    angles = torch.randn(200, sizes.dimension // 2).repeat(1, 2)
    rotation = Rotation(angles.cos(), angles.sin(), positions)
    joined = torch.randn(len(positions), sizes.width, requires_grad=True)
    weights = [torch.randn(sizes.dimension, requires_grad=True) for _ in range(2)]
    norms = (weights[0], weights[1], 1e-6) if has_norms else None
    trained = [joined, *(weights if has_norms else [])]
    families = families_of(STREAMS)
    ours = fused.attention(joined, norms, rotation, sizes, families)
    theirs = reference(joined, norms, rotation, sizes)
    grad = torch.randn_like(theirs)
    same([ours], [theirs])
    same(torch.autograd.grad(ours, trained, grad), torch.autograd.grad(theirs, trained, grad))


def test_gradients_do_not_depend_on_the_number_of_threads() -> None:
    torch.manual_seed(0)
    sizes = Sizes(4, 2, 16)
    positions = torch.cat([torch.arange(s.length) + s.prefix_length for s in STREAMS])
    rotation = Rotation(torch.ones(200, 16), torch.zeros(200, 16), positions)
    joined = torch.randn(len(positions), sizes.width, requires_grad=True)
    grad = torch.randn(len(positions), 64)
    found: list[Tensor] = []
    threads = torch.get_num_threads()
    for number in (1, 2):
        torch.set_num_threads(number)
        out = fused.attention(joined, None, rotation, sizes, families_of(STREAMS))
        found.append(torch.autograd.grad(out, joined, grad)[0])
    torch.set_num_threads(threads)
    assert torch.equal(*found)


def test_a_family_comes_in_depth_first_order() -> None:
    families: Families = families_of(
        [
            Stream(9, 1, ((0, 4),)),
            Stream(7, 2, ((0, 4), (4, 3))),
            Stream(4, 3, ((0, 4),)),
            Stream(10, 5),
            Stream(0, 4),
        ]
    )
    assert families.bounds.tolist() == [0, 4, 5]
    assert families.start.tolist() == [0, 4, 7, 9, 10]
    assert families.past.tolist() == [0, 4, 7, 4, 0]


@pytest.mark.parametrize("shape", [(4, 2, 48), (6, 2, 20), (2, 1, 128)])
def test_attention_in_bf16_is_that_of_rounded_factors(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    sizes = Sizes(*shape)
    positions = torch.cat([torch.arange(s.length) + s.prefix_length for s in STREAMS])
    angles = torch.randn(200, sizes.dimension // 2).repeat(1, 2)
    rotation = Rotation(angles.cos(), angles.sin(), positions)
    joined = torch.randn(len(positions), sizes.width, requires_grad=True)
    families = families_of(STREAMS)
    with HalfProducts():
        ours = fused.attention(joined, None, rotation, sizes, families)
    theirs = reference(joined, None, rotation, sizes, is_rounded=True)
    apart = (ours - theirs).detach().abs()
    assert float(apart.median()) < 1e-6
    assert float(apart.max()) < float(joined.detach().abs().max()) / 256  # a weight may round to a neighbour
    grad = torch.randn_like(theirs)
    (mine,), (other,) = torch.autograd.grad(ours, joined, grad), torch.autograd.grad(theirs, joined, grad)
    assert float((mine - other).norm() / other.norm()) < 0.005


def test_it_is_known_in_a_thread_whether_products_are_rounded() -> None:
    assert not is_entered()
    with HalfProducts():
        with HalfProducts():
            assert is_entered()
        assert is_entered()
        with ThreadPoolExecutor(1) as other:
            assert not other.submit(is_entered).result()
    assert not is_entered()
