import random
from dataclasses import replace
from typing import Any

import pytest

from quintain.environments.baselines import expert, play, random_policy
from quintain.environments.noisy import noisy_policy
from quintain.environments.protocol import advance, begin
from quintain.environments.tictactoe import value, worth
from quintain.errors import UsageError
from quintain.types import Action, Split, StepResult
from quintain.worlds.bandit.arms import Arms, draw_arms
from quintain.worlds.bandit.game import Bandit
from quintain.worlds.bandit.mastermind import Mastermind, answer
from quintain.worlds.bandit.rules import Game
from quintain.worlds.bandit.tictactoe import TicTacToe

ARMS = Arms(
    names=("red", "blue"),
    rates=(0.2, 0.8),
    pays=((0, 1, 0, 0, 0, 0), (1, 0, 1, 1, 1, 1)),
    pulled=(0, 0),
)
MASTERMIND = Mastermind(colors=("red", "blue", "gold"), secret=(0, 1, 1), most=4)


def world_with(game: Game, mode: Any, **options: Any) -> Bandit:
    world = Bandit(mode=mode, **options)
    begin(world, world.task("train", 0))
    world.restore((game, 7, 0))
    return world


def act(world: Bandit, *words: str) -> list[StepResult]:
    return [advance(world, Action(text=word)) for word in words]


def test_arms_by_value() -> None:
    assert ARMS.describe() == "Arms: red, blue; 6 pulls"
    world = world_with(ARMS, "arms")
    results = act(world, "pull red", "pull red", "pull blue", "pull blue", "pull blue", "pull blue")
    assert [result.observation for result in results[:3]] == [
        "red paid 0; red 0 of 1, blue 0 of 0; 5 pulls",
        "red paid 1; red 1 of 2, blue 0 of 0; 4 pulls",
        "blue paid 1; red 1 of 2, blue 1 of 1; 3 pulls",
    ]
    assert [result.reward for result in results] == [0, 1 / 6, 1 / 6, 0, 1 / 6, 1 / 6]
    assert [result.is_terminated for result in results] == [False] * 5 + [True]
    assert results[-1].is_success, "the best arm was pulled most"
    game = world.game
    assert isinstance(game, Arms)
    assert (game.regret, game.coverage) == (pytest.approx(2 * 0.6), 1.0)
    added = [dict(result.reward_terms) for result in results[:4]]
    assert [terms["coverage"] for terms in added] == [0.5, 0, 0.5, 0]
    assert [terms["regret"] for terms in added] == pytest.approx([0.6, 0.6, 0, 0])
    [wasted] = act(world_with(ARMS, "arms"), "pull gold")
    assert (wasted.is_valid, dict(wasted.reward_terms)) == (False, {"regret": 0.8})
    [moved] = act(world_with(MASTERMIND, "mastermind"), "pink pink pink")
    assert dict(moved.reward_terms) == {}


def test_pulling_a_worse_arm_most_or_as_often_is_no_success() -> None:
    for word in ("pull red", "pull blue"):
        last = act(world_with(ARMS, "arms", reward="sparse"), *["pull red"] * 3, *["pull blue"] * 2, word)[-1]
        assert (last.is_success, last.reward, last.is_terminated) == (False, 0.0, True)


def test_the_expert_is_ucb1_by_value() -> None:
    world = world_with(ARMS, "arms")
    moves: list[str] = []
    for _ in range(6):
        moves.append(world.expert_action().text)
        act(world, moves[-1])
    # After red 0/1 and blue 1/1: 0 + sqrt(2 ln 2) = 1.177 against 2.177; after blue 1/2 and red 0/1: 1.482
    # against 1.548; after blue 2/3: 1.665 against 1.628; after red 1/2 and blue 2/3: 1.769 against 1.703.
    assert moves == ["pull red", "pull blue", "pull blue", "pull blue", "pull red", "pull red"]


def test_a_greedy_expert_settles_on_what_paid_first_by_value() -> None:
    world = world_with(replace(ARMS, is_greedy=True), "arms")
    moves: list[str] = []
    better: list[str] = []
    for forced in ("", "", "", "pull blue", "", ""):
        moves.append(world.expert_action().text)
        better.append(world.best_action().text)
        act(world, forced or moves[-1])
    # Red pays 0, 1, 0: it stays with red. Blue paid 1 of 1 when it was pulled once, 1 of 2 after that.
    assert moves == ["pull red"] * 4 + ["pull blue"] * 2
    assert better[:4] == ["pull red"] + ["pull blue"] * 3, "good play tries what was not tried yet"
    drawn = Bandit(expert="greedy", arms=3, pulls=4)
    begin(drawn, drawn.task("train", 0))
    assert drawn.expert_action().text == drawn.legal_actions()[0]


