"""A small embedder of texts: hashed words and pairs of words → their mean vector → a layer → length 1.

It needs no tokenizer and no download, and takes a fraction of a millisecond for a text. Words fall into buckets by
their hash, so that one it has never seen has a vector, too, if a random one: an untrained embedder finds what shares
words. A number counts by its magnitude: 12,480 and 15,000 are the same "about 10^4" to it.
"""

import json
import math
import re
import zlib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import save_model
from torch import Tensor, nn

from quintain.errors import ModelError
from quintain.models.seeding import draw_weights
from quintain.models.weights import read_state
from quintain.types.json_text import load_json

EMBEDDER = "embedder"
"""Folder of a run in which its embedder is kept."""
WEIGHTS, SETTINGS = f"{EMBEDDER}.safetensors", f"{EMBEDDER}.json"
TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?|[^\W\d_]+")
"""Numbers, and words of letters."""


def features(text: str) -> list[str]:
    """Return the words of `text`, and each two that stand together; numbers by their magnitude in half decades.

    Example: ``features("n 12,480")`` is ``["n", "10^4.0", "n 10^4.0"]``.
    """
    words = [
        magnitude(float(word.replace(",", ""))) if word[0].isdigit() else word.lower()
        for word in TOKEN.findall(text)
    ]
    return [*words, *(f"{one} {other}" for one, other in pairwise(words))]


def magnitude(number: float) -> str:
    """Return how large `number` is: ``magnitude(40)`` is ``"10^1.5"``; below 0.01 it is ``"0"``."""
    return f"10^{math.floor(2 * math.log10(number)) / 2}" if number >= 0.01 else "0"


class Embedder(nn.Module):
    """Texts → embeddings [texts, size] of length 1: ``Embedder(size=64)(["the seat of Orbit"])``."""

    def __init__(self, *, size: int = 64, buckets: int = 16_384, seed: int = 0) -> None:
        """Draw the weights from `seed`; hashes fall into `buckets`."""
        super().__init__()
        self.size, self.buckets = size, buckets
        with draw_weights(seed):
            self.words = nn.EmbeddingBag(buckets, size, mode="mean", include_last_offset=True)
            self.mix = nn.Linear(size, size, bias=False)
        nn.init.eye_(self.mix.weight)

    def forward(self, texts: Sequence[str]) -> Tensor:
        """Return the embedding of each of `texts`; one without a word has the embedding 0."""
        hashed = [[zlib.crc32(word.encode()) % self.buckets for word in features(text)] for text in texts]
        ends = np.cumsum([0, *map(len, hashed)])
        ids = torch.tensor([number for own in hashed for number in own], dtype=torch.int64)
        return nn.functional.normalize(self.mix(self.words(ids, torch.as_tensor(ends))), dim=-1)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the same without gradient, float32."""
        with torch.no_grad():
            return self(texts).numpy()

    def save(self, folder: Path) -> None:
        """Write weights and settings into `folder`."""
        folder.mkdir(parents=True, exist_ok=True)
        save_model(self, str(folder / WEIGHTS))
        settings = {"size": self.size, "buckets": self.buckets}
        (folder / SETTINGS).write_text(json.dumps(settings), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the embedder in `folder`, or in the folder ``embedder`` of the run `folder`.

        Raises:
            ModelError: there is none, or its files are damaged.
        """
        place = next((f for f in (folder, folder / EMBEDDER) if (f / SETTINGS).is_file()), None)
        if place is None:
            raise ModelError(
                f"embedder: got {folder}, which holds no {SETTINGS}; train one, quintain train dare"
            )
        try:
            settings = load_json((place / SETTINGS).read_text(encoding="utf-8"))
            size, buckets = int(settings["size"]), int(settings["buckets"])
            if size < 1 or buckets < 1 or 4 * size * buckets > (place / WEIGHTS).stat().st_size:
                raise ValueError(f"{buckets} buckets of size {size}, which {WEIGHTS} does not hold")
            found = cls(size=size, buckets=buckets)
            read_state(found, place / WEIGHTS)
        except (OSError, ValueError, TypeError, KeyError, ArithmeticError, SafetensorError) as error:
            raise ModelError(
                f"embedder: got {place}, which cannot be read ({error}); train it anew"
            ) from error
        return found
