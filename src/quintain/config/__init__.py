"""Configuration: a dataclass and its flags, files, help text and checks.

A configuration class is a frozen dataclass whose fields are the options. A string under a field is its help, and a type
of `quintain.config.ranges` limits its numbers. A field may be another configuration (``policy.device``) or a table of
them by name (``policies.critic.device``); a class attribute ``renamed`` maps old names of options to the new ones,
which errors tell. In what a run has kept they are read, options of ``forgotten`` are left out where the class has them
no longer, and ``rewritten`` says how a value became others. A base with a ``section`` is a section of
its name.
"""

from quintain.config.fields import Option, options, sections
from quintain.config.files import read_file
from quintain.config.values import build, check_ranges, merge, read_flags, rename
from quintain.config.wording import show, words

__all__ = [
    "Option", "build", "check_ranges", "merge", "options", "read_file", "read_flags", "rename", "sections", "show",
    "words",
]  # fmt: skip
