"""What an environment is: the protocol, tools, catalogue, workers, mixtures and the conformance suite.

The built-in environments stand in `quintain.worlds`, those of other people in `quintain.adapters`. A wrong action is
the policy's mistake and comes back as text; what the environment itself breaks is an `EnvironmentFault`, never a
reward.
"""
