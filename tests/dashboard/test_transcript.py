from typing import Any

from quintain.dashboard.transcript import MAX_CHARACTERS, transcript_html
from quintain.types import Action, Failure, Score, as_content


def show(trajectory: Any, decode: Any = None, **named: Any) -> str:
    return transcript_html(trajectory, decode, heading="Step 3", **named)


def test_given_and_sampled_tokens_are_told_apart(make: Any, decode: Any) -> None:
    shown = show(make(), decode)
    assert '<span class="prompt">&lt;|user|&gt;red ball&lt;|assistant|&gt;</span>' in shown
    assert '<span class="sampled p0" title="probability 0.990">left</span>' in shown
    assert '<span class="sampled p4" title="probability 0.007">&lt;|end|&gt;</span>' in shown
    assert "Step 3" in shown and "solved, reward 1" in shown and "1 turns, 2 tokens sampled" in shown
    assert shown.startswith("<details><summary>") and show(make(), is_open=True).startswith("<details open>")


def test_what_was_written_to_attack_is_text(make: Any, decode: Any) -> None:
    evil = make(
        prompt=(5, 6), sampled=(5, 6), observation=as_content("<b>"), action=Action(text="<i>", error="<u>")
    )
    for shown in (show(evil, decode), show(evil)):
        for tag in ("<script", "<b>", "<i>", "<u>", "\x1b", "\u202e"):
            assert tag not in shown
    assert "\\u001b[31m\\u202eévil" in show(evil, decode)


def test_facts_of_a_call_are_text(make: Any, decode: Any) -> None:
    differs = {"call": '"><b>', "token": "<b>", "was": "<b>", "now": "<b>"}
    facts = {"call": '"><b>', "fork": "<b>", "differs": differs, "delivery": "broken"}
    shown = show(make(facts=facts), decode)
    assert "<b>" not in shown and "differs from <a href=" in shown and "not trained: its answer" in shown


def test_marks_by_probability(make: Any, decode: Any) -> None:
    shown = show(make(sampled=(3,) * 6, logprobs=(0.1, -0.05, -0.2, -1.0, -3.0, -9.0)), decode)
    assert [shown.count(f"sampled p{level}") for level in range(5)] == [2, 1, 1, 1, 1]


def test_tokens_that_are_part_of_a_character_are_shown_in_one_piece(make: Any) -> None:
    def split(ids: Any) -> str:
        return "é" if len(ids) == 2 else "\ufffd"

    assert '<span class="sampled">é</span>' in show(make(), split)


def test_demonstrations_have_no_probabilities(make: Any, decode: Any) -> None:
    assert '<span class="sampled">left&lt;|end|&gt;</span>' in show(make(logprobs=()), decode)


def test_without_a_decoder_observation_and_action_are_shown(make: Any) -> None:
    assert '<span class="prompt">red ball\n</span><span class="sampled">left</span>' in show(make())


def test_notes_outcomes_and_ends(make: Any) -> None:
    shown = show(make(reward=0.5, is_valid=False, action=Action(text="x", error="no such action")))
    assert '<div class="reward">reward 0.5 · invalid action · no such action</div>' in shown
    assert 'class="reward"' not in show(make())
    assert "not solved, reward 0" in show(make(Score(value=0.0, is_success=False)))
    failed = Failure(owner="environment", kind="<timeout>", message="m")
    assert "failure of the environment: &lt;timeout&gt;" in show(make(failed))


def test_long_episodes_are_cut(make: Any, decode: Any) -> None:
    import dataclasses

    assert '<p class="soft">3 more turns</p>' in show(make(turns=43))
    long = dataclasses.replace(make(), final_observation=as_content("x" * (MAX_CHARACTERS + 7)))
    assert "x… (7 more characters)" in show(long)
    assert "more characters)" in show(make(sampled=(3,) * 2000, logprobs=(0.0,) * 2000), decode)
