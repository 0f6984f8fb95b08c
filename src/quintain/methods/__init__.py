"""Methods: one file per published method, in a folder per family; the loops that run them in `loops`.

What a method of your own is made of is here: ``from quintain.methods import GroupConfig, OnPolicy, Update``.
Each name is fetched when it is first used, so that importing this loads nothing heavy.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quintain.learning.train_config import GroupConfig as GroupConfig
    from quintain.learning.train_config import OnPolicyConfig as OnPolicyConfig
    from quintain.learning.train_config import PolicySpec
    from quintain.learning.train_config import SignalsConfig as Config
    from quintain.learning.update import Update
    from quintain.methods.loops.offline import Offline
    from quintain.methods.loops.on_policy import Estimates, OnPolicy
    from quintain.methods.loops.queries import PolicyQueries
    from quintain.methods.loops.replay import CriticUpdate, Replay, ReplayBuffer, UpdateSamples, WatchedCritic
    from quintain.methods.loops.rounds import Rounds
    from quintain.methods.method import CombinedState, Method, Needs, sample_groups, sample_until_mixed

__all__ = [
    "CombinedState",
    "Config",
    "CriticUpdate",
    "Estimates",
    "GroupConfig",
    "Method",
    "Needs",
    "Offline",
    "OnPolicy",
    "OnPolicyConfig",
    "PolicyQueries",
    "PolicySpec",
    "Replay",
    "ReplayBuffer",
    "Rounds",
    "Update",
    "UpdateSamples",
    "WatchedCritic",
    "sample_groups",
    "sample_until_mixed",
]

_HOMES = {
    "Config": "quintain.learning.train_config:SignalsConfig",
    "PolicyQueries": "quintain.methods.loops.queries:PolicyQueries",
    "CriticUpdate": "quintain.methods.loops.replay:CriticUpdate",
    "Estimates": "quintain.methods.loops.on_policy:Estimates",
    "GroupConfig": "quintain.learning.train_config:GroupConfig",
    "UpdateSamples": "quintain.methods.loops.replay:UpdateSamples",
    "Offline": "quintain.methods.loops.offline:Offline",
    "OnPolicy": "quintain.methods.loops.on_policy:OnPolicy",
    "OnPolicyConfig": "quintain.learning.train_config:OnPolicyConfig",
    "PolicySpec": "quintain.learning.train_config:PolicySpec",
    "Replay": "quintain.methods.loops.replay:Replay",
    "ReplayBuffer": "quintain.methods.loops.replay:ReplayBuffer",
    "Rounds": "quintain.methods.loops.rounds:Rounds",
    "Update": "quintain.learning.update:Update",
    "WatchedCritic": "quintain.methods.loops.replay:WatchedCritic",
}
"""Names whose home is not `quintain.methods.method`, or that have another name there."""


def __getattr__(name: str) -> object:
    """Return the public name `name`, importing its home."""
    if name not in __all__:
        raise AttributeError(f"module 'quintain.methods' has no attribute {name!r}")
    module, _, member = _HOMES.get(name, f"quintain.methods.method:{name}").partition(":")
    value = vars(importlib.import_module(module))[member]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
