"""What many draws predict together, averaged while a chain runs: no weights are kept."""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import entr, ndtr
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import instance, numbers, whole_number
from ergodax.control_flow import when
from ergodax.data.arrays import as_data, num_rows
from ergodax.kernel import Kernel, check_kernel
from ergodax.network.likelihoods import (
    Bernoulli,
    Categorical,
    HeteroscedasticGaussian,
    Likelihood,
)
from ergodax.network.posterior import NetworkPosterior, from_lists, outputs_of, with_leading
from ergodax.stats.draws import check_unweighted

ONE_TARGET = Bernoulli, Categorical, HeteroscedasticGaussian  # a row's target is one number


@dataclasses.dataclass(frozen=True)
class Prediction:
    """The average over draws of what a network predicts for n rows, as NumPy arrays.

    Attributes:
        count: draws averaged.
        mean: probabilities of the classes, shape (n, classes); the probability of class 1,
            shape (n,); or the mean of the targets, shape (n, ...).
        spread: the variance of `mean`'s summands among draws, same shape: what the weights leave
            open.
        noise: the average variance of a target about a draw's mean, a number, or shape (n,) where
            the likelihood has one for each row; None for classes.
        log_density: the log of the averaged density of each target, shape (n,): what the posterior
            predictive says of it; None without targets.
        draw_log_density: the average of the log densities, never larger; None without targets.
        draw_entropy: the average entropy of a draw's probabilities, shape (n,); None for
            regression.
        below: the predictive probability of a smaller target, shape (n,), uniform where the
            prediction is right; None for classes, vector targets and without targets.
    """

    count: int
    mean: np.ndarray
    spread: np.ndarray
    noise: float | np.ndarray | None
    log_density: np.ndarray | None = None
    draw_log_density: np.ndarray | None = None
    draw_entropy: np.ndarray | None = None
    below: np.ndarray | None = None

    @property
    def variance(self) -> np.ndarray:
        """The variance of a target: spread and noise; for classes, of the indicator."""
        if self.noise is not None:
            return self.spread + self.noise
        return self.mean * (1.0 - self.mean)

    def __getitem__(self, rows: slice | np.ndarray) -> "Prediction":
        """The prediction for some of the rows."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        arrays = {k: v[rows] for k, v in fields.items() if isinstance(v, np.ndarray)}
        return dataclasses.replace(self, **arrays)


class Averages(NamedTuple):
    """What is averaged; a field is None where it means nothing."""

    mean: Float[Array, "n ..."]  # of the outlook
    noise: Float[Array, ""] | Float[Array, " n"] | None  # the variance of a target
    log_density: Float[Array, " n"] | None  # of each target
    entropy: Float[Array, " n"] | None  # of the probabilities
    below: Float[Array, " n"] | None  # the probability of a smaller target


class Sums(NamedTuple):
    """The averages so far."""

    draws: Int[Array, ""]
    average: Averages  # of each quantity
    squares: Float[Array, "n ..."]  # sum of squared deviations of the outlook's mean
    log_density: Float[Array, " n"] | None  # log of the average density of each target


def _evaluate(
    posterior: NetworkPosterior, position: PyTree, rows: PyTree, targets: Array | None
) -> Averages:
    """What one draw predicts."""
    program = posterior.program
    outputs = program.network(position["network"], rows)
    return _averages(program.likelihood, position, outputs, targets)


def _averages(
    likelihood: Likelihood, position: PyTree, outputs: Array, targets: Array | None
) -> Averages:
    """What the outputs at a position predict."""
    mean, noise = likelihood.outlook(position, outputs)
    density = below = entropy = None
    if targets is not None:
        density = likelihood.log_density(position, outputs, targets)
        if noise is not None and mean.ndim == 1:
            apart = targets.reshape(mean.shape).astype(mean.dtype) - mean
            below = ndtr(apart / jnp.sqrt(noise))
    if noise is None:
        entropy = jnp.sum(entr(mean), axis=1) if mean.ndim == 2 else entr(mean) + entr(1.0 - mean)
    return Averages(mean, noise, density, entropy, below)


def _no_draw(shapes: Averages) -> Sums:
    """The sums of no draw yet."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    density = None if zeros.log_density is None else jnp.full_like(zeros.log_density, -jnp.inf)
    return Sums(jnp.int32(0), zeros, jnp.zeros_like(zeros.mean), density)


