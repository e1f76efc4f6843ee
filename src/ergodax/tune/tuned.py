"""What tuning ends with: a kernel that is ready to sample."""

import dataclasses
from typing import Any

from jaxtyping import Array, Float

from ergodax.diagnostics.bias import BiasReport
from ergodax.tune.coordinates import Coordinates


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A kernel that is ready to sample.

    Attributes:
        kernel: in the coordinates u.
        coordinates: the map to positions.
        starts: u of each chain, leading axis chains.
        bias: of the kernel's step, or None where it has none.
        thin: steps to a draw.
        burn_in: steps before the first draw.
    """

    kernel: Any
    coordinates: Coordinates
    starts: Float[Array, "chains d"]
    bias: BiasReport | None
    thin: int
    burn_in: int
