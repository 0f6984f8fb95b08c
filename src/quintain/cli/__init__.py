"""The command line: names → methods and rooms. Start at `main`.

The only room that reads argv and the environment. Help and errors come before anything heavy is imported, so each
command imports what it needs when it runs.
"""
