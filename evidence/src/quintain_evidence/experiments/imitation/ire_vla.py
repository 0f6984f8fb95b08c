"""iRe-VLA: is it the expert's half of every batch that keeps the old task, when what RL found is learned?

A start knows users of `collab` and little of `sums`. Its head learns to add by policy gradients, with the trunk at
rest; what succeeded on the way is D_RL. Then all weights imitate: the method D_e of the old task and D_RL, half and
half, the control as many batches in which D_e is replaced by repeats of D_RL. The number is success on the old task
afterwards. In the null world the new task is another draw of the old one, so that D_RL stands in for D_e.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quintain.credit.group import group_relative
from quintain.data.pack import micro_batches
from quintain.data.pipeline import Pipeline, as_example, example_samples
from quintain.data.samples import samples_from
from quintain.data.stages import keep_solved
from quintain.errors import DataError
from quintain.learning.learner import Learner, Optimization
from quintain.learning.update import resting
from quintain.losses.imitation import imitation
from quintain.losses.policy import clip_ratio
from quintain.methods.imitation.imitation_phase import rehearsal_batch
from quintain.models.families import trunk
from quintain.testing.pupil import MICRO_TOKENS, Pupil, new_pupil, tasks_from
from quintain.types import Example, derive_seed
from quintain.warm_start.start import expert_action


def measure(options: Mapping[str, Any], seed: int) -> Sequence[Mapping[str, float]]:
    """Return success on the old task after both second stages, and what the gates ask for."""
    old, new = str(options["old"]), str(options["new"])
    start, experts = known(old, new, options, seed)
    held_out = int(options.get("held_out", 256))
    tasks = {world: tasks_from(world, held_out, split="eval") for world in (old, new)}
    before = {world: start.success(world, tasks[world], seed=seed) for world in (old, new)}
    found = explored(start, new, options, seed)
    row = {
        "extra.old": before[old],
        "extra.new": before[new],
        "extra.lift": start.success(new, tasks[new], seed=seed) - before[new],
        "extra.old_after_rl": start.success(old, tasks[old], seed=seed),
        "extra.found": float(len(found)),
    }
    for name, base in (("method", experts), ("control", found)):
        pupil = rehearsed(start, base, found, options, seed)
        row[name] = pupil.success(old, tasks[old], seed=seed)
        row[f"extra.new_{name}"] = pupil.success(new, tasks[new], seed=seed)
    if int(options["block"]) < int(options.get("null_blocks", 4)):
        again, shown = known(old, new, options, seed)
        drawn = explored(again, old, options, derive_seed("null", seed) % 1_000_000)
        for name, base in (("null_method", shown), ("null_control", drawn)):
            pupil = rehearsed(again, base, drawn, options, seed)
            row[name] = pupil.success(old, tasks[old], seed=seed)
    return [row]


def known(old: str, new: str, options: Mapping[str, Any], seed: int) -> tuple[Pupil, list[Example]]:
    """Return a pupil that knows the old task well and the new one a little, and the expert's episodes of the old."""
    model = str(options.get("model", "mini?tokens=words"))
    pupil = new_pupil([old, new], seed=derive_seed("ire", seed) % (1 << 31), model=model)
    first = derive_seed(seed, "tasks") % 1_000_000
    experts, few = (
        list(
            map(
                as_example, pupil.show(world, tasks_from(world, count, first=first), expert_action, seed=seed)
            )
        )
        for world, count in ((old, int(options.get("experts", 200))), (new, int(options.get("few", 100))))
    )
    pupil.learn(
        example_samples([*experts, *few]),
        updates=int(options.get("start_updates", 200)),
        rate=float(options.get("start_rate", 2e-3)),
        seed=seed,
    )
    return pupil, experts


def explored(pupil: Pupil, world: str, options: Mapping[str, Any], seed: int) -> list[Example]:
    """Let the head of `pupil` learn in `world` by policy gradients; return the episodes that succeeded on the way."""
    learner = Learner(pupil.model, Optimization(learning_rate=float(options.get("rl_rate", 3e-3))))
    still, found = trunk(pupil.model, int(options.get("head_layers", 1))), list[Example]()
    for update in range(int(options.get("rl_updates", 40))):
        tasks = tasks_from(
            world, int(options.get("rl_tasks", 16)), first=derive_seed(seed, update) % 1_000_000
        )
        groups = pupil.play(
            world, tasks, size=int(options.get("rl_size", 16)), seed=derive_seed(seed, update)
        )
        found += Pipeline(keep_solved())(groups).examples
        samples = [sample for sample in samples_from(group_relative(groups)) if sample.advantages.any()]
        if samples:
            with resting(still):
                learner.step(micro_batches(samples, max_tokens=MICRO_TOKENS), clip_ratio())
    if not found:
        raise DataError(f"exploring {world}: got no episode that succeeded; let the start know more of it")
    return found


def rehearsed(
    start: Pupil, base: Sequence[Example], found: Sequence[Example], options: Mapping[str, Any], seed: int
) -> Pupil:
    """Return a copy of `start` that imitated batches of both, half of each."""
    pupil = start.copy()
    learner = Learner(pupil.model, Optimization(learning_rate=float(options.get("rate", 4e-3))))
    updates, size = int(options.get("updates", 150)), int(options.get("size", 16))
    for update in range(updates):
        batch = rehearsal_batch(base, found, size, update, seed)
        packed = micro_batches(example_samples(batch), max_tokens=MICRO_TOKENS)
        learner.step(packed, imitation(), rate_scale=1 - update / updates)
    return pupil
