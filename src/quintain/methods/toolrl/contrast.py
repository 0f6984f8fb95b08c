"""The contrastive loop: pairs of query and document → InfoNCE → an embedder, and how well it ranks held-out ones.

What a batch holds depends on the run's seed and the step alone, so a resumed run repeats it bit for bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
from torch import nn

from quintain.environments.baselines import play
from quintain.environments.catalog import find
from quintain.environments.protocol import Corpus, Environment, Ranker, RetrievesTools
from quintain.errors import ConfigError, MissingExtra
from quintain.eval.ranking import Ranked, ranking_metrics
from quintain.eval.statistics import wilson
from quintain.learning.checkpoint import load_state, save_state
from quintain.learning.optimizers import make_optimizer
from quintain.learning.saved import START
from quintain.learning.train_config import TrainConfig, list_unread_options
from quintain.learning.update import scale_at
from quintain.losses.contrastive import info_nce
from quintain.methods.method import Needs, Traits
from quintain.models.embedder import EMBEDDER, Embedder, features
from quintain.models.fingerprint import fingerprint
from quintain.retrieval.bm25 import BM25
from quintain.retrieval.dense import Dense
from quintain.rollout.progress import Display
from quintain.runs.context import short_name
from quintain.runs.interrupt import Interruption
from quintain.store.run import Run
from quintain.types import Action, derive_seed


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrastive:
    """Train an embedder that finds the document of a query: ``Contrastive(corpus=…, batch_size=64, hard=3)`` (DARE).

    There is no policy: a step is one batch of pairs, and an evaluation ranks all documents for held-out ones' queries.
    """

    corpus: Callable[[Environment], Corpus]
    """the environment of the run → what is found in it"""
    batch_size: int = 64
    """pairs of a step"""
    hard: int = 3
    """of each document that is drawn, those most like it that stand in the batch with it"""
    temperature: float = 0.05
    """τ of InfoNCE"""
    size: int = 64
    """numbers of an embedding"""
    queries: int = 4
    """of each held-out document in an evaluation"""
    ranks: str = "trained"
    """what tools are chosen by where evaluations play: trained, untrained or bm25"""
    needs: Needs = Needs()

    @property
    def traits(self) -> Traits:
        """What it is, beside what it needs."""
        return Traits(
            acts=False,
            learns=None,
            has_warm_start=False,
            has_own_start=True,
            unread=list_unread_options(TrainConfig),
        )

    def train(self, run: Run, config: TrainConfig) -> None:
        """Train until ``config.steps``, continuing where `run` was left; keep the embedder in the run."""
        train_contrastively(self, config, run)


class Contrast:
    """An embedder that learns from a corpus: ``Contrast(method, corpus, seed=0, rate=0.02).learn(1)``."""

    def __init__(
        self, method: Contrastive, corpus: Corpus, *, seed: int, rate: float, decay: float = 0.0
    ) -> None:
        """Begin with a fresh embedder.

        Raises:
            ConfigError: too few documents are to be learned from, or none is held out.
        """
        self.method, self.corpus, self.seed = method, corpus, seed
        self.documents = tuple(corpus.documents())
        held_out = [corpus.is_held_out(number) for number in range(len(self.documents))]
        self.known = [number for number, apart in enumerate(held_out) if not apart]
        self.apart = [number for number, apart in enumerate(held_out) if apart]
        if len(self.known) < 2 or not self.apart or method.hard >= len(self.known):
            raise ConfigError(
                f"documents: got {len(self.known)} to learn from and {len(self.apart)} held out, with hard="
                f"{method.hard}; give more documents, or a lower hard"
            )
        self.embedder = Embedder(size=method.size, seed=derive_seed("embedder", seed) % (1 << 63))
        self.start = Embedder(size=method.size, seed=derive_seed("embedder", seed) % (1 << 63))
        self.optimizer = make_optimizer(
            "adamw", list(self.embedder.parameters()), rate=rate, betas=(0.9, 0.999), weight_decay=decay
        )
        self.rate = rate
        self.words = [{w for w in features(self.documents[n]) if " " not in w} for n in self.known]
        self.places: dict[str, list[int]] = {}
        """word → places in `known` of the documents that have it"""
        for place, words in enumerate(self.words):
            for word in sorted(words):
                self.places.setdefault(word, []).append(place)

    def draw(self, step: int) -> tuple[list[str], list[int]]:
        """Return the queries of `step` and the numbers of their documents."""
        rng = Random(derive_seed("pairs", self.seed, step))
        each = self.method.hard + 1
        anchors = rng.sample(
            range(len(self.known)), min(max(1, self.method.batch_size // each), len(self.known))
        )
        chosen = [
            self.known[place] for anchor in anchors for place in [anchor, *self._hard_negatives(anchor)]
        ]
        return [self.corpus.query(number, rng) for number in chosen], chosen

    def _hard_negatives(self, anchor: int) -> list[int]:
        """Return the places of the `hard` known documents that share the most telling words with `anchor`.

        A word that n of the N documents have tells log(N / n).
        """
        shared = np.zeros(len(self.known))
        for word in sorted(self.words[anchor]):
            shared[self.places[word]] += math.log(len(self.known) / len(self.places[word]))
        shared[anchor] = -1.0
        return np.argsort(-shared, kind="stable")[: self.method.hard].tolist()

    def learn(self, step: int, *, scale: float = 1.0) -> dict[str, float]:
        """Take the optimizer step of `step` at `scale` times the rate; return what it did."""
        queries, chosen = self.draw(step)
        documents = [self.documents[number] for number in chosen]
        loss = info_nce(
            self.embedder(queries), self.embedder(documents), names=documents,
            temperature=self.method.temperature,
        )  # fmt: skip
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * scale
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.get_total_norm([p.grad for p in self.embedder.parameters() if p.grad is not None])
        self.optimizer.step()
        return {
            "train/loss": float(loss.detach()),
            "train/grad_norm": float(norm),
            "train/pairs": float(len(chosen)),
        }

    def questions(self) -> list[tuple[str, int]]:
        """Return the queries of the held-out documents with the numbers of these, always the same."""
        rng = Random(derive_seed("held out", self.seed))
        return [(self.corpus.query(n, rng), n) for n in self.apart for _ in range(self.method.queries)]

    def rank(self, ranker: Ranker) -> Ranked:
        """Return the order in which `ranker` puts all documents for each of `questions`, with what answers it."""
        answers: dict[str, list[int]] = {}
        for number, text in enumerate(self.documents):
            answers.setdefault(text, []).append(number)
        total = len(self.documents)
        return [(ranker.best(q, total), answers[self.documents[number]]) for q, number in self.questions()]

    def rankers(self) -> dict[str, Ranker]:
        """Return what is compared, by name: the embedder, as it was before, and BM25 where its package is there."""
        found: dict[str, Ranker] = {
            "trained": Dense(self.documents, self.embedder),
            "untrained": Dense(self.documents, self.start),
        }
        with suppress(MissingExtra):
            found["bm25"] = BM25(self.documents)
        return found


def inside(ranked: Ranked, groups: Sequence[Sequence[int]]) -> float:
    """Return the share of queries whose own document comes first among the documents of its group."""
    won = [
        next(number for number in order if number in group) in wanted if set(order) & set(group) else False
        for (order, wanted), group in zip(ranked, groups, strict=True)
    ]
    return sum(won) / len(won)


def train_contrastively(method: Contrastive, config: TrainConfig, run: Run) -> None:
    """Train by `method` until ``config.steps``, continuing where `run` was left; keep the embedder in the run."""
    config.check()
    started = time.monotonic()
    with (
        Interruption() as interruption,
        Display(short_name(run.recipe), config.steps, max(run.next_step - 1, 0)) as display,
        closing(find(config.environment)()) as environment,
    ):
        contrast = Contrast(
            method,
            method.corpus(environment),
            seed=config.seed,
            rate=config.learning_rate,
            decay=config.weight_decay,
        )
        contrast.start.save(run.folder / START / EMBEDDER)
        beside = {
            f"eval/{name}/{key}": value
            for name, ranker in contrast.rankers().items()
            if name != "trained"
            for key, value in ranking_metrics(contrast.rank(ranker)).items()
        }
        checkpoint = run.latest_checkpoint()
        if checkpoint is not None:
            load_state(Path(checkpoint.folder), [contrast.embedder], contrast.optimizer)
        save = partial(save_state, modules=[contrast.embedder], optimizer=contrast.optimizer, numbers={})
        interruption.defer(lambda: False)
        for step in range(run.next_step, config.steps + 1):
            row = contrast.learn(step, scale=scale_of(config, step)) if step else {}
            is_due = step % config.eval_every == 0 or step == config.steps
            if is_due and (step or config.eval_start):
                row |= beside | evaluate(contrast, environment, config.eval_episodes)
            row |= {"total/turns": 0.0, "total/tokens": 0.0, "time/seconds": time.monotonic() - started}
            weights = fingerprint(contrast.embedder) if is_due else None
            run.commit(step, row, weights=weights, policy_version=step)
            if is_due or interruption.is_asked:
                run.checkpoint(step, save)
            display.step(step, row)
            if interruption.is_asked:
                raise KeyboardInterrupt
        contrast.embedder.save(run.folder / EMBEDDER)
    run.finish("done")


def scale_of(config: TrainConfig, step: int) -> float:
    """Return the factor on the learning rate at `step`: it falls in a line to 0, unless the configuration says
    otherwise.
    """
    fallen = 1 - (step - 1) / config.steps
    return scale_at(
        step, config.steps, schedule=config.lr_schedule, by_method=fallen, warmup=config.lr_warmup
    )


def evaluate(contrast: Contrast, environment: Environment, episodes: int) -> dict[str, float]:
    """Return how the embedder ranks held-out documents, and what an agent comes to that trusts what is found first."""
    rankers = contrast.rankers()
    found = {
        f"eval/{key}": value for key, value in ranking_metrics(contrast.rank(rankers["trained"])).items()
    }
    if not isinstance(environment, RetrievesTools):
        return found
    if contrast.method.ranks not in rankers:
        raise ConfigError(
            f"ranks: got {contrast.method.ranks!r}; choose one of {', '.join(rankers)} (bm25 takes the extra search)"
        )
    environment.ranker = rankers[contrast.method.ranks]
    return found | play_held_out(environment, episodes)


def play_held_out(environment: Environment, episodes: int) -> dict[str, float]:
    """Return the success of an agent that trusts the retriever of `environment`, on held-out tasks."""

    def trust(world: Environment, _observation: str) -> Action:
        assert isinstance(world, RetrievesTools), "asked only where tools are found"
        return world.trusting_action()

    tasks = [environment.task("eval", index) for index in range(episodes)]
    solved = sum(play(environment, task, trust).is_success for task in tasks)
    low, high = wilson(solved, episodes)
    return {
        "eval/success": solved / episodes, "eval/low": low, "eval/high": high, "eval/episodes": float(episodes),
    }  # fmt: skip
