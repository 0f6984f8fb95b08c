"""A learner, or a policy that is only asked, that computes in ranks; whoever has it sees a `Learner` or a `Forward`.

The model in our process is a whole copy, from which engines sample and which is saved for others; ranks send their
weights back after each update. Micro-batches go to the ranks in rounds of one each; what the ranks say of the trained
tokens becomes the leaves of a graph in which the loss is computed as ever, and its gradient by those leaves goes back.
The loss and the numbers of a step are therefore those of one process, but for the order of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from quintain.errors import ConfigError, StoreError
from quintain.learning.checkpoint import SHARDS, load_numbers, save_numbers
from quintain.learning.learner import Forward, Learner, Optimization
from quintain.learning.sharding.ranks import RankGroup
from quintain.learning.sharding.shard import Lora, ShardSpec
from quintain.learning.sharding.wire import numbers_of, numbers_row, streams_of, weights_in
from quintain.types import Batch, Outputs
from quintain.types.rows import to_row

if TYPE_CHECKING:
    from transformers import PreTrainedModel

EXCHANGE = "weights.safetensors"
"""The file in which weights go to and fro."""


class ShardedForward(Forward):
    """Runs batches through the shards of a policy, as many at once as there are ranks; see `place`."""

    shards: tuple[RankGroup, str]
    """the ranks, and by which name they know the policy"""
    num_sharing: int
    """ranks that share the tokens of a batch"""
    kept: Mapping[str, nn.Parameter]
    """what of it is changed from here, by the names that ranks know"""

    def place(self, ranks: RankGroup, name: str, spec: ShardSpec, kept: Iterable[nn.Parameter]) -> list[int]:
        """Build the shards of the policy `name` in `ranks`, with the present values of what is `kept`.

        Returns:
            Parameters of which each rank holds its part.
        """
        self.shards, self.num_sharing, self.kept = (ranks, name), spec.context_ranks, self.named(kept)
        found: list[int] = ranks.ask("build", name, to_row(spec))
        self.note_restored()
        return found

    def note_restored(self) -> None:
        """Give the ranks the weights of the copy here."""
        ranks, name = self.shards
        if self.kept:
            file = ranks.folder / EXCHANGE
            save_file({key: part.detach().cpu().contiguous() for key, part in self.kept.items()}, file)
            ranks.ask("read_weights", name, str(file))

    def __call__(self, batch: Batch) -> Outputs:
        """Refuse: what is learned goes through `each`, which sends the gradient back."""
        raise AssertionError("a pass with a gradient goes through each")

    def infer_each(self, batches: Iterable[Batch]) -> Iterator[Outputs]:
        """Yield the outputs of each of `batches`, without gradients."""
        yield from self.each("infer", [*batches])

    @torch.no_grad()
    def infer(self, batch: Batch) -> Outputs:
        """Return the outputs of one batch, without gradients."""
        return next(self.infer_each([batch]))

    def each(self, do: Literal["infer", "forward"], batches: Sequence[Batch]) -> Iterator[Outputs]:
        """Yield what the policy says of each of `batches`; of ``forward`` the gradient goes back after each round.

        Ranks for which no batch is left repeat the first of the round; their gradient is zero.
        """
        (ranks, name), sharing = self.shards, self.num_sharing
        is_learned = do == "forward"
        at_once = ranks.count // sharing
        for start in range(0, len(batches), at_once):
            part = batches[start : start + at_once]
            streams = [streams_of(batch) for batch in part]
            rows = [(each.row(),) for each in streams]
            rows += rows[:1] * (at_once - len(rows))
            answers = ranks.ask(do, name, each=[row for row in rows for _ in range(sharing)])
            told = [[leaf for leaf in numbers_of(answer) if leaf is not None] for answer in answers]
            given = [
                [torch.stack(parts).sum(0).requires_grad_(is_learned) for parts in zip(*own, strict=True)]
                for own in (told[first : first + sharing] for first in range(0, ranks.count, sharing))
            ]  # of ranks that share tokens, each says nothing but zeros of those of the others
            for batch, each, leaves in zip(part, streams, given, strict=False):
                logprobs, entropy, *values = leaves
                empty = torch.zeros(len(batch.token_ids))
                placed = [
                    empty.index_copy(0, each.targets.cpu(), part) for part in (logprobs, entropy, *values)
                ]
                yield Outputs(logprobs=placed[0], entropy=placed[1], values=placed[2] if values else None)
            if is_learned:
                gradients = [numbers_row([_gradient(leaf) for leaf in leaves]) for leaves in given]
                ranks.ask("backward", name, each=[(part,) for part in gradients for _ in range(sharing)])


class ShardedLearner(Learner):
    """Trains `model`, or the LoRA layers `trained` of it, and a value head in `ranks`.

    Args:
        model: a whole copy; its weights are those of the ranks after each update.
        optimization: how weights are updated; adafactor cannot be, since it looks at whole matrices.
        ranks: where it is computed; several learners may share them.
        name: of the policy, by which the ranks know it.
        folder: the model folder that ranks build it from.
        value_head: beside the model.
        trained: the part of the model that is changed; all of it for None.
        lora: the LoRA layers that `trained` holds.
        activate: is called before the copy here is used.
        context_ranks: ranks that share the tokens of a batch.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        optimization: Optimization,
        *,
        ranks: RankGroup,
        name: str,
        folder: str,
        value_head: nn.Module | None = None,
        trained: nn.Module | None = None,
        lora: Lora | None = None,
        activate: Callable[[], None] | None = None,
        context_ranks: int = 1,
    ) -> None:
        """Build the shards, and give them the weights of `model`.

        Raises:
            ConfigError: an optimizer that needs whole matrices.
        """
        if optimization.optimizer == "adafactor":
            raise ConfigError(
                "learner_ranks: got the optimizer adafactor, which needs whole rows and columns of a matrix; "
                "take adamw or sgd"
            )
        super().__init__(model, optimization, value_head=value_head, trained=trained, activate=activate)
        self._shards = ShardedForward.of(model, optimization, value_head=value_head, activate=activate)
        self.forward = self._shards
        self._ranks, self._name = ranks, name
        self.num_parts = ranks.count // context_ranks
        spec = ShardSpec(
            folder=folder, optimization=optimization, has_value_head=value_head is not None, lora=lora,
            context_ranks=context_ranks, is_frozen=lora is not None,
        )  # fmt: skip
        self.num_numbers = self._shards.place(ranks, name, spec, self.parameters)
        """parameters of which each rank holds its part"""

    def restart(self) -> None:
        """Forget what the optimizer knows."""
        self._ask("restart")

    def save(self, folder: Path) -> None:
        """Have every rank write its part of weights and optimizer into `folder`."""
        self._ask("save", str(folder.resolve()))
        save_numbers(folder, self._numbers)

    def load(self, folder: Path) -> None:
        """Take over what as many or another number of ranks wrote.

        Raises:
            StoreError: it is missing or broken, of another model, or was written by a learner without ranks.
        """
        if not any(folder.glob(SHARDS)):
            raise StoreError(
                f"checkpoint {folder}: got one of a learner without ranks; resume it with learner_ranks=0"
            )
        numbers = load_numbers(folder, self._numbers)
        self._ask("load", str(folder.resolve()))
        self._numbers = numbers
        self._fetch()

    def _ask(self, do: str, *arguments: object) -> list[Any]:
        return self._ranks.ask(do, self._name, *arguments)

    def _passes(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, Outputs]]:
        """Yield each of `batches` with what the ranks say of it; they get the gradient at the end of each round.

        Raises:
            ConfigError: a part of what is trained rests, of which ranks know nothing.
        """
        if not all(parameter.requires_grad for parameter in self.parameters):
            raise ConfigError(
                "learner_ranks: got a method that lets a part of the model rest, as iRe-VLA does, which ranks cannot; "
                "leave learner_ranks at 0"
            )
        yield from zip(batches, self._shards.each("forward", batches), strict=True)

    def _clip_gradient(self) -> float:
        return float(self._ask("clip")[0])

    def _update(self, rate_scale: float) -> None:
        self._ask("update", rate_scale)
        self._fetch()

    def _forget_gradient(self) -> None:
        self._ask("forget_gradient")

    def _fetch(self) -> None:
        """Take the ranks' weights over into the copy here."""
        file = self._ranks.folder / EXCHANGE
        self._ask("write_weights", str(file))
        found = dict(weights_in(file))
        with torch.no_grad():
            for name, parameter in self.named_parameters.items():
                parameter.copy_(found[name])


def _gradient(leaf: Tensor) -> Tensor:
    """Return the gradient that a loss has left at `leaf`; zeros where it does not depend on it."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
