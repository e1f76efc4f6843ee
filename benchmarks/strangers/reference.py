"""What the right answer is: in closed form, by quadrature, importance sampling or a long NUTS.

All of it in double precision. A closed form is computed where it is needed; what takes longer is
kept in references/NAME.json with how it was made, and made again by
`python -m benchmarks strangers --make-references NAME`.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

import ergodax as ex

FOLDER = Path(__file__).parent / "references"
NEGLIGIBLE = 1e-5  # of the largest density, that a grid may leave out at its border
LEAST_ESS = 1_000
LARGEST_R_HAT = 1.01

Potential = Callable[[PyTree], Any]


@dataclasses.dataclass(frozen=True)
class Reference:
    """Mean and sd of every component, in the order of `jax.tree.leaves` of the position.

    Attributes:
        mean: shape (d,).
        sd: shape (d,).
        error_mean: the largest standard error of a mean, in posterior sd.
        error_sd: that of an sd, relative to it.
        how: it was computed, in words.
    """

    mean: Float[np.ndarray, " d"]
    sd: Float[np.ndarray, " d"]
    error_mean: float = 0.0
    error_sd: float = 0.0
    how: str = "closed form"

    def save(self, path: Path) -> None:
        """Write it as JSON, with seven digits.

        Raises:
            ValueError: not all of it is finite.
        """
        if not np.isfinite([*self.mean, *self.sd, self.error_mean, self.error_sd]).all():
            raise ValueError(f"{self.how}: not finite")
        facts = dataclasses.asdict(self)
        for name in ("mean", "sd"):
            facts[name] = [float(f"{value:.7g}") for value in facts[name]]
        for name in ("error_mean", "error_sd"):
            facts[name] = float(f"{facts[name]:.2g}")
        path.write_text(json.dumps(facts) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Reference":
        """Read what `save` wrote."""
        facts = json.loads(path.read_text(encoding="utf-8"))
        facts["mean"], facts["sd"] = np.array(facts["mean"]), np.array(facts["sd"])
        return cls(**facts)


def exact(mean: PyTree, sd: PyTree) -> Reference:
    """The answer in closed form.

    Args:
        mean: in the structure of the position, or flat.
        sd: likewise.
    """
    flat = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(each)]) for each in (mean, sd)]
    return Reference(np.asarray(flat[0], np.float64), np.asarray(flat[1], np.float64))


# By quadrature: over some components on a grid, over the others in closed form.


def quadrature(
    potential: Potential,
    start: PyTree,
    box: Mapping[Any, tuple[float, float]],
    points: int | tuple[int, ...] = 41,
    position: Callable[[PyTree], PyTree] = lambda p: p,
) -> Reference:
    """Trapezoids over the components in `box`; given these the others must be jointly normal.

    The normal conditionals are read off the potential itself: its gradient and Hessian at zero.
    The error is the difference to every other point of the grid.

    Args:
        potential: U of a position.
        start: any position, for its structure.
        box: the range of each component that is integrated on the grid, by the name of a scalar in
            a dict or by its number in the flat position.
        points: of each range, odd.
        position: from the coordinates of `potential` to those of the case; given the components
            on the grid it must be affine.

    Raises:
        ValueError: there is mass at the border of the box.
    """
    flat, unravel = ravel_pytree(start)
    where = np.array([_number(start, name) for name in box])
    others = np.setdiff1d(np.arange(flat.size), where)
    counts = (points,) * len(box) if isinstance(points, int) else points
    axes = [np.linspace(*ends, n) for ends, n in zip(box.values(), counts, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1)

    def full(at: Array, beta: Array) -> PyTree:
        return unravel(jnp.zeros(flat.size).at[where].set(at).at[others].set(beta))

    def integrated(at: Array) -> tuple[Array, Array, Array]:
        """Log weight at a point of the grid; mean and variance of every component given it."""
        log_joint = lambda beta: -potential(full(at, beta))  # noqa: E731
        there = lambda beta: ravel_pytree(position(full(at, beta)))[0]  # noqa: E731
        zero = jnp.zeros(others.size)
        if not others.size:
            return log_joint(zero), there(zero), jnp.zeros_like(there(zero))
        slope, factor = (
            jax.grad(log_joint)(zero),
            jnp.linalg.cholesky(-jax.hessian(log_joint)(zero)),
        )
        half = jax.scipy.linalg.solve_triangular(factor, jnp.eye(others.size), lower=True)
        mean = half.T @ (half @ slope)
        log = log_joint(zero) + 0.5 * slope @ mean - jnp.log(jnp.diag(factor)).sum()
        spread = ((jax.jacobian(there)(zero) @ half.T) ** 2).sum(axis=1)
        return log, there(mean), spread

    table = jax.jit(lambda at: jax.lax.map(integrated, at))(grid.reshape(-1, len(box)))
    log, mean, variance = (np.asarray(x).reshape(*counts, -1) for x in table)
    weight = np.nan_to_num(np.exp(log[..., 0] - np.nanmax(log)))
    border = weight * np.pad(np.zeros([n - 2 for n in counts]), 1, constant_values=1.0)
    if border.max() > NEGLIGIBLE:
        raise ValueError(f"density {border.max():.1g} at the border of the box {box}")
    found = []
    for step in (1, 2):
        thin = (slice(None, None, step),) * len(box)
        w = weight[thin].ravel() / weight[thin].sum()
        inner, spread = (x[thin].reshape(w.size, -1) for x in (mean, variance))
        level = w @ inner
        found.append((level, np.sqrt(w @ (spread + (inner - level) ** 2))))
    how = f"quadrature on {' x '.join(map(str, counts))} points"
    if others.size:
        how += f", the other {others.size} components in closed form"
    return of_two(found[0], found[1], how)


def of_two(
    fine: tuple[np.ndarray, np.ndarray], rough: tuple[np.ndarray, np.ndarray], how: str
) -> Reference:
    """Means and sds by quadrature on a fine grid; a rougher one tells their error.

    Args:
        fine: means and sds.
        rough: likewise.
        how: in words.
    """
    mean, sd = fine
    errors = np.abs(rough[0] - mean) / sd, np.abs(rough[1] / sd - 1.0)
    return Reference(mean, sd, float(errors[0].max()), float(errors[1].max()), how)


def _number(position: PyTree, name: str | int) -> int:
    if isinstance(name, int):
        return name
    leaves = jax.tree_util.tree_leaves_with_path(position)
    sizes = [np.size(leaf) for _, leaf in leaves]
    labels = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    return int(np.sum(sizes[: labels.index(name)]))


# By importance sampling: for posteriors that are close to a normal or Student distribution.


def importance(
    potential: Potential, start: PyTree, *, draws: int = 8_000, freedom: float = 50.0
) -> Reference:
    """Draws from a Student distribution with the curvature at the mode, in antithetic pairs.

    Args:
        potential: U of a position.
        start: where Newton's method begins.
        draws: in all.
        freedom: degrees of freedom of the Student distribution.

    Raises:
        ValueError: the effective sample size is too small.
    """
    flat, unravel = ravel_pytree(start)
    energy = lambda u: potential(unravel(u))  # noqa: E731
    mode, hessian = newton(energy, flat)
    rng, dimension = np.random.default_rng(0), flat.size
    normal = rng.standard_normal((draws // 2, dimension))
    normal *= np.sqrt(freedom / rng.chisquare(freedom, (draws // 2, 1)))
    normal = np.concatenate([normal, -normal])
    x = mode + np.linalg.solve(np.linalg.cholesky(hessian).T, normal.T).T
    potentials = np.asarray(jax.jit(lambda x: jax.lax.map(energy, x))(x))
    proposal = -0.5 * (freedom + dimension) * np.log1p((normal**2).sum(axis=1) / freedom)
    log = -potentials - proposal
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    ess = 1.0 / (weight**2).sum()
    if not ess > LEAST_ESS:
        raise ValueError(f"an effective sample size of {ess:.0f} of {draws}: take NUTS")
    mean = weight @ x
    sd = np.sqrt(weight @ (x - mean) ** 2)
    # A pair is one draw: its two terms are correlated.
    terms = weight[:, None] * (x - mean) / sd, weight[:, None] * (((x - mean) / sd) ** 2 - 1.0) / 2
    pairs = [t[: draws // 2] + t[draws // 2 :] for t in terms]
    errors = [float(np.sqrt((p**2).sum(axis=0)).max()) for p in pairs]
    how = f"importance sampling from a Student distribution at the mode, ESS {ess:.0f} of {draws}"
    return Reference(mean, sd, errors[0], errors[1], how)


def newton(energy: Callable[[Array], Array], start: Array) -> tuple[np.ndarray, np.ndarray]:
    """The minimum and the Hessian there, by damped Newton steps.

    Args:
        energy: of a flat position.
        start: where to begin.

    Raises:
        ValueError: no minimum was found.
    """
    slope = jax.grad(energy)

    def second(u: Array) -> Array:
        column = lambda e: jax.jvp(slope, (u,), (e,))[1]  # noqa: E731
        return jax.lax.map(column, jnp.eye(u.size))

    value, slope_of, second_of = jax.jit(energy), jax.jit(slope), jax.jit(second)
    u = np.asarray(start, np.float64)
    for _ in range(200):
        gradient, hessian = np.asarray(slope_of(u)), np.asarray(second_of(u))
        scale = 1.0 / np.sqrt(np.abs(np.diag(hessian)))  # columns of very different units
        values, vectors = np.linalg.eigh(0.5 * (hessian + hessian.T) * scale * scale[:, None])
        slopes = vectors.T @ (scale * gradient)
        scaled = slopes / np.maximum(np.abs(values), 1e-12 * np.abs(values).max())
        move, decrement = -scale * (vectors @ scaled), float(scaled @ slopes)
        if decrement < 1e-10 and values.min() > 0.0:
            return u, 0.5 * (hessian + hessian.T)
        length = 1.0
        while not float(value(u + length * move)) < float(value(u)) and length > 1e-10:
            length *= 0.5
        u = u + length * move
    raise ValueError(f"no mode found: the decrement is {decrement:.2g}")


# By a long NUTS.


def nuts(
    potential: Potential,
    start: PyTree,
    *,
    draws: int = 1_000,
    warm_up: int = 1_000,
    acceptance: float = 0.9,
    spread: float = 0.1,
    dense: bool = True,
    position: Callable[[PyTree], PyTree] | None = None,
    images: Callable[[PyTree], list[PyTree]] | None = None,
) -> Reference:
    """BlackJAX's NUTS with its window adaptation, four chains.

    Args:
        potential: U, of the posterior or of an equivalent one that is cheaper or better shaped.
        start: where the chains begin, up to normal noise of sd `spread`.
        draws: of each chain.
        warm_up: steps of each chain before.
        acceptance: that the warm-up aims at.
        spread: of the starts.
        dense: whether the mass matrix is.
        position: from the coordinates of `potential` to those of the case.
        images: of a position under the posterior's symmetries, itself among them; the moments are
            those of all images. The errors are those of one.

    Raises:
        ValueError: the effective sample size is too small, or the chains disagree.
    """
    import blackjax

    flat, unravel = ravel_pytree(start)
    log_density = lambda u: -potential(unravel(u))  # noqa: E731
    adapt = blackjax.window_adaptation(
        blackjax.nuts, log_density, is_mass_matrix_diagonal=not dense,
        target_acceptance_rate=acceptance,
    )  # fmt: skip

    def chain(key: Array) -> tuple[Array, Array]:
        key_start, key_warm, key_run = jax.random.split(key, 3)
        first = flat + spread * jax.random.normal(key_start, flat.shape)
        (state, tuned), _ = adapt.run(key_warm, first, warm_up)
        step = blackjax.nuts(log_density, **tuned).step

        def one(state: Any, key: Array) -> tuple[Any, tuple[Array, Array]]:
            state, info = step(key, state)
            return state, (state.position, info.is_divergent)

        return jax.lax.scan(one, state, jax.random.split(key_run, draws))[1]

    x, divergent = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), 4))
    there = jax.vmap(jax.vmap(lambda u: (position or (lambda p: p))(unravel(u))))(x)
    how = (
        f"BlackJAX's NUTS, 4 chains of {draws} draws after {warm_up}, acceptance {acceptance:g}, "
        f"{float(divergent.mean()):.2%} divergent"
    )
    return of_draws(there, how, images)


def of_draws(
    draws: PyTree, how: str, images: Callable[[PyTree], list[PyTree]] | None = None
) -> Reference:
    """The moments of draws of several chains, with their Monte Carlo errors.

    Args:
        draws: a tree with leading axes (chains, draws).
        how: they were made.
        images: as of `nuts`.

    Raises:
        ValueError: the effective sample size is too small, or the chains disagree.
    """
    copies = [draws] if images is None else jax.vmap(jax.vmap(images))(draws)
    columns = [_columns(copy) for copy in copies]
    joined = np.concatenate([c.reshape(-1, c.shape[-1]) for c in columns])
    mean, sd = joined.mean(axis=0), joined.std(axis=0)
    squares = (columns[0] - mean) ** 2 / (2.0 * sd**2)
    level, width = (ex.Samples(x, None, None).summary() for x in (columns[0], squares))
    ess = float(min(level["ess"].min(), width["ess"].min()))
    r_hat = float(max(level["r_hat"].max(), width["r_hat"].max()))
    if not (ess > LEAST_ESS and r_hat < LARGEST_R_HAT):
        raise ValueError(f"{how}: ESS {ess:.0f}, R-hat {r_hat:.4f}")
    errors = float((level["mcse"] / sd).max()), float(width["mcse"].max())
    how += f", least ESS {ess:.0f}, largest R-hat {r_hat:.4f}"
    return Reference(mean, sd, errors[0], errors[1], how)


def _columns(draws: PyTree) -> Float[np.ndarray, "chains draws d"]:
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(draws)]
    return np.concatenate([x.reshape(*x.shape[:2], -1) for x in leaves], axis=-1)
