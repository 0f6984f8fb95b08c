"""Agents: how an observation becomes a prompt and a completion becomes an action.

`protocol` says what an agent is, `catalog` names them, `harness` holds the basic four and each other file one more. An
agent is stateless and shared; every episode opens its own session.
"""
