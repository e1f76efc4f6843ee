"""Regressions: the posterior in standardised columns, and the way back to the user's units.

Columns differ in their units, so they are standardised before anything is sampled: one prior then
suits every coefficient. What is told and saved is of the table as it is: `Model.units` undoes it.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

import ergodax as ex
from ergodax.checks import legible, real_number
from ergodax.learn import families
from ergodax.learn.families import Family

Draws = dict[str, np.ndarray]  # "coefficient", "intercept", and the family's shapes
FEWEST, MOST = 32, 2_000  # rows of a small table, see `padded`
LEAST_SPREAD, MOST_SPREAD = 1e-35, 1e35  # beyond, fourth powers of a coefficient are no numbers


@dataclasses.dataclass(frozen=True)
class Units:
    """From coefficients w of standardised columns to those of the columns in their own units.

    With z_j = (x_j - c_j) / s_j and the linear predictor c + s (w_0 + sum_j w_j z_j), the
    coefficient of x_j is s w_j / s_j and the intercept c + s w_0 - sum_j (s w_j / s_j) c_j. Of
    several classes each has its own.
    """

    centre: np.ndarray  # c_j of the columns
    scale: np.ndarray  # s_j
    target_centre: Any = 0.0  # c, of each class; where the mean of the target is
    target_scale: float = 1.0  # s; 1 where there is a link
    family: Family = families.LINEAR
    contrasts: np.ndarray | None = None  # from free numbers to classes, shape (classes, free)
    intercept: bool = True
    grouped: bool = False

    def __call__(self, draws: Array | np.ndarray) -> Draws:
        """Draws of w, the intercept and the family's shapes; in double precision."""
        draws, d = np.asarray(draws, np.float64), len(self.centre)
        width = d + self.intercept
        free = 1 if self.contrasts is None else self.contrasts.shape[1]
        w = draws[..., : free * width].reshape(*draws.shape[:-1], free, width)
        w = w[..., 0, :] if self.contrasts is None else self.contrasts @ w
        slopes = self.target_scale * w[..., :d] / self.scale
        found = {"coefficient": slopes}
        if self.intercept:
            middle = self.target_centre + self.target_scale * w[..., d]
            found["intercept"] = middle - slopes @ self.centre
        rest = draws[..., free * width :]
        if rest.shape[-1] >= len(self.family.shapes):
            found |= self.family.units(rest, self.target_scale)
        if self.grouped:
            found["group_sd"] = self.target_scale * np.exp(rest[..., -1])
        return found


@dataclasses.dataclass(frozen=True)
class Rows:
    """A design matrix in the user's units, and all that belongs to its rows."""

    x: np.ndarray  # shape (rows, columns)
    y: np.ndarray  # numbers, or the places of the classes
    names: list[str]  # of the columns
    offset: np.ndarray | None = None
    weight: np.ndarray | None = None  # of each row's log-likelihood
    groups: np.ndarray | None = None  # the place of each row's group
    group: tuple[str, list[Any]] = ("", [])  # what groups are called, and each of them
    classes: tuple[Any, ...] = ()


@dataclasses.dataclass(frozen=True)
class Model:
    """A posterior and what its components are called."""

    # of a vector: the coefficients of standardised columns with the intercept last, of each free
    # contrast of the classes; then the family's shapes and the log sd of groups
    posterior: Any  # an ex.Posterior, or an ex.groups.GroupedPosterior
    init: Float[Array, " d"]  # where to begin
    columns: list[str]  # what the coefficients are called
    units: Units  # undoes the standardisation
    title: str  # what is regressed on what
    meaning: tuple[str, ...]  # of the coefficients and of their prior, a sentence each
    num_rows: int  # of the table
    prior_scale: float
    classes: tuple[str, ...] = ()  # of a multinomial model
    group: str = ""  # what groups are called

    @property
    def names(self) -> list[str]:
        """Of all components, each once, in the order of their draws."""
        found = self.units(np.zeros(len(self.init)))
        labels = {"coefficient": self.columns, "group_sd": [f"sd of {self.group}"]}
        for name in found:
            labels.setdefault(name, [name.replace("_", " ")])
        if self.classes:
            for name in ("coefficient", "intercept"):
                labels[name] = [f"{c}: {label}" for c in self.classes for label in labels[name]]
        return list(distinct([label for name in sorted(found) for label in labels[name]]))

    @property
    def sampled(self) -> list[str]:
        """Of what is sampled, in the order of the position."""
        free = 1 if self.units.contrasts is None else self.units.contrasts.shape[1]
        if free > 1:
            return [f"contrast {k}" for k in range(len(self.init))]
        names, columns = self.names, len(self.columns)  # in which a column may be "intercept"
        _, *others = sorted(self.units(np.zeros(len(self.init))))  # after the coefficients
        order = ["intercept"] * self.units.intercept + [*self.units.family.shapes]
        order += ["group_sd"] * self.units.grouped
        return names[:columns] + [names[columns + others.index(name)] for name in order]

    def with_classes(self, names: tuple[str, ...]) -> "Model":
        """The same where two classes have other names."""
        if len(names) != 2:
            return self
        shown = tuple(legible(name) for name in names)
        family, grouped = self.units.family, self.units.grouped
        meaning = _meaning(family, shown, self.prior_scale, grouped)
        return dataclasses.replace(self, title=title(family, shown), meaning=meaning)


