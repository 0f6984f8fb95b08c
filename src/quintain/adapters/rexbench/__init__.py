"""Extensions of published experiments, by the layout of RExBench: what is asked for, with more or fewer hints."""
