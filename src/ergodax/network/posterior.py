"""The posterior of a network's parameters."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int, PyTree

from ergodax import tree
from ergodax.data.source import Source
from ergodax.network.likelihoods import Likelihood
from ergodax.network.modules import DROPOUT, Network, take_apart
from ergodax.network.priors import ByPath, Normal, Prior, check_prior
from ergodax.target.posterior import Posterior

BLOCK = 1024  # the most rows of which a layer's outputs are in memory at once, on a processor


class Program(eqx.Module):
    """The two densities of a network's posterior."""

    network: Network  # the module as a function of its parameters
    likelihood: Likelihood  # what its outputs mean
    priors: list[Prior]  # of each parameter array, in the order of the leaves

    def log_prior(self, position: dict[str, PyTree]) -> Float[Array, ""]:
        """Of the weights, and of the likelihood's own parameters."""
        leaves = jax.tree.leaves(position["network"])
        dtype = tree.result_dtype(position)
        total = jnp.asarray(self.likelihood.log_prior(position), dtype)
        for prior, leaf, inputs in zip(self.priors, leaves, self.network.inputs, strict=True):
            total = total + prior.log_density(leaf, inputs).astype(dtype)
        return total

    def log_likelihoods(
        self, position: dict[str, PyTree], batch: tuple[PyTree, Array]
    ) -> Float[Array, " n"]:
        """Of each row of a batch."""
        rows, targets = batch
        outputs = self.network(position["network"], rows)
        return self.likelihood.log_density(position, outputs, targets)


