import time

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from quintain.models.fingerprint import fingerprint
from quintain.models.tiny import build_tiny


def pair() -> nn.ParameterDict:
    return nn.ParameterDict(
        {"a": nn.Parameter(torch.tensor([1.0, 2.0])), "b": nn.Parameter(torch.tensor([3.0]))}
    )


def test_one_changed_bit_changes_it() -> None:
    model = pair()
    before = fingerprint(model)
    assert len(before) == 64
    assert fingerprint(pair()) == before
    model["b"].data[0] = torch.nextafter(torch.tensor(3.0), torch.tensor(4.0))
    assert fingerprint(model) != before


def test_names_shapes_and_types_count() -> None:
    one = nn.ParameterDict({"a": nn.Parameter(torch.zeros(4))})
    others = [
        nn.ParameterDict({"b": nn.Parameter(torch.zeros(4))}),
        nn.ParameterDict({"a": nn.Parameter(torch.zeros(2, 2))}),
        nn.ParameterDict({"a": nn.Parameter(torch.zeros(8, dtype=torch.bfloat16))}),
        nn.ParameterDict({"a": nn.Parameter(torch.zeros(4)), "c": nn.Parameter(torch.zeros(0))}),
    ]
    assert len({fingerprint(model) for model in (one, *others)}) == 5


def test_layout_in_memory_does_not_count() -> None:
    square = torch.arange(6.0).reshape(2, 3)
    turned = square.t().contiguous().t()
    assert turned.stride() != square.stride()
    first, second = (nn.ParameterDict({"a": nn.Parameter(t)}) for t in (square, turned))
    assert fingerprint(first) == fingerprint(second)


def test_scalars_and_tied_weights(tokenizer: PreTrainedTokenizerFast) -> None:
    assert fingerprint(nn.ParameterDict({"a": nn.Parameter(torch.tensor(1.0))}))
    model = build_tiny(tokenizer, size="micro")
    before = fingerprint(model)
    model.get_parameter("lm_head.weight").data[0, 0] += 1
    assert fingerprint(model) != before


def test_it_is_quick(tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny(tokenizer)
    seconds: list[float] = []
    for _ in range(5):
        start = time.thread_time()
        fingerprint(model)
        seconds.append(time.thread_time() - start)
    assert min(seconds) < 0.1  # of processor time; about 6 ms on an idle core
