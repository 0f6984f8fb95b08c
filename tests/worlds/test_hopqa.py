import random
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.catalog import find
from quintain.environments.noisy import noisy, noisy_policy, single_method
from quintain.environments.protocol import advance, begin, tool_action
from quintain.environments.tools import ToolFault
from quintain.errors import DataError, FailureRateError, MissingExtra, UsageError
from quintain.rollout.collect import Rollout
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Action, StepResult
from quintain.warm_start.start import build_agent
from quintain.worlds.hopqa.facts import (
    SENTENCE,
    Fact,
    Question,
    QuestionShape,
    draw_question,
    harder,
    read_facts,
)

pytest.importorskip("bm25s")

from quintain.retrieval.bm25 import BM25, terms
from quintain.retrieval.retriever import Indexed
from quintain.serve.listener import Listener
from quintain.serve.retrieval import retrieval_app
from quintain.worlds.hopqa.corpus import draw_facts
from quintain.worlds.hopqa.game import HopQA

SEAT, MAYOR = Fact("Orbit", "seat", "Rome"), Fact("Rome", "mayor", "Ben")
OTHERS = (Fact("Delta", "seat", "Rome"), Fact("Rome", "country", "Chile"), Fact("Ben", "friend", "Rome"))
FACTS = (SEAT, MAYOR, *OTHERS)
QUESTION = Question(
    chain=(SEAT, MAYOR),
    paragraphs=tuple(fact.words() for fact in FACTS),
    titles=tuple(fact.subject for fact in FACTS),
    sources=(0, 1),
    is_closed=False,
    told=(),
)


def world_at_start(**options: Any) -> HopQA:
    world = HopQA(**options)
    begin(world, world.task("train", 0))
    world.restore((QUESTION, frozenset(), (), 0, (), ()))
    return world


