"""Servers: our environments over the OpenEnv and AgentGym protocols."""
