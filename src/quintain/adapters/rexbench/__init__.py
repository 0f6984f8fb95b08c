"""Extensions of published experiments, by the layout of RExBench, run and judged. Start at `environment`."""