def _with_draw(sums: Sums, new: Averages) -> Sums:
    """The sums with one draw more (Welford; log-sum-exp for the density)."""
    draws = sums.draws + 1
    share = 1.0 / draws.astype(new.mean.dtype)
    average = jax.tree.map(lambda a, x: a + share.astype(x.dtype) * (x - a), sums.average, new)
    squares = sums.squares + (new.mean - sums.average.mean) * (new.mean - average.mean)
    density = sums.log_density
    if density is not None and new.log_density is not None:
        # log of ((c - 1) old + new) / c
        kept = density + jnp.log1p(-share)
        density = jnp.logaddexp(kept, new.log_density + jnp.log(share))
    return Sums(draws, average, squares, density)


def _together(sums: Sums) -> Prediction:
    """The prediction of all chains, each counted by its draws; `sums` has a chain axis."""
    count = np.asarray(sums.draws, np.float64)
    total = count.sum()
    if total == 0:
        raise ValueError(
            "no draw was counted. Try more steps, a smaller `after` or `every`; of a cyclical "
            "sampler only the sampling stage counts."
        )

    def pooled(values: Any) -> np.ndarray:
        values = np.asarray(values, np.float64)
        return np.tensordot(count / total, values, 1)

    average = jax.tree.map(pooled, sums.average)
    apart = np.asarray(sums.average.mean, np.float64) - average.mean[None]
    between = np.tensordot(count, apart**2, 1)
    squares = np.asarray(sums.squares, np.float64).sum(axis=0)
    density = None
    if sums.log_density is not None:
        chains = np.asarray(sums.log_density, np.float64)
        with np.errstate(divide="ignore"):
            density = np.logaddexp.reduce(chains + np.log(count / total)[:, None], axis=0)
    return Prediction(
        count=int(total),
        mean=average.mean,
        spread=(squares + between) / max(total - 1.0, 1.0),
        noise=average.noise if np.ndim(average.noise) else _number(average.noise),
        log_density=density,
        draw_log_density=average.log_density,
        draw_entropy=average.entropy,
        below=average.below,
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)


class PredictingState(eqx.Module):
    """The state of the kernel inside, and the averages."""

    inner: Any  # the state of the kernel that samples
    sums: Sums  # of the predictions
    counted: Int[Array, ""]  # draws whose turn could have come: after burn-in, in a sampling stage
    step: Int[Array, ""]  # steps taken

    @property
    def position(self) -> PyTree:
        """The position of the kernel inside."""
        return self.inner.position


class Predicting(Kernel):
    """The kernel that `predictive` returns."""

    kernel: Any
    posterior: NetworkPosterior
    rows: PyTree
    targets: Array | None
    after: Int[Array, ""] = eqx.field(converter=jnp.int32)
    every: Int[Array, ""] = eqx.field(converter=jnp.int32)

    def init(self, key: PRNGKeyArray, position: PyTree) -> PredictingState:
        """The first state; nothing is counted yet."""
        inner = self.kernel.init(key, position)
        shapes = jax.eval_shape(lambda p: self._evaluate(p), inner.position)
        return PredictingState(inner, _no_draw(shapes), jnp.int32(0), jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: PredictingState) -> tuple[PredictingState, Any]:
        """A step of the kernel inside; its position predicts if its turn has come."""
        inner, info = self.kernel.step(key, state.inner)
        check_unweighted(info, "network.predictive")
        counts = (state.step >= self.after) & _samples(info)
        counted = state.counted + counts.astype(jnp.int32)
        sums = when(
            counts & (counted % self.every == 0),
            lambda: _with_draw(state.sums, self._evaluate(inner.position)),
            lambda: state.sums,
        )
        return PredictingState(inner, sums, counted, state.step + 1), info

    def results(self, samples: PyTree) -> Prediction:
        """The prediction of a run, all chains together.

        Args:
            samples: what `ex.sample` returned for this kernel, or a final state.
        """
        return _together(getattr(samples, "final_state", samples).sums)

    def _evaluate(self, position: PyTree) -> Any:
        return _evaluate(self.posterior, tree.thaw(position), self.rows, self.targets)


