import dataclasses
import json
import math
import zlib
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quintain.errors import DataError
from quintain.store import codec
from quintain.store.codec import Record, decode, encode, encode_all
from quintain.types import (
    Action,
    Completion,
    Content,
    Failure,
    Image,
    Score,
    Stop,
    Task,
    Text,
    ToolCall,
    ToolError,
    Trajectory,
    Turn,
)

text = st.text(st.characters(), max_size=12)
ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=6).map(tuple)
real = st.floats(allow_nan=False)
narrow = st.floats(allow_nan=False, width=32)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | real | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
mapping = st.dictionaries(text, plain, max_size=3)
content: st.SearchStrategy[tuple[Content, ...]] = st.lists(
    st.builds(Text, text=text) | st.builds(Image, data=st.binary(max_size=9), media_type=text), max_size=3
).map(tuple)
completions = st.builds(
    Completion,
    token_ids=ids,
    logprobs=(st.lists(narrow, max_size=4) | st.lists(real, max_size=4)).map(tuple),
    stop=st.sampled_from(["stop", "length"]),
    policy_version=st.integers(0, 2**40),
)
actions = st.builds(
    Action,
    text=text,
    tool_calls=st.lists(st.builds(ToolCall, name=text, arguments=mapping), max_size=2).map(tuple),
    error=st.none() | text,
)
turns = st.builds(
    Turn,
    seat=text,
    observation=content,
    prompt_ids=ids,
    completion=completions,
    action=actions,
    reward=real,
    reward_terms=st.dictionaries(text, real, max_size=2),
    state_key=st.none() | text,
    is_valid=st.booleans(),
    starts_segment=st.booleans(),
    tool_errors=st.lists(
        st.builds(ToolError, tool=text, cause=st.sampled_from(["invalid_call", "timeout"])), max_size=2
    ).map(tuple),
)
tasks = st.builds(
    Task,
    id=text,
    environment=text,
    seed=st.integers(0, 2**63 - 1),
    split=st.sampled_from(["train", "eval"]),
    prompt=text,
    data=mapping,
    tags=st.frozensets(text, max_size=2),
)
outcomes = st.builds(Score, value=real, is_success=st.booleans()) | st.builds(
    Failure,
    owner=st.sampled_from(["policy", "environment", "tool", "judge", "engine"]),
    kind=text,
    message=text,
)
trajectories = st.builds(
    Trajectory,
    task=tasks,
    turns=st.lists(turns, max_size=3).map(tuple),
    outcome=outcomes,
    stop=st.sampled_from(Stop),
    seed=st.integers(0, 2**63 - 1),
    group=text,
    index=st.integers(0, 10**6),
    final_observation=content,
    seconds=st.floats(0, 1e6),
)


@settings(max_examples=30, deadline=None)
@given(trajectories)
def test_decoding_gives_back_what_was_encoded(trajectory: Trajectory) -> None:
    record = encode(trajectory)
    back = decode(record, seconds=trajectory.seconds)
    assert back == trajectory
    assert encode(back) == record
    assert [t.completion.logprobs for t in back.turns] == [t.completion.logprobs for t in trajectory.turns]


@settings(max_examples=30, deadline=None)
@given(trajectories, st.data())
def test_every_changed_byte_is_found(trajectory: Trajectory, data: st.DataObject) -> None:
    record = encode(trajectory)
    name = data.draw(st.sampled_from([n for n in ("structure", "payload", "digest") if getattr(record, n)]))
    old: bytes = getattr(record, name)
    place = data.draw(st.integers(0, len(old) - 1))
    changed = old[:place] + bytes([old[place] ^ data.draw(st.integers(1, 255))]) + old[place + 1 :]
    with pytest.raises(DataError, match=r"reading an episode"):
        decode(record._replace(**{name: changed}))


def with_logprobs(make: Any, *values: float) -> Trajectory:
    whole: Trajectory = make()
    completion = Completion(token_ids=tuple(range(len(values))), logprobs=values, stop="stop")
    return dataclasses.replace(whole, turns=(dataclasses.replace(whole.turns[0], completion=completion),))


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ((-0.5, -0.25), 4),
        ((float(np.float32(-0.1)),), 4),
        ((-0.1,), 8),
        ((-1e300,), 8),
        ((-math.inf,), 4),
        ((), 4),
    ],
)
def test_logprobs_take_four_bytes_where_that_is_exact(
    make: Any, values: tuple[float, ...], width: int
) -> None:
    trajectory = with_logprobs(make, *values)
    record = encode(trajectory)
    assert len(record.payload) == 4 * 3 + 4 * len(values) + width * len(values)
    assert decode(record, seconds=trajectory.seconds) == trajectory


def test_the_byte_order_is_little_endian(make: Any) -> None:
    assert encode(with_logprobs(make, -1.0)).payload.hex() == "05000000090000000400000000000000000080bf"


def test_equal_but_for_the_duration_is_the_same_record(make: Any) -> None:
    assert encode(make(seconds=1.0)) == encode(make(seconds=2.0))
    assert encode(make(text="left")).digest != encode(make(text="right")).digest


