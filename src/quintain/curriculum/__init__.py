"""Which task next: numbered streams of tasks, gates on what was learned, schedules.

Everything here is a pure function of the step (and, for gates, of recorded statistics), so a resumed run draws what
the first one would have drawn.
"""

from quintain.curriculum.gates import Gated, Record, is_open, merge, records_of
from quintain.curriculum.schedules import Stages, linear
from quintain.curriculum.streams import Curriculum, Fixed, TaskMixture, TaskSource, TaskStream, draw_held_out

__all__ = [
    "Curriculum",
    "Fixed",
    "Gated",
    "Record",
    "Stages",
    "TaskMixture",
    "TaskSource",
    "TaskStream",
    "draw_held_out",
    "is_open",
    "linear",
    "merge",
    "records_of",
]
