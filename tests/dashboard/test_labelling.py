"""What a page of two sides says, and what it does not run."""

from pathlib import Path

import pytest
from tests.learning.test_labelling import HOSTILE, query

from quintain.dashboard.labelling import question_page
from quintain.learning.labelling import Session


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = Session(tmp_path / "labels.jsonl", "ann")
    made.ask([query("a", "b"), query("c", HOSTILE)])
    return made


def test_a_page_runs_nothing_of_what_it_shows(session: Session) -> None:
    session.answer(next(iter(session.labels.queries)), "tie")
    page = question_page(session)
    assert "<script>alert" not in page and "\x1b" not in page and "\u202e" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\u001b[31m\\u202eevil" in page
    assert "<b>t</b>" not in page
    assert page.count("<script>") == 1 and "script-src 'sha256-" in page and "form-action 'self'" in page
    assert "1 of 2 answered by ann" in page
    assert [key for key in "1=2su" if f'data-key="{key}"' in page] == list("1=2su")


def test_the_end_and_the_beginning(session: Session) -> None:
    assert 'data-key="u"' not in question_page(session), "nothing was answered yet"
    for id in list(session.labels.queries):
        session.answer(id, "skip")
    page = question_page(session)
    assert "Nothing is left to compare" in page
    assert 'data-key="u"' in page and 'data-key="1"' not in page
