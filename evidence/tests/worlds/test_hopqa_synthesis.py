"""Questions that were made harder: one answer by the graph, harder without search, solved by who searches."""

from quintain.worlds.hopqa.facts import Fact, Question
from quintain_evidence.experiments.toolrl import asearcher_questions

SEAT, OWNER = Fact("Orbit", "seat", "Rome"), Fact("Orbit", "owner", "Delta")


FOUNDER, MAYOR = Fact("Ben", "employer", "Orbit"), Fact("Rome", "mayor", "Anna")


def test_the_claim_reads_questions_by_their_words_alone() -> None:
    told = (
        SEAT.words(),
        OWNER.words(),
        MAYOR.words(),
        "The owner of Apex is Delta.",
        "The seat of Apex is Oslo.",
    )
    question = Question(
        chain=(SEAT,), paragraphs=told, titles=("",) * 5, sources=(0,), is_closed=False, told=(),
        asked="What is the seat of the company whose owner is Delta?",
    )  # fmt: skip
    assert asearcher_questions.fits(question) == {"Rome", "Oslo"}
    (row,) = asearcher_questions.measure({"questions": 30, "distractors": 60, "played": 5}, 7)
    assert row["violations"] == row["extra.null_changed"] == row["extra.unsolved"] == 0 < row["trials"]
    assert 0 < row["control_violations"] < row["control_trials"] == row["trials"]