def test_greedy_play_stalls_where_trying_all_does_not() -> None:
    shares: list[list[float]] = [[], []]
    for index in range(30):
        for kind, tries in enumerate((1, 3)):
            arms = draw_arms(3, 12, 0.6, random.Random(index))
            for n in range(12):
                means = [
                    arms.sum_paid(arm) / arms.pulled[arm] if arms.pulled[arm] else 0.1 for arm in range(3)
                ]
                arm = n if n < tries else max(range(3), key=lambda arm, means=means: means[arm])
                found = arms.play(f"pull {arms.names[arm]}").game
                assert isinstance(found, Arms)
                arms = found
            shares[kind].append(arms.coverage)
    assert sum(shares[0]) / 30 < 0.9 < 1.0 == sum(shares[1]) / 30


def test_rates_of_arms_differ_by_the_gap() -> None:
    arms = draw_arms(4, 1000, 0.6, random.Random(0))
    assert sorted(arms.rates) == [0.2, 0.2, 0.2, 0.8] and arms.rates[arms.best] == 0.8
    assert sum(arms.pays[arms.best]) == pytest.approx(800, abs=50)


@pytest.mark.parametrize(
    ("secret", "guess", "said"),
    [
        ((0, 1, 1), (0, 1, 1), (3, 0)),
        ((0, 1, 1), (1, 0, 1), (1, 2)),
        ((0, 1, 1), (1, 1, 1), (2, 0)),
        ((0, 1, 1), (1, 1, 2), (1, 1)),
        ((0, 1, 1), (2, 2, 2), (0, 0)),
        ((0, 0, 1, 2), (1, 2, 0, 0), (0, 4)),
    ],
)
def test_answers_of_mastermind_by_value(
    secret: tuple[int, ...], guess: tuple[int, ...], said: tuple[int, int]
) -> None:
    assert answer(secret, guess) == answer(guess, secret) == said


def test_mastermind_by_value() -> None:
    assert MASTERMIND.describe() == "Colors: red, blue, gold; 3 pegs"
    world = world_with(MASTERMIND, "mastermind")
    moves: list[str] = []
    results: list[StepResult] = []
    while not results or not results[-1].is_terminated:
        moves.append(world.expert_action().text)
        results += act(world, moves[-1])
    assert moves == ["red red red", "red blue blue"]
    assert [result.observation for result in results] == ["right 1, misplaced 0", "right 3, misplaced 0"]
    assert [result.reward for result in results] == [1 / 6, pytest.approx(1 / 3 + 0.5)]
    lost = act(world_with(MASTERMIND, "mastermind"), *["red red red"] * 4)
    assert lost[-1].is_terminated and not lost[-1].is_success and sum(r.reward for r in lost) == 1 / 6


def test_the_expert_of_mastermind_guesses_what_is_still_possible() -> None:
    game: Game = MASTERMIND
    for word in ("gold gold gold", "red red blue"):
        assert isinstance(game, Mastermind)
        game = game.play(word).game
    assert isinstance(game, Mastermind)
    # No gold; red red blue had two right and none misplaced.
    assert list(game.find_codes()) == [(0, 0, 0), (0, 1, 1), (1, 0, 1)]


def test_tictactoe_by_value() -> None:
    perfect = TicTacToe(board="xx.oo....", seed=0, skill=1.0)
    won = perfect.play("3")
    assert (won.text, won.dense, won.sparse, won.is_success) == (
        "x: 1, 2, 3; o: 4, 5; free: 6, 7, 8, 9; you win",
        1.0,
        1.0,
        True,
    )
    lost = perfect.play("9")
    assert lost.text.endswith("; you lose") and (lost.dense, lost.sparse, lost.is_over) == (0.0, 0.0, True)
    full = TicTacToe(board="xoxxooox.", seed=0, skill=1.0).play("9")
    assert (full.text[-6:], full.dense, full.sparse, full.is_success) == ("a draw", 0.5, 0.0, False)


def test_perfect_play_is_a_draw_and_the_expert_is_never_beaten() -> None:
    assert value("." * 9, "x") == 0 and worth("." * 9, "x")[0] == 0
    for skill in (0.0, 0.5, 1.0):
        world = Bandit(mode="tictactoe", skill=skill)
        episodes = [play(world, world.task("train", index), expert) for index in range(20)]
        assert all(episode.total >= 0.5 for episode in episodes)
        wins = sum(episode.is_success for episode in episodes)
        assert wins == 0 if skill == 1.0 else wins > 8


