"""Step sizes and temperatures as functions of the step: constant, polynomial, cyclical, in phases.

A schedule is any function of the step count, so optax's schedules are accepted as they are.
"""

from ergodax.schedule.constant import Constant, as_schedule
from ergodax.schedule.cyclical import Cyclical
from ergodax.schedule.phases import Phases
from ergodax.schedule.polynomial import Polynomial

__all__ = ["Constant", "Cyclical", "Phases", "Polynomial", "as_schedule"]
