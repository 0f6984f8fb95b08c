"""Credit: how much each sampled token mattered, decided before the batch is packed.

One file per idea; every function takes `Sequence[Group]` and returns a `Credit` over the scored trajectories, in
order. Import from the file that holds the idea: ``from quintain.credit.group import group_relative``.

A failure is never a number (it is not in `Group.scored`), statistics name their unit (trajectory, turn or token), and
something that is alone in its group gets advantage exactly 0.
"""
