"""The credit laboratory: which idea of credit, and which loss, points to success on a batch of one's own environment.

`quintain lab` and `quintain.lab` run it (`credit.run_lab`); gradients, permutations and the batch stand beside it.
Nothing of training imports it, and it is loaded when it is asked for.
"""
