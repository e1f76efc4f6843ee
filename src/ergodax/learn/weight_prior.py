"""How wide the prior of a network's weights is, where none is given."""

import math

import jax
from jaxtyping import PyTree

from ergodax import network, tree

PRIOR = network.priors.Normal(4.0)  # of the optimiser: sd 1 for the weights of a unit of 16 inputs
LEAST, WIDER = 1.0, 2.0  # sd of the prior of the sampling, and over the optimised weights'


def measured_prior(posterior: network.NetworkPosterior, positions: PyTree) -> network.priors.Normal:
    """A normal prior whose sd is twice the root mean square of optimised weights.

    A prior that is much wider than the weights which a table needs leaves a network of few rows
    free to be anything between them: with sd 4 for every table, predicted sds were up to 50 times
    the target's on 455 rows. One as wide as the optimum would be too narrow, since an optimum is
    nearer to 0 than draws are. Twice was about right for five tables of 277 to 13,903 rows. No
    prior is narrower than one that keeps the variance from layer to layer.

    Args:
        posterior: with the normal prior `PRIOR`, whose log density tells the squares of weights.
        positions: optimised, leading axis members.
    """
    zero = tree.zeros_like(jax.tree.map(lambda w: w[0], positions))
    fall = posterior.prior(zero) - jax.vmap(posterior.prior)(positions).mean()
    root_mean_square = float(PRIOR.scale) * math.sqrt(max(0.0, 2.0 * float(fall) / tree.size(zero)))
    return network.priors.Normal(max(LEAST, WIDER * root_mean_square))