def act(world: HopQA, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def test_two_hops_by_value() -> None:
    assert QUESTION.words() == "What is the mayor of the seat of Orbit?"
    world = world_at_start()
    results = act(world, "search seat orbit", "search Who is mayor of Rome?", "answer Ben")
    assert [result.observation for result in results] == [
        "The seat of Orbit is Rome.",
        "The mayor of Rome is Ben.",
        "correct",
    ]
    assert [result.reward for result in results] == [0, 0, 1]
    assert results[-1].is_terminated and results[-1].is_success
    assert dict(results[-1].reward_terms) == {"answer": 1.0}
    assert world.queries == ("seat orbit", "Who is mayor of Rome?")


def test_the_expert_takes_one_search_per_fact() -> None:
    world = world_at_start()
    assert world.expert_action() == tool_action("search", query="seat Orbit")
    advance(world, world.expert_action())
    assert world.expert_action() == tool_action("search", query="mayor Rome")
    advance(world, world.expert_action())
    assert world.expert_action() == tool_action("answer", text="Ben")
    lost = world_at_start()
    lost.restore((QUESTION, frozenset(), ("seat Orbit",), 0, (), ()))
    assert lost.expert_action() == tool_action("search", query="Orbit"), "asked in vain: look for the thing"


def test_a_mistake_is_a_search_that_is_vague_or_not_needed_or_an_early_answer() -> None:
    fresh, halfway = world_at_start(), world_at_start()
    act(halfway, "search seat orbit")
    for world, searched in ((fresh, "seat"), (halfway, "seat Orbit")):
        before = world.state_key()
        calls = [world.mistaken_action(random.Random(seed)).tool_calls[0] for seed in range(60)]
        answers = [call.arguments["text"] for call in calls if call.name == "answer"]
        assert {call.arguments["query"] for call in calls if call.name == "search"} == {searched}
        assert set(answers) == {"Orbit", "Rome"} and 5 < len(answers) < 25
        assert world.state_key() == before
    hasty, patient = world_at_start(early=1.0), world_at_start(early=0.0)
    for world, name in ((hasty, "answer"), (patient, "search")):
        assert {world.mistaken_action(random.Random(n)).tool_calls[0].name for n in range(9)} == {name}


def test_each_way_of_answering_goes_about_all_questions_alike() -> None:
    world = HopQA(closed=0.5, least_hops=2)
    assert world.methods() == ("direct", "searching")
    lengths: dict[tuple[str, bool, bool], set[int]] = {}
    for index in range(40):
        for way in world.methods():
            rng, act = random.Random(index), single_method(way)
            episode = play(world, world.task("train", index), lambda w, _: act(w, rng, ()))  # noqa: B023
            ends = lengths.setdefault((way, world.is_closed, episode.is_success), set())
            ends.add(len(episode.rewards))
    assert lengths == {
        ("direct", True, True): {1},
        ("direct", False, False): {1},
        ("searching", True, True): {3},
        ("searching", False, True): {3},
    }


def test_a_noisy_expert_searches_more_and_is_wrong_at_times() -> None:
    world = HopQA(closed=0.5)
    tasks = [world.task("train", index) for index in range(40)]
    turns = [sum(len(play(world, t, noisy_policy(rate, t.seed)).rewards) for t in tasks) for rate in (0, 0.3)]
    wins = [sum(play(world, t, noisy_policy(rate, t.seed)).is_success for t in tasks) for rate in (0, 0.3)]
    assert turns[1] > turns[0] and wins[0] == 40 and 15 < wins[1] < 38


def test_the_title_of_a_paragraph_counts() -> None:
    # "Rome" is a word of all paragraphs but is the title of two, of which one tells of the mayor.
    assert act(world_at_start(), "search mayor rome")[0].observation == "The mayor of Rome is Ben."
    [top] = act(world_at_start(top=2), "search rome country")
    assert str(top.observation).splitlines()[0] == "The country of Rome is Chile."
    assert len(str(top.observation).splitlines()) == 2


@pytest.mark.parametrize("query", ["of the", "zebra", "?!"])
def test_what_shares_no_word_is_not_found(query: str) -> None:
    assert act(world_at_start(), f"search {query}")[0].observation == "Nothing found."


def test_rewards_for_hits_and_the_cost_of_searching_by_value() -> None:
    world = world_at_start(hits=0.5, cost=0.1)
    results = act(world, "search seat orbit", "search seat orbit", "search mayor rome", "answer ben")
    assert [result.reward for result in results] == pytest.approx([0.15, -0.1, 0.15, 0.5])
    assert dict(results[0].reward_terms) == {"search": -0.1, "hit": 0.25}
    assert world.return_range == pytest.approx((-0.6, 1.0))


def test_one_answer_is_taken_and_graded() -> None:
    [wrong] = act(world_at_start(), "answer Mayor Ben")
    assert (wrong.observation, wrong.reward, wrong.is_terminated, wrong.is_success) == (
        "wrong",
        0,
        True,
        False,
    )
    [partly] = act(world_at_start(grading="f1"), "answer Mayor Ben")
    assert partly.reward == pytest.approx(2 / 3) and partly.is_success is False
    assert act(world_at_start(), "answer the BEN.")[0].is_success


def test_turns_are_as_many_as_asked_for() -> None:
    usual, long = HopQA(cost=0.01), HopQA(cost=0.01, max_turns=128)
    assert (usual.max_turns, long.max_turns) == (6, 128)
    assert long.return_range == pytest.approx((-1.28, 1.0))
    looking = play(long, long.task("train", 0), lambda *_: tool_action("search", query="seat"))
    assert len(looking.rewards) == 128
    with pytest.raises(UsageError, match="max_turns=-1; give 0 or more"):
        HopQA(max_turns=-1)


@pytest.mark.parametrize("text", ["", "search", "answer", "find seat", "searching orbit"])
def test_other_text_is_no_call(text: str) -> None:
    world = world_at_start()
    [result] = act(world, text)
    assert not result.is_valid and result.observation == "Error: no tool was called; tools: search, answer."
    bad = advance(world, tool_action("search", words="seat"))
    assert not bad.is_valid and str(bad.observation).startswith("Error: search(")
    assert world.state_key() == world_at_start().state_key()


def test_searches_fail_on_demand_and_the_expert_tries_again() -> None:
    world = HopQA(failures=0.5, closed=0, top=2)
    episodes = [play(world, world.task("train", index), expert) for index in range(40)]
    failed = [text for episode in episodes for text in episode.observations if "failed" in str(text)]
    searches = sum(len(episode.rewards) - 1 for episode in episodes)
    assert len(failed) / searches == pytest.approx(0.5, abs=0.12)
    assert sum(episode.is_success for episode in episodes) > 36


def test_closed_book_questions_come_with_their_facts() -> None:
    world = HopQA(closed=1.0, hits=0.5)
    for index in range(20):
        first = str(begin(world, world.task("train", index)))
        question = world.snapshot()[0]
        assert world.is_closed and all(fact.words() in first for fact in question.chain)
        result = advance(world, world.expert_action())
        assert result.reward == 1.0 and result.is_success, "no search, and the whole reward for the answer"
    closed = [bool(begin(w, w.task("train", n))) and w.is_closed for w in (HopQA(),) for n in range(150)]
    assert sum(closed) / 150 == pytest.approx(0.25, abs=0.09)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"hops": 3, "least_hops": 3, "distractors": 60, "paragraphs": "article"},
        {"names": "made", "distractors": 0, "noise": 2, "hits": 0.3, "grading": "f1"},
    ],
)
def test_the_expert_solves_fifty_tasks(options: dict[str, Any]) -> None:
    world = HopQA(**options)
    for index in range(50):
        episode = play(world, world.task("train", index), expert)
        assert episode.is_success and episode.total == pytest.approx(1.0)
        assert all(end[3] for end in episode.ends)