class Prior(eqx.Module):
    """log N(w; 0, scale^2 I), the shapes' priors, and a half-normal one of the sd of groups."""

    scale: Float[Array, ""]
    family: Family = eqx.field(static=True)
    coefficients: int = eqx.field(static=True)
    grouped: bool = eqx.field(static=True, default=False)

    def __call__(self, position: Float[Array, " d"]) -> Float[Array, ""]:
        """Log density."""
        shapes = position[self.coefficients :]
        found = -0.5 * jnp.sum(position[: self.coefficients] ** 2) / self.scale**2
        if self.grouped:
            found += shapes[-1] - 0.5 * jnp.exp(2.0 * shapes[-1]) / self.scale**2
        return found + self.family.log_prior(shapes, self.scale)


class Likelihood(eqx.Module):
    """log p(y | x, position) of one row (x, y), with its offset and weight where it has them."""

    base: Float[Array, "..."]  # of the linear predictor, of each class
    contrasts: Float[Array, "classes free"] | None
    family: Family = eqx.field(static=True)
    has_offset: bool = eqx.field(static=True)

    def __call__(
        self, position: Float[Array, " d"], row: PyTree, latent: Any = 0.0
    ) -> Float[Array, ""]:
        """Log-likelihood."""
        x, y, *rest = row
        width = x.shape[0]
        if self.contrasts is None:
            eta = position[:width] @ x + self.base  # all chains' scores come out contiguous
        else:
            width *= self.contrasts.shape[1]
            eta = self.contrasts @ (position[:width].reshape(-1, x.shape[0]) @ x) + self.base
        if self.has_offset:
            eta = eta + rest.pop(0)
        shapes = position[width : width + len(self.family.shapes)]
        value = self.family.log_likelihood(y, eta + latent, shapes)
        return rest[0] * value if rest else value


class GroupLikelihood(eqx.Module):
    """The same with the latent of the row's group."""

    inner: Likelihood

    def __call__(self, position: Float[Array, " d"], latent: Any, row: PyTree) -> Array:
        """Log-likelihood."""
        return self.inner(position, row, latent)


def log_latent(latent: Any, position: Float[Array, " d"]) -> Array:
    """N(0, sd^2), with the log sd last in the position."""
    return -0.5 * (latent * jnp.exp(-position[-1])) ** 2 - position[-1]


def _prior(scale: float, family: Family, coefficients: int, grouped: bool = False) -> Prior:
    scale = real_number("prior_scale", scale, above=0.0)
    return Prior(jnp.asarray(scale, jnp.float32), family, coefficients, grouped)


def regression(
    rows: Rows, family: Family, prior_scale: float = 1.0, intercept: bool = True
) -> Model:
    """The model of a design matrix in the user's units.

    Args:
        rows: with columns that vary.
        family: the law of the target.
        prior_scale: the sd of the prior of the coefficients of standardised columns.
        intercept: whether there is one.

    Raises:
        ValueError: a scale that is not positive, or numbers too large or small to compute with.
    """
    units, y = standardised(rows, family, intercept)
    z = (rows.x - units.centre) / units.scale
    z = np.column_stack([z, np.ones(len(z))]) if intercept else z
    parts = [z, y]
    offset = None if family.link is None else rows.offset
    if offset is not None:
        parts.append(offset)
    grouped = rows.groups is not None
    whole = rows.weight is None and (len(z) > MOST or grouped)
    if not whole:
        parts.append(np.ones(len(z)) if rows.weight is None else rows.weight)
    data = tuple(jnp.asarray(a, jnp.float32) for a in (parts if grouped else padded(parts)))
    free = 1 if units.contrasts is None else units.contrasts.shape[1]
    size = free * z.shape[1]
    prior = _prior(prior_scale, family, size, grouped)
    base = np.asarray(0.0 if family.link is None else units.target_centre, np.float32)
    contrasts = None if units.contrasts is None else jnp.asarray(units.contrasts, jnp.float32)
    inner = Likelihood(jnp.asarray(base), contrasts, family, offset is not None)
    if grouped:
        count = len(rows.group[1])
        posterior: Any = ex.groups.GroupedPosterior(
            prior, log_latent, GroupLikelihood(inner), data, rows.groups, num_groups=count
        )
    else:
        posterior = ex.Posterior(prior, inner, data)
    init = jnp.zeros(size + len(family.shapes) + grouped, jnp.float32)
    classes = tuple(legible(str(name)) for name in rows.classes)
    return Model(
        posterior, init, rows.names, units, title(family, classes),
        _meaning(family, classes, prior_scale, grouped), len(z), float(prior_scale),
        classes if contrasts is not None else (), rows.group[0],
    )  # fmt: skip


