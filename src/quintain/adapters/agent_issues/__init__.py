"""Issues of real agents, each with a container that runs its test: AgentIssue-Bench. Start at `environment`."""
