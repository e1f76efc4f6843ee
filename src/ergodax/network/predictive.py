"""Predictions averaged while a chain runs, so that no weights are kept."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.control_flow import when
from ergodax.data.arrays import as_data, num_rows
from ergodax.kernel import Kernel, check_kernel
from ergodax.network.posterior import NetworkPosterior
from ergodax.network.prediction import Prediction
from ergodax.network.sums import Sums, evaluate, no_draw, together, with_draw


class PredictingState(eqx.Module):
    """The state of the kernel inside, and the averages.

    Attributes:
        inner: the state of the kernel that samples.
        sums: of the predictions.
        counted: draws whose turn could have come: after burn-in, in a sampling stage.
        step: steps taken.
    """

    inner: Any
    sums: Sums
    counted: Int[Array, ""]
    step: Int[Array, ""]

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

    @property
    def infeasible(self) -> str | None:
        """What the kernel inside says of a step that is not feasible."""
        return getattr(self.kernel, "infeasible", None)

    def init(self, key: PRNGKeyArray, position: PyTree) -> PredictingState:
        """The first state; nothing is counted yet."""
        inner = self.kernel.init(key, position)
        shapes = jax.eval_shape(lambda p: self._evaluate(p), inner.position)
        return PredictingState(inner, no_draw(shapes), jnp.int32(0), jnp.int32(0))

    def step(self, key: PRNGKeyArray, state: PredictingState) -> tuple[PredictingState, Any]:
        """A step of the kernel inside; its position predicts if its turn has come."""
        inner, info = self.kernel.step(key, state.inner)
        counts = (state.step >= self.after) & _samples(info)
        counted = state.counted + counts.astype(jnp.int32)
        sums = when(
            counts & (counted % self.every == 0),
            lambda: with_draw(state.sums, self._evaluate(inner.position)),
            lambda: state.sums,
        )
        return PredictingState(inner, sums, counted, state.step + 1), info

    def results(self, samples: Any) -> Prediction:
        """The prediction of a run, all chains together.

        Args:
            samples: what `ex.sample` returned for this kernel, or a final state.
        """
        return together(getattr(samples, "final_state", samples).sums)

    def _evaluate(self, position: PyTree) -> Any:
        return evaluate(self.posterior, tree.thaw(position), self.rows, self.targets)


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
        after: steps that are not counted; the burn-in.
        every: predict with every so many-th draw.

    Returns:
        A kernel; its `results(samples)` is a Prediction.

    Raises:
        TypeError: not a kernel, or not a network's posterior.
        ValueError: a negative `after`, an `every` below 1, or targets that do not fit.

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
        positions: a position with a leading axis on every array.
        rows: inputs to predict for, leading axis n.
        targets: of these rows, to be scored; None where they are not known.

    Raises:
        ValueError: targets that do not fit.
    """
    rows, targets = _checked(posterior, rows, targets)
    return together(_predict(posterior, tree.freeze(positions), rows, targets))


@eqx.filter_jit
def _predict(
    posterior: NetworkPosterior, positions: PyTree, rows: PyTree, targets: Array | None
) -> Sums:
    def evaluated(position: PyTree) -> Any:
        return evaluate(posterior, tree.thaw(position), rows, targets)

    first = jax.tree.map(lambda x: x[0], positions)
    sums = no_draw(jax.eval_shape(evaluated, first))
    sums, _ = lax.scan(lambda s, p: (with_draw(s, evaluated(p)), None), sums, positions)
    return jax.tree.map(lambda x: x[None], sums)


def _checked(posterior: NetworkPosterior, rows: PyTree, targets: Any) -> tuple[PyTree, Any]:
    rows = as_data(rows)
    network = posterior.program.network
    outputs = jax.eval_shape(network, posterior.start["network"], rows)
    if targets is None:
        return rows, None
    targets = as_data(targets)
    if num_rows(targets) != num_rows(rows):
        raise ValueError(f"{num_rows(rows)} rows, but {num_rows(targets)} targets.")
    posterior.program.likelihood.check(outputs, targets)
    return rows, targets
