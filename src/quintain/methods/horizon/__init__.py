"""Long tasks: memory, plans, and what is told of earlier tasks."""
