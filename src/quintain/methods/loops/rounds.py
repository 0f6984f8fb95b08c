"""The loop of rounds: collect with the policy → build a data set of it → train on that offline → evaluate, again.

A step of the run is a round. A round that starts over trains from the starting weights on the data of all rounds so
far, which a resumed run builds again from its journal.
"""

from quintain.data.pipeline import example_samples
from quintain.data.seats import separated
from quintain.methods.loops.recall import recall, remember, tell
from quintain.methods.loops.requirements import begun
from quintain.methods.method import Rounds
from quintain.store.run import Run
from quintain.training.job import Job
from quintain.training.signals import Imitated
from quintain.training.updating import learn_in_epochs
from quintain.types import Example


def train_in_rounds(method: Rounds, job: Job, run: Run) -> None:
    """Train by `method` for ``job.steps`` rounds, continuing where `run` was left."""
    with begun(method.needs, job, run) as context:
        built: list[Example] = []
        if method.starts_over:
            for _, past in recall(run, method.state):
                built += method.build(method.reward(separated(past))).examples
        else:
            remember(run, method.state)
        imitated = Imitated(run, is_on=job.records_signals)
        for step in context.steps():
            groups = method.collect(context.collector, step)
            method.state.update(groups)
            made = method.build(method.reward(separated(groups)))
            data = list(made.examples)
            if method.starts_over:
                context.policies.main.start_over()
                built += data
                data = built
            report = (
                learn_in_epochs(
                    context.policies, example_samples(data), method.update, job,
                    step=step, seed=context.seed("round", step),
                    observe=imitated.watch(data),
                )
                if data
                else None
            )  # fmt: skip
            row = context.measure(
                groups,
                report,
                {**made.funnel.metrics, **method.measure(groups, context.collector.decode)},
            )
            row |= context.serve_weights()
            row |= context.clock()
            row |= context.evaluate(step) if context.is_due(step) else {}
            row |= context.judge(step, row)
            context.record(step, row, imitated.uses() if data else [])
            tell(method.state, step, row)
            if context.is_due(step):
                context.save(step)
            context.show(step, row)
