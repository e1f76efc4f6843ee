"""Zero-variance control variates: the gradient at the draws takes variance out of averages."""

import dataclasses
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, PyTree

from ergodax import tree
from ergodax.checks import choice, flag, real_number, whole_number
from ergodax.stats.draws import columns, positions_of
from ergodax.stats.estimators import effective_size, standard_error

DRAWS_TO_A_FEATURE = 10  # fewer effective draws than that, and the fit is mostly noise
NEGLIGIBLE = 1e-10  # an eigenvalue of the features' correlation matrix


@dataclasses.dataclass(frozen=True)
class ZeroVariance:
    """Averages with control variates, and without for comparison; an entry for each functional.

    Attributes:
        names: of the functionals.
        mean: the improved estimates.
        mcse: their Monte Carlo standard errors, by the effective size of the corrected series.
        plain_mean: averages of the draws as they are.
        plain_mcse: their standard errors.
        series: the corrected series, (chains, draws, functionals); `mean` is its mean.
        coefficients: of the features, (features, functionals), averaged over the folds.
        num_features: how many control variates.
    """

    names: tuple[str, ...]
    mean: Float[np.ndarray, " k"]
    mcse: Float[np.ndarray, " k"]
    plain_mean: Float[np.ndarray, " k"]
    plain_mcse: Float[np.ndarray, " k"]
    series: Float[np.ndarray, "chains draws k"]
    coefficients: Float[np.ndarray, "m k"]
    num_features: int

    @property
    def reduction(self) -> Float[np.ndarray, " k"]:
        """The factor by which the variance of each estimate is lower; below 1 it is higher."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self.plain_mcse / self.mcse) ** 2

    def table(self) -> Any:
        """A pandas DataFrame, a row for each functional."""
        import pandas as pd

        fields = ("mean", "mcse", "plain_mean", "plain_mcse", "reduction")
        values = {name: getattr(self, name) for name in fields}
        return pd.DataFrame(values, index=pd.Index(self.names))

    def __str__(self) -> str:
        """A sentence, then the functionals, the least improved first."""
        ranks = np.argsort(self.reduction)
        lines = [
            f"{self.num_features} control variates: the variance is lower by a factor of "
            f"{np.median(self.reduction):.3g} (median), {self.reduction[ranks[0]]:.3g} (least)."
        ]
        for k in ranks[:5]:
            lines.append(
                f"  {self.names[k]}: {self.mean[k]:.6g} +- {self.mcse[k]:.2g}, plain "
                f"{self.plain_mean[k]:.6g} +- {self.plain_mcse[k]:.2g}"
            )
        return "\n".join(lines)


class Data(NamedTuple):
    """What coefficients are fitted on, a row for each draw."""

    x: Float[np.ndarray, "n d"]
    slope: Float[np.ndarray, "n d"]  # grad U / T there, exact or unbiased
    values: Float[np.ndarray, "n k"]  # of the functionals
    batch: Int[np.ndarray, " n"]  # the stretch of a chain that the row is in, ascending

    def rows(self, keep: np.ndarray) -> "Data":
        """Some of the rows."""
        return Data(*(each[keep] for each in self))


class Basis(NamedTuple):
    """The control variates of `zero_variance`, made with the mean and covariance of draws.

    They are T div v - v . grad U, of mean 0 under exp(-U / T), for the fields v = Sigma_i / T and
    z_i Sigma_j / T, up to the sign.
    """

    centre: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "..."]  # (d, d), or its diagonal (d,)
    order: int
    cross: bool  # whether there are pairs i < j

    @classmethod
    def of(cls, x: Float[np.ndarray, "n d"], order: int, *, cross: bool, diagonal: bool) -> "Basis":
        """From the moments of draws."""
        spread = x.var(axis=0) if diagonal else np.cov(x, rowvar=False, ddof=0)
        return cls(x.mean(axis=0), spread if diagonal else np.atleast_2d(spread), order, cross)

    def controls(self, data: Data) -> Float[np.ndarray, "n m"]:
        """The control variates at the draws."""
        spread = self.covariance
        p = data.slope * spread if spread.ndim == 1 else data.slope @ spread
        return self._polynomials(data.x - self.centre, p)

    def surrogates(self, data: Data) -> Float[np.ndarray, "n m"]:
        """What they would be on a Gaussian with this mean and covariance: no gradient, no noise."""
        z = data.x - self.centre
        return self._polynomials(z, z)

    def _polynomials(
        self, z: Float[np.ndarray, "n d"], p: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, "n m"]:
        if self.order == 1:
            return p
        d, spread = z.shape[1], self.covariance
        i, j = np.triu_indices(d) if self.cross else (np.arange(d), np.arange(d))
        entries = np.where(i == j, spread[i], 0.0) if spread.ndim == 1 else spread[i, j]
        return np.concatenate([p, entries - 0.5 * (z[:, i] * p[:, j] + z[:, j] * p[:, i])], axis=1)


def fit(data: Data, basis: Basis) -> Float[np.ndarray, "m k"]:
    """How much of each control variate to subtract from each functional.

    The regression on the control variates, or on the surrogates and shrunk by a factor in [0, 1]:
    for each functional what leaves the least variance in the means of stretches of a chain. Noise
    is fresh at each draw, so it counts for less in these than in a single draw.
    """
    controls = basis.controls(data)
    sums = _batch_sums(data.values, data.batch)
    direct = _least_squares(controls, data.values)
    clean = _least_squares(basis.surrogates(data), data.values)
    moved = _batch_sums(controls @ clean, data.batch)
    size = np.sum(moved**2, axis=0)
    share = np.clip(np.sum(moved * sums, axis=0) / np.where(size > 0, size, 1.0), 0.0, 1.0)
    left = np.sum((sums - share * moved) ** 2, axis=0)
    left_direct = np.sum((sums - _batch_sums(controls @ direct, data.batch)) ** 2, axis=0)
    return np.where(left < left_direct, share * clean, direct)


def _least_squares(
    features: Float[np.ndarray, "n m"], values: Float[np.ndarray, "n k"]
) -> Float[np.ndarray, "m k"]:
    """The regression of the values, directions without variance left out."""
    scale = features.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    features = (features - features.mean(axis=0)) / scale
    size, vectors = np.linalg.eigh(features.T @ features)
    kept = size > NEGLIGIBLE * size.max()
    inverse = np.where(kept, 1.0 / np.where(kept, size, 1.0), 0.0)
    moments = features.T @ (values - values.mean(axis=0))
    return (vectors * inverse) @ (vectors.T @ moments) / scale[:, None]


def _batch_sums(
    values: Float[np.ndarray, "n k"], batch: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "b k"]:
    """Sums of the deviations from the mean over each stretch."""
    starts = np.flatnonzero(np.diff(batch, prepend=-1))
    return np.add.reduceat(values - values.mean(axis=0), starts, axis=0)


def zero_variance(
    draws: PyTree,
    gradients: PyTree,
    *,
    functions: Any = "mean",
    order: int = 1,
    cross: bool = False,
    fit_on: tuple[Any, Any] | None = None,
    diagonal: bool = False,
    folds: int = 4,
    temperature: float = 1.0,
) -> ZeroVariance:
    """Averages of functionals with zero-variance control variates.

    With z = x - centre, Sigma the covariance of the draws and p = Sigma grad U / T, the control
    variates are p_i (order 1) and Sigma_ij - (z_i p_j + z_j p_i) / 2 (order 2). All have mean 0
    under exp(-U / T), with an unbiased noisy gradient as well. On a Gaussian p = z, and order 1
    leaves no variance in the means, order 2 none in the variances.

    Coefficients are fitted on the other folds, so that the fit brings no bias. Least squares is
    best for exact gradients; a noise variance V attenuates it, by Lambda / (Lambda + V) in a
    direction of curvature Lambda. The alternative regresses the functional on the features with z
    in place of p and shrinks the result by one factor. For each functional the better of the two
    is taken; both are unbiased under exp(-U / T).

    Control variates of order 1 have mean 0 under the law of SGLD itself and leave the bias of its
    step size as it is. Those of order 2 have not, and take most of the bias out of the variances of
    a nearly Gaussian posterior.

    Args:
        draws: a Samples, or a tree of arrays (chains, draws, ...).
        gradients: of U at these draws (not thinned), from `postprocess.gradients`.
        functions: "mean" of each component; "variance", the mean square distance of each from the
            improved mean; or a function of the position that returns an array.
        order: of the polynomials, 1 or 2.
        cross: with order 2, products of different components as well, d (d + 3) / 2 features
            instead of 2 d. Without them the variances of a Gaussian are exact already.
        fit_on: (draws, gradients), not of this run, with little noise, such as full gradients at a
            few draws: the coefficients are fitted on these alone.
        diagonal: take the diagonal of Sigma; for d so large that (d, d) matrices are too much.
        folds: groups of chains, or stretches of each chain where there are fewer chains.
        temperature: T of the density exp(-U / T).

    Raises:
        TypeError: a `fit_on` that is no pair.
        ValueError: a number out of range, or shapes that do not fit.

    Warns:
        UserWarning: fewer than 10 effective draws for each feature. Lower the order, or drop
            `cross`.

    Example:
        >>> import ergodax as ex, jax
        >>> draws = jax.random.normal(jax.random.key(0), (4, 1_000))  # chains, draws
        >>> gradients = draws  # of U = x^2 / 2
        >>> found = ex.postprocess.zero_variance(draws, gradients)
        >>> bool(abs(found.mean) < 1e-5)  # the mean is 0 exactly
        True

    Reference:
        Mira, Solgi and Imparato, Zero variance Markov chain Monte Carlo for Bayesian estimators,
        2013; Baker, Fearnhead, Fox and Nemeth, Control variates for stochastic gradient MCMC,
        2019.
    """
    _check(functions, order, cross, folds, temperature)
    flag("diagonal", diagonal)
    if fit_on is not None and not (isinstance(fit_on, tuple | list) and len(fit_on) == 2):
        raise TypeError(f"fit_on must be a pair (draws, gradients), not {type(fit_on).__name__}.")
    table = columns(draws)
    chains, length, d = table.values.shape

    def improve(function: Callable[..., Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        data = _data(draws, gradients, function, temperature)
        inside = _folds(chains, length, folds) if fit_on is None else [np.ones(len(data.x), bool)]
        near = None if fit_on is None else _data(*fit_on, function, temperature)
        corrected, fits = np.empty_like(data.values), []
        for test in inside:
            train = near or data.rows(~test)
            basis = Basis.of(train.x, order, cross=cross, diagonal=diagonal)
            fits.append(fit(train, basis))
            corrected[test] = data.values[test] - basis.controls(data.rows(test)) @ fits[-1]
        series, plain = (x.reshape(chains, length, -1) for x in (corrected, data.values))
        return series, plain, np.mean(fits, axis=0)

    def flat(draws: PyTree) -> np.ndarray:
        return columns(draws).values.reshape(-1, d)

    names, function = table.names, flat
    if not isinstance(functions, str):
        names, function = None, _mapped(functions)
    elif functions == "variance":
        centre = improve(flat)[0].mean(axis=(0, 1))
        names = tuple(f"var {name}" for name in names)
        function = lambda draws: (flat(draws) - centre) ** 2  # noqa: E731
    series, plain, coefficients = improve(function)
    if fit_on is None:
        _warn(table.values, len(coefficients))
    return ZeroVariance(
        names or tuple(f"f[{k}]" for k in range(series.shape[-1])),
        *(series.mean(axis=(0, 1)), standard_error(series)),
        *(plain.mean(axis=(0, 1)), standard_error(plain)),
        *(series, coefficients, len(coefficients)),
    )


def _data(
    draws: PyTree, gradients: PyTree, function: Callable[..., Any], temperature: float
) -> Data:
    x, slope = columns(draws).values, columns(gradients, "gradients").values
    if slope.shape != x.shape:
        raise ValueError(f"gradients must be at every draw, {x.shape}, not {slope.shape}.")
    chains, length, d = x.shape
    stretch = max(1, round(length ** (2.0 / 3.0)))
    batch = np.arange(chains)[:, None] * length + np.arange(length)[None, :] // stretch
    flat = x.reshape(-1, d), slope.reshape(-1, d) / temperature
    return Data(*flat, function(draws), batch.reshape(-1))


def _mapped(function: Callable[[PyTree], Any]) -> Callable[[Any], np.ndarray]:
    """A user's function of a position, at all draws."""

    @jax.jit
    def values(positions: PyTree) -> Any:
        return jax.vmap(lambda p: tree.ravel(function(tree.thaw(p)))[0])(positions)

    def of(draws: PyTree) -> np.ndarray:
        frozen = tree.freeze(positions_of(draws))
        merged = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), frozen)
        return np.asarray(values(merged), np.float64)

    return of


