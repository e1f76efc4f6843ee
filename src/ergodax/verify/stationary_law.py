"""The exact stationary law of a kernel: by linear algebra, or on a grid. Nothing is sampled."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple, cast, overload

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import whole_number
from ergodax.graph import traced
from ergodax.kernel import Kernel, State, check_kernel, freeze
from ergodax.verify.equation import double
from ergodax.verify.grid import Axis, as_grid, mesh
from ergodax.verify.transition import TransitionLaw, leading_weights

Vector = Float[Array, " n"]
Rows = Mapping[str, Int[np.ndarray, " rows"]]
Weights = Float[np.ndarray, "*cells"]
Move = Callable[[Weights], Weights]

AFFINE = 1e-9  # relative error at which a step still counts as affine
# Steps further on, each under another key, at which a step is compared with what was read off it.
AHEAD = (0, 0, 1, 100)


class AffineStep(NamedTuple):
    """A step x+ = A x + b + N(0, S) of n numbers.

    Attributes:
        matrix: A, shape (n, n).
        covariance: S, shape (n, n).
        shift: b, shape (n,), or a number.
        noise: B with B B^T = S, shape (n, m), by which the m normal numbers of a kernel's step
            enter; None where only S is known.
        rows: which of the n numbers belong to which variable, by its name.
    """

    matrix: Float[np.ndarray, "n n"]
    covariance: Float[np.ndarray, "n n"]
    shift: Float[np.ndarray, " n"] | float = 0.0
    noise: Float[np.ndarray, "n m"] | None = None
    rows: Rows = {}

    @property
    def radius(self) -> float:
        """The spectral radius of A; the chain has a stationary law where it is below 1."""
        return float(np.abs(np.linalg.eigvals(self.matrix)).max())


class GaussianLaw(NamedTuple):
    """A normal law of n numbers.

    Attributes:
        mean: shape (n,).
        covariance: shape (n, n).
        rows: which of the numbers belong to which variable, by its name.
    """

    mean: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    rows: Rows

    def cov(self, a: str = "position", b: str | None = None) -> Float[np.ndarray, "k l"]:
        """The covariance of variable `a` with variable `b`, or with itself."""
        return self.covariance[np.ix_(self.rows[a], self.rows[b or a])]


@overload
def stationary_law(step: Kernel | AffineStep, position: PyTree = None) -> GaussianLaw: ...


@overload
def stationary_law(
    step: Kernel | Move,
    position: PyTree = None,
    *,
    grid: Axis | Sequence[Axis],
    num_nodes: int = 10,
    order: int = 8,
    guess: Weights | None = None,
    lost: float = 1e-5,
) -> TransitionLaw: ...


def stationary_law(
    step: Any,
    position: PyTree = None,
    *,
    grid: Axis | Sequence[Axis] | None = None,
    num_nodes: int = 10,
    order: int = 8,
    guess: Weights | None = None,
    lost: float = 1e-5,
) -> GaussianLaw | TransitionLaw:
    """The law that a chain settles in, to rounding or to the resolution of a grid.

    Without `grid` the step must be affine, x+ = A x + B xi + b with xi ~ N(0, I), as that of most
    schemes on a Gaussian target is. A, B and b are read off the kernel's own step by
    differentiating it; then the law is N(m, S) with

        S = A S A^T + B B^T (the discrete Lyapunov equation),      m = (I - A)^-1 b.

    With `grid` the step may be any, of one or two numbers. It maps each point z_i of the grid and
    each node xi_k of a Gauss-Hermite rule to a new point, where Lagrange's interpolation gives
    the transition matrix

        (P f)(z_i) = sum over k of w_k f(step(z_i, xi_k)),         law P = law.

    Means of smooth functions have the error of the interpolation, of the given order in the width
    of the cells; the weights of single cells are those of a quadrature, and less smooth.

    The numbers of a state are its position, then its auxiliary variables by name; without a grid
    also the gradient that a step keeps for the next one. The kernel must draw all its random
    numbers with `ex.normal_like`, outside of loops, and its step size must not change.

    Args:
        step: a kernel; or an AffineStep, for known A, b and S; or, on a grid, a function from the
            probabilities of its cells to those a step later.
        position: one position, for a kernel: its structure and shapes.
        grid: one or two axes (any number for a function); must hold the mass.
        num_nodes: of the Gauss-Hermite rule for each normal number of a step.
        order: points of an interpolation along each axis.
        guess: probabilities of the cells that the search begins with, shape of the grid.
        lost: the most mass that may leave the grid in a step.

    Returns:
        A `GaussianLaw` with `mean`, `covariance` and `cov("position")`; on a grid a
        `TransitionLaw` with `weights`, `stationary()`, `mean(function)` and `evolve`.

    Raises:
        TypeError: not a kernel, an AffineStep or a function, or a grid that is none.
        ValueError: a step that is not affine; one that draws other random numbers, draws them in a
            loop, or changes along the chain; a chain that is unstable; a grid that does not fit
            the state or loses mass.

    Reference:
        Leimkuhler and Matthews, Molecular Dynamics, 2015, chapter 7, for the laws of schemes on
        Gaussian targets.

    Example:
        The bias of SGLD on N(0, 1) and on a double well.

        >>> import ergodax as ex, numpy as np
        >>> kernel = ex.sgld(ex.FullGradient(ex.targets.gaussian(np.zeros(1), 1.0)), 0.5)
        >>> law = ex.verify.stationary_law(kernel, np.zeros(1))
        >>> print(law.mean, law.cov().round(6))  # 1 / (1 - h / 2)
        [0.] [[1.333333]]
        >>> well = ex.sgld(ex.FullGradient(ex.targets.double_well(0.25)), 0.05)
        >>> law = ex.verify.stationary_law(well, np.zeros(1), grid=ex.verify.Axis(-3.5, 3.5, 100))
        >>> round(law.mean(lambda x: x[0] ** 2), 3)  # 1.042 as h -> 0
        1.03
    """
    if isinstance(step, AffineStep):
        return _of_affine(step)
    if isinstance(step, Kernel):
        if position is None:
            raise ValueError("position is missing: give one, such as jnp.zeros(2).")
        if grid is None:
            return _of_affine(_read_off(step, position, lasting=True))
        return _on_grid(step, position, as_grid(grid), num_nodes, order, guess, lost)
    if not callable(step):
        raise TypeError(f"step must be a kernel, an AffineStep or a function, not {step!r}.")
    if grid is None:
        raise ValueError("grid is missing: a function moves the probabilities of its cells.")
    axes, move = as_grid(grid), cast(Move, step)
    weights, gone = leading_weights(move, _first_guess(axes, guess))
    return _kept(TransitionLaw(axes, move, weights, gone), lost)


def affine_step(kernel: Kernel, position: PyTree) -> AffineStep:
    """Read A, B and b off a step x+ = A x + B xi + b of a kernel.

    Args:
        kernel: that draws its normal numbers with `ex.normal_like`.
        position: one position, for its structure and shapes.

    Returns:
        An `AffineStep`, whose rows are named "position", as the auxiliary variables, and
        "gradient" where a step keeps one for the next.

    Raises:
        ValueError: the step is not affine, or draws other random numbers or in a loop.

    Example:
        The letter O of BAOAB, r+ = exp(-h) r + noise.

        >>> import ergodax as ex, numpy as np
        >>> free = ex.FullGradient(ex.Target(lambda x: 0.0 * x @ x))
        >>> step = ex.verify.affine_step(ex.langevin(free, 0.1), np.zeros(1))
        >>> r = step.rows["momentum"]
        >>> round(step.matrix[r, r].item(), 6)
        0.904837
    """
    return _read_off(check_kernel(kernel), position, lasting=False)


def _read_off(kernel: Kernel, position: PyTree, *, lasting: bool) -> AffineStep:
    """The affine step of a kernel; a lasting one is the same at every step."""
    with jax.enable_x64(True):
        found = jax.tree.map(np.asarray, _derivatives(kernel, double(freeze(kernel, position))))
    matrix, noise, shift, errors, carried, scale, places = found
    errors, most = np.abs(errors).max(axis=1, initial=0.0), AFFINE * max(1.0, scale)
    now = np.equal(AHEAD, 0)
    if not errors[now].max() <= most:
        raise ValueError(
            "the step is not affine in its state and its normal numbers, or draws other random "
            f"numbers: it is off by {errors[now].max():.1e}. In one or two dimensions try grid=."
        )
    if lasting and not max(errors.max(), carried.max()) <= most:
        raise ValueError(CHANGING)
    rows = {name: tree.ravel(place)[0].astype(int) for name, place in places.items()}
    rows = {name: np.asarray(row) for name, row in rows.items()}
    return AffineStep(matrix, noise @ noise.T, shift, noise, rows)


CHANGING = (
    "the step changes along the chain: with the number of steps, as a schedule does, or with what "
    "the gradient's estimator keeps. Try constant settings."
)


class DealtStep:
    """A step as a plain function of its key, its numbers, and the normal numbers that it draws.

    Args:
        kernel: that draws its normal numbers with `ex.normal_like`.
        position: one position.
        kept: whether the gradient that a step keeps for the next is among the numbers; if not, it
            is the exact one, of normal numbers that are zero.
    """

    def __init__(self, kernel: Kernel, position: PyTree, *, kept: bool) -> None:
        self.kernel, self.kept = kernel, kept
        self.state = self.begun(position)
        self.numbers, self.unravel = tree.ravel(self.variables(self.state))
        self.step, self.count = _dealing(kernel.step, jax.random.key(0), self.state)

    def begun(self, position: PyTree) -> State:
        """The state at a position, of normal numbers that are zero."""
        begin, count = _dealing(self.kernel.init, jax.random.key(0), position)
        dtype = tree.result_dtype(position)
        return begin(jnp.zeros(count, dtype), jax.random.key(0), position)

    def variables(self, state: State) -> tuple[PyTree, ...]:
        """Position, auxiliary variables, and the gradient that is kept."""
        gradient = () if state.estimate is None or not self.kept else state.estimate.gradient
        return state.position, state.auxiliary, gradient

    def placed(self, z: Vector) -> State:
        """The state with these numbers."""
        position, auxiliary, gradient = self.unravel(z)
        state = self.state if self.kept else self.begun(position)
        estimate = state.estimate
        if self.kept and estimate is not None:
            estimate = eqx.tree_at(lambda e: e.gradient, estimate, gradient)
        return State(position, auxiliary, state.gradient, estimate, state.step)

    def __call__(self, key: PRNGKeyArray, z: Vector, normal: Float[Array, " m"]) -> Vector:
        """The numbers after a step."""
        return tree.ravel(self.variables(self.step(normal, key, self.placed(z))[0]))[0]

    def later(
        self, key: PRNGKeyArray, z: Vector, normal: Float[Array, " m"], ahead: Int[Array, ""]
    ) -> tuple[Vector, State, Float[Array, ""]]:
        """The numbers and the state after a later step, and how far its estimator's state moved."""
        state = self.placed(z)
        state = eqx.tree_at(lambda s: s.step, state, state.step + ahead)
        new = self.step(normal, key, state)[0]
        kept = [eqx.filter(s.gradient, eqx.is_inexact_array) for s in (new, state)]
        apart = jax.tree.map(lambda a, b: jnp.max(jnp.abs(a - b)), *kept)
        moved = jnp.max(jnp.stack([jnp.zeros((), z.dtype), *jax.tree.leaves(apart)]))
        return tree.ravel(self.variables(new))[0], new, moved

    def places(self) -> dict[str, PyTree]:
        """Where in the numbers each variable is, by name."""
        at = jnp.arange(self.numbers.size, dtype=self.numbers.dtype)
        position, auxiliary, gradient = self.unravel(at)
        kept = {} if self.state.estimate is None or not self.kept else {"gradient": gradient}
        return {"position": position, **auxiliary, **kept}


