"""What whoever writes an engine or a method tests it with; an environment is tested by `quintain.check`.

`engines.check_engine` tries every promise of the engine protocol. `episodes` makes recorded episodes of plain numbers,
and `pupil` a tiny model that is taught by hand, with the collector that a method's functions are given in a run.
"""
