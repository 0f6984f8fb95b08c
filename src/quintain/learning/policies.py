"""The policies of a run, by name: each has a model, and where it needs them an engine, an optimizer and a version.

``policy`` is the one that the run is about. Others stand beside it without a special case: a ``reference`` is a frozen
copy, a ``critic`` has a value head and an optimizer, its ``target`` follows it, an ``opponent`` plays another seat.
Several may share one base model, each as a LoRA adapter of its own: the adapter is switched on whenever the policy
samples, scores or learns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_model
from torch import Tensor, nn

from quintain.config import build, rename
from quintain.credit.layout import Critic
from quintain.credit.turn_td import TurnValues
from quintain.data.comparisons import score_samples
from quintain.data.pack import PassSize, micro_batches
from quintain.data.samples import imitation_samples, in_streams
from quintain.data.turn_values import turn_value_samples
from quintain.engines.protocol import Engine, Reply
from quintain.errors import ConfigError, UsageError, suggestion
from quintain.learning.checkpoint import SHARDS, head_in, load_modules, load_shards
from quintain.learning.learner import Forward, Learner, Optimization
from quintain.learning.sections import MICRO_TOKENS, ModelSection, PolicyFields, PolicySettings
from quintain.learning.sharding.learner import ShardedForward, ShardedLearner
from quintain.learning.sharding.ranks import RankGroup
from quintain.learning.sharding.shard import Lora, ShardSpec
from quintain.learning.train_config import MAIN, PolicySpec, TrainConfig
from quintain.models.adapters import add_lora
from quintain.models.device import find_device
from quintain.models.families import longest_stream
from quintain.models.heads import ValueHead
from quintain.models.load import find_folder, load
from quintain.models.precision import storage_dtype
from quintain.models.tiny import build_tiny
from quintain.types import Action, Batch, Completion, Group, Outputs, Sample, Trajectory, Turn

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TokenArrays = list[list[NDArray[np.floating]]]
FOLLOWER = "follower.safetensors"


class SharedModel:
    """A model and the LoRA adapter of it that is switched on; None is the model without any."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.adapters: list[str] = []
        self._active: str | None = None

    def add(self, name: str, settings: PolicySettings, seed: int) -> None:
        """Put a fresh adapter `name`, drawn from `seed`, into the model."""
        add_lora(
            self.model, settings.lora_rank, settings.lora_alpha, settings.lora_targets, name=name, seed=seed
        )
        self.adapters.append(name)
        self._active = name

    def activate(self, name: str | None) -> None:
        """Switch adapter `name` on, and the others off."""
        if name == self._active or not self.adapters:
            return
        adapted = cast(Any, self.model)
        if name is None:
            adapted.disable_adapters()
        else:
            adapted.enable_adapters()
            adapted.set_adapter(name)
        self._active = name

    def trained(self, name: str | None) -> nn.Module:
        """Return what is trained of adapter `name`, as a module of these parameters; the whole model for None."""
        if name is None:
            return self.model
        found = {
            key.replace(".", "/"): parameter
            for key, parameter in self.model.named_parameters()
            if f".{name}." in key and "lora_" in key
        }
        return nn.ParameterDict(found)


class Switching:
    """An engine whose adapter is switched on before it computes."""

    def __init__(self, engine: Engine, activate: Callable[[], None]) -> None:
        self._engine = engine
        self._activate = activate

    def advance(self) -> list[Reply]:
        """See `Engine.advance`."""
        self._activate()
        return self._engine.advance()

    def score(self, token_ids: Sequence[Sequence[int]], temperature: float = 1.0) -> list[tuple[float, ...]]:
        """See `Engine.score`."""
        self._activate()
        return self._engine.score(token_ids, temperature)

    def load_weights(self, version: int, source: Path | None) -> None:
        """See `Engine.load_weights`."""
        self._activate()
        self._engine.load_weights(version, source)

    def __getattr__(self, name: str) -> Any:
        """Return what the engine has."""
        return getattr(self._engine, name)


@dataclass(slots=True)
class Read:
    """What a body that rests says of streams, each of which it reads once: the features of Digi-Q's critics."""

    places: dict[bytes, Tensor] = field(default_factory=dict[bytes, Tensor])
    """stream → hidden states [places, hidden] at its marked tokens"""
    last: dict[int, tuple[Trajectory, Tensor]] = field(default_factory=dict[int, tuple[Trajectory, Tensor]])
    """an object's number → the trajectory, and the hidden state [hidden] after its last turn"""