def padded(parts: list[np.ndarray]) -> list[np.ndarray]:
    """Rows of weight 0 up to the next power of two, where rows are few; the weights stand last.

    Programs are compiled for a number of rows. So the folds of a cross-validation, or tables of
    much the same size, need one program and not one each, for at most twice the arithmetic, which
    is the lesser part where rows are few.
    """
    rows = len(parts[0])
    more = rows_of_program(rows) - rows
    if not more:
        return parts
    return [np.concatenate([a, np.zeros((more, *a.shape[1:]))]) for a in parts]


def rows_of_program(rows: int) -> int:
    """What so many rows are filled up to."""
    return rows if rows > MOST else min(max(FEWEST, 1 << (rows - 1).bit_length()), MOST)


def standardised(rows: Rows, family: Family, intercept: bool) -> tuple[Units, np.ndarray]:
    """How columns and target are standardised, by their weighted means and sds; the target.

    Where the mean is the linear predictor, the target is less its offset: in single precision a
    difference of large numbers would lose its figures.
    """
    weight, offset = rows.weight, rows.offset
    centre, scale = _moments(rows.x, [f"column {n!r}" for n in rows.names], weight, intercept)
    contrasts = contrasts_of(len(rows.classes)) if len(rows.classes) > 2 else None
    if family.link is None:
        y = rows.y if offset is None else rows.y - offset
        found = _moments(y[:, None], ["the target"], weight, intercept)
        middle, spread = (float(a[0]) for a in found)
        spread = spread if spread > 0 else 1.0
        units = Units(centre, scale, middle, spread, family)
        y = (y - middle) / spread
    else:
        indicator = rows.y[:, None] == np.arange(len(rows.classes)) if contrasts is not None else 0
        values = rows.y if contrasts is None else indicator
        middle = np.average(values, axis=0, weights=weight)
        if offset is not None and family.link is np.log:
            middle = middle / np.average(np.exp(offset), weights=weight)
            offset = None
        middle = family.link(middle) if intercept else np.zeros_like(middle)
        middle = middle if offset is None else middle - np.average(offset, weights=weight)
        units, y = Units(centre, scale, middle, 1.0, family, contrasts), rows.y
    return dataclasses.replace(units, intercept=intercept, grouped=rows.groups is not None), y


def _moments(
    x: np.ndarray, names: list[str], weight: np.ndarray | None, intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and sd; without an intercept 0 and the root of the mean square."""
    centre = np.zeros(x.shape[1])
    if not len(centre):
        return centre, centre
    with np.errstate(over="ignore", invalid="ignore"):  # which is refused below
        centre = np.average(x, axis=0, weights=weight) if intercept else centre
        spread = np.abs(x - centre).max(axis=0)
    wrong = (spread != 0.0) & ~((spread > LEAST_SPREAD) & (spread < MOST_SPREAD))
    if wrong.any():
        k = int(np.argmax(wrong))
        size = np.abs(x[:, k]).max()
        raise ValueError(
            f"{names[k]} has numbers too {'large' if size > 1.0 else 'small'} to compute with, "
            f"such as {size:.3g}. Try other units: divide it by {size:.0e}."
        )
    return centre, np.sqrt(np.average((x - centre) ** 2, axis=0, weights=weight))


def contrasts_of(classes: int) -> np.ndarray:
    """From one number fewer than classes to numbers that sum to 0, one of each class.

    The log odds of any two classes have the prior that those of two have, whichever stands first.

    Example:
        >>> contrasts_of(2).round(3).tolist()
        [[0.5], [-0.5]]
    """
    from scipy.linalg import helmert

    return helmert(classes).T / np.sqrt(2.0)


def title(family: Family, classes: tuple[str, ...]) -> str:
    """What is regressed on what."""
    return f"{classes[1]} against {classes[0]}" if len(classes) == 2 else family.title


def _meaning(
    family: Family, classes: tuple[str, ...], scale: float, grouped: bool
) -> tuple[str, ...]:
    what = f"the log odds of {classes[1]}" if len(classes) == 2 else family.meaning
    where = "the mean of the target" if family.link is None else "that of the target's mean"
    unit = "" if family.link else " in standard deviations of the target"
    prior = (
        f"The prior is N(0, {scale:g}²){unit} for each coefficient "
        "times its column's standard deviation, and for the intercept at the "
        f"columns' means, about {where}"
    )
    rest = [family.prior.format(scale)] if family.prior else []
    if grouped:
        rest.append(f"the sd of the groups' effects is half-normal with scale {scale:g}")
    sentence = (
        f"A coefficient is the change of {what} with one unit of its column; the intercept is "
        "where all columns are 0."
    )
    return sentence, "; ".join([prior, *rest]) + "."


def distinct(names: list[str]) -> Iterator[str]:
    """Each name, with a number where it came before."""
    seen: dict[str, int] = {}
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        yield name if seen[name] == 1 else f"{name} ({seen[name]})"
