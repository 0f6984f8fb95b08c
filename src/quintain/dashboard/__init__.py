"""What a person looks at after a run: a learning curve and a report that is one file.

It reads the run folder only, and nothing that a model or an environment wrote can act in a browser.
"""