def _folds(chains: int, length: int, folds: int) -> list[np.ndarray]:
    """Which draws are in each fold: whole chains, or stretches where there are too few."""
    if chains >= folds:
        label = np.repeat(np.arange(chains) * folds // chains, length)
    else:
        label = np.tile(np.arange(length) * folds // length, chains)
    return [label == fold for fold in range(folds)]


def _warn(x: Float[np.ndarray, "chains draws d"], num_features: int) -> None:
    size = np.median(effective_size(x))
    if size < DRAWS_TO_A_FEATURE * num_features:
        warnings.warn(
            f"{num_features} control variates are fitted on {size:.0f} effective draws, fewer than "
            f"{DRAWS_TO_A_FEATURE} each: the estimates stay unbiased, but may gain little. Try "
            "more draws, order=1 or cross=False.",
            UserWarning,
            stacklevel=3,
        )


def _check(functions: Any, order: int, cross: bool, folds: int, temperature: float) -> None:
    if not callable(functions):
        choice("functions", functions, ("mean", "variance"))
    whole_number("order", order, below=3)
    if flag("cross", cross) and order == 1:
        raise ValueError("cross must be False for order=1, which has no products.")
    whole_number("folds", folds, at_least=2, hint="One fits and one is corrected.")
    real_number("temperature", temperature, above=0.0)
