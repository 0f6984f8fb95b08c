"""What a person looks at after a run: a learning curve and a report that is one file.

The one rule: it reads the run folder only, and nothing that a model or an environment wrote can act in a
browser.
"""
