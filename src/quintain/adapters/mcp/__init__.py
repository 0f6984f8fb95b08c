"""The tools of any MCP server as an environment; the user brings the tasks and the grader.

Start at `environment`.
"""
