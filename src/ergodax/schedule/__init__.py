"""Step sizes and temperatures as functions of the step: constant, polynomial, cyclical.

A schedule is any function of the step count, so optax's schedules are accepted as they are.
"""

from ergodax.schedule.constant import Constant, as_schedule
from ergodax.schedule.cyclical import Cyclical
from ergodax.schedule.polynomial import Polynomial

__all__ = ["Constant", "Cyclical", "Polynomial", "as_schedule"]
