"""Logistic and linear regression on a table, sampled in standardised columns, told in the user's.

Columns differ in their units, so they are standardised before anything is sampled: one prior then
suits every coefficient. What is told and saved is of the table as it is: `Model.units` undoes it.
"""

import dataclasses
from collections.abc import Callable, Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

import ergodax as ex
from ergodax.checks import instance, legible, real_number
from ergodax.learn.tables import Table, varying

Draws = dict[str, np.ndarray]  # "coefficient", "intercept", and of a linear model "residual_sd"


@dataclasses.dataclass(frozen=True)
class Units:
    """From coefficients w of standardised columns to those of the columns in their own units.

    With z_j = (x_j - c_j) / s_j and the target c + s (w_0 + sum_j w_j z_j), the coefficient of x_j
    is s w_j / s_j and the intercept c + s w_0 - sum_j (s w_j / s_j) c_j.
    """

    centre: np.ndarray  # c_j of the columns
    scale: np.ndarray  # s_j
    target_centre: float = 0.0  # c; 0 for classes
    target_scale: float = 1.0  # s; 1 for classes

    def __call__(self, draws: Array | np.ndarray) -> Draws:
        """Draws of w, the intercept and perhaps the log residual sd; in double precision."""
        draws, d = np.asarray(draws, np.float64), len(self.centre)
        slopes = self.target_scale * draws[..., :d] / self.scale
        intercept = self.target_centre + self.target_scale * draws[..., d] - slopes @ self.centre
        found = {"coefficient": slopes, "intercept": intercept}
        if draws.shape[-1] > d + 1:
            found["residual_sd"] = self.target_scale * np.exp(draws[..., d + 1])
        return found


@dataclasses.dataclass(frozen=True)
class Model:
    """A posterior and what its components are called."""

    # of a vector: the coefficients of standardised columns, the intercept, and of a linear model
    # the logarithm of the residual sd
    posterior: ex.Posterior
    init: Float[Array, " d"]  # where to begin
    columns: list[str]  # what the coefficients are called
    units: Units  # undoes the standardisation
    title: str  # what is regressed on what
    meaning: tuple[str, str]  # of the coefficients and of their prior, a sentence each

    @property
    def names(self) -> list[str]:
        """Of all components, each once."""
        rest = ["intercept", "residual sd"][: len(self.init) - len(self.columns)]
        return list(distinct([*self.columns, *rest]))


class NormalPrior(eqx.Module):
    """log N(w; 0, scale^2 I), up to a constant."""

    scale: Float[Array, ""]

    def __call__(self, w: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density."""
        return -0.5 * jnp.sum(w**2) / self.scale**2


def logistic_posterior(table: Table, prior_scale: float) -> ex.Posterior:
    """The posterior of the coefficients w of a logistic regression, w ~ N(0, prior_scale^2 I)."""
    return _posterior(table.features, table.target, prior_scale, _bernoulli)


def logistic(table: Table, prior_scale: float, components: int | None = None) -> Model:
    """Coefficients with independent normal priors."""
    (table,) = varying([table], components)
    x, units = _standardised(table)
    posterior = _posterior(x, table.target, prior_scale, _bernoulli)
    classes = [legible(name) for name in table.classes]
    meaning = (
        f"A coefficient is the change of the log odds of {classes[1]} with one unit of its "
        "column; the intercept is where all columns are 0.",
        f"The prior is N(0, {prior_scale:g}²) for the intercept at the columns' means and for "
        "each coefficient times its column's standard deviation.",
    )
    title = f"{classes[1]} against {classes[0]}"
    return Model(posterior, jnp.zeros(x.shape[1], jnp.float32), table.names, units, title, meaning)


def linear(table: Table, prior_scale: float) -> Model:
    """Coefficients and the residual sd, with independent normal priors on the standardised scale.

    Raises:
        ValueError: as of `tables.varying`, a scale that is not positive, or a constant target.
    """
    instance("table", table, Table, "a Table, as of tables.read")
    centre, scale = float(table.target.mean()), float(table.target.std())
    if not scale > 0:
        raise ValueError("the target is constant: there is nothing to predict.")
    (table,) = varying([table])
    x, units = _standardised(table)
    units = dataclasses.replace(units, target_centre=centre, target_scale=scale)
    posterior = _posterior(x, (table.target - centre) / scale, prior_scale, _normal)
    meaning = (
        "A coefficient is the change of the target, in its own units, with one unit of its column; "
        "the intercept is where all columns are 0.",
        f"The prior is N(0, {prior_scale:g}²) in standard deviations of the target, for the "
        "intercept at the columns' means, for each coefficient times its column's standard "
        "deviation, and for the logarithm of the residual sd.",
    )
    init = jnp.zeros(x.shape[1] + 1, jnp.float32)
    return Model(posterior, init, table.names, units, "linear regression", meaning)


def _standardised(table: Table) -> tuple[np.ndarray, Units]:
    """The design matrix with its intercept as the last column, and the units."""
    units = Units(table.features.mean(axis=0), table.features.std(axis=0))
    z = (table.features - units.centre) / units.scale
    return np.column_stack([z, np.ones(len(z))]), units


def _posterior(
    x: np.ndarray, y: np.ndarray, scale: float, log_likelihood: Callable[[Array, PyTree], Array]
) -> ex.Posterior:
    scale = real_number("prior_scale", scale, above=0.0)
    prior = NormalPrior(jnp.asarray(scale, jnp.float32))
    return ex.Posterior(prior, log_likelihood, tuple(jnp.asarray(a, jnp.float32) for a in (x, y)))


def _bernoulli(w: Array, example: tuple[Array, Array]) -> Array:
    x, y = example
    score = w @ x  # in this order all chains' scores come out contiguous
    return y * score - jax.nn.softplus(score)


def _normal(position: Array, example: tuple[Array, Array]) -> Array:
    x, y = example
    log_sd = position[-1]
    return -0.5 * ((y - x @ position[:-1]) * jnp.exp(-log_sd)) ** 2 - log_sd


def distinct(names: list[str]) -> Iterator[str]:
    """Each name, with a number where it came before."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"
