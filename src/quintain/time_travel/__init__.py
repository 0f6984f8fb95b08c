"""Makes steps of a run again from its journal: to verify them, to look at one, to ask which episodes did harm.

A run that resumes bit for bit can be examined bit for bit. Its rule: the run that is looked at is only read.
"""
