"""Search-R1: does masking what was retrieved turn the gradient towards success?

A small language model is asked for a key, writes a query, reads the document that answers it, with words of noise after
it, and writes the word that it found. It imitated a teacher who errs in both. The document of the right key tells the
answer; that of another tells another word. The number is the cosine of the method's gradient, through its own credit,
packing and loss, with the gradient of success of other episodes. In the control as many tokens are masked, at random
among the sampled and the retrieved. Beside it: nothing masked, for more and more noise; documents trained on the
advantages of other episodes. In the null world the document stands in the question, and nothing is retrieved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quintain.credit_lab.gradient import GradientLab, cosine, leave_out, success_credit
from quintain.data.samples import samples_from
from quintain.methods.loops.on_policy import Estimates
from quintain.methods.toolrl import search_r1
from quintain.models.tiny import build_tiny
from quintain.text.tokenizer import train_tokenizer
from quintain.types import (
    Action,
    Completion,
    Credit,
    Group,
    Sample,
    Score,
    Stop,
    Task,
    Trajectory,
    Turn,
    derive_seed,
)

KEYS, WORDS, NOISE = 8, 8, 8
BEGIN, ASK, FOUND, END = range(4)
FIRST_KEY = 4
FIRST_WORD = FIRST_KEY + KEYS
FIRST_NOISE = FIRST_WORD + WORDS
TEMPERATURE = 1.0
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Asked:
    """Questions: ``Asked(keys=…, told=…)``."""

    keys: Ids
    """[B] the key that each is about"""
    told: Ids
    """[B, KEYS] the word that the document of each key tells"""

    @property
    def gold(self) -> Ids:
        """[B] the right words."""
        return self.told[np.arange(len(self.keys)), self.keys]


class Reader:
    """A model of three words: it asks, reads and answers; ``Reader(seed=0, noise=3).batch(8, 8, seed=1)``."""

    def __init__(self, *, seed: int, noise: int, mistakes: float, updates: int) -> None:
        """Teach a new model by a teacher who errs with probability `mistakes` in each of the two words."""
        self.noise = noise
        self.model = build_tiny(train_tokenizer(["any text"], 300), size="micro", seed=seed % (1 << 31))
        rng = np.random.default_rng(seed)
        optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        for _ in range(updates):
            asked = questions(64, rng)
            queries = np.where(rng.random(64) < mistakes, rng.integers(0, KEYS, 64), asked.keys)
            found = asked.told[np.arange(64), queries]
            says = np.where(rng.random(64) < mistakes, rng.integers(0, WORDS, 64), found)
            ids = torch.from_numpy(
                np.concatenate(
                    [self.prompt(asked), self.document(asked, queries, rng), says[:, None] + FIRST_WORD], 1
                )
            )
            logs = self.model(ids).logits.log_softmax(-1)
            first, last = 2, ids.shape[1] - 2
            rows = torch.arange(64)
            loss = -(logs[rows, first, ids[:, 3]] + logs[rows, last, ids[:, -1]]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for parameter in self.model.parameters():
            parameter.grad = None

    def prompt(self, asked: Asked) -> Ids:
        """Return what a question looks like [B, 3]."""
        num = len(asked.keys)
        return np.stack([np.full(num, BEGIN), asked.keys + FIRST_KEY, np.full(num, ASK)], 1)

    def document(self, asked: Asked, queries: Ids, rng: np.random.Generator) -> Ids:
        """Return the queries and what they find [B, 5 + noise]: query, marker, key, word, noise, marker."""
        num = len(queries)
        word = asked.told[np.arange(num), queries] + FIRST_WORD
        parts = [queries + FIRST_KEY, np.full(num, FOUND), queries + FIRST_KEY, word]
        noise = rng.integers(FIRST_NOISE, FIRST_NOISE + NOISE, (num, self.noise))
        return np.concatenate([np.stack(parts, 1), noise, np.full((num, 1), END)], 1)

    def logs(self, ids: Ids) -> NDArray[np.float64]:
        """Return the log-probs of the next token after each of `ids`, [B, T, V]."""
        with torch.no_grad():
            return self.model(torch.from_numpy(ids)).logits.double().log_softmax(-1).numpy()

    def batch(self, tasks: int, size: int, *, seed: int, is_closed: bool = False) -> list[Group]:
        """Return `size` episodes of each of `tasks` questions; closed ones are told the document at once."""
        rng = np.random.default_rng(seed)
        drawn = questions(tasks, rng)
        asked = Asked(keys=np.repeat(drawn.keys, size), told=np.repeat(drawn.told, size, 0))
        prompt = self.prompt(asked)
        said = self.logs(prompt)[:, -1]
        queries = draw(said, rng)
        is_key = (queries >= FIRST_KEY) & (queries < FIRST_WORD)
        looked = (
            asked.keys
            if is_closed
            else np.where(is_key, queries - FIRST_KEY, rng.integers(0, KEYS, len(queries)))
        )
        document = self.document(asked, looked, rng)
        if not is_closed:
            document[:, 0] = queries
        whole = np.concatenate([prompt, document], 1)
        logs = self.logs(whole)
        answers = draw(logs[:, -1], rng)
        right = answers == asked.gold + FIRST_WORD
        groups: list[Group] = []
        for number in range(tasks):
            task = Task(id=f"reader/{seed}/{number}", environment="reader", seed=number)
            members = [
                _episode(task, index, whole[row], logs[row], int(answers[row]), bool(right[row]), is_closed)
                for index, row in enumerate(range(number * size, (number + 1) * size))
            ]
            groups.append(Group(task=task, trajectories=tuple(members)))
        return groups


def questions(num: int, rng: np.random.Generator) -> Asked:
    """Return `num` questions."""
    return Asked(keys=rng.integers(0, KEYS, num), told=rng.integers(0, WORDS, (num, KEYS)))


def draw(logs: NDArray[np.float64], rng: np.random.Generator) -> Ids:
    """Return a token for each row of `logs` [B, V]."""
    sums = np.exp(logs).cumsum(1)
    return np.minimum((sums < rng.random(len(sums))[:, None] * sums[:, -1:]).sum(1), logs.shape[1] - 1)


def _episode(
    task: Task, index: int, ids: Ids, logs: NDArray[np.float64], answer: int, is_right: bool, is_closed: bool
) -> Trajectory:
    """Return an episode as it is recorded: prompt, query, document, answer."""
    tokens = ids.tolist()
    last = _turn(tokens if is_closed else tokens[4:], [answer], [float(logs[-1, answer])], is_first=is_closed)
    first = _turn(tokens[:3], [tokens[3]], [float(logs[2, tokens[3]])], is_first=True)
    return Trajectory(
        task=task,
        turns=(last,) if is_closed else (first, last),
        outcome=Score(value=float(is_right), is_success=is_right),
        stop=Stop.TERMINATED,
        seed=index,
        group=task.id,
        index=index,
    )


def _turn(prompt: Sequence[int], said: Sequence[int], logprobs: Sequence[float], *, is_first: bool) -> Turn:
    return Turn(
        observation=(),
        prompt_ids=tuple(prompt),
        completion=Completion(token_ids=tuple(said), logprobs=tuple(logprobs), stop="stop"),
        action=Action(),
        starts_segment=is_first,
    )


def unmasked(reader: Reader, groups: Sequence[Group]) -> list[Group]:
    """Return `groups` in which what was retrieved counts as sampled, with the log-probs that it had."""

    def changed(trajectory: Trajectory) -> Trajectory:
        if len(trajectory.turns) < 2:
            return trajectory
        first, last = trajectory.turns
        ids = [*first.prompt_ids, *first.completion.token_ids, *last.prompt_ids]
        logs = reader.logs(np.array([ids]))[0]
        begin = len(first.prompt_ids) + 1
        logprobs = [float(logs[place - 1, ids[place]]) for place in range(begin, len(ids))]
        said = replace(
            first.completion,
            token_ids=(*first.completion.token_ids, *last.prompt_ids),
            logprobs=(*first.completion.logprobs, *logprobs),
        )
        return replace(trajectory, turns=(replace(first, completion=said), replace(last, prompt_ids=())))

    return [replace(group, trajectories=tuple(map(changed, group.trajectories))) for group in groups]


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return `seeds` batches of one reader."""
    tasks, size, count = int(options.get("tasks", 8)), int(options.get("size", 8)), int(options["seeds"])
    noises = [int(noise) for noise in options.get("noises", (0, 1, 3))]
    readers = {
        noise: Reader(
            seed=derive_seed("search_r1", seed, noise), noise=noise, mistakes=float(options.get("mistakes", 0.4)),
            updates=int(options.get("updates", 200)),
        )
        for noise in noises
    }  # fmt: skip
    method = search_r1.method(search_r1.Config(kl_coef=0.0))
    found: list[dict[str, float]] = [{} for _ in range(count)]
    for noise, reader in readers.items():
        lab = GradientLab(reader.model, temperature=TEMPERATURE)
        batches = [reader.batch(tasks, size, seed=derive_seed(seed, noise, k)) for k in range(count)]
        targets = leave_out([lab.gradient(success_credit(groups)) for groups in batches])
        for number, (groups, target) in enumerate(zip(batches, targets, strict=True)):
            own = derive_seed(seed, noise, number, "mask")

            def credit_of(groups: Sequence[Group]) -> Credit:
                return method.credit(method.reward(groups), Estimates())

            plain, whole = credit_of(groups), credit_of(unmasked(reader, groups))
            samples = kept(samples_from(whole))
            angles = {
                "method": cosine(lab.gradient(plain, method.update), target),
                "control": cosine(
                    lab.of_samples(masked(samples, samples_from(plain), own), method.update), target
                ),
                "unmasked": cosine(lab.of_samples(samples, method.update), target),
                "permuted": cosine(
                    lab.of_samples(with_other_documents(samples, plain, own), method.update), target
                ),
            }
            row = found[number]
            row[f"extra.noise{noise}"] = angles["method"] - angles["unmasked"]
            if noise == noises[-1]:
                row |= {"method": angles["method"], "control": angles["control"]}
                row["extra.over_permuted"] = angles["method"] - angles["permuted"]
                row["extra.success"] = fmean(float(t.is_success) for g in groups for t in g.trajectories)
        if noise == noises[-1]:
            closed = [
                reader.batch(tasks, size, seed=derive_seed(seed, "closed", k), is_closed=True)
                for k in range(count)
            ]
            targets = leave_out([lab.gradient(success_credit(groups)) for groups in closed])
            for number, (groups, target) in enumerate(zip(closed, targets, strict=True)):
                plain = method.credit(method.reward(groups), Estimates())
                whole = method.credit(method.reward(unmasked(reader, groups)), Estimates())
                samples = masked(kept(samples_from(whole)), samples_from(plain), number)
                found[number]["null_method"] = cosine(lab.gradient(plain, method.update), target)
                found[number]["null_control"] = cosine(lab.of_samples(samples, method.update), target)
    return found