def _dealing(function: Callable[..., Any], *arguments: Any) -> tuple[Callable[..., Any], int]:
    """`function` with its normal numbers as a first argument, and how many it draws."""
    with tree.recorded_normals() as drawn:
        graph = jax.make_jaxpr(function)(*arguments)
    if _draws_in_a_loop(graph.jaxpr, inside=False):
        raise ValueError("step draws random numbers in a loop: they can't be told apart.")
    zeros = [jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like) for like in drawn]
    flat, unravel = tree.ravel(zeros)

    def call(normal: Float[Array, " m"], *arguments: Any) -> Any:
        with tree.given_normals(unravel(normal)):
            return function(*arguments)

    return call, flat.size


def _draws_in_a_loop(graph: Any, *, inside: bool) -> bool:
    for equation in graph.eqns:
        if inside and equation.primitive.name == "random_bits":
            return True
        within = inside or equation.primitive.name in ("scan", "while")
        for value in equation.params.values():
            for one in value if isinstance(value, (tuple, list)) else (value,):
                inner = getattr(one, "jaxpr", one)
                if hasattr(inner, "eqns") and _draws_in_a_loop(inner, inside=within):
                    return True
    return False


@eqx.filter_jit
def _derivatives(kernel: Kernel, position: PyTree) -> tuple[Any, ...]:
    """A, B, b; what they miss and the estimator carries on at `AHEAD`; the scale; the places.

    The step is compiled once, with its derivative, and mapped over rows: from the origin along each
    number, and at points elsewhere.
    """
    step = DealtStep(kernel, position, kept=True)
    n, size, rest = step.numbers.size, step.numbers.size + step.count, len(AHEAD)
    elsewhere = np.random.default_rng(1).normal(size=(rest, size))
    points = jnp.asarray(np.concatenate([np.zeros((size, size)), elsewhere]), step.numbers.dtype)
    ways = jnp.eye(size + rest, size, dtype=step.numbers.dtype)
    ahead = jnp.array([0] * size + list(AHEAD), jnp.int32)
    keys = jax.random.split(jax.random.key(1), 1 + rest)
    keys = keys[np.array([0] * size + list(range(1, 1 + rest)))]
    start = (keys[0], points[0], ahead[0])
    later = traced(lambda at: step.later(at[0], at[1][:n], at[1][n:], at[2])[::2], start)

    def row(
        key: PRNGKeyArray, ahead: Int[Array, ""], point: Vector, way: Vector
    ) -> tuple[Any, Any]:
        return jax.jvp(lambda point: later((key, point, ahead)), (point,), (way,))

    (found, moved), (slopes, _) = jax.vmap(row)(keys, ahead, points, ways)
    slopes, shift = slopes[:size].T, found[0]
    errors = found[size:] - points[size:] @ slopes.T - shift[None]
    scale = jnp.max(jnp.abs(found[size:]))
    return slopes[:, :n], slopes[:, n:], shift, errors, moved[size:], scale, step.places()


