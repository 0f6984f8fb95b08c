"""AgentDojo (arXiv 2406.13352): tool use in simulated workplaces, with and without planted instructions.

Start at `environment`.
"""
