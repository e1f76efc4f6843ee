"""Step sizes, frictions and temperatures of other papers and libraries, in this one's convention.

Here the potential U is that of the whole data, and
    overdamped:  x+ = x - h grad U + N(0, 2 h T)
    underdamped: r+ = r - h grad U - h gamma r + N(0, 2 h T gamma M),   x+ = x + h M^-1 r+
Each `from_...` takes the other side's numbers and returns keyword arguments of `ex.sgld` or
`ex.sghmc`; each `to_...` takes these and returns the other side's numbers. Numbers may be arrays.

Step size, friction and mass are one number too many: (h, gamma, M) and (h / sqrt(M),
gamma sqrt(M), 1) make the same positions from the same noise. Where the other side has no mass,
`from_...` gives the pair that belongs to the `mass` asked for.

Example:
    >>> import ergodax as ex
    >>> from ergodax import convert
    >>> target = ex.targets.gaussian([0.0], [[1.0]])
    >>> kernel = ex.sghmc(ex.FullGradient(target), **convert.from_chen(eta=1e-4, alpha=0.01))
"""

from ergodax.convert.optimiser import (
    from_torch_sgd,
    from_weight_decay,
    from_wenzel,
    to_torch_sgd,
    to_weight_decay,
    to_wenzel,
)
from ergodax.convert.overdamped import (
    from_blackjax_sgld,
    from_posteriors_sgld,
    from_tfp_sgld,
    from_welling_teh,
    to_blackjax_sgld,
    to_posteriors_sgld,
    to_tfp_sgld,
    to_welling_teh,
)
from ergodax.convert.underdamped import (
    from_blackjax_sghmc,
    from_chen,
    from_posteriors_sghmc,
    to_blackjax_sghmc,
    to_chen,
    to_posteriors_sghmc,
    with_unit_mass,
)

__all__ = [
    "from_blackjax_sghmc",
    "from_blackjax_sgld",
    "from_chen",
    "from_posteriors_sghmc",
    "from_posteriors_sgld",
    "from_tfp_sgld",
    "from_torch_sgd",
    "from_weight_decay",
    "from_welling_teh",
    "from_wenzel",
    "to_blackjax_sghmc",
    "to_blackjax_sgld",
    "to_chen",
    "to_posteriors_sghmc",
    "to_posteriors_sgld",
    "to_tfp_sgld",
    "to_torch_sgd",
    "to_weight_decay",
    "to_welling_teh",
    "to_wenzel",
    "with_unit_mass",
]
