import torch

from quintain.models.heads import ValueHead


def test_values_by_hand() -> None:
    head = ValueHead(2)
    head.load_state_dict({"linear.weight": torch.tensor([[2.0, -1.0]]), "linear.bias": torch.tensor([0.5])})
    hidden = torch.tensor([[1.0, 1.0], [0.0, 3.0]])
    assert head(hidden).tolist() == [1.5, -2.5]
    assert head(hidden.to(torch.bfloat16)).dtype == torch.float32


def test_a_new_head_says_almost_zero_and_follows_its_seed() -> None:
    hidden = torch.randn(500, 64, generator=torch.Generator().manual_seed(0))
    assert ValueHead(64)(hidden).abs().max() < 0.05
    assert ValueHead(64, seed=1)(hidden).std() > 0
    assert torch.equal(ValueHead(64, seed=1)(hidden), ValueHead(64, seed=1)(hidden))
    before = torch.get_rng_state()
    ValueHead(64)
    assert torch.equal(torch.get_rng_state(), before)
