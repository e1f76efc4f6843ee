"""SWAG: a Gaussian through the iterates of SGD at a constant rate."""

import contextlib
import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import real_number, whole_number
from ergodax.data.arrays import num_rows
from ergodax.kernel import check_key
from ergodax.network.epochs import Iterate, epoch, epoch_keys, rows_in_memory, start_members
from ergodax.network.posterior import NetworkPosterior

RATE, MOMENTUM = 0.01, 0.9  # of SGD
ONE = optax.sgd(1.0, momentum=MOMENTUM)


@dataclasses.dataclass(frozen=True)
class Swag:
    """A Gaussian for each member, of low rank plus diagonal.

    theta ~ N(mean, diag(v) / 2 + D D^T / (2 (K - 1))).

    Attributes:
        mean: of the iterates, as the posterior's positions; leading axis members.
        diagonal: v, the variance of each number among iterates, shapes as `mean`.
        deviations: D, the last K = `rank` iterates less the mean up to each, in no order; leading
            axes (members, rank).
    """

    mean: PyTree
    diagonal: PyTree
    deviations: PyTree

    def sample(self, key: PRNGKeyArray, num_draws: Any = 30) -> PyTree:
        """Draws of every member, mean + sqrt(v / 2) z1 + D z2 / sqrt(2 (K - 1)).

        Args:
            key: of the normal numbers z1 and z2.
            num_draws: of each member.

        Returns:
            Positions for `network.predict`; leading axis members * num_draws, a member's draws
            next to each other.

        Raises:
            TypeError: no key, or a count that is not an integer.
            ValueError: no draws.
        """
        num_draws = whole_number("num_draws", num_draws)
        mean, variance, deviations = map(tree.freeze, (self.mean, self.diagonal, self.deviations))
        return tree.thaw(_draws(check_key(key), mean, variance, deviations, num_draws))


@eqx.filter_jit
def _draws(
    key: PRNGKeyArray, mean: PyTree, variance: PyTree, deviations: PyTree, num_draws: int
) -> PyTree:
    """Draws of every member, one after another."""
    key_near, key_far = jax.random.split(key)
    members, rank = jax.tree.leaves(deviations)[0].shape[:2]

    def many(x: Array) -> Array:
        return jnp.broadcast_to(x[:, None], (members, num_draws, *x.shape[1:]))

    near = tree.normal_like(key_near, jax.tree.map(many, mean))
    dtype = tree.result_dtype(mean)
    far = tree.normal_like(key_far, jnp.zeros((members, num_draws, rank), dtype))
    far = tree.scale((2 * (rank - 1)) ** -0.5, far)

    def draws(mean: Array, variance: Array, deviations: Array, z: Array) -> Array:
        along = jax.vmap(lambda z, d: jnp.tensordot(z, d, 1))(far.astype(z.dtype), deviations)
        drawn = many(mean) + many(jnp.sqrt(variance / 2)) * z + along
        return drawn.reshape(members * num_draws, *mean.shape[1:])

    return jax.tree.map(draws, mean, variance, deviations, near)


class _Collecting(eqx.Module):
    """Where SGD is, and the moments of where it was; leading axis members."""

    at: Iterate
    count: Int[Array, ""]  # of epochs collected
    mean: PyTree
    squares: PyTree  # sum of squared deviations from the mean
    deviations: PyTree  # a ring of the last ones


