"""Constraints of parameters: maps from all real numbers, with the logarithms of their Jacobians.

Samplers move in unconstrained numbers y. The user's functions, starts and draws have
x = forward(y), and the density of y is that of x times |det dx/dy|. The maps act on the last axes
of an array, so that arrays of constrained parameters, and draws with leading axes, need no more.

Reference:
    Stan Reference Manual, "Constraint transforms"; Egozcue et al., Isometric logratio
    transformations for compositional data analysis, 2003 (the simplex); Lewandowski, Kurowicka and
    Joe, Generating random correlation matrices based on vines and extended onion method, 2009.
"""

import abc
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.checks import plain

CLOSE = 1e-4  # to 1, of what must be 1


class Transform(abc.ABC):
    """A map from all real numbers onto the values that a constraint allows."""

    @abc.abstractmethod
    def forward(self, y: Array) -> Array:
        """The constrained x of unconstrained numbers y."""

    @abc.abstractmethod
    def inverse(self, x: Array) -> Array:
        """The y of an x."""

    @abc.abstractmethod
    def log_jacobian(self, y: Array) -> Float[Array, ""]:
        """log |det dx/dy|, summed over all that y holds."""

    @abc.abstractmethod
    def fault(self, x: np.ndarray) -> str:
        """What an x must be and is not, in words; "" where nothing is wrong."""


@dataclasses.dataclass(frozen=True)
class Interval(Transform):
    """Numbers between two bounds, each finite or infinite; see `interval`."""

    lower: float
    upper: float

    def forward(self, y: Array) -> Array:
        """a + (b - a) / (1 + e^-y), or a + e^y or b - e^y; in floating point never the bound.

        It is computed from the nearer bound, so that what is close to 0 has all its digits.
        """
        if self.upper == math.inf:
            x = self.lower + jnp.exp(y)
        elif self.lower == -math.inf:
            x = self.upper - jnp.exp(y)
        else:
            width = self.upper - self.lower
            from_above = self.upper - width * jax.nn.sigmoid(-y)
            x = jnp.where(y > 0.0, from_above, self.lower + width * jax.nn.sigmoid(y))
        return jnp.clip(x, *self._ends(y.dtype))

    def inverse(self, x: Array) -> Array:
        """log (x - a) - log (b - x), less what is infinite."""
        x = jnp.clip(x, *self._ends(x.dtype))
        if self.upper == math.inf:
            return jnp.log(x - self.lower)
        if self.lower == -math.inf:
            return jnp.log(self.upper - x)
        return jnp.log(x - self.lower) - jnp.log(self.upper - x)

    def log_jacobian(self, y: Array) -> Float[Array, ""]:
        """Of b - a finite log (b - a) - log (1 + e^-y) - log (1 + e^y), else y, summed."""
        if math.inf in (self.upper, -self.lower):
            return jnp.sum(y)
        logistic = jax.nn.log_sigmoid(y) + jax.nn.log_sigmoid(-y)
        return jnp.sum(math.log(self.upper - self.lower) + logistic)

    def fault(self, x: np.ndarray) -> str:
        """Values at a bound or beyond."""
        if ((x > self.lower) & (x < self.upper)).all():
            return ""
        if self == positive:
            return "must be positive"
        return f"must lie between {self.lower:g} and {self.upper:g}"

    def _ends(self, dtype: Any) -> tuple[Any, Any]:
        """The numbers of a type next to the bounds, without those below its normal range."""
        low, high = np.asarray([self.lower, self.upper], dtype)
        tiny, most = jnp.finfo(dtype).tiny, jnp.finfo(dtype).max
        return (
            np.maximum(np.nextafter(low, high) if low else tiny, -most),
            np.minimum(np.nextafter(high, low) if high else -tiny, most),
        )


@dataclasses.dataclass(frozen=True)
class Simplex(Transform):
    """Positive numbers along the last axis whose sum is 1; see `simplex`."""

    def forward(self, y: Array) -> Array:
        """softmax(V y); in floating point never 0."""
        return jnp.maximum(jnp.exp(self._logarithm(y)), jnp.finfo(y.dtype).tiny)

    def inverse(self, x: Array) -> Array:
        """V^T log x."""
        logarithm = jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny))
        numbers, roots = _helmert(x[..., 1:])
        before = jnp.cumsum(logarithm[..., :-1], axis=-1)
        return (before - numbers * logarithm[..., 1:]) / roots

    def log_jacobian(self, y: Array) -> Float[Array, ""]:
        """(log K) / 2 + sum of log x_i, to all but one of the x_i, for each simplex."""
        count = math.prod(y.shape[:-1])
        return 0.5 * count * math.log(y.shape[-1] + 1) + jnp.sum(self._logarithm(y))

    def fault(self, x: np.ndarray) -> str:
        """Values that are not positive, or do not sum to 1."""
        if x.ndim < 1 or x.shape[-1] < 2:
            return "must have a last axis of at least 2 numbers, which sum to 1"
        right = (x > 0).all() and (np.abs(x.sum(axis=-1) - 1.0) < CLOSE).all()
        return "" if right else "must be positive and sum to 1 along its last axis"

    @staticmethod
    def _logarithm(y: Array) -> Array:
        """log x; column j of V is 1 / sqrt(j (j + 1)) in rows 1..j, -j times that in row j + 1."""
        numbers, roots = _helmert(y)
        part = y / roots
        none = jnp.zeros_like(y[..., :1])
        after = jnp.flip(jnp.cumsum(jnp.flip(part, axis=-1), axis=-1), axis=-1)
        above = jnp.concatenate([after, none], axis=-1)
        below = jnp.concatenate([none, part * numbers], axis=-1)
        return jax.nn.log_softmax(above - below, axis=-1)


