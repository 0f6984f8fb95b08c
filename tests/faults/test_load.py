"""A thousand episodes at once on an engine that takes its time: nothing is lost, and all of them wait together.

Time is that of this process on the processor and that in which the engine lets it wait: what a clock on the wall would
show if nothing else ran on the machine. It is printed; what is asserted holds on a processor of any speed: nobody waits
for longer than one episode alone would, and a turn among a thousand costs about what it costs among a hundred.
"""

import heapq
import resource
import time

from tests.rollout.test_collect import Book, World, all_of, tasks
from transformers import PreTrainedTokenizerFast

from quintain.agents.harness import PlainText
from quintain.engines.protocol import Reply, Request
from quintain.engines.scripted import Scripted
from quintain.rollout.collect import Limits, Rollout
from quintain.text.chat import Chat
from quintain.text.tokenizer import train_tokenizer
from quintain.types import Completion, Stop

NUM, FEW, TURNS, LATENCY = 1000, 104, 8, 0.05
MOST_BYTES = 1.5 * 2**30
ATTEMPTS = 3


class Late(Scripted):
    """An engine that answers each request when `LATENCY` has passed since it came."""

    def __init__(self, said: tuple[int, ...]) -> None:
        super().__init__(lambda request, stream: said)
        self.said = said
        self.num_answered = 0
        self.waited = 0.0
        """seconds in which there was nothing to do but wait"""
        self._due: list[tuple[float, int, str]] = []

    @property
    def now(self) -> float:
        """Seconds that have passed."""
        return time.process_time() + self.waited

    def submit(self, request: Request) -> None:
        heapq.heappush(self._due, (self.now + LATENCY, len(self._due), request.session))

    def release(self, session: str) -> None:
        pass

    def advance(self) -> list[Reply]:
        if not self._due:
            return []
        self.waited += max(0.0, self._due[0][0] - self.now)
        now = self.now
        replies: list[Reply] = []
        while self._due and self._due[0][0] <= now:
            _, _, session = heapq.heappop(self._due)
            logprobs = (-1.0,) * len(self.said)
            completion = Completion(token_ids=self.said, logprobs=logprobs, stop="stop")
            replies.append(Reply(session=session, result=completion))
        self.num_answered += len(replies)
        return replies


class Long(World):
    """Goes on for as many turns as it may."""

    max_turns = TURNS


def test_a_thousand_episodes_at_once() -> None:
    tokenizer: PreTrainedTokenizerFast = train_tokenizer(["<|system|>Go.<|user|>A wall.<|end|>"], 300)
    chat = Chat(tokenizer)
    costs = {num: min(play(chat, num) for _ in range(ATTEMPTS)) for num in (FEW, NUM)}
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"{NUM} episodes of {TURNS} turns: {costs[NUM] * NUM * TURNS + TURNS * LATENCY:.2f} s of "
        f"{TURNS * LATENCY:.2f} s; {size / 2**20:.0f} MiB in the process"
    )
    assert size <= MOST_BYTES
    assert costs[NUM] <= 2 * costs[FEW]


def play(chat: Chat, num: int) -> float:
    """Return the seconds on the processor that a turn costs when `num` episodes are played at once; none is lost."""
    engine = Late(chat.write("left"))
    rollout = Rollout(
        PlainText(chat), lambda: Long(Book()), engine, limits=Limits(concurrency=num, max_turns=TURNS)
    )
    seen: list[tuple[str, int]] = []
    started = time.process_time()
    groups = rollout.groups(
        tasks(num // 8), size=8, seed=0, on_episode=lambda t: seen.append((t.group, t.index))
    )
    spent = time.process_time() - started
    rollout.close()
    trajectories = all_of(groups)
    assert len(trajectories) == len(seen) == len(set(seen)) == num
    assert all(len(t.turns) == TURNS and t.stop is Stop.MAX_TURNS for t in trajectories)
    assert engine.num_answered == num * TURNS
    assert engine.waited <= TURNS * LATENCY
    return spent / (num * TURNS)
