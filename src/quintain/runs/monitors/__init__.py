"""What is watched in every run: numbers of each step, and alarms over the curve.

`measures` turns the episodes of a step into metrics, `alarms` judges the rows of a curve, `watch` joins both to a run.
An alarm is a pure function of rows that are in the journal, so that a resumed run raises what the uninterrupted one
would have raised.
"""