class NetworkPosterior(Posterior):
    """What `network.posterior` makes of a module; a position is a dict.

    Args:
        program: its densities.
        data: (inputs, targets), or a source of such pairs.
        start: a position, the module's own parameters.

    Attributes:
        start: a position, the module's own parameters.
    """

    program: Program
    start: dict[str, PyTree]

    def __init__(self, program: Program, data: PyTree, start: dict[str, PyTree]) -> None:
        super().__init__(program.log_prior, program.log_likelihoods, data, batched=True)
        self.program = program
        self.start = start

    def value_and_gradient(self, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
        """U(position) and its gradient; on a processor by blocks of rows, which stay in its cache.

        A layer's outputs for all rows would be written to memory, and read again for the
        derivative. The last block begins early enough to be whole, and counts only what is new.
        """
        n = self.num_data
        if isinstance(self.data, Source) or n <= BLOCK or jax.default_backend() != "cpu":
            return super().value_and_gradient(position)
        count = -(-n // BLOCK)
        size = -(-n // count)

        def block(total: PyTree, number: Int[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
            first = jnp.minimum(number * size, n - size)
            batch = jax.tree.map(lambda x: lax.dynamic_slice_in_dim(x, first, size), self.data)
            new = first + jnp.arange(size) >= number * size

            def minus_log_likelihood(position: PyTree) -> Float[Array, ""]:
                return -jnp.sum(jnp.where(new, self.log_likelihoods(position, batch), 0.0))

            value, gradient = jax.value_and_grad(minus_log_likelihood)(position)
            return tree.add(total, gradient), value

        prior, slope = self.prior_and_gradient(position)
        gradient, values = lax.scan(block, tree.scale(-1.0, slope), jnp.arange(count))
        return jnp.sum(values) - prior, gradient

    def module(self, position: dict[str, PyTree]) -> Any:
        """The module with the parameters of a position, such as one draw."""
        return self.program.network.module(tree.thaw(position)["network"])

    def position(self, module: Any) -> dict[str, PyTree]:
        """The position with the parameters of a module of the same structure.

        Args:
            module: such as one initialised with another key.

        Raises:
            ValueError: another structure or other shapes.
        """
        network = self.program.network
        _, parameters = take_apart(module, network.batched)
        if network.fixed is not None:
            whole = eqx.combine(self.start["network"], network.fixed)
            if jax.tree.structure(whole) == jax.tree.structure(parameters):
                fixed = jax.tree.map(
                    lambda x: x is None, network.fixed, is_leaf=lambda x: x is None
                )
                parameters = eqx.filter(parameters, fixed)
        position = {**self.start, "network": parameters}
        ours, theirs = (jax.tree.map(jnp.shape, p) for p in (self.start, position))
        if jax.tree.structure(self.start) != jax.tree.structure(position) or ours != theirs:
            raise ValueError("module must have the structure and shapes of the posterior's own.")
        return position

    def paths(self) -> list[str]:
        """The path of each parameter array, as `priors.ByPath` matches them."""
        return _paths(self.start["network"])


def posterior(
    module: Any,
    data: PyTree,
    likelihood: Any,
    prior: Any = None,
    *,
    batched: bool | None = None,
    trainable: Any = None,
    compute_dtype: Any = None,
) -> NetworkPosterior:
    """The posterior of the parameters of a network: an Equinox or Flax module, or a function.

    U = -log prior(weights) - sum over rows of log p(y_i | f(x_i; weights)). Parameters are the
    module's floating-point arrays; functions, integer arrays and sizes are structure. A position
    is {"network": parameters}, and "log_noise" where a Gaussian likelihood learns it;
    `start` is the module's own, `module(position)` the module at a draw.

    Args:
        module: an Equinox module called with one row, or, called with a batch, a Flax NNX module,
            a Linen module bound to its variables (`module.bind(variables)`), or a
            `network.Function` of parameters and rows, such as one of Haiku.
        data: (inputs, targets), leading axis N in common; inputs may be a tree. Or a source of
            such pairs, as of ex.data.npy, of which the first rows are checked. A later label that
            is none makes the density NaN.
        likelihood: one of network.likelihoods: Gaussian, Categorical, Bernoulli.
        prior: one of network.priors for all arrays, or ByPath; by default normal with standard
            deviation 1 / sqrt(inputs), and 1 for biases. An array of an Equinox module has its
            outputs first, as in w @ x; of others, last, as in x @ w.
        batched: whether the module takes a whole batch; by default as above.
        trainable: the parameters that are sampled, all others staying as the module has them, such
            as trained weights: a name such as "layers.2", a pattern such as "*.bias" or "*lora*", a
            list of them, or a function of a parameter's name. By default all.
        compute_dtype: of the forward pass and its derivative, such as jnp.bfloat16: weights and
            inputs are rounded to it, outputs are not. The position, the likelihood and the prior
            stay as they are, so that steps smaller than a weight's rounding are not lost. By
            default that of the parameters.

    Returns:
        A Posterior; its mode is the maximum a posteriori network.

    Raises:
        TypeError: not a module, a likelihood, a prior, a pair or a floating-point dtype.
        ValueError: layers with statistics of batches, dropout, targets that do not fit the
            outputs, or a pattern without a match.

    Reference:
        Neal, Bayesian learning for neural networks, 1996.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp
        >>> import ergodax.network as network
        >>> x, y = jnp.ones((8, 3)), jnp.ones(8)
        >>> module = eqx.nn.MLP(3, 1, 16, 1, key=jax.random.key(0))
        >>> posterior = network.posterior(module, (x, y), network.likelihoods.Gaussian(0.1))
        >>> posterior.paths()[0]
        'layers.0.weight'
    """
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            "likelihood must be one of network.likelihoods, such as Gaussian(0.1), not "
            f"{likelihood!r}."
        )
    pair = data.row if isinstance(data, Source) else data
    if not (isinstance(pair, tuple | list) and len(pair) == 2):
        raise TypeError("data must be a pair (inputs, targets), or a source of such pairs.")
    data = data if isinstance(data, Source) else tuple(map(from_lists, data))
    network, parameters = take_apart(module, batched, trainable)
    network = network.computed_in(compute_dtype)
    paths = _paths(parameters)
    if isinstance(prior, ByPath):
        priors = prior.assign(paths)
    else:
        priors = [check_prior(Normal() if prior is None else prior)] * len(paths)
    start = {"network": parameters, **likelihood.start()}
    made = NetworkPosterior(Program(network, likelihood, priors), data, start)
    rows, targets = _first_rows(data) if isinstance(data, Source) else made.data
    _check(made, rows, targets)
    network = network.fitted_to(parameters, rows)
    return NetworkPosterior(Program(network, likelihood, priors), data, start)


def _first_rows(source: Source) -> PyTree:
    return source.as_seen(next(source.scan(min(BLOCK, source.num_rows))))


def _check(posterior: NetworkPosterior, rows: PyTree, targets: Any) -> None:
    outputs = outputs_of(posterior, rows)
    if not hasattr(outputs, "shape") or outputs.shape[:1] != targets.shape[:1]:
        raise ValueError("the module must return one array, an output for each row.")
    posterior.program.likelihood.check(outputs, targets)


def outputs_of(posterior: NetworkPosterior, rows: PyTree) -> Any:
    """Shape and dtype of a network's outputs for some rows.

    Raises:
        ValueError: the module can't be called with such rows, or drops units.
    """
    network = posterior.program.network
    try:
        return jax.eval_shape(network, posterior.start["network"], rows)
    except Exception as error:  # of the user's module, of whatever kind
        if "RngError" in type(error).__name__:  # of Flax, which knows when a Linen module drops
            how = "deterministic=True"
            where = type(network.module(posterior.start["network"])).__name__
            raise ValueError(DROPOUT.format(where=where, how=how)) from error
        if not isinstance(error, TypeError | ValueError):
            raise
        shapes = jax.tree.map(lambda x: x.shape[1:], rows)
        how = "a batch" if network.batched else "one row"
        raise ValueError(
            f"the module can't be called with {how} of inputs of shape {shapes}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def from_lists(values: PyTree) -> PyTree:
    """Numbers in lists, or in lists of lists, as one array; any other tree as it is."""
    leaves = jax.tree.leaves(values) if isinstance(values, list | tuple) else []
    listed = leaves and all(isinstance(x, int | float | np.generic) for x in leaves)
    return np.asarray(values) if listed else values


def with_leading(
    posterior: NetworkPosterior, positions: PyTree
) -> tuple[PyTree, tuple[int, ...] | None]:
    """Positions as samplers hold them, and the axes ahead of the posterior's own.

    None where these differ between the arrays, or structure or shapes are not the posterior's.
    """
    positions, start = tree.freeze(positions, "positions"), tree.freeze(posterior.start)
    if jax.tree.structure(positions) != jax.tree.structure(start):
        return positions, None
    leads = set()
    for x, own in zip(jax.tree.leaves(positions), jax.tree.leaves(start), strict=True):
        ahead = x.ndim - own.ndim
        leads.add(x.shape[:ahead] if ahead >= 0 and x.shape[ahead:] == own.shape else None)
    return positions, leads.pop() if len(leads) == 1 else None


def _paths(parameters: PyTree) -> list[str]:
    leaves = jax.tree_util.tree_leaves_with_path(parameters)
    return [tree.path_name(path) for path, _ in leaves]
