"""The mode of a posterior, where whitening and control variates are centred."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import instance, real_number, whole_number
from ergodax.data.arrays import num_rows, sum_in_chunks, summed
from ergodax.data.source import Source
from ergodax.kernel import check_key
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior

TOLERANCE = 1e-4
CHUNK = 1024  # rows of a source at a time, so that the intermediate results stay small
GENTLER = 0.9  # than at the start, the slope must be where a search ends
STRAIGHT = 500  # evaluations down a slope that does not become gentler
ROUNDINGS = 32.0  # by which a sum of many terms is off, at most


class Mode(eqx.Module):
    """A minimum of the potential.

    Attributes:
        position: where.
        potential: U there.
        gradient_norm: the Euclidean norm of the gradient there.
        iterations: of the optimiser.
        evaluations: full gradients that they took, those of the line searches included; on a
            posterior each is the gradients of N examples.
        converged: whether the gradient fell below the tolerance.
    """

    position: PyTree
    potential: Float[Array, ""]
    gradient_norm: Float[Array, ""]
    iterations: Int[Array, ""]
    evaluations: Int[Array, ""]
    converged: Bool[Array, ""]


def find_mode(
    target: AbstractTarget,
    position: PyTree,
    *,
    max_iterations: int = 500,
    tolerance: float = TOLERANCE,
    optimiser: Any = None,
    gradient: Any = None,
    steps: Any = 1000,
    key: Any = None,
) -> Mode:
    """Minimise the potential by L-BFGS with full gradients, or by an optimiser of optax on batches.

    L-BFGS is SciPy's and runs on the host, so that the gradient is all there is to compile. Where
    the data are a source, each evaluation is a pass over it: begin near the minimum, such as at the
    mode of `source.subset(10_000)`.

    With `gradient` and `optimiser` the search takes `steps` of optax's algorithm on the estimates
    of grad U / N, which is the gradient of a mean loss, so that the learning rates are those of a
    training loop. One full gradient at the end says how far it came: a constant learning rate ends
    near the mode, one that falls to zero at it.

    Args:
        target: any target.
        position: where to start.
        max_iterations: at most; of L-BFGS.
        tolerance: stop when the gradient's norm has fallen to this fraction of
            1 + sqrt(|U| d), about what single precision can resolve.
        optimiser: an optax.GradientTransformation, such as optax.adam(1e-2).
        gradient: an estimator of grad U, such as ex.Minibatch(target, 100).
        steps: of the optimiser.
        key: of the batches, a key of `jax.random.key`.

    Returns:
        A Mode; look at `converged`, since nothing is raised where it is False.

    Raises:
        TypeError: an optimiser or an estimator that is none, or steps that are not an integer.
        ValueError: one of optimiser, gradient and key without the others.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp, optax
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: 0.0, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> optimiser = optax.sgd(optax.cosine_decay_schedule(0.1, 500))
        >>> batches = dict(gradient=ex.Minibatch(model, 10), steps=500, key=jax.random.key(0))
        >>> mode = ex.find_mode(model, jnp.float32(0.0), optimiser=optimiser, **batches)
        >>> bool(abs(mode.position - 1.0) < 0.1)
        True
    """
    instance("target", target, AbstractTarget, "an ex.Target or ex.Posterior")
    max_iterations = whole_number("max_iterations", max_iterations)
    tolerance = real_number("tolerance", tolerance, above=0.0)
    position = target.freeze(position)
    target.check(position)
    whole: Any = target
    streamed = isinstance(getattr(target, "data", None), Source)
    once = _in_one_pass if streamed else potential_and_gradient
    function = lambda x: once(whole, x)  # noqa: E731
    if optimiser is None and gradient is None:
        return _searched(function, position, max_iterations, tolerance)
    _check_search(optimiser, gradient, key)
    count = jnp.int32(whole_number("steps", steps))
    x, cost = _descend(optimiser, gradient, position, count, check_key(key))
    value, slope = function(x)
    norm = tree.norm(slope)
    cost = jnp.ceil(cost).astype(jnp.int32) + 1
    converged = jnp.isfinite(value) & (norm <= enough(tolerance, position)(value))
    return Mode(tree.thaw(x), value, norm, count, cost, converged)


@eqx.filter_jit
def potential_and_gradient(
    target: AbstractTarget, position: PyTree
) -> tuple[Float[Array, ""], PyTree]:
    """U and its gradient at a frozen position: the one program of all searches on the host."""
    return target.value_and_gradient(position)


def _searched(
    function: Callable[[PyTree], tuple[Any, PyTree]],
    position: PyTree,
    max_iterations: int,
    tolerance: float,
) -> Mode:
    """By SciPy's L-BFGS; the function gives U and its gradient at a frozen position."""
    flat, unravel = tree.ravel(position)
    place = lambda x: unravel(jnp.asarray(x, flat.dtype))  # noqa: E731

    def on_host(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = function(place(x))
        return float(value), np.asarray(tree.ravel(gradient)[0], np.float64)

    found = minimise(
        on_host,
        np.asarray(flat, np.float64),
        enough(tolerance, position),
        max_iterations,
        float(jnp.finfo(flat.dtype).eps),
    )
    number = lambda x: jnp.asarray(x, tree.result_dtype(position))  # noqa: E731
    return Mode(
        tree.thaw(place(found.position)),
        number(found.potential),
        number(found.gradient_norm),
        jnp.int32(found.iterations),
        jnp.int32(found.evaluations),
        jnp.array(found.converged),
    )


def _check_search(optimiser: Any, gradient: Any, key: Any) -> None:
    given = {"optimiser": optimiser, "gradient": gradient, "key": key}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ValueError(
            f"a search by batches needs {' and '.join(missing)} as well. Try optimiser="
            "optax.adam(1e-2), gradient=ex.Minibatch(posterior, 100), key=jax.random.key(0)."
        )
    if not (hasattr(optimiser, "init") and hasattr(optimiser, "update")):
        raise TypeError(
            f"optimiser must be one of optax, such as optax.adam(1e-2), not {optimiser!r}."
        )
    if not (hasattr(gradient, "init") and hasattr(gradient, "estimate")):
        raise TypeError(
            f"gradient must be an estimator such as ex.Minibatch(posterior, 100), not {gradient!r}."
        )


@eqx.filter_jit
def _descend(
    optimiser: Any,
    gradient: Any,
    position: PyTree,
    steps: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[PyTree, Float[Array, ""]]:
    """Where the optimiser comes to, and its cost in passes over the data."""
    from optax import apply_updates

    num_data = getattr(gradient.target, "num_data", 1)

    def improve(t: Int[Array, ""], carry: tuple[Any, ...]) -> tuple[Any, ...]:
        x, state, batches, cost = carry
        found, batches = gradient.estimate(jax.random.fold_in(key, t), batches, x)
        mean = tree.scale(1.0 / num_data, found.gradient)
        updates, state = optimiser.update(mean, state, x)
        x = jax.tree.map(lambda old, new: new.astype(old.dtype), x, apply_updates(x, updates))
        return x, state, batches, cost + found.evaluations / num_data

    # It mixes dtypes, which strict promotion would refuse.
    with jax.numpy_dtype_promotion("standard"):
        begin = (position, optimiser.init(position), gradient.init(key, position), jnp.zeros(()))
        x, _, _, cost = lax.fori_loop(jnp.int32(0), steps, improve, begin)
    return x, cost


def enough(tolerance: float | Float[Array, ""], position: PyTree) -> Callable[[Any], Any]:
    """The norm of the gradient that will do, as a function of the potential."""
    size = tree.size(position)
    return lambda value: tolerance * (1.0 + (abs(value) * size) ** 0.5)


def _in_one_pass(posterior: Posterior, position: PyTree) -> tuple[Float[Array, ""], PyTree]:
    """U and its gradient of a posterior whose data are a source."""
    value, score = summed(posterior.data, lambda rows: _sums(posterior, position, rows))
    prior, slope = eqx.filter_jit(posterior.prior_and_gradient)(position)
    return -prior - value, jax.tree.map(lambda p, s: -p - s, slope, score)


@eqx.filter_jit
def _sums(posterior: Posterior, position: PyTree, rows: PyTree) -> tuple[Array, PyTree]:
    def of(batch: PyTree) -> tuple[Array, PyTree]:
        return jax.value_and_grad(lambda x: jnp.sum(posterior.log_likelihoods(x, batch)))(position)

    seen = posterior.data.as_seen(rows)
    return sum_in_chunks(of, seen, num_rows(seen), CHUNK)


class Minimum(NamedTuple):
    """Where a search ended: of the points seen the lowest, or the first that is flat enough."""

    position: Float[np.ndarray, " d"]
    potential: float
    gradient_norm: float
    iterations: int
    evaluations: int
    converged: bool


class _Enough(Exception):
    """The gradient is small enough, the time is up, or there is no way on."""


def minimise(
    function: Callable[[np.ndarray], tuple[float, np.ndarray]],
    start: Float[np.ndarray, " d"],
    enough: Callable[[Any], Any],
    max_iterations: int,
    rounding: float = 0.0,
    hessian: Callable[[np.ndarray], np.ndarray] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Minimum:
    """Minimise a potential by SciPy's L-BFGS, or with its Hessian by Newton's method.

    It ends with the lowest point so far where `stop` says so.

    Newton's steps are kept within a trust region, and may lead over places where the potential is
    not convex.

    Near the minimum the potential changes by less than it is rounded, and a line search that
    compares values would end on a slope. There the change from the lowest point so far is taken
    from the gradients, by the trapezoidal rule.
    """
    best, slope_there = Minimum(start, np.inf, np.inf, 0, 0, False), np.zeros_like(start)
    iterations = evaluations = 0
    first = np.inf  # the norm of the gradient at the start

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal best, slope_there, evaluations, first
        value, slope = function(x)
        evaluations += 1
        norm = float(np.linalg.norm(slope))
        # Down a slope without an end `enough` grows with the potential.
        gentler = norm < GENTLER * first
        flat = bool(np.isfinite(value) and norm <= enough(value) and gentler)
        first = min(first, norm) if evaluations == 1 else first
        change = 0.5 * float((slope + slope_there) @ (x - best.position))
        if abs(change) < ROUNDINGS * rounding * abs(best.potential) < np.inf:
            value = best.potential + change
        if flat or value < best.potential:
            best = Minimum(x.copy(), value, norm, iterations, evaluations, flat)
            slope_there = slope
        endless = evaluations > STRAIGHT and not gentler
        if flat or endless or (stop is not None and stop()):
            raise _Enough
        return value, slope

    def bend(x: np.ndarray) -> np.ndarray:
        assert hessian is not None
        found = hessian(x)
        if not np.isfinite(found).all():
            raise _Enough  # there is no way on
        return found

    def count(x: np.ndarray) -> None:
        nonlocal iterations
        iterations += 1

    options = {"maxiter": max_iterations, "gtol": 0.0}
    settings: dict[str, Any] = {"jac": True, "options": options}
    if hessian is None:
        settings |= {"method": "L-BFGS-B", "options": options | {"ftol": 0.0}}
    else:
        settings |= {"method": "trust-exact", "hess": bend}
    try:
        with np.errstate(all="ignore"):  # of line searches that leave the finite numbers
            scipy.optimize.minimize(evaluate, start, callback=count, **settings)
    except _Enough:
        pass
    return best._replace(iterations=iterations, evaluations=evaluations)
