"""Reports: what is covered and supported, what a page costs, and who guesses."""

from random import Random

import pytest

from quintain.environments.protocol import advance, begin
from quintain.errors import UsageError
from quintain.types import Action, StepResult
from quintain.worlds.web.research import Asked, Claim, Grade, Research, grade, read_claims

LAMP, CUP = Asked("price", "red lamp"), Asked("stock", "blue cup")
TRUTH = {LAMP: 12, CUP: 7}


def played(world: Research, *texts: str) -> list[StepResult]:
    return [advance(world, Action(text=text)) for text in texts]


def opened(**options: float) -> Research:
    world = Research(**options)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    begin(world, world.task("train", 1))
    return world


def test_claims_are_read_and_nothing_else() -> None:
    said = "price of red lamp is 12 [red lamp]; I think so; stock of blue cup is 7 [known]; price of x is many [x]"
    assert read_claims(said) == (Claim(LAMP, 12, "red lamp"), Claim(CUP, 7, "known"))
    assert read_claims(Claim(LAMP, 12, "red lamp").words()) == (Claim(LAMP, 12, "red lamp"),)


@pytest.mark.parametrize(
    ("claims", "wanted"),
    [
        ([], Grade(0, 0)),
        ([Claim(LAMP, 12, "red lamp"), Claim(CUP, 7, "known")], Grade(1, 1)),
        ([Claim(LAMP, 12, "red lamp")] * 3, Grade(0.5, 1)),
        ([Claim(LAMP, 13, "red lamp")], Grade(0, 0)),
        ([Claim(LAMP, 12, "known"), Claim(CUP, 7, "blue cup")], Grade(1, 0)),
        ([Claim(LAMP, 12, "red lamp"), Claim(Asked("price", "blue cup"), 3, "known")], Grade(0.5, 0.5)),
        ([Claim(LAMP, 12, "home")], Grade(0.5, 0)),
    ],
)
def test_the_rubric(claims: list[Claim], wanted: Grade) -> None:
    assert grade(claims, (LAMP, CUP), TRUTH, opened={"red lamp", "home"}, known={CUP}) == wanted


def test_a_right_guess_is_covered_and_not_supported() -> None:
    world = opened(known=0.0, asked=1)
    (about,) = world.missing()
    while world.missing():
        advance(world, world.expert_action())
    honest = Claim(about, 0, about.thing)
    value = next(int(p.split()[-1]) for p in str(advance(world, Action(text="note x")).observation).split(": ")[1]
                 .split(";") if about.fact in p)  # fmt: skip
    begin(world, world.task("train", 1))
    result = played(world, f"report {honest._replace(value=value).words()}")[0]
    assert (result.observation, result.reward, result.is_success) == (
        "Covered 100%, supported 0%.",
        0.5,
        False,
    )
    assert result.reward_terms == {"coverage": 0.5, "support": 0.0}


def test_the_expert_opens_what_is_missing_notes_it_and_cites() -> None:
    for options in ({}, {"depth": 3, "asked": 4, "popups": 0.3}, {"notes": False, "depth": 1}):
        world = Research(**options)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        for index in range(15):
            begin(world, world.task("eval", index))
            num_missing = len(world.missing())
            results = [advance(world, world.expert_action())]
            while not results[-1].is_terminated:
                results.append(advance(world, world.expert_action()))
            assert results[-1].is_success and world.progress() == 1
            names = [name for r in results for name in r.reward_terms]
            assert "needless_browsing" not in names and ("browsing" in names) == (num_missing > 0)
            assert sum(r.reward for r in results) == pytest.approx(1 - 0.02 * names.count("browsing"))


def test_pages_are_needless_once_nothing_is_missing() -> None:
    world = opened(known=1.0)
    assert world.missing() == [] and world.progress() == pytest.approx(0.9)
    (result,) = played(world, f"click {world.possible()[0].removeprefix('click ')}")
    assert result.reward_terms == {"needless_browsing": -0.02} and result.reward == -0.02


def test_notes_are_repeated_and_what_has_no_effect_is_said() -> None:
    world = opened()
    assert str(played(world, "note one", "note two")[-1].observation).endswith("Notes: one; two.")
    wrong = played(world, "click nowhere", "note", "report", "submit")
    assert [r.is_valid for r in wrong] == [False] * 4 and "report like this" in str(wrong[0].observation)
    assert not advance(world, Action(text="", error="no text")).is_valid
    blind = opened(notes=False)
    assert "Notes" not in str(played(blind, "note one")[0].observation)


def test_pop_ups_hide_a_page_until_they_are_closed() -> None:
    world = Research(popups=0.9)
    seen = 0
    for index in range(20):
        begin(world, world.task("train", index))
        if world.possible()[0] in ("close", "no"):
            seen += 1
            assert played(world, world.possible()[0])[0].reward == 0
            assert world.possible()[0].startswith("click")
    assert seen > 5


def test_mistakes_and_snapshots() -> None:
    world = opened()
    words = {world.mistaken_action(Random(k)).text.partition(" ")[0] for k in range(30)}
    assert {"report", "click"} <= words
    saved, key = world.snapshot(), world.state_key()
    advance(world, Action(text="note later"))
    assert world.state_key() != key
    world.restore(saved)
    assert world.state_key() == key


def test_what_there_are_no_tasks_of() -> None:
    for options, said in (
        ({"asked": 5}, "asked=5"),
        ({"known": 2.0}, "known=2"),
        ({"cost": 0.5}, "cost=0.5"),
    ):
        with pytest.raises(UsageError, match=f"^research: got .*{said}"):
            Research(**options)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
