"""A learner whose weights, gradients and optimizer lie in several processes (FSDP2), behind the handle of one in ours.

`shard` is what one process, a rank, holds and computes; `host` answers our frames there; `ranks` starts the processes
and asks all of them; `learner` is the `Learner` that a method has. The loss stays with the method: ranks send what
the model says of their tokens, and get back its gradient.
"""