def swag(
    posterior: Any,
    positions: PyTree,
    *,
    key: PRNGKeyArray,
    optimiser: Any = None,
    rate: Any = None,
    batch_size: Any = 128,
    epochs: Any = 100,
    rank: Any = 20,
    progress: bool = True,
) -> Swag:
    """Fit a Gaussian to the iterates of SGD from trained weights: a baseline, not the posterior.

    theta <- theta - rate grad U(theta) / N,  mean = sum_t theta_t / T,
    v = sum_t theta_t^2 / T - mean^2.

    U is estimated from batches; theta_t are the weights after epoch t. How wide the Gaussian is
    depends on the optimiser, its rate and the batches, and nothing corrects it: at half the rate it
    is another law. From several starts it is MultiSWAG, a mixture of a Gaussian at each.

    Args:
        posterior: of the network, from `network.posterior`, with its data in memory.
        positions: trained weights, such as `deep_ensemble(...).positions` with its leading axis
            members, or one position without.
        key: of the batches.
        optimiser: of optax, with a constant rate; by default SGD with momentum 0.9.
        rate: the learning rate of this SGD, by default 0.01; not with an `optimiser`. Every problem
            needs its own: compare some by the log density of rows held out.
        batch_size: rows of a batch.
        epochs: T, of which each gives one iterate; at least `rank`. The first ones count.
        rank: K, deviations kept, at least 2; memory is members * rank * weights.
        progress: show a bar.

    Returns:
        A Swag, whose `sample(key, num_draws)` is what `network.predict` takes.

    Raises:
        TypeError: no posterior of a network, no optimiser, or rows that are not in memory.
        ValueError: a number out of range, an optimiser and a rate, or positions that are not the
            posterior's.
        FloatingPointError: an iterate is NaN or infinite.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp
        >>> import ergodax.network as network
        >>> x = jnp.linspace(-1.0, 1.0, 100)[:, None]
        >>> module = eqx.nn.MLP(1, 1, 8, 1, key=jax.random.key(0))
        >>> posterior = network.posterior(
        ...     module, (x, x[:, 0] ** 2), network.likelihoods.Gaussian(0.5))
        >>> found = network.swag(posterior, posterior.start, key=jax.random.key(1), progress=False)
        >>> draws = found.sample(jax.random.key(2), 30)
        >>> network.predict(posterior, draws, x).count
        30

    Reference:
        Maddox, Izmailov, Garipov, Vetrov and Wilson, A simple baseline for Bayesian uncertainty in
        deep learning, 2019; Wilson and Izmailov, Bayesian deep learning and a probabilistic
        perspective of generalization, 2020 (MultiSWAG).
    """
    count = rows_in_memory(posterior, "swag")
    rank = whole_number("rank", rank, at_least=2)
    hint = f"Each epoch gives one of the {rank} deviations that rank={rank} asks for."
    epochs = whole_number("epochs", epochs, at_least=rank, hint=hint)
    size = min(whole_number("batch_size", batch_size), count)
    if optimiser is None:
        optimiser = _Sgd(real_number("rate", RATE if rate is None else rate, above=0.0))
    elif rate is not None:
        raise ValueError("rate is that of the default SGD. Give it to your optimiser instead.")
    key = check_key(key)
    at = start_members(posterior, positions, optimiser)
    zeros = tree.zeros_like(at.position)
    ring = jax.tree.map(lambda x: jnp.zeros((len(x), rank, *x.shape[1:]), x.dtype), zeros)
    now = _Collecting(at, jnp.int32(0), zeros, zeros, ring)
    with contextlib.closing(epoch_keys(epochs, key, show=progress)) as some:
        for keys in some:
            now = _epochs(posterior, optimiser, now, size, keys)
            if not bool(tree.all_finite((now.mean, now.squares))):
                raise FloatingPointError(
                    "SGD went to NaN or infinity. Try a smaller rate (or optimiser's rate), "
                    "standardised inputs and targets, and starts from network.deep_ensemble."
                )
    # Rounding alone makes a sum of squares negative.
    variance = jax.tree.map(lambda x: jnp.maximum(x, 0) / x.dtype.type(epochs), now.squares)
    return Swag(*map(tree.thaw, (now.mean, variance, now.deviations)))


class _Sgd(eqx.Module):
    """SGD with momentum, whose rate is an argument of the program."""

    rate: Float[Array, ""] = eqx.field(converter=lambda x: jnp.asarray(x, float))

    def init(self, position: PyTree) -> PyTree:
        return ONE.init(position)

    def update(self, slope: PyTree, state: PyTree, position: PyTree) -> tuple[PyTree, PyTree]:
        change, state = ONE.update(slope, state, position)
        return tree.scale(self.rate, change), state


@eqx.filter_jit
def _epochs(
    posterior: NetworkPosterior, optimiser: Any, now: _Collecting, size: int, keys: Array
) -> _Collecting:
    """Some epochs of all members, the weights after each collected."""
    used = jnp.arange(num_rows(posterior.data))

    def one(now: _Collecting, key: Array) -> tuple[_Collecting, None]:
        return _collected(now, epoch(posterior, optimiser, now.at, used, size, key)), None

    return lax.scan(one, now, keys)[0]


def _collected(before: _Collecting, at: Iterate) -> _Collecting:
    """With one iterate more.

    Welford's sums: the mean of squares less the square of the mean has no digit left in single
    precision where the spread is a thousandth of the weight.
    """
    count = before.count + 1
    apart = tree.subtract(at.position, before.mean)
    mean = jax.tree.map(lambda m, a: m + a / count.astype(a.dtype), before.mean, apart)
    now_apart = tree.subtract(at.position, mean)
    squares = tree.add(before.squares, tree.multiply(apart, now_apart))

    def put(ring: Array, deviation: Array) -> Array:
        return ring.at[:, before.count % ring.shape[1]].set(deviation)

    ring = jax.tree.map(put, before.deviations, now_apart)
    return _Collecting(at, count, mean, squares, ring)
