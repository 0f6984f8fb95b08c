"""On what was just sampled the ratio of learner to engine is 1, however it was sampled, packed and shared."""

import pytest
import torch
from tests.learning.test_learner import qwen

from quintain.credit.group import group_relative
from quintain.data.pack import micro_batches
from quintain.data.samples import samples_from
from quintain.engines.local import Local
from quintain.engines.protocol import Request, Sampling
from quintain.learning import gap
from quintain.learning.learner import Learner, Optimization
from quintain.types import Action, Completion, Group, Score, Stop, Task, Trajectory, Turn

NUM, TURNS = 4, 2


def sampled(engine: Local, temperature: float) -> list[Group]:
    """Two groups of episodes of two turns; the second prompt of a turn continues the stream."""
    turns: dict[str, list[Turn]] = {f"{g}/{i}": [] for g in range(2) for i in range(NUM)}
    for number in range(TURNS):
        prompts = {
            name: (5, 6, 7, 8, 9, 10, 11, 12, int(name[0]) + 20) if not number else (13,) for name in turns
        }
        for place, (name, prompt) in enumerate(prompts.items()):
            sampling = Sampling(temperature=temperature, max_tokens=6, stop_ids=frozenset({3}))
            engine.submit(
                Request(session=name, prompt_ids=prompt, seed=100 * number + place, sampling=sampling)
            )
        replies: dict[str, Completion] = {}
        while len(replies) < len(turns):
            for reply in engine.advance():
                assert isinstance(reply.result, Completion)
                replies[reply.session] = reply.result
        for name, completion in replies.items():
            turns[name].append(
                Turn(observation=(), prompt_ids=prompts[name], completion=completion, action=Action())
            )
    tasks = [Task(id=str(g), environment="e", seed=g) for g in range(2)]

    def trajectory(g: int, i: int) -> Trajectory:
        return Trajectory(
            task=tasks[g],
            turns=tuple(turns[f"{g}/{i}"]),
            outcome=Score(value=float(i % 2), is_success=bool(i % 2)),
            stop=Stop.TERMINATED,
            seed=i,
            group=str(g),
            index=i,
        )

    return [Group(task=tasks[g], trajectories=tuple(trajectory(g, i) for i in range(NUM))) for g in range(2)]


@pytest.mark.parametrize("temperature", [0.3, 0.6, 0.8, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("path", ["shared", "packed", "one by one", "padded"])
def test_the_first_ratio_is_one(temperature: float, path: str) -> None:
    model = qwen()
    engine = Local(model)
    samples = samples_from(group_relative(sampled(engine, temperature)))
    longest = max(len(sample.token_ids) for sample in samples)
    learner = Learner(model, Optimization(temperature=temperature, shares_prefixes=path == "shared"))
    if path == "padded":
        learner.forward.fallback_reason = "compared with"
    for batch in micro_batches(samples, max_tokens=longest if path == "one by one" else 1 << 12):
        outputs = learner.infer(batch)
        largest = gap.gap(outputs, batch).largest
        assert largest < 1e-4
        trained = batch.turn_id >= 0
        ratio = (outputs.logprobs - batch.logprobs)[trained].exp()
        assert torch.allclose(ratio, torch.ones_like(ratio), atol=1e-4)
        # The log-prob of the token before or after is never nearer.
        for shift in (-1, 1):
            moved = torch.roll(batch.logprobs[trained], shift)
            assert (outputs.logprobs[trained] - moved).abs().mean() > 100 * largest
