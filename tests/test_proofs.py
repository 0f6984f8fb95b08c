"""What proofs on a real model are computed from: differences over seeds, one start, tokens that were sampled."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.speed_scripts import load_script

from quintain.data.searched import follow_found
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Trajectory

proofs = load_script("speed/proofs.py")
search = load_script("speed/proof_search.py")


def test_a_difference_is_that_of_a_paired_t_test() -> None:
    found = proofs.Difference.over([0.1, 0.2, 0.3, 0.2])
    # By hand: s = .0816, s/2 = .0408, t = 4.899 with 3 degrees of freedom, 3.182 of which are 95 %.
    assert found.mean == pytest.approx(0.2)
    assert (found.low, found.high) == (pytest.approx(0.0701, abs=1e-4), pytest.approx(0.3299, abs=1e-4))
    assert found.chance == pytest.approx(0.0081, abs=1e-4)
    assert str(found) == "+20.0 points [7.0, 33.0], one-sided p = 0.0081, 4 seeds"
    assert [found.is_shown(0.1, 0.05), found.is_shown(0.21, 0.05), found.is_shown(0.1, 0.008)] == [
        True,
        False,
        False,
    ]


def test_tasks_that_one_alone_solves_are_compared() -> None:
    one = dict.fromkeys("abcdefg", True)
    assert proofs.compare_pairs(one, dict.fromkeys("abcdef", False) | {"g": True}) == pytest.approx(2 / 2**6)


@pytest.mark.parametrize("weights", [("same", "other"), ("", "")])
def test_arms_that_began_apart_are_not_compared(tmp_path: Path, weights: tuple[str, str]) -> None:
    for name, text in zip("ab", weights, strict=True):
        (tmp_path / name / "start").mkdir(parents=True)
        if text:
            (tmp_path / name / "start" / "model.safetensors").write_text(text)
    with pytest.raises(SystemExit, match="seed 3: the arms did not begin with the same weights"):
        proofs.require_one_start([tmp_path / "a", tmp_path / "b"], 3)


def make_search() -> Trajectory:
    """Return a search of three actions of two tokens, the last of which alone leads to its end."""
    turns = [turn_of((5, 6), observation=f"[search]\n{word}.") for word in "abc"]
    return episode_of(turns, 1.0, final_observation="[search end 2]\nDone.")


def test_tokens_count_that_a_search_took_back() -> None:
    episode = make_search()
    assert search.count_tokens([follow_found(episode)]) == 2
    assert search.count_tokens([episode, episode]) == 12


def test_straight_episodes_go_on_until_as_many_tokens_were_sampled() -> None:
    asked = list[tuple[int, int]]()

    def play(first: int, num: int) -> Sequence[Trajectory]:
        asked.append((first, num))
        return [episode_of([turn_of((5, 6, 7))], 0.0, index=first + k) for k in range(num)]

    found = search.play_tasks(play, 4, tokens=17)
    assert [t.index for t in found] == list(range(6)) and asked == [(0, 4), (4, 4)]
    assert len(search.play_tasks(play, 4, tokens=18)) == 6
    asked.clear()
    assert len(search.play_tasks(play, 4, tasks=6)) == 6 and asked == [(0, 4), (4, 2)]
