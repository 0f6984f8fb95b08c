"""What is trained on is what was sampled, token by token, however oddly the policy spelled it."""

import random

import pytest
from tests.rollout.test_collect import Book, World, tasks

from quintain.agents.harness import PlainText
from quintain.credit.outcome import outcome_return
from quintain.data.samples import samples_from
from quintain.engines.protocol import Request
from quintain.engines.scripted import Scripted
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat

NUM_EPISODES, LONGEST = 250, 12


@pytest.mark.parametrize("seed", range(4))
def test_random_tokens_come_back_as_they_were_sampled(chat: Chat, seed: int) -> None:
    """1,000 completions for each seed, most of which no tokenizer would write that way."""
    rng = random.Random(seed)
    size = len(chat.tokenizer)
    stop = min(chat.stop_ids)
    streams: dict[str, list[tuple[int, ...]]] = {}

    def script(request: Request, stream: tuple[int, ...]) -> tuple[int, ...]:
        ids = [rng.randrange(size) for _ in range(rng.randint(1, LONGEST))]
        plain = [token for token in ids if token not in chat.stop_ids]
        said = (*plain, stop) if rng.random() < 0.8 or not plain else tuple(plain)
        streams.setdefault(request.session, []).append((*stream, *said))
        return said

    rollout = Rollout(
        PlainText(chat, max_tokens=LONGEST + 1), lambda: World(Book()), Scripted(script), limits=Limits()
    )
    groups = rollout.groups(tasks(NUM_EPISODES), size=1, seed=seed)
    rollout.close()
    samples = samples_from(outcome_return(groups))
    assert len(samples) == NUM_EPISODES
    found = sorted(tuple(sample.token_ids.tolist()) for sample in samples)
    assert found == sorted(seen[-1] for seen in streams.values())
    for sample in samples:
        trajectory = groups[sample.trajectory].trajectories[0]
        said = [token for turn in trajectory.turns for token in turn.completion.token_ids]
        assert sample.token_ids[sample.loss_weight > 0].tolist() == said