class Policy:
    """One policy of a run.

    Args:
        name: its name in the run.
        shared: the model, which other policies may share.
        adapter: the LoRA adapter that is its own; None for the model itself.
        forward: runs batches through it; `learner` is there where it is trained.
    """

    def __init__(
        self,
        name: str,
        shared: SharedModel,
        adapter: str | None,
        tokenizer: PreTrainedTokenizerBase,
        settings: PolicySettings,
        *,
        forward: Forward,
        learner: Learner | None,
        start: str = "",
        follows: str = "",
        polyak: float = 1.0,
        head_seed: int = 0,
    ) -> None:
        self.name, self.shared, self.adapter, self.tokenizer = name, shared, adapter, tokenizer
        self.settings, self.forward, self.learner = settings, forward, learner
        self.start, self.follows, self.polyak, self.head_seed = start, follows, polyak, head_seed
        if learner is not None and settings.tokens_per_microbatch is not None:
            learner.max_tokens = settings.tokens_per_microbatch
        self.engine: Engine | None = None
        self.copied_version = 0
        """of the policy that it is a past self of, when it was copied"""
        self._read: Read | None = None
        """what its body, which rests, was found to say; None: the body learns"""

    @property
    def model(self) -> PreTrainedModel:
        """The model, with its adapters."""
        return self.shared.model

    @property
    def version(self) -> int:
        """Number of optimizer steps taken; of a past self those that it was copied after."""
        return self.copied_version if self.learner is None else self.learner.version

    @property
    def max_tokens(self) -> int:
        """Tokens of a pass through it."""
        return (
            (self.settings.tokens_per_microbatch or MICRO_TOKENS)
            if self.learner is None
            else self.learner.max_tokens
        )

    @property
    def num_parts(self) -> int:
        """Passes of an update that are computed at once, by ranks."""
        return 1 if self.learner is None else self.learner.num_parts

    @property
    def pass_size(self) -> PassSize:
        """How its updates are cut into passes."""
        return PassSize(self.max_tokens, self.num_parts)

    @property
    def value_head(self) -> ValueHead | None:
        """Its value head, where it has one."""
        return cast("ValueHead | None", self.forward.value_head)

    def activate(self) -> None:
        """Switch the policy's adapter on."""
        self.shared.activate(self.adapter)

    def infer(self, batch: Batch) -> Outputs:
        """Return what the policy says of `batch`, without gradients, on the batch's device."""
        return self.forward.infer(batch)

    def infer_each(self, batches: Sequence[Batch]) -> Iterator[tuple[Batch, Outputs]]:
        """Yield each of `batches` with what `infer` says of it; ranks compute several at once."""
        return zip(batches, self.forward.infer_each(batches), strict=True)

    def token_logprobs(self, trajectories: Sequence[Trajectory]) -> TokenArrays:
        """Return the policy's log-probs of the sampled tokens: [trajectory][turn] → [tokens]."""
        return self._over_tokens(trajectories, lambda outputs: outputs.logprobs)

    def token_entropies(self, trajectories: Sequence[Trajectory]) -> TokenArrays:
        """Return the policy's entropy (nats) where each token was sampled: [trajectory][turn] → [tokens]."""
        return self._over_tokens(trajectories, lambda outputs: outputs.entropy)

    def token_values(self, trajectories: Sequence[Trajectory]) -> Critic:
        """Return the values of the sampled tokens, and one per trajectory for the state after it was cut.

        A token's value is that of the state before it is sampled. The state after a cut is that of the token that
        would follow the last one; where the model has no room for it, the value before the last token stands for it.

        Raises:
            UsageError: the policy has no value head.
        """
        if self.forward.value_head is None:
            raise UsageError(f"values of the policy {self.name}: got one without a value head; give it one")
        longer = [self._add_turn(trajectory) for trajectory in trajectories]
        values = self._over_tokens(longer, lambda outputs: cast(Tensor, outputs.values))
        return Critic(
            values=[own[: len(t.turns)] for own, t in zip(values, trajectories, strict=True)],
            final=[float(np.concatenate(own)[-1]) for own in values],
        )

    def episode_scores(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """Return what the policy as a reward model says of each episode: its value after the last sampled token.

        Raises:
            UsageError: the policy has no value head.
        """
        return self._scores(score_samples(trajectories, max_length=longest_stream(self.model)))

    def turn_scores(self, trajectories: Sequence[Trajectory]) -> list[list[float]]:
        """Return what it says of each turn, [trajectory][turn]: its value after the last token sampled in the turn.

        Raises:
            UsageError: the policy has no value head.
        """
        samples = score_samples(trajectories, by="turn", max_length=longest_stream(self.model))
        found = iter(self._scores(samples))
        return [list(islice(found, len(trajectory.turns))) for trajectory in trajectories]

    def turn_values(self, trajectories: Sequence[Trajectory]) -> TurnValues:
        """Return what it says of each turn as a critic: its values before the first and after the last token of it.

        Raises:
            UsageError: the policy has no value head.
        """
        samples = turn_value_samples(trajectories, max_length=longest_stream(self.model))
        before = [[math.nan] * len(t.turns) for t in trajectories]
        after = [[math.nan] * len(t.turns) for t in trajectories]
        found = iter(self._scores(samples))
        for sample in samples:
            for place in np.flatnonzero(sample.turn_id >= 0):
                numbers = after if sample.turn_end[place] else before
                numbers[sample.trajectory][sample.turn_id[place]] = next(found)
        for own, led_to in zip(before, after, strict=True):
            own[1:] = [led_to[i] if math.isnan(v) else v for i, v in enumerate(own[1:])]
        return TurnValues(before=before, after=after)

    def last_values(self, trajectories: Sequence[Trajectory]) -> list[float]:
        """Return Q after the last turn of each of `trajectories`, as `turn_values` has it."""
        if self._read is None:
            return [turns[-1] for turns in self.turn_values(trajectories).after]
        if not trajectories:
            return []
        last = self._read.last
        if unread := [t for t in trajectories if id(t) not in last]:
            samples = turn_value_samples(unread, max_length=longest_stream(self.model))
            ends = {sample.trajectory: number for number, sample in enumerate(samples)}  # its last stream
            hidden = self._read_hidden([samples[number] for number in ends.values()])
            last |= {id(unread[i]): (unread[i], own[-1]) for i, own in zip(ends, hidden, strict=True)}
        return self._apply_head(torch.stack([last[id(t)][1] for t in trajectories]))

    @property
    def rests(self) -> bool:
        """Whether the body learns no more."""
        return self._read is not None

    def rest(self, leader: Policy | None = None) -> None:
        """Read each stream once from now on, for the body learns no more; that of `leader` is the same one.

        A body in ranks is read anew each time.
        """
        if self._read is None and not isinstance(self.forward, ShardedForward):
            self._read = Read() if leader is None else leader._read

    def head_passes(self, samples: Sequence[Sample]) -> tuple[list[Sample], Callable[[Batch], Outputs]]:
        """Return the marked places of `samples` as streams of their own, and what the policy says of batches of these.

        The body, which rests, is not run for streams that it has read.
        """
        found, first = list[Sample](), 0
        for sample in samples:
            marked = np.flatnonzero(sample.turn_id >= 0)
            rows = np.arange(first, first + len(marked))
            first += len(marked)
            found.append(_places(sample, marked, rows))
        table = torch.cat(self._read_of(samples))

        def pass_batch(batch: Batch) -> Outputs:
            places = (batch.turn_id >= 0).nonzero().squeeze(1)
            head, zeros = self.value_head, torch.zeros(len(batch.token_ids), device=table.device)
            assert head is not None, "asked only of a policy with a value head"
            values = head(table[batch.token_ids[places]], batch.extra.turn_end[places])
            return Outputs(logprobs=zeros, entropy=zeros, values=zeros.index_copy(0, places, values))

        return found, pass_batch

    def _read_of(self, samples: Sequence[Sample]) -> list[Tensor]:
        """Return the hidden states at the marked places of each of `samples`; the body, which rests, reads new ones."""
        assert self._read is not None, "asked only of a policy whose body rests"
        known, keys = self._read.places, [_key(sample) for sample in samples]
        new = {key: sample for key, sample in zip(keys, samples, strict=True) if key not in known}
        known |= dict(zip(new, self._read_hidden(list(new.values())), strict=True))
        return [known[key] for key in keys]

    def _read_hidden(self, samples: Sequence[Sample]) -> list[Tensor]:
        """Return the hidden states [places, hidden] at the marked places of each of `samples`."""
        if not samples:
            return []
        whole = [replace(sample, loss_weight=(sample.turn_id >= 0).astype(np.float32)) for sample in samples]
        parts = [self.forward.features(batch) for batch in micro_batches(whole, max_tokens=self.max_tokens)]
        counts = [int((sample.turn_id >= 0).sum()) for sample in samples]
        return list(torch.cat(parts).split(counts))

    def _apply_head(self, after: Tensor) -> list[float]:
        """Return what the head makes of hidden states [N, hidden] after turns."""
        head = self.value_head
        assert head is not None, "asked only of a policy with a value head"
        with torch.no_grad():
            return head(after, torch.ones(len(after), dtype=torch.bool, device=after.device)).tolist()

    def _scores(self, samples: Sequence[Sample]) -> list[float]:
        """Return the values at the marked tokens of `samples`, in order."""
        if self.forward.value_head is None:
            raise UsageError(f"scores by the policy {self.name}: got one without a value head; give it one")
        if not samples:
            return []
        if self.rests:
            hidden = torch.cat(self._read_of(samples))
            is_after = np.concatenate([sample.turn_end[sample.turn_id >= 0] for sample in samples])
            with torch.no_grad():
                return self.forward.value_head(hidden, torch.from_numpy(is_after).to(hidden.device)).tolist()
        self.activate()
        batches = micro_batches(samples, max_tokens=self.max_tokens)
        parts = [
            cast(Tensor, outputs.values).cpu()[batch.turn_id >= 0]
            for batch, outputs in self.infer_each(batches)
        ]
        return torch.cat(parts).tolist()

    def shift_values(self, by: float) -> None:
        """Add `by` to all values: what comparisons of them do not see."""
        head = self.value_head
        assert head is not None, "asked only of a policy with a value head"
        with torch.no_grad():
            head.linear.bias.add_(by)
        self.forward.note_restored()

    def renew_head(self, trajectories: Sequence[Trajectory]) -> None:
        """Let the value head start anew, on what it reads of `trajectories` before turns and after them, standardized.

        The optimizer forgets what it knows. The scales are saved with the head.
        """
        head, read = self.value_head, list[tuple[Tensor, Tensor]]()
        assert head is not None and self.learner is not None, "asked only of a critic that learns"
        hook = head.register_forward_pre_hook(lambda _, read_now: read.append(read_now))
        try:
            self._scores(turn_value_samples(trajectories, max_length=longest_stream(self.model)))
        finally:
            hook.remove()
        head.standardize(
            torch.cat([hidden.float() for hidden, _ in read]), torch.cat([after for _, after in read])
        )
        head.renew(self.head_seed)
        self.learner.note_restored()
        self.learner.restart()

    def _add_turn(self, trajectory: Trajectory) -> Trajectory:
        """Return `trajectory` with a turn of one token after its last, where it was cut and the model has room."""
        if not trajectory.stop.is_cut:
            return trajectory
        room = longest_stream(self.model)
        streams = in_streams(trajectory)
        begins = [place for place in streams if trajectory.turns[place].starts_segment]
        stream = streams[streams.index(begins[-1]) if begins else 0 :]
        turns = [trajectory.turns[place] for place in stream]
        if sum(len(turn.prompt_ids) + len(turn.completion.token_ids) for turn in turns) >= room:
            return trajectory
        following = Completion(token_ids=(0,), logprobs=(), stop="length")
        turn = Turn(seat=turns[-1].seat, observation=(), prompt_ids=(), completion=following, action=Action())
        return replace(trajectory, turns=(*trajectory.turns, turn))

    def _over_tokens(
        self, trajectories: Sequence[Trajectory], number: Callable[[Outputs], Tensor]
    ) -> TokenArrays:
        if not trajectories:
            return []
        batches = micro_batches(imitation_samples(trajectories), max_tokens=self.max_tokens)
        parts = [number(outputs).cpu()[batch.turn_id >= 0] for batch, outputs in self.infer_each(batches)]
        return nest_by_turn(torch.cat(parts).numpy(), trajectories)

    def follow(self, leader: Policy, *, polyak: float | None = None) -> None:
        """Move the weights towards those of `leader`, by the share `polyak` (the policy's own unless given)."""
        share = self.polyak if polyak is None else polyak
        pairs = zip(self._tensors(), leader._tensors(), strict=True)
        if self._read is not None and self._read is leader._read:  # bodies that rest are one
            assert self.value_head is not None and leader.value_head is not None, "critics have heads"
            pairs = zip(self.value_head.parameters(), leader.value_head.parameters(), strict=True)
        with torch.no_grad():
            for own, theirs in pairs:
                own.lerp_(theirs.to(own.device), share) if own.is_floating_point() else own.copy_(theirs)
        self.forward.note_restored()

    def take_body(self, other: Policy) -> None:
        """Take over the weights of `other` but for its value head."""
        own, theirs = self.shared.trained(self.adapter), other.shared.trained(other.adapter)
        with torch.no_grad():
            for mine, its in zip(own.parameters(), theirs.parameters(), strict=True):
                mine.copy_(its)
        self.forward.note_restored()

    def start_over(self) -> None:
        """Go back to the starting weights, with a fresh optimizer; the version goes on.

        Raises:
            ConfigError: the policy is an adapter, whose start is not kept.
        """
        if self.adapter is not None or self.learner is None:
            raise ConfigError(
                f"starting over: got the policy {self.name}, which trains LoRA layers; train all weights"
            )
        self.model.load_state_dict(load(self.start).model.state_dict())
        if (head := self.forward.value_head) is not None:
            fresh = ValueHead.of(self.model.config.hidden_size, find_folder(self.start), seed=self.head_seed)
            head.load_state_dict(fresh.state_dict())
        self.learner.note_restored()
        self.learner.restart()

    def save(self, folder: Path) -> None:
        """Write what training has changed into `folder`."""
        if self.learner is not None:
            self.learner.save(folder)
        elif self.follows:
            save_model(self._module(), str(folder / FOLLOWER))

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote."""
        if self.learner is not None:
            self.learner.load(folder)
        elif self.follows:
            load_modules(folder, [self._module()], FOLLOWER)
            self.forward.note_restored()

    def _module(self) -> nn.Module:
        """Return the model with its value head, as one module."""
        head = self.forward.value_head
        return nn.ModuleList([self.shared.trained(self.adapter), *([] if head is None else [head])])

    def _tensors(self) -> list[Tensor]:
        return [*self._module().parameters(), *self._module().buffers()]


def _key(sample: Sample) -> bytes:
    """Return what tells a stream with its marked places from others."""
    return sample.token_ids.tobytes() + np.flatnonzero(sample.turn_id >= 0).tobytes()


def _places(sample: Sample, marked: NDArray[np.int64], rows: NDArray[np.int64]) -> Sample:
    """Return the `marked` places of `sample` behind a first token that is not trained; they are called by `rows`."""

    def keep(numbers: NDArray[Any], fill: Any) -> NDArray[Any]:
        return np.concatenate([np.full(1, fill, numbers.dtype), numbers[marked]])

    return replace(
        sample,
        token_ids=np.concatenate([np.zeros(1, np.int64), rows]),
        loss_weight=keep(sample.loss_weight, 0.0),
        logprobs=keep(sample.logprobs, 0.0),
        advantages=keep(sample.advantages, 0.0),
        returns=keep(sample.returns, 0.0),
        turn_id=keep(sample.turn_id, -1),
        turn_end=keep(sample.turn_end, False),
        constraints=(),
    )


class Policies(Mapping[str, Policy]):
    """The policies of a run by name."""

    def __init__(self, policies: Mapping[str, Policy]) -> None:
        self._policies = dict(policies)

    def __getitem__(self, name: str) -> Policy:
        """Return the policy `name`.

        Raises:
            UsageError: there is none of that name.
        """
        if name not in self._policies:
            raise UsageError(f"policy: got {name!r}; {suggestion(name, self._policies)}")
        return self._policies[name]

    def __contains__(self, name: object) -> bool:
        """Whether there is a policy of that name."""
        return name in self._policies

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._policies)

    def __len__(self) -> int:
        """Return the number of policies."""
        return len(self._policies)

    @property
    def main(self) -> Policy:
        """The policy that the run is about."""
        return self._policies[MAIN]

    @property
    def acting(self) -> dict[str, Policy]:
        """The policies that have an engine."""
        return {name: policy for name, policy in self._policies.items() if policy.engine is not None}

    @property
    def trained(self) -> dict[str, Policy]:
        """The policies that have an optimizer."""
        return {name: policy for name, policy in self._policies.items() if policy.learner is not None}

    @property
    def engines(self) -> dict[str, Engine]:
        """The engines of the policies that act."""
        return {name: policy.engine for name, policy in self.items() if policy.engine is not None}

    @property
    def learners(self) -> dict[str, Learner]:
        """The learners of the policies that are trained."""
        return {name: policy.learner for name, policy in self.items() if policy.learner is not None}

    def follow(self, leader: str) -> None:
        """Move the policies that follow `leader`."""
        for policy in self._policies.values():
            if policy.follows == leader and policy.polyak:
                policy.follow(self._policies[leader])

    def save(self, folder: Path) -> None:
        """Write what training has changed: the main policy into `folder`, the others below it by name."""
        for name, policy in self._policies.items():
            if policy.learner is None and not policy.follows:
                continue
            place = folder if name == MAIN else folder / name
            place.mkdir(exist_ok=True)
            policy.save(place)

    def load(self, folder: Path) -> None:
        """Take over what `save` wrote."""
        for name, policy in self._policies.items():
            policy.load(folder if name == MAIN else folder / name)


def nest_by_turn(numbers: NDArray[np.floating], trajectories: Sequence[Trajectory]) -> TokenArrays:
    """Return `numbers`, one for each sampled token in order, as [trajectory][turn] → [tokens]."""
    counts = [[len(turn.completion.token_ids) for turn in t.turns] for t in trajectories]
    ends = np.cumsum([sum(turns) for turns in counts])
    chains = np.split(numbers, ends[:-1])
    return [np.split(chain, np.cumsum(turns)[:-1]) for chain, turns in zip(chains, counts, strict=True)]


def flatten_scored(groups: Sequence[Group]) -> list[Trajectory]:
    """Return the trajectories of `groups` that may be trained on."""
    return [trajectory for group in groups for trajectory in group.scored]


def plan_policies(
    config: ModelSection, specs: Mapping[str, PolicySpec]
) -> dict[str, tuple[PolicySpec | None, PolicySettings]]:
    """Return every policy of a run of `config` with what the method and the configuration say of it.

    Raises:
        ConfigError: the configuration names a policy that nothing needs, or a seat has a policy that is not there.
    """
    seated = set(config.seats.values()) - {MAIN}
    unknown = [name for name in config.policies if name not in {*specs, *seated}]
    if unknown:
        needed = sorted({*specs, *seated}) or ["none but policy itself"]
        raise ConfigError(
            f"policies: got {unknown[0]!r}, which neither the method nor a seat asks for; the policies here are "
            f"{', '.join(needed)}"
        )
    known = (MAIN, *specs, *config.policies)
    for seat, name in config.seats.items():
        if name not in known:
            raise ConfigError(
                f"seats.{seat}: got {name!r}, which is no policy of this run; give one of {', '.join(known)}, or say "
                f"what it is with policies.{name}, such as policies.{name}.is_trained"
            )
    plan: dict[str, tuple[PolicySpec | None, PolicySettings]] = {MAIN: (None, config.main_policy())}
    for name in dict.fromkeys((*specs, *sorted(seated))):
        settings = config.policies.get(name) or config.main_policy(is_copy=True)
        if settings.shares and settings.shares not in plan:
            raise ConfigError(
                f"policies.{name}.shares: got {settings.shares!r}; name a policy that comes before it: "
                f"{', '.join(plan)}"
            )
        if settings.past:
            _refuse_past(name, settings, is_needed=name in specs)
            frozen = replace(config.main_policy(is_copy=True), is_trained=False)
            copy = PolicySpec(follows=MAIN, polyak=0.0, acts=True)
            plan |= dict.fromkeys(past_names(name, settings), (copy, frozen))
            continue
        for key in () if settings.past else ("every", "drawn", "swaps"):
            if (given := getattr(settings, key)) != getattr(PolicySettings(), key):
                raise ConfigError(
                    f"policies.{name}.{key}: got {given!r} without past selves; give policies.{name}.past, or leave "
                    "it out"
                )
        plan[name] = (specs.get(name), settings)
        if settings.shares:
            _refuse_sharing(name, plan)
    return plan


def past_names(name: str, settings: PolicySettings) -> list[str]:
    """Return the names of the policies that the past selves `name` are: ``["past-0", "past-1"]``."""
    return [f"{name}-{number}" for number in range(settings.past)]


def _refuse_past(name: str, settings: PolicySettings, *, is_needed: bool) -> None:
    """Raise a `ConfigError` where past selves are to be something else as well."""
    usual = PolicySettings(
        past=settings.past, every=settings.every, drawn=settings.drawn, swaps=settings.swaps
    )
    for each in fields(PolicySettings):
        if (given := getattr(settings, each.name)) != getattr(usual, each.name):
            raise ConfigError(
                f"policies.{name}.{each.name}: got {given!r} with past {settings.past}; past selves are frozen copies "
                f"of {MAIN}, on its machine: leave it out"
            )
    if is_needed:
        raise ConfigError(
            f"policies.{name}.past: got {settings.past} for a policy that the method asks for; give the past selves "
            "another name"
        )


def _refuse_sharing(name: str, plan: Mapping[str, tuple[PolicySpec | None, PolicySettings]]) -> None:
    """Raise a `ConfigError` where policy `name` and the one whose model it shares would train the same weights."""
    _, settings = plan[name]
    if settings.model:
        raise ConfigError(
            f"policies.{name}.model: got {settings.model!r} with shares {settings.shares!r}; give one of the two"
        )
    for each, key in ((name, f"policies.{name}.lora_rank"), (settings.shares, f"policies.{name}.shares")):
        if learns(*plan[each]) and not plan[each][1].lora_rank:
            raise ConfigError(
                f"{key}: got {getattr(settings, key.rpartition('.')[2])!r}, but {each} trains all weights of the model "
                f"that {name} shares; let {each} train LoRA layers, by its lora_rank"
            )


def learns(spec: PolicySpec | None, settings: PolicySettings) -> bool:
    """Return whether a policy is trained: as the configuration says, else as the method does."""
    if settings.is_trained is not None:
        return settings.is_trained
    return spec is None or spec.is_trained


def acts(config: ModelSection, name: str, spec: PolicySpec | None) -> bool:
    """Return whether the policy `name` samples: it plays a seat, or continues episodes."""
    return name in {MAIN, *config.seats.values()} or (spec is not None and spec.acts)


def build_policies(
    config: TrainConfig,
    start: Path,
    specs: Mapping[str, PolicySpec],
    *,
    has_critic: bool,
    make_engine: Callable[[str, Policy], Engine],
    ranks_of: Callable[[str], RankGroup | None] = lambda _: None,
) -> Policies:
    """Return the policies of a run of `config`, whose main policy starts from the model folder `start`.

    Each of them computes in the ranks that `ranks_of` has for its name, or here.

    A policy with `shares` is an adapter on the model of another; one with a model of its own is loaded from there; any
    other begins as a copy of the one that its `PolicySpec` copies (the main policy).
    """
    policies: dict[str, Policy] = {}
    small = [name for name, spec in specs.items() if spec.size or spec.head_width or spec.head_scales]
    if spread := [name for name in small if ranks_of(name) is not None]:
        raise ConfigError(
            f"learner_ranks: got {config.learner_ranks} with the policy {spread[0]}, a small network of its own; "
            "give 0, and no place on a cluster"
        )
    for name, (spec, settings) in plan_policies(config, specs).items():
        has_head = has_critic if spec is None and name == MAIN else spec is not None and spec.head == "value"
        policy = _build(
            name, spec, settings, start, policies, config, has_head, learns(spec, settings), ranks_of(name)
        )
        policies[name] = policy
        if acts(config, name, spec):
            activate = partial(
                policy.shared.activate, policy.adapter
            )  # not policy.activate, which would be a circle
            policy.engine = cast(Engine, Switching(make_engine(name, policy), activate))
    return Policies(policies)


def load_main(model: PreTrainedModel, config: Mapping[str, Any], checkpoint: Path) -> ValueHead | None:
    """Put the main policy's weights of `checkpoint` into `model`, which a run with `config` started from.

    Returns:
        The value head that the checkpoint has beside them; None where it has none.
    """
    shared = SharedModel(model)
    stored = rename(TrainConfig, config, "the run", is_stored=True)
    given = {each.name: stored[each.name] for each in fields(PolicyFields) if each.name in stored}
    settings = build(PolicySettings, given, "the run", is_stored=True)
    rank = settings.lora_rank
    if rank:
        shared.add(MAIN, settings, seed=0)  # what is loaded takes its place
    head = head_in(checkpoint)
    modules = [shared.trained(MAIN if rank else None), *([] if head is None else [head])]
    if any(checkpoint.glob(SHARDS)):
        trained = (each for module in modules for each in module.parameters() if each.requires_grad)
        load_shards(checkpoint, Forward(model, value_head=head).named(trained), optimizer=None)
    else:
        load_modules(checkpoint, modules)
    return head


def _build(
    name: str,
    spec: PolicySpec | None,
    settings: PolicySettings,
    start: Path,
    known: Mapping[str, Policy],
    config: TrainConfig,
    has_head: bool,
    is_trained: bool,
    ranks: RankGroup | None,
) -> Policy:
    """Return the policy `name`, which computes in `ranks` where there are some."""
    source = MAIN if spec is None else spec.copies
    given = settings.model or ("" if spec is None else spec.model)
    place = given or (known[source].start if source in known else str(start))
    shares = settings.shares or (
        source if not is_trained and _is_adapted(known.get(source), settings) else ""
    )
    if shares:
        shared, tokenizer = known[shares].shared, known[shares].tokenizer
    else:
        is_away = ranks is not None and not is_trained and not acts(config, name, spec)
        device = torch.device("cpu") if is_away else find_device(settings.device)
        is_fixed = is_frozen(spec, settings, is_trained)
        loaded = load(place, dtype=storage_dtype(settings.precision, device, is_frozen=is_fixed))
        if spec is not None and spec.size and not settings.model:
            fresh = build_tiny(loaded.tokenizer, size=spec.size, seed=spec.head_seed)
            loaded = replace(loaded, model=fresh)
        if given and spec is not None and MAIN in known and (spec.head == "tokens" or not is_trained):
            _refuse_other_tokens(name, given, loaded.tokenizer, known[MAIN].tokenizer)
        shared, tokenizer = SharedModel(cast(Any, loaded.model).to(device)), loaded.tokenizer
    adapter = name if settings.lora_rank and (is_trained or settings.shares) else None
    if spec is not None and spec.follows and _is_adapted(known.get(spec.follows), settings):
        adapter, settings = name, known[spec.follows].settings
    if adapter is not None:
        shared.add(adapter, settings, config.seed)
    head = None
    if has_head:
        head = ValueHead.of(
            shared.model.config.hidden_size,
            find_folder(place),
            seed=0 if spec is None else spec.head_seed,
            width=0 if spec is None else spec.head_width,
            has_scales=spec is not None and spec.head_scales,
        ).to(shared.model.device)
    if not is_trained and adapter is None and not shared.adapters:
        shared.model.requires_grad_(False).eval()
    activate = partial(shared.activate, adapter)  # also without adapters: another policy may add one later
    learner, folder = None, known[shares].start if shares else place
    optimization = Optimization(temperature=config.temperature, precision=settings.precision)
    sharing = 1 if ranks is None or ranks.count % config.context_ranks else config.context_ranks
    lora = None
    if adapter is not None:
        lora = Lora(
            name=name,
            rank=settings.lora_rank,
            alpha=settings.lora_alpha,
            targets=settings.lora_targets,
            seed=config.seed,
        )
    if is_trained:
        optimization = Optimization(
            learning_rate=settings.learning_rate or config.learning_rate,
            temperature=config.temperature,
            precision=settings.precision,
            optimizer=config.optimizer,
            weight_decay=config.weight_decay,
            max_grad_norm=config.max_grad_norm,
            gradient_checkpointing=config.gradient_checkpointing,
        )
        trained = shared.trained(adapter)
        if ranks is None:
            learner = Learner(
                shared.model, optimization, value_head=head, trained=trained, activate=activate,
                tokenizer=tokenizer,
            )  # fmt: skip
        else:
            learner = ShardedLearner(
                shared.model, optimization, ranks=ranks, name=name, folder=folder,
                value_head=head, trained=trained, lora=lora, activate=activate, context_ranks=sharing,
            )  # fmt: skip
        forward = learner.forward
    elif ranks is None:
        forward = Forward.of(
            shared.model, optimization, value_head=head, activate=activate, tokenizer=tokenizer
        )
    else:
        forward = ShardedForward.of(shared.model, optimization, value_head=head, activate=activate)
        spread = ShardSpec(
            folder=folder,
            optimization=optimization,
            has_value_head=head is not None,
            lora=lora,
            is_trained=False,
            context_ranks=sharing,
            is_frozen=is_frozen(spec, settings, is_trained),
        )
        # A model whose layers are adapted for others stays as in its folder.
        is_base = adapter is None and shared.adapters
        own = [*([] if is_base else [shared.trained(adapter)]), *([] if head is None else [head])]
        forward.place(ranks, name, spread, [weight for module in own for weight in module.parameters()])
    policy = Policy(
        name, shared, adapter, tokenizer, settings,
        forward=forward, learner=learner, start=place,
        follows="" if spec is None else spec.follows, polyak=1.0 if spec is None else spec.polyak,
        head_seed=0 if spec is None else spec.head_seed,
    )  # fmt: skip
    if policy.follows:
        policy.follow(known[policy.follows], polyak=1.0)
    return policy


def is_frozen(spec: PolicySpec | None, settings: PolicySettings, is_trained: bool) -> bool:
    """Whether the weights that a policy is loaded with stay: it learns by LoRA, or neither learns nor follows."""
    if is_trained:
        return settings.lora_rank > 0
    return spec is None or not (spec.follows or spec.size)


def _refuse_other_tokens(
    name: str, model: str, own: PreTrainedTokenizerBase, main: PreTrainedTokenizerBase
) -> None:
    """Raise a `ConfigError` where a policy that reads what another one sampled knows its token ids by other texts."""
    if own.get_vocab() != main.get_vocab():
        raise ConfigError(
            f"policies.{name}.model: got {model}, whose tokenizer is not that of the policy (vocabularies of "
            f"{len(own)} and {len(main)}); give a model with the same tokenizer, or none for a copy"
        )


def _is_adapted(source: Policy | None, settings: PolicySettings) -> bool:
    """Whether a frozen copy of `source` is its model with all adapters switched off."""
    return source is not None and source.adapter is not None and not settings.model
