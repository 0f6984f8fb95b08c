"""Safety: what keeps the code that agents write away from everything else.

`sandbox.run` carries out one command and `python.PythonProcess` one episode's Python, both inside bubblewrap under a
user id that owns nothing. Where isolation is missing or does not work, nothing runs.
"""
