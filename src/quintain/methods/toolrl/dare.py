"""DARE (arXiv 2603.04743): learns to retrieve a tool by what it does and for which data.

L = -log exp(s(q, d+)/τ) / Σ_d exp(s(q, d)/τ).

One embedder reads both sides. A document is what a tool does and a profile of the data that it is for; a query is what
is needed and what the data look like. The documents of a batch are each other's negatives, and with each that is drawn
stand the `hard` ones most like it, which do the same to other data: only the profile tells these apart. Tools are held
out in groups, not queries. Evaluations rank all tools, beside BM25 and the embedder as it was; where the environment
takes a retriever, an agent plays held-out tasks with the first tool that is found. The embedder is kept in the run's
folder ``embedder``: ``shelf?retriever=RUN``.

Differences to the paper: hashed words and a layer, about a million weights, where it tunes a transformer of 23 million;
profiles are three numbers or words, drawn, where it describes real data sets for R packages; queries are written by a
template and not by a language model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Literal

from quintain.config.ranges import NonNegativeInt, PositiveFloat, PositiveInt
from quintain.data.files import read_objects
from quintain.environments.protocol import Corpus, Environment
from quintain.environments.splitting import is_eval
from quintain.errors import ConfigError, DataError
from quintain.learning.train_config import TrainConfig

if TYPE_CHECKING:
    from quintain.methods.toolrl.contrast import Contrastive


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(TrainConfig):
    """Configuration of DARE."""

    environment: str = "shelf"
    """Where the tools are: an environment that says what is found in it, or none with pairs of a file."""
    pairs: str = ""
    """File of {"query", "document"} objects, JSON lines, to learn from instead; half of the documents are held out."""
    steps: int = 150
    learning_rate: float = 2e-2
    batch_size: PositiveInt = 64
    """Pairs of a step."""
    hard: NonNegativeInt = 3
    """Documents most like each one drawn that stand in the batch with it."""
    contrast_temperature: PositiveFloat = 0.05
    """τ of InfoNCE."""
    embedding_size: PositiveInt = 64
    """Numbers of an embedding."""
    ranks: Literal["trained", "untrained", "bm25"] = "trained"
    """What tools are chosen by where evaluations play."""


def method(config: Config) -> "Contrastive":
    """Return DARE as `config` describes it."""
    from quintain.methods.toolrl.contrast import Contrastive

    return Contrastive(
        corpus=lambda environment: Pairs.read(Path(config.pairs)) if config.pairs else corpus_of(environment),
        batch_size=config.batch_size,
        hard=config.hard,
        temperature=config.contrast_temperature,
        size=config.embedding_size,
        ranks=config.ranks,
    )


def corpus_of(environment: Environment) -> Corpus:
    """Return what is found in `environment`.

    Raises:
        ConfigError: it does not say.
    """
    if not isinstance(environment, Corpus):
        raise ConfigError(
            f"environment: got {type(environment).__name__}, in which nothing is found; name one with documents() and "
            "query(), such as shelf, or give pairs"
        )
    return environment


class Pairs:
    """Documents with the queries that they answer: ``Pairs({"estimates centers": ("the middle of rows",)})``."""

    def __init__(self, queries: dict[str, Sequence[str]]) -> None:
        self._queries = list(queries.items())

    @classmethod
    def read(cls, file: Path) -> "Pairs":
        """Return the pairs in `file`.

        Raises:
            DataError: there is none, or one without a text ``query`` or ``document``.
        """
        found: dict[str, list[str]] = {}
        for each in read_objects(file):
            if isinstance(each.value, DataError):
                raise each.value
            value = each.value if isinstance(each.value, dict) else {}
            query, document = value.get("query"), value.get("document")
            if not isinstance(query, str) or not isinstance(document, str):
                raise DataError(
                    f'pair in {each.place}: got {each.value!r}; write {{"query": TEXT, "document": TEXT}}'
                )
            found.setdefault(document, []).append(query)
        return cls({document: tuple(queries) for document, queries in found.items()})

    def documents(self) -> Sequence[str]:
        """Return the documents, each once."""
        return [document for document, _ in self._queries]

    def query(self, document: int, rng: Random) -> str:
        """Return one of the queries that the document of this number answers."""
        return rng.choice(self._queries[document][1])

    def is_held_out(self, document: int) -> bool:
        """Whether the document of this number is held out: a matter of its text."""
        return is_eval(self._queries[document][0])