def _of_affine(step: AffineStep) -> GaussianLaw:
    """m and S."""
    a, noise = (np.atleast_2d(np.asarray(m, float)) for m in (step.matrix, step.covariance))
    n = len(a)
    if a.shape != (n, n) or noise.shape != (n, n) or not np.isfinite([a, noise]).all():
        raise ValueError(
            "matrix and covariance must be finite and square, of one size, not of shapes "
            f"{a.shape} and {noise.shape}."
        )
    if np.abs(noise - noise.T).max() > 1e-9 * np.abs(noise).max():
        raise ValueError("covariance must be symmetric: that of the noise, not a root of it.")
    radius = AffineStep(a, noise).radius
    if not radius < 1.0:
        raise ValueError(
            f"the chain is unstable: its matrix has spectral radius {radius:.6g}, and below 1 is "
            "needed. Try a smaller step size, or more friction."
        )
    covariance = scipy.linalg.solve_discrete_lyapunov(a, noise)
    mean = np.linalg.solve(np.eye(n) - a, np.broadcast_to(step.shift, (n,)))
    return GaussianLaw(mean, covariance, step.rows or {"position": np.arange(n)})


def _on_grid(
    kernel: Kernel,
    position: PyTree,
    axes: tuple[Axis, ...],
    num_nodes: int,
    order: int,
    guess: Weights | None,
    lost: float,
) -> TransitionLaw:
    """The law of a kernel whose state has as many numbers as there are axes."""
    whole_number("num_nodes", num_nodes)
    whole_number("order", order, at_least=2, below=1 + min(axis.points for axis in axes))
    with jax.enable_x64(True):
        position = double(freeze(kernel, position))
        step = DealtStep(kernel, position, kept=False)
        if step.numbers.size != len(axes) or len(axes) > 2:
            raise ValueError(
                f"grid has {len(axes)} axes, and the state {step.numbers.size} numbers; one or two "
                "of each are needed."
            )
        points = mesh(axes).reshape(-1, len(axes))
        x, w = np.polynomial.hermite_e.hermegauss(num_nodes)
        nodes = np.array(list(product(x, repeat=step.count))).reshape(-1, step.count)
        shares = np.array(list(product(w / w.sum(), repeat=step.count))).prod(axis=1)
        images, gaps = _images(kernel, position, jnp.asarray(points), jnp.asarray(nodes))
    others, later = np.asarray(gaps).T
    if not others.max() <= AFFINE:
        raise ValueError(
            "the step draws random numbers that are not normal, or keeps a noisy gradient for the "
            "next step, which is then a part of its state."
        )
    if not later.max() <= AFFINE:
        raise ValueError(CHANGING)
    images = np.asarray(images)
    matrix = _interpolation(images, shares, axes, order).T.tocsr()
    shape = tuple(axis.points for axis in axes)

    def move(weights: Weights) -> Weights:
        return (matrix @ weights.ravel()).reshape(shape)

    weights, _ = leading_weights(move, _first_guess(axes, guess))
    low, high = np.array([(axis.low, axis.high) for axis in axes]).T
    outside = ~((images >= low) & (images <= high)).all(axis=2)
    gone = float(weights.ravel() @ outside @ shares)
    return _kept(TransitionLaw(axes, move, weights, gone), lost)


