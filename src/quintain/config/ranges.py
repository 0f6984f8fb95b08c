"""Types of numbers with limits, for the fields of a configuration.

``steps: PositiveInt = 100`` refuses 0 in files, flags and Python, and its help says "an integer of 1 or more". Other
limits are written as ``Annotated[int, Ge(2)]`` with `annotated_types`. A subclass that declares the field again as a
plain ``int``, for another default, keeps the limits of its base.
"""

from typing import Annotated

from annotated_types import Ge, Gt, Le

PositiveInt = Annotated[int, Ge(1)]
NonNegativeInt = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
PositiveShare = Annotated[float, Gt(0), Le(1)]
