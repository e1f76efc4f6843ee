"""How the time of an inference is shared out: every stage has a deadline, at which it is cut."""

import dataclasses
import time

NEVER = 1e9  # seconds
ANEW = 0.3  # of the whole, that must be left for a second inference


@dataclasses.dataclass(frozen=True, order=True)
class Deadline:
    """An instant of `time.perf_counter`, by which something shall be done."""

    instant: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """So many seconds from now."""
        return cls(time.perf_counter() + min(seconds, NEVER))

    @classmethod
    def never(cls) -> "Deadline":
        """None that is ever felt."""
        return cls.after(NEVER)

    def left(self) -> float:
        """Seconds until then; 0 when it is over."""
        return max(0.0, self.instant - time.perf_counter())

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return not self.left()

    def share(self, part: float) -> "Deadline":
        """An earlier one, after this part of the time that is left."""
        return Deadline.after(part * self.left())

    def is_enough_for_another(self, max_seconds: float) -> bool:
        """Whether so much of the whole is left that a second inference has time."""
        return self.left() > ANEW * min(max_seconds, NEVER)
