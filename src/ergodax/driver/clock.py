"""How long a chunk is, by what the last one took."""

import time
from typing import Any

SECONDS_TO_A_CHUNK = 0.5  # how often progress is shown and divergence is looked for
FIRST = 64  # steps of the first chunk


class Clock:
    """Times chunks; `steps` is how many make one of about so many seconds.

    Args:
        seconds: of a chunk.

    Attributes:
        rate: steps of each chain a second.
    """

    def __init__(self, seconds: float = SECONDS_TO_A_CHUNK) -> None:
        self.seconds, self.rate = seconds, 0.0

    def steps(self) -> int:
        """How many steps the next chunk should have."""
        return max(1, int(self.rate * self.seconds)) if self.rate else FIRST

    def timing(self, count: int) -> "_Timing":
        """A context in which `count` steps are taken."""
        return _Timing(self, count)


class _Timing:
    def __init__(self, clock: Clock, count: int) -> None:
        self.clock, self.count = clock, count

    def __enter__(self) -> None:
        self.begin = time.perf_counter()

    def __exit__(self, *exception: Any) -> None:
        self.clock.rate = self.count / max(time.perf_counter() - self.begin, 1e-9)
