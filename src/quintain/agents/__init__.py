"""Agents: how an observation becomes a prompt and a completion becomes an action.

`protocol` says what an agent is, `harness` holds the four that come with the house. An agent is stateless and
shared; every episode opens its own session.
"""