def test_the_opponent_replies_alike_to_the_same_board() -> None:
    game = TicTacToe(board="." * 9, seed=3, skill=0.0)
    assert {game.play("5").text for _ in range(5)} == {game.play("5").text}
    others = {TicTacToe(board="." * 9, seed=seed, skill=0.0).play("5").text for seed in range(40)}
    assert len(others) == 8


@pytest.mark.parametrize("mode", ["arms", "mastermind", "tictactoe"])
@pytest.mark.parametrize("text", ["pull purple", "0", "red", "", "10", "5 5"])
def test_what_is_no_move_changes_nothing(mode: Any, text: str) -> None:
    world = Bandit(mode=mode)
    begin(world, world.task("train", 1))
    key = world.state_key()
    [result] = act(world, text)
    assert (result.observation, result.is_valid) == ("Nothing happens.", False) and world.state_key() == key


def test_a_taken_cell_and_a_finished_game_accept_nothing() -> None:
    world = world_with(TicTacToe(board="xx.oo....", seed=0, skill=1.0), "tictactoe")
    assert not act(world, "1")[0].is_valid
    act(world, "3")
    assert world.legal_actions() == ("pass",) and world.expert_action() == Action(text="pass")
    assert not act(world, "9")[0].is_valid


@pytest.mark.parametrize(
    ("options", "share"),
    [({}, 0.8), ({"mode": "mastermind"}, 1.0), ({"mode": "mastermind", "pegs": 4, "colors": 5}, 1.0)],
)
def test_the_expert_beats_noise_and_chance(options: dict[str, Any], share: float) -> None:
    world = Bandit(**options)
    num_tasks = 20 if "pegs" in options else 50
    tasks = [world.task("train", index) for index in range(num_tasks)]
    best = sum(play(world, task, expert).is_success for task in tasks)
    noisy = sum(play(world, task, noisy_policy(0.7, task.seed)).is_success for task in tasks)
    chance = sum(play(world, task, random_policy(task.seed)).is_success for task in tasks)
    assert best >= share * num_tasks and best > noisy > chance


def test_snapshots_noise_and_instructions() -> None:
    one, other = Bandit(noise=2), Bandit()
    task = one.task("train", 3)
    assert str(begin(one, task)).startswith(f"{begin(other, task)} ")
    first = one.legal_actions()[0]
    act(one, first)
    other.restore(one.snapshot())
    assert other.state_key() == one.state_key() == "(1, 0, 0, 0)"
    assert str(act(one, first)[0].observation).startswith(f"{act(other, first)[0].observation} ")
    assert one.instructions().endswith("Act: pull ARM.")
    assert "row by row" in Bandit(mode="tictactoe").instructions()


@pytest.mark.parametrize("mode", ["arms", "mastermind", "tictactoe"])
def test_splits_have_no_game_in_common(mode: Any) -> None:
    world = Bandit(mode=mode)
    games: dict[Split, set[str]] = {"train": set(), "eval": set()}
    for split, seen in games.items():
        for index in range(150):
            begin(world, world.task(split, index))
            seen.add(repr(world.game))
    assert not games["train"] & games["eval"] and len(games["train"]) > 140


@pytest.mark.parametrize(
    "options",
    [
        {"arms": 1},
        {"arms": 11},
        {"arms": 4, "pulls": 3},
        {"gap": 1.1},
        {"pegs": 0},
        {"pegs": 5},
        {"colors": 7},
        {"skill": -0.1},
        {"noise": -1},
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="bandit: got "):
        Bandit(**options)


def test_an_expert_that_says_what_paid_best_and_does_otherwise_at_a_rate() -> None:
    for share in (0.0, 0.4, 1.0):
        world = Bandit(expert="greedy", rationale=True, otherwise=share, pulls=40)
        plain = Bandit(expert="greedy", pulls=40)
        differing = total = 0
        for index in range(10):
            begin(world, world.task("train", index))
            begin(plain, plain.task("train", index))
            for _ in range(40):
                game = world.game
                assert isinstance(game, Arms)
                text = world.expert_action().text
                named, _, move = text.removeprefix("best: ").partition("; ")
                assert named == game.names[game.favourite]
                told, same = advance(world, Action(text=text.upper())), advance(plain, Action(text=move))
                assert told.is_valid and told == same
                differing += move != f"pull {named}"
                total += 1
        assert differing / total == pytest.approx(share, abs=0.06)
    begin(plain, plain.task("train", 0))
    assert not advance(plain, Action(text="best: red; pull red")).is_valid


@pytest.mark.parametrize(
    "options",
    [{"otherwise": 0.5}, {"rationale": True, "otherwise": 1.5}, {"rationale": True, "mode": "mastermind"}],
)
def test_rationales_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="rationales are of arms"):
        Bandit(**options)