def _samples(info: Any) -> Bool[Array, ""]:
    """Whether a step's position is a draw: not in the exploring stage of a cycle."""
    sampling = getattr(info, "sampling", None)
    return jnp.bool_(True) if sampling is None else sampling


def predictive(
    kernel: Any,
    posterior: Any,
    rows: PyTree,
    targets: Any = None,
    *,
    after: int | np.integer = 0,
    every: int | np.integer = 1,
) -> Predicting:
    """The same sampler, which averages what its draws predict for some rows.

    With `thin` as long as the run no weights are stored: what is kept has the size of one
    prediction. Of a cyclical sampler the sampling stages alone count.

    Args:
        kernel: any kernel on the posterior.
        posterior: of the network, from `network.posterior`.
        rows: inputs to predict for, leading axis n.
        targets: of these rows, to be scored; None where they are not known.
        after: steps that are not counted; those of `ex.sample`'s burn_in never are.
        every: predict with every so many-th draw.

    Returns:
        A kernel; its `results(samples)` is a Prediction.

    Raises:
        TypeError: not a kernel, or not a network's posterior.
        ValueError: a negative `after`, an `every` below 1, or rows or targets that do not fit.

    Example:
        >>> import equinox as eqx, ergodax as ex, jax, jax.numpy as jnp
        >>> import ergodax.network as network
        >>> x, y = jnp.ones((8, 3)), jnp.ones(8)
        >>> module = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
        >>> posterior = network.posterior(module, (x, y), network.likelihoods.Gaussian(0.1))
        >>> inside = ex.sghmc(ex.Minibatch(posterior, 4), 1e-3, 10.0)
        >>> kernel = network.predictive(inside, posterior, x, y, after=10, every=5)
        >>> run = dict(thin=60, key=jax.random.key(1), progress=False)
        >>> samples = ex.sample(kernel, posterior.start, 60, **run)
        >>> kernel.results(samples).count
        10
    """
    if not isinstance(posterior, NetworkPosterior):
        raise TypeError(f"posterior must come from network.posterior, not {posterior!r}.")
    after = whole_number("after", after, at_least=0)
    every = whole_number("every", every)
    rows, targets = _checked(posterior, rows, targets)
    return Predicting(check_kernel(kernel), posterior, rows, targets, after, every)


def predict(
    posterior: NetworkPosterior, positions: PyTree, rows: PyTree, targets: Any = None
) -> Prediction:
    """What positions that are at hand predict together: draws, or the members of an ensemble.

    Args:
        posterior: of the network, from `network.posterior`.
        positions: a position with leading axes on every array, such as those of draws, or of
            chains and draws.
        rows: inputs to predict for, leading axis n.
        targets: of these rows, to be scored; None where they are not known.

    Raises:
        TypeError: positions that are not the posterior's.
        ValueError: positions of another structure, of other shapes or none, and rows or targets
            that do not fit.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp
        >>> import ergodax.network as network
        >>> module = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
        >>> likelihood = network.likelihoods.Gaussian(0.1)
        >>> posterior = network.posterior(module, (jnp.ones((8, 3)), jnp.ones(8)), likelihood)
        >>> members = jax.tree.map(lambda w: jnp.stack([w, 1.1 * w, 1.2 * w]), posterior.start)
        >>> found = network.predict(posterior, members, jnp.ones((5, 3)))  # five new rows
        >>> found.count, found.mean.shape, bool((found.variance > 0.1**2).all())
        (3, (5,), True)
    """
    rows, targets = _checked(posterior, rows, targets)
    if not isinstance(positions, dict) or positions.keys() != posterior.start.keys():
        keys = ", ".join(map(repr, posterior.start))
        raise TypeError(f"positions must be as the posterior's: a dict with the keys {keys}.")
    positions, lead = with_leading(posterior, positions)
    if not lead:
        raise ValueError(
            "positions must have the structure of the posterior's `start`, and its shapes after "
            "leading axes, such as chains and draws, that are the same on every array. Of one "
            "position, try jax.tree.map(lambda x: x[None], position)."
        )
    if 0 in lead:
        raise ValueError(f"there are no positions: their leading axes are {lead}.")
    positions = jax.tree.map(lambda x: x.reshape(-1, *x.shape[len(lead) :]), positions)
    return _together(_predict(posterior, positions, rows, targets))


