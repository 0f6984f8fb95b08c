"""Configuration: a dataclass and its flags, files and help text."""