@eqx.filter_jit
def _images(
    kernel: Kernel, position: PyTree, points: Float[Array, "n d"], nodes: Float[Array, "k m"]
) -> tuple[Float[Array, "n k d"], Float[Array, "..."]]:
    """Where a step leads from each point with each node; what other keys and later steps change."""
    step = DealtStep(kernel, position, kept=False)
    one, other = jax.random.split(jax.random.key(1))
    images = jax.vmap(jax.vmap(lambda z, xi: step(one, z, xi), (None, 0)), (0, None))(points, nodes)

    def gap(
        key: PRNGKeyArray, ahead: Int[Array, ""], z: Vector, xi: Float[Array, " m"], image: Vector
    ) -> Array:
        found, state, moved = step.later(key, z, xi, ahead)
        apart = jnp.max(jnp.abs(found - image))
        late = jnp.where(ahead > 0, jnp.maximum(apart, moved), 0.0)
        if state.estimate is not None:
            exact = step.begun(state.position).estimate.gradient
            kept = tree.ravel(tree.subtract(state.estimate.gradient, exact))[0]
            apart = jnp.maximum(apart, jnp.max(jnp.abs(kept)))
        return jnp.stack([jnp.where(ahead > 0, 0.0, apart), late])

    # Points from the middle, where a step goes astray least, and nodes from there outwards.
    ahead = jnp.array(AHEAD, jnp.int32)
    at = len(points) // 2 + jnp.arange(ahead.size)
    of = (len(nodes) // 2 + jnp.arange(ahead.size)) % len(nodes)
    keys = jax.random.split(other, ahead.size)
    return images, jax.vmap(gap)(keys, ahead, points[at], nodes[of], images[at, of])


def _interpolation(
    images: Float[np.ndarray, "n k d"],
    shares: Float[np.ndarray, " k"],
    axes: tuple[Axis, ...],
    order: int,
) -> scipy.sparse.csr_array:
    """The sparse P with (P f)(z_i) = sum over the nodes of share f(image)."""
    count = images.shape[0]
    column = np.zeros((*images.shape[:2], 1), int)
    value = np.broadcast_to(shares[None, :, None], column.shape)
    for i, axis in enumerate(axes):
        first, weights = _stencil(images[..., i], axis, order)
        along = first[..., None] + np.arange(order)
        column = (column[..., None] * axis.points + along[..., None, :]).reshape(*first.shape, -1)
        value = (value[..., None] * weights[..., None, :]).reshape(*first.shape, -1)
    starts = np.arange(count + 1) * column[0].size
    entries = (value.ravel(), column.ravel(), starts)
    matrix = scipy.sparse.csr_array(entries, shape=(count, count))
    matrix.sum_duplicates()
    return matrix


def _stencil(
    x: Float[np.ndarray, "n k"], axis: Axis, order: int
) -> tuple[Int[np.ndarray, "n k"], Float[np.ndarray, "n k order"]]:
    """The first of the `order` cells around each x, and the weights of Lagrange's polynomials."""
    place = (np.clip(x, axis.centres[0], axis.centres[-1]) - axis.centres[0]) / axis.width
    first = np.clip(np.floor(place).astype(int) - (order // 2 - 1), 0, axis.points - order)
    offset = place - first
    weights = np.ones((*x.shape, order))
    for j, m in product(range(order), repeat=2):
        if m != j:
            weights[..., j] *= (offset - m) / (j - m)
    return first, weights


def _first_guess(axes: tuple[Axis, ...], guess: Weights | None) -> Weights:
    """The caller's, or a normal density that is a sixth as wide as the box."""
    if guess is None:
        ends = np.array([(axis.low, axis.high) for axis in axes])
        scaled = 6.0 * (mesh(axes) - ends.mean(axis=1)) / (ends[:, 1] - ends[:, 0])
        return np.exp(-0.5 * np.sum(scaled**2, axis=-1))
    shape = tuple(axis.points for axis in axes)
    if np.shape(guess) != shape:
        raise ValueError(f"guess must have the shape of the grid, {shape}, not {np.shape(guess)}.")
    return np.asarray(guess, float)


def _kept(law: TransitionLaw, most: float) -> TransitionLaw:
    """Refuse a grid that does not hold the mass."""
    if not law.lost <= most:
        raise ValueError(
            f"grid loses {law.lost:.1e} of the mass in a step. Try a larger one, or a smaller step."
        )
    return law
