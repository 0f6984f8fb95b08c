"""A navigator: dueling, a double target by hand, and nothing that may not be done is ever chosen."""

from pathlib import Path

import pytest
import torch

from quintain.errors import DataError
from quintain.models.navigator import (
    BLOCKS,
    Navigator,
    choose_legal,
    double_targets,
    load_navigator,
    mask_blocks,
)
from quintain.worlds.solver.chain import DEBATE, DECOMPOSE, REFINE, STEP
from quintain.worlds.solver.problem import STOP

SCORES = torch.tensor([[3.0, 2, 3, 1, 1, 3, 2], [1, 1, 1, 3, 3, 1, 2]])


def test_it_has_as_many_numbers_as_the_paper_says() -> None:
    assert sum(each.numel() for each in Navigator().parameters()) == 2566
    assert BLOCKS == (STEP, DECOMPOSE, DEBATE, REFINE, STOP)


def test_values_are_that_of_the_state_and_advantages_of_mean_zero() -> None:
    made = Navigator(seed=3)
    with torch.no_grad():
        seen = torch.relu(made.shared(SCORES - 2))
        value = made.value(torch.relu(made.of_state(seen))).squeeze(1)
        raw = made.advantage(torch.relu(made.of_blocks(seen)))
        found = made(SCORES)
    assert torch.allclose(found.mean(1), value, atol=1e-6)
    assert torch.allclose(found - found.mean(1, keepdim=True), raw - raw.mean(1, keepdim=True), atol=1e-6)


def test_a_double_target_by_hand() -> None:
    following = torch.tensor([[5.0, 1, 2, 0, 0], [1, 2, 3, 4, 9], [0, 0, 0, 0, 1]])
    older = torch.tensor([[10.0, 20, 30, 40, 50], [9, 2, 3, 4, 5], [7, 7, 7, 7, 7]])
    mask = mask_blocks([("decompose", "debate"), BLOCKS, BLOCKS])
    over = torch.tensor([False, False, True])
    found = double_targets(torch.tensor([1.0, 0.0, -1.0]), following, older, mask, over, 0.5)
    assert found.tolist() == [1 + 0.5 * 30, 0.5 * 5, -1.0], (
        "step is not legal; one network chooses, the other judges; nothing follows the end"
    )
    none = mask_blocks([(), (), ()])
    assert double_targets(torch.ones(3), following, older, none, torch.ones(3).bool(), 0.5).tolist() == [
        1,
        1,
        1,
    ]


def test_what_may_not_be_done_is_not_chosen() -> None:
    values = torch.tensor([[9.0, 1, 2, 3, 4]])
    assert choose_legal(values, mask_blocks([("decompose", "debate")])).tolist() == [2]
    made = Navigator(seed=1)
    for block in BLOCKS:
        assert made.choose((3, 3, 3, 1, 1, 3, 3), (block,)) == block


def test_it_is_kept_in_a_file(tmp_path: Path) -> None:
    Navigator(seed=5).save(tmp_path / "n.safetensors")
    again = load_navigator(tmp_path / "n.safetensors")
    assert torch.equal(again(SCORES), Navigator(seed=5)(SCORES))
    (tmp_path / "bad.safetensors").write_bytes(b"no weights")
    for name in ("bad.safetensors", "missing.safetensors"):
        with pytest.raises(DataError, match=f"navigator: got .*{name}, which holds none"):
            load_navigator(tmp_path / name)