def kept(samples: Sequence[Sample]) -> list[Sample]:
    """Return the streams that teach something, as training keeps them."""
    return [sample for sample in samples if sample.advantages.any()]


def masked(samples: Sequence[Sample], sampled: Sequence[Sample], seed: int) -> list[Sample]:
    """Return `samples` with as many trained tokens as the same episodes of `sampled` have, drawn at random."""
    rng = np.random.default_rng(seed)
    wanted = {sample.trajectory: int((sample.loss_weight > 0).sum()) for sample in sampled}
    found: list[Sample] = []
    for sample in samples:
        places = np.flatnonzero(sample.loss_weight > 0)
        weight = np.zeros_like(sample.loss_weight)
        weight[rng.permutation(places)[: wanted[sample.trajectory]]] = 1
        found.append(replace(sample, loss_weight=weight))
    return found


def with_other_documents(samples: Sequence[Sample], plain: Credit, seed: int) -> list[Sample]:
    """Return `samples` whose documents have the advantage of another episode: their noise without their bias."""
    sampled = {sample.trajectory: sample.loss_weight > 0 for sample in samples_from(plain)}
    own = [float(sample.advantages[sample.loss_weight > 0][0]) for sample in samples]
    others = np.random.default_rng(seed).permutation(own)
    return [
        replace(sample, advantages=np.where(sampled[sample.trajectory], sample.advantages, np.float32(other)))
        for sample, other in zip(samples, others.tolist(), strict=True)
    ]