def test_chance_hardly_ever_answers() -> None:
    world = HopQA()
    won = [play(world, world.task("train", n), random_policy(n)).is_success for n in range(40)]
    assert sum(won) < 12


@pytest.mark.parametrize("is_article", [False, True])
def test_a_corpus_holds_the_chain_and_as_many_other_facts_as_asked(is_article: bool) -> None:
    rng = random.Random(3)
    for _ in range(30):
        question = draw_question(QuestionShape(3, 3, 20, 0.0, is_article, True), rng)
        for fact, source in zip(question.chain, question.sources, strict=True):
            assert fact.words() in question.paragraphs[source] and question.titles[source] == fact.subject
        assert sum(text.count(".") for text in question.paragraphs) == 23
        assert [link.subject for link in question.chain[1:]] == [link.answer for link in question.chain[:-1]]


def test_splits_share_no_question_and_there_are_thousands() -> None:
    world = HopQA()
    drawn: dict[str, set[Question]] = {"train": set(), "eval": set()}
    for index in range(150):
        for split in ("train", "eval"):
            begin(world, world.task(split, index))
            drawn[split].add(world.snapshot()[0])
    assert not drawn["train"] & drawn["eval"] and len(drawn["train"]) == 150


def test_a_snapshot_continues_alike() -> None:
    world, other = HopQA(noise=1, closed=0), HopQA(noise=1, closed=0)
    begin(world, world.task("train", 1))
    advance(world, world.expert_action())
    other.restore(world.snapshot())
    for _ in range(2):
        action = world.expert_action()
        assert other.expert_action() == action and other.state_key() == world.state_key()
        assert advance(other, action) == advance(world, action)


def test_words_that_count_by_value() -> None:
    assert terms("Is THE seat of Orbit, a company?") == ["seat", "orbit", "company"]
    index = BM25(["red cat", "red dog", "dog dog bird"])
    assert index.best("cat", 3) == (0,)
    assert index.best("dog", 1) == (2,) and set(index.best("dog", 3)) == {1, 2}


def test_a_missing_package_is_named_with_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtra, match=r'needs the package bm25s.*pip install -e "\.\[search\]"'):
        HopQA()


