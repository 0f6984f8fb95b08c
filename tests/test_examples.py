"""The programs in `examples/` keep the contract, and their experts solve them."""

from pathlib import Path

import pytest

from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.catalog import find
from quintain.environments.check import check
from quintain.types import Action, ToolCall

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES, TRADE = f"{EXAMPLES / 'files.py'}:Files", f"{EXAMPLES / 'trade.py'}:Trade"


@pytest.mark.parametrize("spec", [FILES, f"{FILES}?folders=5&files=1", TRADE])
def test_an_example_keeps_the_contract(spec: str) -> None:
    report = check(spec, episodes=8)
    assert report.has_passed, "\n".join(report.lines())


def test_who_looks_into_the_folders_finds_the_word() -> None:
    world = find(FILES)()
    for index in range(20):
        episode = play(world, world.task("eval", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert 5 <= len(episode.rewards) <= 11
        assert not play(world, world.task("eval", index), random_policy(index)).total > 0.2 + 1e-9
    world.reset(world.task("eval", 0))
    wrong = world.step(Action(tool_calls=(ToolCall(name="answer", arguments={"word": "none"}),)))
    assert (wrong.is_success, wrong.reward) == (False, 0.0)


def test_the_seller_gives_way_and_leaves_who_is_too_greedy() -> None:
    world = find(TRADE)()
    task = world.task("train", 3)
    ask = int(str(world.reset(task)).rstrip(".").split()[-1])
    paid = world.step(Action(text="accept"))
    assert (paid.is_success, paid.reward, paid.is_terminated) == (False, 0.0, True)
    world.reset(task)
    refused = world.step(Action(text="offer 99"))
    assert (refused.is_valid, refused.is_terminated) == (False, False)
    answer = world.step(Action(text=f"offer {ask - 6}"))
    assert answer.is_terminated or str(answer.observation) == f"No. The seller asks {ask - 2}."
    ends = [play(world, world.task("train", index), random_policy(index)).total for index in range(40)]
    assert min(ends) == 0.0 and 0.75 < max(ends) <= 1.0
