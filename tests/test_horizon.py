"""The arms of `make proof-horizon`: a cut book is the end of the whole one; rewards dealt out are the group's."""

from pathlib import Path

from tests.speed_scripts import load_script

from quintain.environments.catalog import find
from quintain.environments.protocol import Environment, begin
from quintain.testing.episodes import episode_of, turn_of
from quintain.types import Action, Group, as_text, flatten_scored
from quintain.worlds.stream.game import Stream

horizon = load_script("speed/horizon.py")
FILE = Path(__file__).parents[1] / "speed" / "horizon.py"
BOOK = "pages=9&facts=1&filler=2&closed_book=0&cost=0"


def cut(kept: int) -> Environment:
    return find(f"{FILE}:CutText?kept={kept}&{BOOK}")()


def test_a_cut_book_asks_the_same_and_ends_the_same() -> None:
    whole, left = find(f"stream?{BOOK}")(), cut(4)
    task = whole.task("eval", 3)
    assert begin(left, task) == begin(whole, task)
    assert left.instructions() == whole.instructions()
    pages = [as_text(whole.step(Action(text="read")).observation) for _ in range(9)]
    assert [as_text(left.step(Action(text="read")).observation) for _ in range(4)] == pages[5:]
    assert isinstance(left, Stream) and "read" not in left.legal_actions()


def test_a_book_that_fits_is_not_cut() -> None:
    left = cut(12)
    begin(left, left.task("eval", 0))
    assert as_text(left.step(Action(text="read")).observation).startswith("Page 1:")


def test_the_control_pays_as_much_to_others() -> None:
    episodes = tuple(episode_of([turn_of(reward=float(k < 3))], float(k < 3), index=k) for k in range(8))
    groups = [Group(task=episodes[0].task, trajectories=episodes)]
    dealt = horizon.method(horizon.Config(dealt_out=True)).reward(groups)
    paid = [t.outcome.value for t in flatten_scored(dealt)]  # pyright: ignore[reportAttributeAccessIssue]
    assert sum(paid) == 3.0 and paid != [t.outcome.value for t in episodes]  # pyright: ignore[reportAttributeAccessIssue]
    assert horizon.method(horizon.Config()).reward(groups) == groups
