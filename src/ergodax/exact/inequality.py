"""How far the mean of some rows may lie from the mean of all: three inequalities, and their least.

Of `count` terms drawn without replacement from `num_rows`, with standard deviation `spread`
(divisor `count`) and a range of at most `span` over all rows, the mean lies further than this
from the mean of all on a given side with probability at most delta.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float


class Drawn(NamedTuple):
    """What is known of the terms that were drawn.

    Attributes:
        count: how many.
        num_rows: of how many.
        spread: their standard deviation, with divisor `count`.
        span: no two terms of all rows differ by more.
    """

    count: Any
    num_rows: Any
    spread: Any
    span: Any


def _unseen_share(drawn: Drawn) -> Float[Array, ""]:
    """The factor rho by which the rows that are left reduce the variance."""
    t, n = drawn.count, drawn.num_rows
    return jnp.where(2 * t <= n, 1.0 - (t - 1.0) / n, (1.0 - t / n) * (1.0 + 1.0 / t))


def empirical_bernstein(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """Audibert, Munos and Szepesvari 2009; for independent draws, so for these as well."""
    log = jnp.log(3.0 / delta)
    return drawn.spread * jnp.sqrt(2.0 * log / drawn.count) + 3.0 * drawn.span * log / drawn.count


def bernstein_serfling(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """Bardenet and Maillard 2015."""
    log = jnp.log(5.0 / delta)
    factor = 7.0 / 3.0 + 3.0 / 2.0**0.5
    return (
        drawn.spread * jnp.sqrt(2.0 * _unseen_share(drawn) * log / drawn.count)
        + factor * drawn.span * log / drawn.count
    )


def hoeffding_serfling(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """Serfling 1974; needs no spread, and wins while few rows are seen."""
    return drawn.span * jnp.sqrt(_unseen_share(drawn) * jnp.log(2.0 / delta) / (2.0 * drawn.count))


def serfling(drawn: Drawn, delta: Any) -> Float[Array, ""]:
    """The lesser of the two bounds made for draws without replacement, each at delta / 2."""
    half = delta / 2.0
    return jnp.minimum(bernstein_serfling(drawn, half), hoeffding_serfling(drawn, half))


INEQUALITIES: dict[str, Callable[[Drawn, Any], Float[Array, ""]]] = {
    "serfling": serfling,
    "bernstein-serfling": bernstein_serfling,
    "hoeffding-serfling": hoeffding_serfling,
    "empirical bernstein": empirical_bernstein,
}
