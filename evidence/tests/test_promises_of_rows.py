"""What rows that train nothing do on real input: the parts that need none of it."""

import ast
from dataclasses import replace

import pytest

from quintain.agents.workflow import read_workflow
from quintain.errors import UsageError
from quintain.methods.agents.auto_flow import INVALID, PLAIN, Tried
from quintain.types import Score, Stop, Task, Trajectory
from quintain_evidence.promises import agentable, auto_flow

SOURCE = '''
@tool
def find(name: str) -> str:
    """Find an order by its name."""
    return name

def run(client, messages):
    try:
        return client.create(model="m", messages=messages, temperature=0, max_tokens=3)
    except OSError:
        return prepare._request(model="m", messages=[{"role": "user", "content": "Hello"}])
'''


def test_a_defect_is_put_into_each_place_and_found() -> None:
    tree = ast.parse(SOURCE)
    places = list(agentable.find_places(tree))
    assert sorted(kind for kind, _ in places) == ["no description", "range", "swallowed", "unfilled"]
    for kind, number in places:
        rule = agentable.RULES[kind]
        assert agentable.count(agentable.put_defect(tree, number, kind), rule) > agentable.count(
            tree, rule
        ), kind


@pytest.mark.parametrize("word", auto_flow.BROKEN)
def test_a_refusal_is_that_of_the_text(word: str) -> None:
    text = auto_flow.BROKEN[word]
    with pytest.raises(UsageError, match=word) as refused:
        read_workflow(text)
    each = Tried(text=text, score=INVALID, fault=str(refused.value))
    assert auto_flow.is_refused(each)
    assert not auto_flow.is_refused(replace(each, fault="of another")), "the reason is another"
    assert not auto_flow.is_refused(replace(each, score=0.0)), "it has a score"
    assert not auto_flow.is_refused(replace(each, text=PLAIN)), "it can be read"


def test_what_is_kept_is_the_first_of_the_best_by_the_episodes() -> None:
    plain = read_workflow(PLAIN).text
    played = [
        Trajectory(
            task=Task(id="t", environment="e", seed=0),
            turns=(),
            outcome=Score(value=value, is_success=False),
            stop=Stop.TERMINATED,
            seed=0,
            group=group,
            index=0,
        )
        for group, value in (("0:t", 0.25), ("1:u", 0.25), ("0:t+1", 0.5), ("1:u+1", 0.0), ("0:t+2", 0.125))
    ]
    tried = [
        Tried(text=plain, score=0.25, is_kept=True),
        Tried(text="a", score=0.25),
        Tried(text="b", score=0.125),
    ]
    assert auto_flow.is_best_kept(tried, played, PLAIN), "a tie keeps the old one"
    later = [replace(tried[0], is_kept=False), replace(tried[1], is_kept=True), tried[2]]
    assert not auto_flow.is_best_kept(later, played, PLAIN)
    assert not auto_flow.is_best_kept([tried[0], replace(tried[1], score=0.2), tried[2]], played, PLAIN)
    assert not auto_flow.is_best_kept(tried, played, auto_flow.GOOD[0]), "another one was kept before"