@pytest.mark.parametrize("odd", ["\ud800", 2**64])
def test_what_only_json_can_hold_is_json(make: Any, odd: str | int) -> None:
    whole: Trajectory = make()
    trajectory = dataclasses.replace(whole, **{"seed" if isinstance(odd, int) else "group": odd})
    assert encode(whole).structure[:1] != b"{" == encode(trajectory).structure[:1]
    assert decode(encode(trajectory), seconds=trajectory.seconds) == trajectory


def test_long_structures_are_compressed(make: Any) -> None:
    trajectory = make(text="left " * 2000)
    assert len(encode(trajectory).structure) < 2000
    assert decode(encode(trajectory), seconds=0.5) == trajectory


def test_numbers_of_other_libraries_and_read_only_mappings_are_read(make: Any) -> None:
    data = MappingProxyType({"a": np.float32(0.5), "b": np.int64(3), "c": (1, 2)})
    trajectory = dataclasses.replace(make(), task=Task(id="t", environment="e", seed=0, data=data))
    assert decode(encode(trajectory)).task.data == {"a": 0.5, "b": 3, "c": [1, 2]}


@pytest.mark.parametrize("data", [{"a": object()}, {"a": {1, 2}}, {"a": b"x"}, {(1, 2): 3}])
def test_what_json_cannot_hold_is_refused(make: Any, data: dict[Any, Any]) -> None:
    trajectory = dataclasses.replace(make(), task=Task(id="t", environment="e", seed=0, data=data))
    with pytest.raises(DataError, match=r"recording an episode of task 't': got .*; use JSON data"):
        encode(trajectory)


def test_a_token_id_beyond_int32_is_refused(make: Any) -> None:
    turn = dataclasses.replace(make().turns[0], prompt_ids=(2**31,))
    with pytest.raises(DataError, match=r"token ids below"):
        encode(dataclasses.replace(make(), turns=(turn,)))


def test_endless_nesting_is_refused(make: Any) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(DataError, match=r"recording"):
        encode(dataclasses.replace(make(), task=Task(id="t", environment="e", seed=0, data=deep)))


def sealed(structure: bytes, packed: bytes | None = None) -> Record:
    digest = codec._digest(structure, b"")  # pyright: ignore[reportPrivateUsage]
    return Record(structure=packed or structure, payload=b"", digest=digest)


@pytest.mark.parametrize("structure", [b"{}", b"{", b'{"turns": [], "logprobs": "f"}', b'{"turns": 3}'])
def test_a_record_with_a_good_checksum_and_a_bad_shape_is_refused(structure: bytes) -> None:
    with pytest.raises(DataError, match=r"broken record"):
        decode(sealed(structure))


def test_a_cut_compressed_record_is_refused() -> None:
    packed = zlib.compress(json.dumps({"a": "b" * 5000}).encode())
    for broken in (packed[:-10], b"", b"x" * 10):
        with pytest.raises(DataError, match=r"reading an episode"):
            decode(sealed(b"{}", broken or b" "))


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_MEMORY", 1000)
    with pytest.raises(DataError, match=r"cut off or longer"):
        decode(sealed(b"x", zlib.compress(b" " * 10**7)))


def test_an_array_of_an_unknown_type_is_refused() -> None:
    with pytest.raises(DataError, match="an array of type 'q'"):
        decode(sealed(b'{"arrays": [0, "q", 0]}'))


def test_a_record_with_a_changed_checksum_is_refused(make: Any) -> None:
    record = encode(make(text="left " * 2000))
    last = record.structure[:-1] + bytes([record.structure[-1] ^ 0x80])
    with pytest.raises(DataError, match="reading an episode"):
        decode(record._replace(structure=last))


def test_every_field_of_every_noun_is_recorded(make: Any) -> None:
    turn = dataclasses.replace(
        make().turns[0],
        rewards={"a": 1.0, "b": -1.0},
        completion=Completion(
            token_ids=(1, 2),
            logprobs=(-0.5, -1.0),
            stop="length",
            policy="planner",
            version_spans=((0, 1), (1, 2)),
        ),
    )
    whole = dataclasses.replace(make(), turns=(turn,))
    assert repr(decode(encode(whole), seconds=whole.seconds)) == repr(whole)


def test_many_are_encoded_as_each_alone_and_the_one_that_cannot_be_is_named(make: Any) -> None:
    wide, empty = with_logprobs(make, 0.1), dataclasses.replace(make(2), turns=())
    several = [make(0), empty, wide, *[make(number) for number in range(40)]]
    assert encode_all(several) == [encode(each) for each in several]
    assert encode_all([]) == []
    bad = dataclasses.replace(make(), task=Task(id="bad", environment="e", seed=0, data={"a": {1, 2}}))
    with pytest.raises(DataError, match="recording an episode of task 'bad': got a value of type set"):
        encode_all([*several, bad, make()])
