"""A customer that a served model plays: a real engine behind the endpoint, whatever it says."""

from pathlib import Path

from tests.serve.conftest import Served

from quintain.environments.protocol import advance, begin, tool_action
from quintain.serve.endpoint import EpisodeLimits
from quintain.types import as_text
from quintain.worlds.desk.game import Desk

TERMS = EpisodeLimits(temperature=1.0, max_turn_tokens=24, usual_turn_tokens=24)


def talk_to(served: Served, name: str, key_file: Path) -> list[str]:
    """Return what the customer said, whom the episode `name` of the endpoint plays."""
    _, url, key = served.open(name, terms=TERMS)
    key_file.write_text(key)
    desk = Desk(user=url, user_key_file=str(key_file))
    try:
        said = [as_text(begin(desk, desk.task("train", 0)))]
        for _ in range(2):
            answer = advance(desk, tool_action("respond", text="What can I do for you?"))
            said.append(as_text(answer.observation))
    finally:
        desk.close()
    return said


def test_a_served_model_plays_the_customer(untrained: Served, tmp_path: Path) -> None:
    said = talk_to(untrained, "customer", tmp_path / "key")
    assert all(text.strip() for text in said), "a turn of somebody who knows no words is a turn"
    assert said == talk_to(untrained, "again", tmp_path / "key"), "the same seeds say the same"
    assert len(set(said)) > 1, "what was said before is read"
