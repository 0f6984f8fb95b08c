"""What a method needs beside a model, in plain words, by its values at the defaults."""

from dataclasses import fields

from quintain.methods.find import find_method
from quintain.methods.loops.offline import Offline
from quintain.methods.loops.replay import Replay
from quintain.methods.toolrl.contrast import Contrastive

WORDS = (
    ("expert", "an expert, or its recorded episodes"),
    ("privileged", "what the environment hides"),
    ("snapshots", "snapshots"),
    ("state_keys", "states that can be told apart"),
    ("legal_actions", "legal actions"),
    ("turn_rewards", "rewards of turns"),
    ("answers", "turns that are answers"),
    ("proposals", "what could be asked for"),
    ("tools", "tools"),
    ("critic", "a critic"),
    ("reference", "a frozen copy"),
    ("reward_model", "a reward model"),
)
"""field of `quintain.methods.method.Needs` → how it is called"""
CHOICES = ("choice", "glam", "twosome")
"""Harnesses that choose among legal actions."""


def needs_of(name: str) -> tuple[list[str], bool]:
    """Return what the method `name` needs, and whether a file in the place of an environment is enough.

    Example: ``needs_of("gigpo")`` → ``(["an environment", "states that can be told apart"], False)``.
    """
    found = find_method(name)
    method = found.make(found.config_class())
    needs = method.needs
    is_fed_by_files = isinstance(method, Offline) and needs.environment is not True
    told = [] if is_fed_by_files else ["an environment"]
    if is_fed_by_files and not needs.expert:
        told = ["recorded episodes or pairs"]
    if not needs.legal_actions and str(getattr(found.config_class(), "agent", "")).startswith(CHOICES):
        told.append("legal actions")
    words = dict(WORDS)
    if needs.expert_anywhere:
        words["expert"] = "an expert in every state"
    told += [word for field, word in words.items() if getattr(needs, field)]
    if isinstance(method, Replay):
        told.append("critics of its own" if not needs.critic else "a buffer")
    if isinstance(method, Contrastive):
        told.append("tools with descriptions")
    if needs.policies and "reference" in needs.policies and "a frozen copy" not in told:
        told.append("a frozen copy")
    if "judge" in {field.name for field in fields(found.config_class)}:
        told.append("a judge, if you like")
    return told, is_fed_by_files
