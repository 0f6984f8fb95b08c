"""How tasks begin, as an agent sees it: the prompt of the first turn and nothing after it."""

from transformers import PreTrainedTokenizerFast

from quintain.environments.noisy import noisy
from quintain.rollout.collect import Rollout
from quintain.rollout.initial_states import read_initial_states
from quintain.types import Stop, as_text
from quintain.warm_start.start import build_agent
from quintain.worlds.guess.game import Guess


def test_a_task_begins_as_an_episode_of_it_does(tokenizer: PreTrainedTokenizerFast) -> None:
    agent = build_agent(tokenizer, Guess, temperature=1.0)
    tasks = [Guess().task("train", index) for index in range(3)]
    found = read_initial_states(Guess, agent, tasks)
    rollout = Rollout(agent, Guess, None)
    try:
        shown = [group.trajectories[0] for group in rollout.demonstrations(tasks, noisy(0.0), seed=0)]
    finally:
        rollout.close()
    assert [t.turns[0].prompt_ids for t in found] == [t.turns[0].prompt_ids for t in shown]
    assert [as_text(t.turns[0].observation) for t in found] == [
        as_text(t.turns[0].observation) for t in shown
    ]
    assert all(len(t.turns) == 1 and t.stop is Stop.CUT and t.num_sampled == 1 for t in found)
    assert [t.task for t in found] == tasks