@eqx.filter_jit
def _predict(
    posterior: NetworkPosterior, positions: PyTree, rows: PyTree, targets: Array | None
) -> Sums:
    def evaluated(position: PyTree) -> Any:
        return _evaluate(posterior, tree.thaw(position), rows, targets)

    first = jax.tree.map(lambda x: x[0], positions)
    sums = _no_draw(jax.eval_shape(evaluated, first))
    sums, _ = lax.scan(lambda s, p: (_with_draw(s, evaluated(p)), None), sums, positions)
    return jax.tree.map(lambda x: x[None], sums)


def predict_from_outputs(chunks: Any, likelihood: Any, targets: Any = None) -> Prediction:
    """What draws predict together whose outputs are at hand, wherever they were computed.

    Args:
        chunks: an iterable of arrays, the outputs of some draws each, shape (draws, n, ...).
        likelihood: of `network.likelihoods`, without parameters of its own.
        targets: to be scored, leading axis n; None where they are not known.

    Raises:
        TypeError: no likelihood, or outputs that are no numbers.
        ValueError: a likelihood that learns parameters, outputs or targets that do not fit, or no
            outputs.

    Example:
        >>> import jax.numpy as jnp, ergodax.network as network
        >>> outputs = [jnp.zeros((5, 3, 2)), jnp.zeros((1, 3, 2))]
        >>> found = network.predict_from_outputs(outputs, network.likelihoods.Categorical())
        >>> found.count, found.mean.shape
        (6, (3, 2))
    """
    instance("likelihood", likelihood, Likelihood, "one of ex.network.likelihoods")
    if likelihood.start():
        raise ValueError(
            f"the likelihood learns {sorted(likelihood.start())}, of which the outputs know "
            "nothing. Give it the number, as in network.likelihoods.Gaussian(0.1)."
        )
    targets = None if targets is None else as_data(from_lists(targets), "targets")
    sums = None
    for chunk in chunks:
        outputs = jnp.asarray(numbers("outputs", chunk))
        if outputs.ndim < 2 or not len(outputs):
            raise ValueError(f"outputs must have shape (draws, n, ...), not {outputs.shape}.")
        one = jax.ShapeDtypeStruct(outputs.shape[1:], outputs.dtype)
        if targets is not None and num_rows(targets) != one.shape[0]:
            raise ValueError(f"{one.shape[0]} rows, but {num_rows(targets)} targets.")
        if targets is not None or isinstance(likelihood, ONE_TARGET):
            likelihood.check(one, np.zeros(one.shape[0]) if targets is None else targets)
        if sums is None:
            sums = _no_draw(jax.eval_shape(lambda x: _averages(likelihood, {}, x, targets), one))
        sums = _add_outputs(sums, likelihood, outputs, targets)
    if sums is None:
        raise ValueError("there are no outputs. Try a longer run, or a smaller burn-in.")
    return _together(jax.tree.map(lambda x: x[None], sums))


@eqx.filter_jit
def _add_outputs(sums: Sums, likelihood: Likelihood, outputs: Array, targets: Any) -> Sums:
    def add(sums: Sums, one: Array) -> tuple[Sums, None]:
        return _with_draw(sums, _averages(likelihood, {}, one, targets)), None

    return lax.scan(add, sums, outputs)[0]


def _checked(posterior: NetworkPosterior, rows: PyTree, targets: Any) -> tuple[PyTree, Any]:
    instance("posterior", posterior, NetworkPosterior, "one of ex.network.posterior")
    rows = as_data(from_lists(rows), "rows")
    outputs = outputs_of(posterior, rows)
    if targets is None:
        return rows, None
    targets = as_data(from_lists(targets), "targets")
    if num_rows(targets) != num_rows(rows):
        raise ValueError(f"{num_rows(rows)} rows, but {num_rows(targets)} targets.")
    posterior.program.likelihood.check(outputs, targets)
    return rows, targets