def _helmert(y: Array) -> tuple[np.ndarray, np.ndarray]:
    """j and sqrt(j (j + 1)) for j from 1 to the length of the last axis, in the rank of y."""
    shape = (1,) * (y.ndim - 1) + y.shape[-1:]
    j = np.arange(1, 1 + y.shape[-1]).reshape(shape)
    return j.astype(y.dtype), np.sqrt(j * (j + 1.0)).astype(y.dtype)


@dataclasses.dataclass(frozen=True)
class Ordered(Transform):
    """Numbers that increase along the last axis; see `ordered`."""

    def forward(self, y: Array) -> Array:
        """x_1 = y_1, x_k = x_(k-1) + exp(y_k)."""
        steps = jnp.concatenate([y[..., :1], jnp.exp(y[..., 1:])], axis=-1)
        return jnp.cumsum(steps, axis=-1)

    def inverse(self, x: Array) -> Array:
        """Logarithms of the differences."""
        gaps = jnp.maximum(jnp.diff(x, axis=-1), jnp.finfo(x.dtype).tiny)
        return jnp.concatenate([x[..., :1], jnp.log(gaps)], axis=-1)

    def log_jacobian(self, y: Array) -> Float[Array, ""]:
        """The sum of all y but the first."""
        return jnp.sum(y[..., 1:])

    def fault(self, x: np.ndarray) -> str:
        """Values that do not increase."""
        if x.ndim < 1:
            return "must have a last axis, along which it increases"
        return "" if (np.diff(x, axis=-1) > 0).all() else "must increase along its last axis"


@dataclasses.dataclass(frozen=True)
class Correlation(Transform):
    """Cholesky factors of correlation matrices in the last two axes; see `correlation`."""

    def forward(self, y: Array) -> Array:
        """L_ij = tanh(y_ij) prod_(k<j) sech(y_ik), and L_ii = prod_(k<i) sech(y_ik)."""
        sech, before, rows = self._rows(y)
        below = jnp.tanh(rows) * jnp.exp(before)
        diagonal = jnp.exp(jnp.sum(sech, axis=-1))[..., None]
        return below + diagonal * _square(np.eye, rows)

    def inverse(self, x: Array) -> Array:
        """asinh(L_ij / |L_i,j+1 ... L_ii|), row by row."""
        squares = jnp.flip(jnp.cumsum(jnp.flip(x * x, axis=-1), axis=-1), axis=-1)
        i, j = np.tril_indices(x.shape[-1], -1)
        rest = jnp.sqrt(jnp.maximum(squares[..., i, j + 1], jnp.finfo(x.dtype).tiny))
        return jnp.arcsinh(x[..., i, j] / rest)

    def log_jacobian(self, y: Array) -> Float[Array, ""]:
        """To L below its diagonal: the sum of 2 log sech y_ij + log (L_ij / tanh y_ij)."""
        sech, before, rows = self._rows(y)
        return jnp.sum(2.0 * sech + before * _square(lambda size: np.tri(size, k=-1), rows))

    def fault(self, x: np.ndarray) -> str:
        """What is not lower triangular with a positive diagonal and rows of length 1."""
        if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] < 2:
            return "must be a square matrix in its last two axes, 2 x 2 or larger"
        lower = (np.triu(x, 1) == 0).all() and (np.diagonal(x, axis1=-2, axis2=-1) > 0).all()
        right = lower and (np.abs((x**2).sum(axis=-1) - 1.0) < CLOSE).all()
        if right:
            return ""
        return (
            "must be the Cholesky factor of a correlation matrix: lower triangular, with a "
            "positive diagonal and rows of length 1"
        )

    @staticmethod
    def _rows(y: Array) -> tuple[Array, Array, Array]:
        """log sech of y and, for each place, its sum over the places before in the row; and y.

        As matrices that are zero on the diagonal and above it; so are the sums in row 1 alone.
        """
        size = (1 + math.isqrt(1 + 8 * y.shape[-1])) // 2
        i, j = np.tril_indices(size, -1)
        rows = jnp.zeros((*y.shape[:-1], size, size), y.dtype).at[..., i, j].set(y)
        sech = math.log(2.0) - jnp.logaddexp(rows, -rows)
        return sech, jnp.cumsum(sech, axis=-1) - sech, rows


