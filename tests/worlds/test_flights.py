from random import Random

import pytest

from quintain.environments.baselines import expert, noop, play
from quintain.environments.dialogue import Call
from quintain.environments.protocol import advance, begin, tool_action
from quintain.errors import UsageError
from quintain.types import Action, as_text
from quintain.worlds.flights.case import Case, draw_case, verdict
from quintain.worlds.flights.game import Flights, State
from quintain.worlds.flights.store import Booking, Flight, Phone, Store

OWN = Booking(number=40, customer="Ann", flight=15, fare="economy", bags=1, days=5, is_insured=True)
OTHER = Booking(number=41, customer="Bob", flight=15, fare="basic", bags=0, days=0, is_insured=False)
FLIGHTS = (
    Flight(number=15, start="Rome", end="Oslo", seats=2),
    Flight(number=16, start="Bern", end="Lima", seats=0),
    Flight(number=17, start="Lima", end="Oslo", seats=1),
)
PHONE = Phone(is_updated=False, is_signed_in=True, has_pass=False)
PASS = Case(
    flights=FLIGHTS,
    bookings=(OWN, OTHER),
    phone=PHONE,
    name="Ann",
    kind="pass",
    number=40,
    flight=16,
    bags=2,
    reason=None,
)


def at(case: Case, *, patience: int = 0) -> Flights:
    world = Flights(patience=patience)
    begin(world, world.task("train", 0))
    world.restore(State(case=case, rows=_rows(case), lines=(("user", "Hello."),), calls=(), turn=0))
    return world


def _rows(case: Case) -> tuple[tuple[tuple[int | str, ...], ...], ...]:
    store = Store()
    store.load(case.flights, case.bookings, case.phone)
    return store.dump()


def test_the_verdicts_of_the_policy() -> None:
    late = Booking(number=1, customer="Ann", flight=2, fare="economy", bags=0, days=2, is_insured=False)
    assert verdict(late, "Ann", "cancel", 1, 0) == "not_refundable"
    assert verdict(late, "Bob", "cancel", 1, 0) == "not_yours"
    assert verdict(OWN, "Ann", "cancel", 1, 0) is None, "insured"
    assert verdict(OTHER, "Bob", "rebook", 0, 0) == "basic_fare", "the first reason that holds"
    assert verdict(OWN, "Ann", "rebook", 0, 0) == "full"
    assert [verdict(OWN, "Ann", "bags", 0, bags) for bags in (3, 4)] == [None, "too_many"]


def test_drawn_cases_have_the_verdict_that_was_drawn() -> None:
    cases = [draw_case(Random(seed), ("cancel", "rebook", "bags", "pass"), 0.5) for seed in range(200)]
    assert 70 < sum(case.reason is None for case in cases) < 130


def test_a_pass_needs_both_sides() -> None:
    right = (
        tool_action("issue_pass", booking=40),
        Action(text="Update the app."),
        Action(text="Open the pass."),
    )
    world = at(PASS)
    said = [as_text(advance(world, action).observation) for action in right]
    assert said == ["Booking 40: issue_pass done.", "The app is new now.", "The pass is there."]
    done = advance(world, Action(text="All is done."))
    assert done.reward == 1.0 and done.reward_terms == {"database": 1.0, "assertions": 1.0}
    for missing in range(3):
        world = at(PASS)
        for number, action in enumerate(right):
            if number != missing:
                advance(world, action)
        assert advance(world, Action(text="All is done.")).reward == 0.0


def test_the_phone_is_the_customers() -> None:
    store = Store()
    store.load(FLIGHTS, (OWN,), Phone(is_updated=False, is_signed_in=False, has_pass=False))
    airline = store.digests()[0]
    assert store.call(Call(name="sign_in", by="user")).text == "Error: the app is too old to sign in."
    assert store.call(Call(name="get_pass", by="user")).failed
    assert not store.call(Call(name="update_app", by="user")).failed
    assert store.digests()[0] == airline and store.holds({"updated": True, "pass": False})
    names = {spec.name for spec in Flights().tools()}
    assert not names & {"update_app", "sign_in", "get_pass"}


def test_writes_are_whole_or_not_at_all() -> None:
    store = Store()
    store.load(FLIGHTS, (OWN, OTHER), PHONE)
    before = store.digests()
    for name, arguments, told in (
        ("rebook", {"booking": 40, "flight": 16}, "no seat is free"),
        ("rebook", {"booking": 40, "flight": 15}, "booking 40 is of flight 15 already"),
        ("cancel", {"booking": 99}, "there is no booking 99"),
        ("show_flight", {"flight": 10**30}, "there is no flight 10000000000000000000"),
    ):
        assert store.call(Call(name=name, arguments=arguments)).text == f"Error: {told}."
    assert store.digests() == before
    store.call(Call(name="rebook", arguments={"booking": 40, "flight": 17}))
    assert [row[3] for row in store.dump()[0]] == [3, 0, 0], "a seat moves"
    store.call(Call(name="cancel", arguments={"booking": 40}))
    assert (
        store.call(Call(name="cancel", arguments={"booking": 40})).text == "Error: booking 40 is cancelled."
    )


def test_a_second_refusal_counts_against_the_first() -> None:
    world = Flights(denied=1.0, kinds="cancel")
    for index in range(5):
        begin(world, world.task("train", index))
        right = world.snapshot().case.reason
        wrong = "full" if right != "full" else "too_many"
        advance(world, tool_action("refuse", reason=right))
        snapshot = world.snapshot()
        assert advance(world, Action(text="I cannot do that.")).reward == 1.0
        world.restore(snapshot)
        advance(world, tool_action("refuse", reason=wrong))
        assert advance(world, Action(text="I cannot do that.")).reward == 0.0


def test_an_impatient_customer_leaves() -> None:
    world = at(PASS)
    begin(world, world.task("train", 0))
    world = at(PASS, patience=1)
    assert not advance(world, Action(text="What is your name?")).is_terminated
    left = advance(world, Action(text="And your booking?"))
    assert left.is_terminated and left.reward == 0.0 and "no more time" in as_text(left.observation)


@pytest.mark.parametrize("options", [{}, {"mishears": 0.4, "hidden": True}])
def test_the_clerk_wins_and_silence_does_not(options: dict[str, float | bool]) -> None:
    world = Flights(**options)  # pyright: ignore[reportArgumentType]
    tasks = [world.task("eval", index) for index in range(40)]
    assert all(play(world, task, expert).is_success for task in tasks)
    assert not any(play(world, task, noop).is_success for task in tasks)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"kinds": "cancels"}, "got the kind 'cancels'; did you mean 'cancel'"),
        ({"mishears": 2.0}, "mishears=2.0"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Flights(**options)  # pyright: ignore[reportArgumentType]
