"""What pages are told: by value, of a run whose every number is known."""

import math
from collections.abc import Callable

import pytest

from quintain.dashboard.viewer import payloads
from quintain.dashboard.viewer.tokens import show_episode, split_pieces
from quintain.dashboard.viewer.viewed import Viewer
from quintain.errors import DataError, UsageError

Read = Callable[[Viewer, str], None]


def test_the_list_of_runs(viewer: Viewer) -> None:
    found = payloads.list_runs(viewer)["runs"]
    assert {run["name"] for run in found} == {"one", "two"} and {run["last_step"] for run in found} == {2}


def test_a_run_as_a_whole(viewer: Viewer) -> None:
    found = payloads.show_run(viewer.get("two"))
    assert (
        found["now"]["last_step"] == 2 and found["now"]["total_steps"] == 4 and found["now"]["expected"] == 2
    )
    assert found["best"] == 2 and found["num_episodes"] == 18
    shares = [(tile["name"], tile["value"]) for tile in found["tiles"] if tile["unit"] == "share"]
    assert shares == [("held out, first", 0.0), ("held out, last", 0.5), ("in training, last step", 0.5)]
    assert [(each["step"], each["num"]) for each in found["failures"]] == [(1, 1), (2, 1)]
    options = payloads.show_options(viewer.get("two"))["options"]
    differs = {option["name"]: option["differs"] for option in options}
    assert differs["steps"] and not differs["clip_low"], "0.2 is the default of grpo"


def test_curves_by_steps_tokens_and_seconds(viewer: Viewer) -> None:
    viewed = viewer.get("one")
    for axis, places in (("step", [1, 2]), ("tokens", [20, 40]), ("seconds", [2, 4])):
        found = payloads.show_metrics(viewed, ["train/loss"], axis)
        assert found["curves"]["train/loss"] == {"x": places, "y": [0.1, 0.2], "step": [1, 2]}
        assert [(alarm["x"], alarm["name"]) for alarm in found["alarms"]] == [(places[1], "entropy")]
    with pytest.raises(UsageError, match="use one of step, tokens, seconds"):
        payloads.show_metrics(viewed, [], "moons")


def test_long_curves_are_thinned_with_how_far_apart_their_points_were() -> None:
    points = [(float(x), float(x % 2), x) for x in range(1600)]
    found = payloads.thin(points)
    assert len(found["x"]) == 800 and found["y"] == [0.5] * 800
    assert (found["low"], found["high"]) == ([0.0] * 800, [1.0] * 800)
    assert payloads.thin(points[:3]) == {"x": [0, 1, 2], "y": [0, 1, 0], "step": [0, 1, 2]}


def test_what_is_asked_for_must_be_numbers(viewer: Viewer) -> None:
    for odd in ("x", "1-y", "3-4-5", "9" * 30):
        with pytest.raises(UsageError, match="whole number"):
            payloads.list_episodes(viewer.get("one"), {"step": odd})
    assert payloads.list_episodes(viewer.get("one"), {"step": "1-2", "phase": "train"})["total"] == 10


def test_tokens_have_all_that_the_journal_has_of_them(viewer: Viewer) -> None:
    viewed = viewer.get("one")
    listed = payloads.list_episodes(viewed, {"step": "2", "phase": "train", "outcome": "solved"})["episodes"]
    found = show_episode(viewed, listed[0]["id"])
    assert [turn["logprobs"] for turn in found["turns"]] == [[-0.5, -0.5], [-1.0, -1.0, -1.0]]
    assert [turn["offset"] for turn in found["turns"]] == [0, 2] and found["clip"] == [0.8, 1.2]
    (use,) = found["uses"]
    assert use["step"] == 2 and use["signals"]["advantages"] == [1.0, 1.0, -1.0, -1.0, -1.0]
    assert use["signals"]["weights"][3] == 0.0 and use["signals"]["logprobs"][1] == pytest.approx(-0.1)
    assert found["turns"][0]["calls"] == [{"name": "look", "arguments": {"at": "red door 2"}}]
    assert found["turns"][0]["terms"] == {"found": 0.25}
    assert len(found["lacks"]) == 1 and found["lacks"][0].startswith(
        "entropy (of a run of an earlier release), value"
    )
    assert [row["place"] for row in found["neighbours"]["group"]] == [0, 1]
    lost = show_episode(viewed, payloads.list_episodes(viewed, {"outcome": "failed"})["episodes"][0]["id"])
    assert lost["outcome"]["kind"] == "timeout" and "no step learned from this episode" in lost["lacks"][0]
    with pytest.raises(DataError, match="not there"):
        show_episode(viewed, "00")


def test_tokens_that_are_a_character_together_have_it_at_the_last_of_them() -> None:
    whole = "aé☃"
    data = whole.encode()

    def decode(ids: object) -> str:
        return bytes(ids).decode("utf-8", "replace")  # type: ignore[call-overload, arg-type]

    pieces = split_pieces(list(data), decode)
    assert "".join(pieces) == whole and pieces == ["a", "", "é", "", "", "☃"]


def test_pairs_are_those_of_the_journal(viewer: Viewer) -> None:
    found = payloads.show_data(viewer.get("one"), {})
    assert found["steps_with_pairs"] == [2] and found["step"] == 2 and len(found["pairs"]) == 1
    assert found["labels"]["queries"] == 0


def test_comparisons_are_paired_by_task(viewer: Viewer) -> None:
    found = payloads.compare_runs(viewer.get("one"), viewer.get("two"), {})
    assert found["rates"] == [0.25, 0.5] and found["steps"] == [2, 2]
    assert (
        found["difference"]["mean"] == 0.25
        and found["difference"]["num"] == 4
        and found["difference"]["p"] == 1.0
    )
    assert found["counts"] == {"better": 1, "worse": 0, "same": 3}
    assert found["tasks"][0]["task"] == "t/eval/1", "it differs most"
    same = payloads.compare_runs(viewer.get("two"), viewer.get("two"), {"first": "1"})
    assert same["steps"] == [0, 2] and math.isclose(same["difference"]["mean"], 0.5)


def test_words_are_read_in_the_background(viewer: Viewer, read_all: Read) -> None:
    before = payloads.list_episodes(viewer.get("one"), {"words": "door"})
    assert before["total"] == 0 and before["num_read"] == 0
    read_all(viewer, "one")
    after = payloads.list_episodes(viewer.get("one"), {"words": "door"})
    assert after["total"] == 6 and after["num_read"] == after["num_episodes"] == 18
    assert dict(map(tuple, payloads.show_facets(viewer.get("one"))["tool"])) == {"look": 16}


def test_of_a_run_that_is_not_there_the_names_are_told(viewer: Viewer) -> None:
    with pytest.raises(UsageError, match="run: got 'onee'; did you mean 'one'"):
        viewer.get("onee")