def _square(make: Callable[[int], np.ndarray], like: Array) -> np.ndarray:
    """A square matrix in the last two axes, in the rank, size and dtype of another array."""
    matrix = make(like.shape[-1]).astype(like.dtype)
    return matrix.reshape((1,) * (like.ndim - 2) + matrix.shape)


positive = Interval(0.0, math.inf)
simplex = Simplex()
ordered = Ordered()
correlation = Correlation()


def interval(lower: Any = -math.inf, upper: Any = math.inf) -> Interval:
    """Numbers between two bounds, of which one may be infinite.

    x = a + (b - a) / (1 + e^-y), x = a + e^y or x = b - e^y.

    Args:
        lower: the bound a, below every value.
        upper: the bound b, above every value.

    Raises:
        TypeError: a bound that is not a number.
        ValueError: bounds that do not increase, or none.

    Example:
        >>> import ergodax as ex
        >>> share = ex.transform.interval(0.0, 1.0)
        >>> ex.Target(lambda x: -jnp.log(x["p"]), constraints={"p": share}).constraints.names
        ('p',)
    """
    bounds = []
    for name, value in (("lower", lower), ("upper", upper)):
        number = plain(value)
        if number is None or math.isnan(number):
            raise TypeError(f"{name} must be a number, not {value!r}. Try interval(0.0, 1.0).")
        bounds.append(float(number))
    if not bounds[0] < bounds[1] or bounds == [-math.inf, math.inf]:
        raise ValueError(
            f"lower={lower!r} must be below upper={upper!r}, and one of them finite. Try "
            "interval(0.0, 1.0)."
        )
    return Interval(*bounds)


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Transforms by the names of the leaves, or of the subtrees, of a position."""

    names: tuple[str, ...]
    transforms: tuple[Transform, ...]

    def freeze(self, position: PyTree, name: str = "position") -> PyTree:
        """Hold a user's position as the samplers do: each constrained leaf as its y.

        A leading axis of chains or draws may be there; leaves that are held so already stay.

        Raises:
            TypeError: a leaf is an integer, boolean or complex array.
            ValueError: a constraint for what the position does not have, or that it violates.
        """
        frozen = tree.freeze(position, name)
        leaves = jax.tree_util.tree_leaves_with_path(frozen, is_leaf=is_held)
        found = [tree.path_name(path) for path, _ in leaves]
        for wanted in self.names:
            if not any(_is_part(leaf, wanted) for leaf in found):
                raise ValueError(
                    f"constraints has {wanted!r}, but {name} has {sorted(found)}. Take one of them."
                )

        def held(path: tuple[Any, ...], leaf: Any) -> Any:
            where = tree.path_name(path)
            for wanted, transform in zip(self.names, self.transforms, strict=True):
                if not is_held(leaf) and _is_part(where, wanted):
                    _check(transform, leaf, f"{name}[{where!r}]" if where else name)
                    return tree.Unconstrained(transform.inverse(leaf), transform)
            return leaf

        return jax.tree_util.tree_map_with_path(held, frozen, is_leaf=is_held)


def is_held(node: Any) -> bool:
    """Whether a node of a position holds unconstrained numbers in place of the user's."""
    return isinstance(node, tree.Unconstrained)


def _is_part(leaf: str, name: str) -> bool:
    """Whether a leaf is that of a name, or of the subtree of that name."""
    return name in ("", leaf) or leaf.startswith(name + ".")


def _check(transform: Transform, x: Array, name: str) -> None:
    if tree.is_traced(x):
        return
    if why := transform.fault(np.asarray(x, np.float64)):
        raise ValueError(
            f"{name} {why}, since constraints says so, but it is {np.asarray(x).tolist()!r:.200}. "
            "Start inside the constraint."
        )


def as_constraints(constraints: Any) -> Constraints | None:
    """What a user gave as `constraints`, by names; None where there are none.

    Raises:
        TypeError: something that is no transform.
    """
    if constraints is None or isinstance(constraints, Constraints):
        return constraints
    leaves = jax.tree_util.tree_leaves_with_path(constraints)
    for path, leaf in leaves:
        if not isinstance(leaf, Transform):
            where = f"constraints[{tree.path_name(path)!r}]" if path else "constraints"
            raise TypeError(
                f"{where} must be one of ex.transform, such as ex.transform.positive or "
                f"ex.transform.interval(0.0, 1.0), not {leaf!r}."
            )
    if not leaves:
        return None
    return Constraints(
        tuple(tree.path_name(path) for path, _ in leaves), tuple(leaf for _, leaf in leaves)
    )


def log_jacobian(position: PyTree) -> Float[Array, ""] | float:
    """The log Jacobian of all constraints of a position as the samplers hold it; 0 without any."""
    held = [x for x in jax.tree.leaves(position, is_leaf=is_held) if is_held(x)]
    dtype = tree.result_dtype(position) if held else None
    return sum((x.transform.log_jacobian(x.value).astype(dtype) for x in held), start=0.0)
