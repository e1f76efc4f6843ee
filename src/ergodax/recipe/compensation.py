"""Noise compensation, Eq. (9) of Ma, Chen and Fox: inject what the gradient has not brought.

The noise of a gradient, of covariance V, enters the step through the position's columns of
D + Q. Call them P: it brings h^2 P V P^T. Injecting N(0, h (2 T D - h P V P^T)) instead of
N(0, 2 h T D) leaves the step's law as it would be with an exact gradient. It can be done only
where 2 T D - h P V P^T is positive semidefinite.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from ergodax import tree
from ergodax.recipe.operators import Diagonal, LowRank, Operator, Scalar

Columns = dict[str, list[tuple[float, Operator]]]  # P by row: a sum of operators with signs
Noise = tuple[PyTree, Bool[Array, ""]]
Elementwise = Scalar | Diagonal
ROUNDING = 1e-5  # a variance below zero by this part of what was to be injected is rounding


def compensated_noise(
    diffusion: dict[str, Operator],
    columns: Columns,
    covariance: Operator,
    step_size: Float[Array, ""],
    temperature: Float[Array, ""],
    normal: dict[str, PyTree],
) -> Noise:
    """Draw N(0, h (2 T D - h P V P^T)) by its structure; and was no variance negative?

    Negative variances are clipped at zero. Where the gradient enters one variable through scalars
    or diagonals, the cost is that of V's structure: O(d) for a number or a diagonal, O(k^2 d) for
    rank k. Anything else is made one matrix over all the variables that the gradient enters.

    Raises:
        ValueError: the gradient enters a variable that has no diffusion.
    """
    h, t = step_size, temperature
    bare = sorted(set(columns) - set(diffusion))
    if bare:
        raise ValueError(
            f"compensate=True can't be done: the gradient's noise enters {bare}, where nothing is "
            f"injected that could be lowered (diffusion is in {sorted(diffusion)}). Give {bare} "
            "diffusion, as by a friction."
        )
    root = jnp.sqrt(2.0 * h * t)
    noise = {
        name: tree.scale(root, block.sqrt_mv(normal[name]))
        for name, block in diffusion.items()
        if name not in columns
    }
    entered = {name: normal[name] for name in columns}
    if len(columns) == 1:
        ((name, parts),) = columns.items()
        block, column = diffusion[name], parts[0][1]
        if len(parts) == 1 and isinstance(block, Elementwise) and isinstance(column, Elementwise):
            found = _structured(block, column, covariance, h, t, normal[name])
            if found is not None:
                return {**noise, name: found[0]}, found[1]
    joint, feasible = _joint(diffusion, columns, covariance, h, t, entered)
    return {**noise, **joint}, feasible


class _Root:
    """The root of variances, clipped at zero; remembers whether any was negative."""

    def __init__(self) -> None:
        self.verdicts: list[Bool[Array, ""]] = []

    def __call__(self, variance: Array, scale: Array) -> Array:
        self.verdicts.append(jnp.all(variance >= -ROUNDING * jnp.abs(scale)))
        return jnp.sqrt(jnp.clip(variance, 0.0))

    @property
    def feasible(self) -> Bool[Array, ""]:
        return jnp.all(jnp.stack(self.verdicts))


def _structured(
    block: Elementwise,
    column: Elementwise,
    covariance: Operator,
    h: Array,
    t: Array,
    normal: PyTree,
) -> Noise | None:
    root = _Root()
    if isinstance(block, Scalar) and isinstance(column, Scalar):
        full = 2.0 * h * t * block.value
        brought = (h * column.value) ** 2
        noise = covariance.spectral(lambda v: root(full - brought * v, full), normal)
        return noise, root.feasible
    ones = jax.tree.map(jnp.ones_like, normal)
    full = tree.scale(2.0 * h * t, block.mv(ones))

    def left_by(variance: Operator) -> PyTree:
        brought = tree.scale(h**2, column.mv(column.mv(variance.mv(ones))))
        return jax.tree.map(lambda f, b: f - b, full, brought)

    if isinstance(covariance, Elementwise):
        noise = jax.tree.map(lambda a, f, x: root(a, f) * x, left_by(covariance), full, normal)
        return noise, root.feasible
    if not isinstance(covariance, LowRank):
        return None
    # A - W^T W with A diagonal is A^1/2 (I - W' W'^T) A^1/2 for W' = A^-1/2 W. Where A is zero
    # W' can't tell whether W is: the diagonal of the whole can.
    jax.tree.map(root, left_by(covariance.diagonal()), full)
    spread = jax.tree.map(root, left_by(Scalar(covariance.base)), full)
    weight = jax.tree.map(
        lambda p, s: jnp.where(s > 0, p / jnp.where(s > 0, s, 1.0), 0.0), column.mv(ones), spread
    )
    factor = jax.tree.map(
        lambda f, w: f.astype(w.dtype) * (tree.cast(h, w) * w)[None], covariance.factor, weight
    )
    noise = LowRank(factor).spectral(lambda v: root(1.0 - v, jnp.ones_like(v)), normal)
    return tree.multiply(spread, noise), root.feasible


def _joint(
    diffusion: dict[str, Operator],
    columns: Columns,
    covariance: Operator,
    h: Array,
    t: Array,
    normal: dict[str, PyTree],
) -> Noise:
    flat, unravel = tree.ravel(normal)
    like = normal["position"] if "position" in normal else next(iter(normal.values()))

    def enter(gradient: PyTree) -> dict[str, PyTree]:
        rows = {}
        for name, parts in columns.items():
            moved = [tree.scale(sign, operator.mv(gradient)) for sign, operator in parts]
            rows[name] = moved[0]
            for more in moved[1:]:
                rows[name] = tree.add(rows[name], more)
        return rows

    p = tree.matrix_of(enter, like)
    v = tree.matrix_of(covariance.mv, like)
    d = tree.matrix_of(lambda x: {name: diffusion[name].mv(x[name]) for name in normal}, normal)
    values, vectors = jnp.linalg.eigh(2.0 * h * t * d - h**2 * p @ v @ p.T)
    root = _Root()
    spread = root(values, 2.0 * h * t * jnp.max(jnp.abs(d)))
    return unravel((vectors @ (spread * flat)).astype(flat.dtype)), root.feasible
