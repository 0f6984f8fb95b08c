"""Where a navigator is asked the model is made to say its choice, and nowhere else."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.conftest import Talk

from quintain.agents.catalog import check, engine_needs
from quintain.agents.harness import Choice, PlainText
from quintain.agents.navigated import Asked, Navigated, navigate
from quintain.agents.protocol import Brief
from quintain.errors import DataError
from quintain.models.navigator import Navigator
from quintain.text.chat import Chat
from quintain.types import Task

SHOWN = "After 0 of 2 steps: 7\nScores: 3 2 3 3 1 1 1\nBlocks: step, debate"


def test_the_choice_is_all_that_can_be_sampled(small_chat: Chat, brief_of: Callable[..., Brief]) -> None:
    heard: list[tuple[Asked, int]] = []

    def choose(asked: Asked, _: Task, number: int) -> str:
        heard.append((asked, number))
        return "debate"

    for inner in (PlainText(small_chat), Choice(small_chat)):
        heard.clear()
        talk = Talk(small_chat, navigate(inner, choose).open(brief_of()))
        prompt = talk.session.observe(SHOWN, ("step", "debate"))
        assert prompt.sampling.constraint is not None and prompt.sampling.constraint.kind == "tokens"
        ids = json.loads(prompt.sampling.constraint.text)
        assert small_chat.words(ids) == "debate" and prompt.sampling.max_tokens == len(ids)
        assert prompt.sampling.candidates is None
        talk.says("debate")
        assert talk.action.text == "debate"
        assert talk.session.observe("Next: 7 + 5 = ?").sampling.constraint is None, "the model's own turn"
        talk.says("12")
        talk.session.observe(SHOWN, ("step", "debate"))
        assert heard == [(Asked((3, 2, 3, 3, 1, 1, 1), ("step", "debate")), number) for number in (0, 1)]


def test_a_file_chooses_as_its_network_does_and_without_one_the_model_does(
    small_chat: Chat, brief_of: Callable[..., Brief], tmp_path: Path
) -> None:
    made = Navigator(seed=4)
    made.save(tmp_path / "n.safetensors")
    talk = Talk(
        small_chat, Navigated(PlainText(small_chat), str(tmp_path / "n.safetensors")).open(brief_of())
    )
    constraint = talk.session.observe(SHOWN).sampling.constraint
    chosen = made.choose((3, 2, 3, 3, 1, 1, 1), ("step", "debate"))
    assert constraint is not None and small_chat.words(json.loads(constraint.text)) == chosen
    plain = Talk(small_chat, Navigated(PlainText(small_chat)).open(brief_of()))
    assert plain.session.observe(SHOWN).sampling.constraint is None
    with pytest.raises(DataError, match=r"navigator: got .*missing, which holds none"):
        Navigated(PlainText(small_chat), str(tmp_path / "missing"))


def test_the_catalogue_knows_it() -> None:
    assert [layer.name for layer in check("navigated+text")] == ["navigated", "text"]
    assert engine_needs("navigated+text") == {"tokens"}
