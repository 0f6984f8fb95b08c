"""What a dialogue is worth: the task, its tokens against its siblings', and its most surprising message."""

import pytest

from quintain.errors import UsageError
from quintain.rewards.dialogue import dialogue_rewards, edit_distance, intent_of


def test_the_example_of_the_card() -> None:
    worth = dialogue_rewards([1, 1, 0], [10, 20, 40], [2, 2, 4])
    assert worth == pytest.approx([1.35, 1.2, -0.35])
    assert dialogue_rewards([1, 1, 0], [10, 20, 40], [2, 2, 4], token_weight=0, loss_weight=0) == [1, 1, 0]


def test_the_same_dialogue_is_worth_less_beside_shorter_ones() -> None:
    beside_long, _ = dialogue_rewards([1, 0], [10, 40], [2, 2])
    beside_short, _ = dialogue_rewards([1, 0], [10, 5], [2, 2])
    assert beside_long - beside_short == pytest.approx(0.6 * (1 - 10 / 40))


def test_what_is_certain_is_worth_no_more_than_what_is_plain() -> None:
    certain, plain, strange = dialogue_rewards([0, 0, 0], [1, 1, 1], [0.0, 1.0, 5.0], token_weight=0)
    assert certain == plain == 1.0 and strange == pytest.approx(0.2)
    assert dialogue_rewards([], [], []) == [] and dialogue_rewards([1], [0], [2]) == [1.5]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="got 2 outcomes, 1 lengths and 2 losses"):
        dialogue_rewards([1, 0], [1], [2, 2])
    with pytest.raises(UsageError, match="give nats above 0"):
        dialogue_rewards([1], [1], [2], min_loss=0)


def test_edits_over_the_longer_length() -> None:
    assert edit_distance("abcd", "abd") == 0.25 and edit_distance("", "") == 0.0
    assert edit_distance("", "ab") == 1.0 == edit_distance((1, 2), (3, 4))
    assert edit_distance("kitten", "sitting") == pytest.approx(3 / 7)


def test_what_a_speaker_is_up_to() -> None:
    talk = ["I want a lamp. color: red.", "ask size", "size: small."]
    wanted = {
        "ask shape": "asks", "ask color": "repeats", "ask size": "repeats", "ASK SIZE": "repeats", "ask": "asks",
        "submit red, small": "decides", "refuse too_late": "decides", "find bob": "looks", "stock shoe": "looks",
        "say Which order?": "asks", "say Done.": "talks", "": "talks", "submitted": "talks",
    }  # fmt: skip
    assert {text: intent_of(talk, text) for text in wanted} == wanted
    assert intent_of(["Hello.", "say Which order?", "Order 5."], "say Which order?") == "repeats"
