"""Which answers are trained, as the files of other tools say it."""

from typing import Any

import pytest

from quintain.data.files import FileValue
from quintain.data.records import Record, read_record
from quintain.errors import DataError


def read(answers: list[dict[str, Any]], **fields: Any) -> Record:
    messages: list[dict[str, Any]] = []
    for number, answer in enumerate(answers):
        messages += [
            {"role": "user", "content": f"ask {number}"},
            {"role": "assistant", "content": "yes"} | answer,
        ]
    value = {"messages": messages, **fields}
    return read_record(value, FileValue(file="f.jsonl", line=3, value=value))


def tags(record: Record) -> list[bool | None]:
    return [each.is_trained for each in record.said if each.message.role == "assistant"]


@pytest.mark.parametrize(
    "key", ["weight", "train", "training", "trainable", "loss", "loss_mask", "step_loss_mask", "loss_scale"]
)
@pytest.mark.parametrize("kind", [bool, int, float])
def test_the_keys_of_other_tools_are_read(key: str, kind: type[bool] | type[int] | type[float]) -> None:
    record = read([{key: kind(0)}, {key: kind(1)}, {}, {key: None}])
    assert tags(record) == [False, True, None, None] and record.unread == ()


def test_a_key_may_mean_the_contrary() -> None:
    assert tags(read([{"masked": True}, {"masked": False}, {"masked": False, "train": 1}])) == [
        False,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("answer", "fields", "error"),
    [
        (
            {"loss": True, "weight": 0},
            {},
            "got weight 0 and loss True of one message, which contradict each other",
        ),
        ({"masked": True, "train": True}, {}, "got train True and masked True of one message"),
        ({"loss": "no"}, {}, "got loss 'no'; give 0 or 1"),
        ({"loss_scale": 0.3}, {}, "got loss_scale 0.3; give 0 or 1"),
        (
            {"train_detail": [{"begin_offset": 0}]},
            {},
            "got train_detail, which trains spans of a message; split",
        ),
        ({}, {"loss_mask": [0, 1, 1]}, "got loss_mask of 3 values for 2 messages; give one for each message"),
        ({}, {"loss_mask": [0, 2]}, "got loss_mask 2; give 0 or 1"),
        ({}, {"loss_mask": [0, 1], "train": [0, 0]}, "which contradict each other"),
        ({"weight": 0}, {"loss_mask": [0, 1]}, "a message and its record that contradict each other"),
    ],
)
def test_what_cannot_be_kept_to_is_refused(
    answer: dict[str, Any], fields: dict[str, Any], error: str
) -> None:
    with pytest.raises(DataError, match=error) as raised:
        read([answer], **fields)
    assert str(raised.value).startswith("f.jsonl line 3: ")


def test_a_record_may_say_it_of_each_message() -> None:
    record = read([{}, {}], loss_mask=[0, 0, 0, 1])
    assert tags(record) == [False, True] and "loss_mask" not in record.fields
    assert tags(read([{}, {}], trainable=False)) == [False, False]
    assert tags(read([{}, {"weight": 1}], weight=1)) == [None, True]


def test_what_nobody_reads_is_counted() -> None:
    record = read(
        [{"score": 0, "learn": False}, {"score": 2, "empty": [], "none": None}],
        completion_mask=[1],
        weight=0.5,
        topic="x",
    )
    assert sorted(record.unread) == [
        "key 'completion_mask' of records",
        "key 'learn' of messages",
        "key 'score' of messages",
        "key 'score' of messages",
        "key 'weight' of records",
    ]
    value = {"messages": [{"role": "user", "content": "a", "loss": 1}, {"role": "assistant", "content": "b"}]}
    record = read_record(value, FileValue(file="f", line=1, value=value))
    assert record.unread == ("loss 1 of messages that are not the assistant's",)


@pytest.mark.parametrize("content", ["", None, " "])
def test_an_empty_answer_is_context_unless_it_is_asked_for(content: str | None) -> None:
    record = read([{"content": content}, {}, {"content": content, "weight": 1}])
    assert tags(record) == [False, None, True] and record.num_empty == 1
