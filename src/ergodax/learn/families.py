"""What the target of a regression is distributed as: one likelihood each, by JAX and by SciPy.

The likelihood by JAX is what is sampled, of one row, up to a constant, in numbers that have no
bounds. Density, distribution function and moments by SciPy are what predictions are made of, in the
user's units and double precision.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import special, stats

Numbers = dict[str, np.ndarray]  # draws by name

SHIFT = 8  # from which on Stirling's series is exact to single precision
LARGEST = 340.0  # log rate of a predicted count: the square of its exponential is still a number


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """A distribution of the target, given the linear predictor eta."""

    name: str  # of the constant in this module, by which it is pickled
    title: str
    meaning: str  # of a coefficient: the change of ... with one unit of its column
    shapes: tuple[str, ...]  # parameters beside the coefficients, in the user's units
    log_likelihood: Callable[..., Any]  # (y, eta, shapes) -> of one row, shapes unbounded
    log_prior: Callable[..., Any]  # (shapes, scale) -> of the shapes, Jacobian included
    prior: str  # the same as a sentence
    units: Callable[..., Any]  # (shapes, scale of the target) -> {name: in the user's units}
    link: Callable[[Any], Any] | None  # the mean's, where the target is not standardised
    law: Callable[..., Any]  # (eta, shapes in the user's units) -> a distribution of SciPy
    log_density: Callable[..., Any]  # (y, eta, shapes in the user's units), complete

    def __reduce__(self) -> str:
        return self.name


def _normal(y: Array, eta: Array, shapes: Float[Array, " 1"]) -> Array:
    return -0.5 * ((y - eta) * jnp.exp(-shapes[0])) ** 2 - shapes[0]


def _student(y: Array, eta: Array, shapes: Float[Array, " 2"]) -> Array:
    log_sd, half = shapes[0], 0.5 * jnp.exp(shapes[1])
    z = (y - eta) * jnp.exp(-log_sd)
    norm = -jax.scipy.special.betaln(half, 0.5 * jnp.ones_like(half)) - 0.5 * jnp.log(2.0 * half)
    return norm - log_sd - (half + 0.5) * jnp.log1p(0.5 * z**2 / half)


def _bernoulli(y: Array, eta: Array, shapes: Float[Array, " 0"]) -> Array:
    return y * eta - jax.nn.softplus(eta)


def _categorical(y: Array, eta: Float[Array, " classes"], shapes: Float[Array, " 0"]) -> Array:
    hit = jnp.arange(eta.shape[0]) == y.astype(jnp.int32)
    return jnp.sum(jnp.where(hit, eta, 0.0)) - jax.nn.logsumexp(eta)


def _log_excess(y: Array, eta: Array) -> tuple[Array, Array]:
    """d = eta - log y, in which large counts cancel, and the y of it, which is 1 for y = 0."""
    known = jnp.where(y > 0.0, y, 1.0)
    return eta - jnp.log(known), known


def _poisson(y: Array, eta: Array, shapes: Float[Array, " 0"]) -> Array:
    d, known = _log_excess(y, eta)
    return y * d - known * jnp.expm1(d) - (known - y)


def _negative_binomial(y: Array, eta: Array, shapes: Float[Array, " 1"]) -> Array:
    """With variance mu + a mu^2, r = 1 / a; large terms cancel by hand, of any y and any r.

    The likelihood over that of mu = y is, with d = log(mu / y) and s = y + r, both
    y d - s log(1 + y (e^d - 1) / s) and - r d - s log(1 + r (e^-d - 1) / s).
    That of mu = y has log Gamma(y + r) - log Gamma(r), which is computed at R = r + 8 by Stirling's
    series and brought back by the recursion of Gamma.
    """
    r = jnp.exp(-2.0 * shapes[0])
    big = r + SHIFT
    k = jnp.arange(SHIFT, dtype=r.dtype)
    recursion = jnp.sum(jnp.log1p(y / (r + k)))
    series = (SHIFT - 0.5) * jnp.log1p(y / big) + (1.0 / (y + big) - 1.0 / big) / 12.0
    shifted = (y + r) * jnp.log1p(SHIFT / (y + r)) - r * jnp.log1p(SHIFT / r)
    d, known = _log_excess(y, eta)
    low, high = jnp.where(y < r, d, 0.0), jnp.where(y < r, 0.0, d)  # one of them is 0, and says so
    excess = known * jnp.expm1(low) + (known - y)
    below = y * low - (y + r) * jnp.log1p(excess / (y + r))
    above = -r * high - (y + r) * jnp.log1p(r * jnp.expm1(-high) / (y + r))
    return below + above + series + shifted - recursion


def _normal_prior(shapes: Float[Array, " k"], scale: Array) -> Array:
    return -0.5 * (shapes[0] / scale) ** 2


def _student_prior(shapes: Float[Array, " k"], scale: Array) -> Array:
    """That of the normal, and Gamma(2, 0.1) of the degrees of freedom (Juarez and Steel, 2010)."""
    return _normal_prior(shapes, scale) + 2.0 * shapes[1] - 0.1 * jnp.exp(shapes[1])


def _no_prior(shapes: Float[Array, " k"], scale: Array) -> Array:
    return jnp.zeros(())


def _dispersion_prior(shapes: Float[Array, " k"], scale: Array) -> Array:
    """Exponential of the root, which shrinks towards Poisson (Simpson et al., 2017)."""
    return shapes[0] - jnp.exp(shapes[0])


def _law_nb(eta: Any, shapes: Numbers) -> Any:
    a = shapes["dispersion"]
    return stats.nbinom(1.0 / a, 1.0 / (1.0 + a * np.exp(np.minimum(eta, LARGEST))))


def _density_nb(y: Any, eta: Any, shapes: Numbers) -> Any:
    r = 1.0 / shapes["dispersion"]
    log_r = np.log(r)
    ways = special.gammaln(y + r) - special.gammaln(r) - special.gammaln(y + 1.0)
    return ways + y * (eta - log_r) - (y + r) * np.logaddexp(0.0, eta - log_r)


def _density_poisson(y: Any, eta: Any, shapes: Numbers) -> Any:
    return y * eta - np.exp(eta) - special.gammaln(y + 1.0)


SD_PRIOR = "the logarithm of the residual sd is N(0, {0:g}²), in sds of the target"
LINEAR = Family(
    "LINEAR", "linear regression", "the target, in its own units,", ("residual_sd",),
    _normal, _normal_prior, SD_PRIOR,
    lambda s, scale: {"residual_sd": scale * np.exp(s[..., 0])}, None,
    lambda eta, s: stats.norm(eta, s["residual_sd"]),
    lambda y, eta, s: stats.norm.logpdf(y, eta, s["residual_sd"]),
)  # fmt: skip
ROBUST = Family(
    "ROBUST", "robust linear regression", "the target, in its own units,",
    ("residual_sd", "degrees_of_freedom"), _student, _student_prior,
    SD_PRIOR.replace("residual sd", "residual scale")
    + ", and the degrees of freedom of Student's t are Gamma(2, 0.1)",
    lambda s, scale: {
        "residual_sd": scale * np.exp(s[..., 0]), "degrees_of_freedom": np.exp(s[..., 1])
    }, None,
    lambda eta, s: stats.t(s["degrees_of_freedom"], eta, s["residual_sd"]),
    lambda y, eta, s: stats.t.logpdf(y, s["degrees_of_freedom"], eta, s["residual_sd"]),
)  # fmt: skip
LOGISTIC = Family(
    "LOGISTIC", "logistic regression", "the log odds", (), _bernoulli, _no_prior, "",
    lambda s, scale: {}, special.logit,
    lambda eta, s: stats.bernoulli(special.expit(eta)),
    lambda y, eta, s: special.log_expit((2.0 * y - 1.0) * eta),
)  # fmt: skip
MULTINOMIAL = Family(
    "MULTINOMIAL", "multinomial logistic regression",
    "the log odds against the mean of all classes", (),
    _categorical, _no_prior, "", lambda s, scale: {}, np.log,
    lambda eta, s: None,
    lambda y, eta, s: np.take_along_axis(
        special.log_softmax(eta, axis=-1), y.astype(int)[..., None] + np.zeros_like(eta[..., :1],
        int), axis=-1)[..., 0],
)  # fmt: skip
POISSON = Family(
    "POISSON", "Poisson regression", "the logarithm of the mean", (), _poisson, _no_prior, "",
    lambda s, scale: {}, np.log,
    lambda eta, s: stats.poisson(np.exp(np.minimum(eta, LARGEST))), _density_poisson,
)  # fmt: skip
NEGATIVE_BINOMIAL = Family(
    "NEGATIVE_BINOMIAL", "negative binomial regression", "the logarithm of the mean",
    ("dispersion",), _negative_binomial, _dispersion_prior,
    "the variance is mu + a mu², and the root of the dispersion a is exponential with mean 1",
    lambda s, scale: {"dispersion": np.exp(2.0 * s[..., 0])}, np.log, _law_nb, _density_nb,
)  # fmt: skip