@pytest.mark.parametrize(
    "options",
    [
        {"hops": 0},
        {"hops": 5},
        {"distractors": 81},
        {"top": 0},
        {"closed": 1.5},
        {"failures": 1.0},
        {"cost": -1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    [(name, value)] = options.items()
    with pytest.raises(UsageError, match=f"{name}={value}"):
        HopQA(**options)


def test_decoys_make_open_questions_as_long_as_closed_ones() -> None:
    counts: dict[tuple[int, bool, int], set[int]] = {}
    for decoys in (0, 1):
        world = HopQA(closed=0.5, decoys=decoys)
        for index in range(60):
            begin(world, world.task("train", index))
            question = world.snapshot()[0]
            counts.setdefault((decoys, question.is_closed, len(question.chain)), set()).add(
                len(question.told)
            )
            if not question.is_closed:
                assert not set(question.told) & set(question.sources)
    for hops in (1, 2):
        assert counts[1, True, hops] == counts[1, False, hops] == counts[0, True, hops] == {hops + 2}
        assert counts[0, False, hops] == {0}
    with pytest.raises(UsageError, match="decoys=2"):
        HopQA(decoys=2)


def test_a_thing_becomes_a_description_whose_answer_it_is() -> None:
    rome = Fact("Rome", "mayor", "Ben")
    easy = Question(
        chain=(rome,),
        paragraphs=QUESTION.paragraphs,
        titles=QUESTION.titles,
        sources=(1,),
        is_closed=False,
        told=(),
    )
    assert list(read_facts(easy.paragraphs)) == [(fact, place) for place, fact in enumerate(FACTS)]
    made = {harder(easy, 1, random.Random(seed)).words() for seed in range(30)}
    # Ben is the answer, so that his friend is no description of Rome.
    assert made == {"What is the mayor of the seat of Orbit?", "What is the mayor of the seat of Delta?"}
    once = harder(easy, 1, random.Random(0))
    assert harder(easy, 3, random.Random(0)) == once, "nothing describes a company here"
    assert once.chain[1:] == easy.chain and FACTS[once.sources[0]] == once.chain[0]


def test_what_is_told_with_a_question_goes_along_with_its_rounds() -> None:
    world = HopQA(hops=1, rounds=2, closed=1.0, names="made", distractors=40)
    plain = HopQA(hops=1, closed=0.0, decoys=1, rounds=1, distractors=40, names="made")
    lengths = set[int]()
    for index in range(30):
        begin(world, world.task("train", index))
        question = world.snapshot()[0]
        assert set(question.sources) <= set(question.told)
        lengths.add(len(question.chain))
        begin(plain, plain.task("train", index))
        question = plain.snapshot()[0]
        assert not set(question.sources) & set(question.told)
        assert play(plain, plain.task("train", index), expert).is_success
    assert lengths == {1, 2, 3} and world.max_turns == 8
    with pytest.raises(UsageError, match="rounds=4"):
        HopQA(rounds=4)


def test_with_quotes_an_answer_pays_fully_only_with_one_out_of_what_was_open() -> None:
    bare = act(world_at_start(quotes=1), "search mayor rome", "answer Ben")
    assert (bare[-1].observation, bare[-1].reward, bare[-1].is_success) == (
        "correct, but not quoted",
        0.5,
        False,
    )
    world = world_at_start(quotes=1)
    said = act(
        world, "quote Ben", "search mayor rome", "search seat orbit", "quote the mayor of rome is ben",
        "search mayor rome", "quote The mayor of  Rome is Ben", "quote Rome", "answer Ben",
    )  # fmt: skip
    assert [result.observation for result in said] == [
        "That is not what was found.", "The mayor of Rome is Ben.", "The seat of Orbit is Rome.",
        "That is not what was found.", "The mayor of Rome is Ben.", "quoted", "There are no quotes left.", "correct",
    ]  # fmt: skip
    assert said[-1].reward == 1 and said[-1].is_success
    other = world_at_start(quotes=2)
    act(other, "search mayor rome", "quote the seat of orbit", "quote Rome")
    assert act(other, "answer Ben")[-1].reward == 0.5  # what was quoted does not hold the answer


def test_the_expert_quotes_before_it_answers_and_only_where_quotes_are_asked_for() -> None:
    assert {each.name for each in HopQA().tools()} == {"search", "answer"}
    assert {each.name for each in HopQA(quotes=1).tools()} == {"search", "quote", "answer"}
    world = HopQA(quotes=1)
    for index in range(60):
        assert play(world, world.task("train", index), expert).is_success
    strayed = world_at_start(quotes=1)
    act(strayed, "search mayor rome", "search seat orbit")
    said = [advance(strayed, expert(strayed, "")).observation for _ in range(3)]
    assert said == ["The mayor of Rome is Ben.", "quoted", "correct"]  # it looks for the page again
    with pytest.raises(UsageError, match="hopqa: got quotes=-1"):
        HopQA(quotes=-1)


SHARED: dict[str, Any] = {"facts": 300, "hops": 4, "closed": 0.0, "distractors": 0}


def test_a_shared_corpus_is_the_same_for_all_questions_and_its_expert_answers_them() -> None:
    world = HopQA(**SHARED, least_hops=4, missing=0.1, changed=0.3, top=2)
    corpus = draw_facts(300, 0.1, 0.3, False)
    assert world.passages() == corpus.passages and len(corpus.facts) == 300
    told = [passage.text for passage in corpus.passages]
    assert 0.05 < 1 - len(corpus.sources) / 300 < 0.15
    assert 0.2 < sum(" was " in text for text in told) / len(corpus.sources) < 0.4
    answers: list[str] = []
    for index in range(40):
        found = play(world, world.task("eval", index), expert)
        assert found.rewards[-1] == 1 and len(found.rewards) <= 5
        answers.append(world.snapshot()[0].gold)
    assert 0 < answers.count("unknown") < 40, "some questions nobody can answer"


@pytest.mark.slow
def test_questions_at_scale_are_not_in_both_splits_and_a_fact_that_changed_is_no_answer() -> None:
    world = HopQA(facts=50_000, least_hops=1, hops=4, closed=0.2, changed=0.5, top=2)
    assert len(world.passages()) > 70_000
    seen: dict[str, set[str]] = {"train": set(), "eval": set()}
    for split in ("train", "eval"):
        for index in range(60):
            begin(world, world.task(split, index))
            seen[split].add(repr(world.snapshot()[0].chain))
    assert not seen["train"] & seen["eval"] and len(seen["train"]) > 55
    corpus = draw_facts(50_000, 0.0, 0.5, False)
    now = {(fact.subject, fact.relation): fact.answer for fact in corpus.facts}
    before = [
        SENTENCE.fullmatch(p.text.replace(" was ", " is ")) for p in corpus.passages if " was " in p.text
    ]
    assert before and all(now[found[2], found[1]] != found[3] for found in before if found is not None)


def test_real_texts_ask_which_text_says_a_sentence(tmp_path: Path) -> None:
    colours = ["red", "blue", "green", "white"]
    told = [
        f"Package: lib{colour}{number}\nDescription: short\n It has {number} functions that paint what is {colour}.\n"
        for colour in colours
        for number in range(5)
    ]
    (tmp_path / "status").write_text("\n".join(told))
    world = HopQA(corpus=str(tmp_path / "status"), closed=0.0)
    begin(world, world.task("train", 0))
    question = world.snapshot()[0]
    assert question.words() == f"What is the title of the text that says: {question.chain[0].subject}"
    results = act(world, f"search {question.chain[0].subject}", f"answer {question.gold}")
    assert str(results[0].observation).startswith(f"{question.gold}: short It has") and results[1].reward == 1
    assert play(world, world.task("eval", 0), expert).rewards[-1] == 1
    (tmp_path / "few").write_text("\n".join([*told[:15], told[0].replace("libred0", "other")]))
    with pytest.raises(DataError, match="got 14 sentences of 6 to 30 words without their title"):
        HopQA(corpus=str(tmp_path / "few"))


def test_a_server_searches_in_the_place_of_the_index_and_is_recorded(tmp_path: Path) -> None:
    world = HopQA(**SHARED)
    with closing(Listener(retrieval_app(Indexed(world.passages()))).start()) as listener:
        far = HopQA(**SHARED, retriever=listener.url, record=str(tmp_path / "record"))
        tasks = [world.task("train", index) for index in range(4)]
        near_by, remote = ([play(each, replace(task), expert) for task in tasks] for each in (world, far))
        assert [each.observations for each in near_by] == [each.observations for each in remote]
        far.close()
    again = HopQA(**SHARED, retriever=listener.url, record=str(tmp_path / "record"))
    assert play(again, replace(tasks[0]), expert).observations == near_by[0].observations, (
        "the record answers"
    )
    again.close()


def test_trouble_with_the_server_is_the_tools_in_one_line() -> None:
    elsewhere = draw_facts(120, 0.0, 0.0, False).passages
    with closing(Listener(retrieval_app(Indexed(elsewhere))).start()) as listener:
        world = HopQA(**SHARED, retriever=listener.url)
        begin(world, world.task("train", 0))
        with pytest.raises(
            ToolFault, match="which is not in this corpus; let it search the same one"
        ) as wrong:
            advance(world, Action(text=f"search {elsewhere[0].title}"))
    assert (wrong.value.owner, wrong.value.kind, wrong.value.tool_name) == (
        "tool",
        "tool_malformed",
        "search",
    )
    gone = HopQA(**SHARED, retriever=listener.url, deadline=0.2)
    begin(gone, gone.task("train", 0))
    with pytest.raises(ToolFault, match=r"tool search has no answer: retrieval server at http://") as found:
        advance(gone, Action(text="search Rome"))
    assert found.value.kind in ("tool_unreachable", "tool_timeout") and "\n" not in str(found.value)


def test_full_names_have_two_words_and_a_word_of_one_is_half_right() -> None:
    world = HopQA(names="full", hops=1, closed=0.0, grading="f1")
    begin(world, world.task("train", 1))
    question = world.snapshot()[0]
    assert len(question.gold.split()) == 2 and len(question.chain[0].subject.split()) == 2
    [result] = act(world, f"answer {question.gold.split()[0]}")
    assert result.reward == pytest.approx(2 / 3) and not result.is_success
    assert play(world, world.task("train", 2), expert).rewards[-1] == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"facts": 5}, "facts=5"),
        ({"facts": 300, "missing": 1.0}, "missing=1.0"),
        ({"facts": 300, "corpus": "x"}, "facts=300 with corpus='x'; give one of them"),
        (
            {"facts": 300, "rounds": 1},
            "got rounds=1 with facts=300; leave out rounds or facts: only questions",
        ),
        (
            {"facts": 1000, "evolved": 2},
            "got evolved=2 with facts=1000; leave out evolved or facts: only questions",
        ),
        ({"corpus": "x", "evolved": 1}, "got evolved=1 with corpus='x'; leave out evolved or corpus"),
        ({"corpus": "x", "hops": 2, "least_hops": 2}, "least_hops=2 with corpus='x'; leave out least_hops"),
        ({"missing": 0.1}, "missing=0.1, changed=0.0 without facts; give facts, or leave these out"),
        ({"retriever": "dense"}, "retriever='dense', record='' without facts or corpus; give one of them"),
        ({"facts": 300, "retriever": "bm52"}, "retriever"),
    ],
)
def test_options_of_a_corpus_that_do_not_go_together(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as found:
        HopQA(**options)
    assert said in str(found.value)
    with pytest.raises(UsageError, match="questions that have their own"):
        HopQA().passages()


def test_episodes_whose_server_is_gone_are_failures_of_the_tool_and_stop_the_run() -> None:
    with closing(
        Listener(retrieval_app(Indexed(draw_facts(120, 0.0, 0.0, False).passages))).start()
    ) as listener:
        address = listener.url
    make = find(f"hopqa?facts=120&closed=0&deadline=0.3&retriever={address}")
    tokenizer = train_tokenizer(["<|user|>a<|assistant|>b<|end|>"], 300)
    rollout = Rollout(build_agent(tokenizer, make, temperature=1.0, agent="tags"), make, None)
    tasks = [make().task("train", index) for index in range(2)]
    try:
        with pytest.raises(
            FailureRateError, match=r"the first, by the tool \(tool_(unreachable|timeout)\)"
        ) as found:
            rollout.demonstrations(tasks, noisy(0.0), seed=1)
    finally:
        rollout.close()
    assert address in str(found.value) and "\n" not in str(found.value)
