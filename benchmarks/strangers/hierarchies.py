"""Groups that share a distribution, centred and not; the scales are sampled as logarithms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import cauchy, norm
from jaxtyping import Array

import ergodax as ex
from benchmarks.strangers.bank import Problem, case, rows, zeros
from benchmarks.strangers.reference import Reference, nuts, of_two, quadrature

NECK = r"funnel|centred|centered|diverg|scale.*group|curvature var|tau|tail"

SCHOOLS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
SCHOOLS_SD = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])


def half_normal(log_scale: Array, sd: float = 1.0) -> Array:
    """The log density of the logarithm of a half-normal scale."""
    return norm.logpdf(jnp.exp(log_scale), 0.0, sd) + log_scale


def half_cauchy(log_scale: Array, scale: float = 1.0) -> Array:
    """The log density of the logarithm of a half-Cauchy scale."""
    return cauchy.logpdf(jnp.exp(log_scale), 0.0, scale) + log_scale


def schools_potential(p: Any) -> Array:
    """Eight schools, not centred."""
    y, sd = rows(SCHOOLS, SCHOOLS_SD)
    theta = p["mu"] + jnp.exp(p["log_tau"]) * p["z"]
    log = half_cauchy(p["log_tau"], 5.0) + norm.logpdf(p["mu"], 0.0, 5.0)
    return -(log + norm.logpdf(p["z"]).sum() + norm.logpdf(y, theta, sd).sum())


@case("schools", "eight schools, not centred", causes=NECK)
def schools() -> Problem:
    start = zeros(log_tau=(), mu=(), z=8)
    box = {"log_tau": (-16.0, 9.0)}
    return Problem(
        ex.Target(schools_potential),
        start,
        compute=lambda: quadrature(schools_potential, start, box, 401),
    )


@case("schools-centred", "eight schools, centred: a funnel in log tau", causes=NECK)
def schools_centred() -> Problem:
    y, sd = rows(SCHOOLS, SCHOOLS_SD)

    def potential(p: Any) -> Array:
        log = half_cauchy(p["log_tau"], 5.0) + norm.logpdf(p["mu"], 0.0, 5.0)
        log += norm.logpdf(p["theta"], p["mu"], jnp.exp(p["log_tau"])).sum()
        return -(log + norm.logpdf(y, p["theta"], sd).sum())

    def compute() -> Reference:
        start, box = zeros(log_tau=(), mu=(), z=8), {"log_tau": (-16.0, 9.0)}
        return quadrature(schools_potential, start, box, 401, centre)

    return Problem(ex.Target(potential), zeros(log_tau=(), mu=(), theta=8), compute=compute)


def centre(p: Any) -> Any:
    """From z to theta = mu + tau z."""
    theta = p["mu"] + jnp.exp(p["log_tau"]) * p["z"]
    return {name: value for name, value in p.items() if name != "z"} | {"theta": theta}


def gaussian_groups(
    groups: int,
    each: int,
    *,
    tau: float,
    sigma: float,
    centred: bool,
    seed: int,
    tau_box: tuple[float, float],
    points: tuple[int, int],
) -> Problem:
    """Rows of a normal variable in groups; mu, tau and sigma unknown."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), each)
    effects = 1.0 + tau * rng.standard_normal(groups)
    y, g = rows(effects[group] + sigma * rng.standard_normal(group.size), group)

    def scales(p: Any) -> Array:
        log = half_normal(p["log_tau"]) + half_normal(p["log_sigma"], 5.0)
        return log + norm.logpdf(p["mu"], 0.0, 5.0)

    def log_prior(p: Any) -> Array:
        if centred:
            return scales(p) + norm.logpdf(p["theta"], p["mu"], jnp.exp(p["log_tau"])).sum()
        return scales(p) + norm.logpdf(p["z"]).sum()

    def effect(p: Any, g: Any) -> Array:
        return p["theta"][g] if centred else p["mu"] + jnp.exp(p["log_tau"]) * p["z"][g]

    def log_likelihood(p: Any, row: Any) -> Array:
        y, g = row
        return norm.logpdf(y, effect(p, g), jnp.exp(p["log_sigma"]))

    def potential(p: Any) -> Array:
        """Not centred, by the means of the groups and the sum of squares within."""
        table = y.reshape(groups, each)
        means = table.mean(axis=1)
        squares = ((table - means[:, None]) ** 2).sum()
        theta = p["mu"] + jnp.exp(p["log_tau"]) * p["z"]
        off = squares + each * ((means - theta) ** 2).sum()
        log = -0.5 * off * jnp.exp(-2.0 * p["log_sigma"]) - y.size * p["log_sigma"]
        return -(log + scales(p) + norm.logpdf(p["z"]).sum())

    width = 9.0 / np.sqrt(2.0 * group.size)
    middle = float(np.log(np.std(y.reshape(groups, each), axis=1, ddof=1).mean()))
    box = {"log_sigma": (middle - width, middle + width), "log_tau": tau_box}
    begin = zeros(log_sigma=(), log_tau=(), mu=(), z=groups)
    change = {"position": centre} if centred else {}

    def compute() -> Reference:
        if centred and groups > 100:  # for which the Hessian of all effects is too large
            return of_many_groups(np.asarray(y, np.float64).reshape(groups, each), box, points)
        return quadrature(potential, begin, box, points, **change)

    start = centre(begin) if centred else begin
    return Problem(ex.Posterior(log_prior, log_likelihood, (y, g)), start, compute=compute)


def of_many_groups(y: np.ndarray, box: Any, points: tuple[int, int]) -> Reference:
    """The centred answer of `gaussian_groups`: mu and theta in closed form given both scales.

    Args:
        y: shape (groups, rows of each).
        box: ranges of log sigma and log tau.
        points: of these ranges.
    """
    groups, each = y.shape
    means, within = y.mean(axis=1), ((y - y.mean(axis=1, keepdims=True)) ** 2).sum()
    found = []
    for count in (points, tuple((n + 1) // 2 for n in points)):
        axes = (np.linspace(*ends, n) for ends, n in zip(box.values(), count, strict=True))
        log_sigma, log_tau = (x.ravel() for x in np.meshgrid(*axes, indexing="ij"))
        noise, between = np.exp(2.0 * log_sigma) / each, np.exp(2.0 * log_tau)
        total = noise + between
        precision = groups / total + 1.0 / 25.0
        mu = means.sum() / total / precision
        log = -y.size * log_sigma - 0.5 * within / (each * noise) + 0.5 * groups * np.log(noise)
        log += 0.5 * mu**2 * precision - 0.5 * (means**2).sum() / total
        log -= 0.5 * groups * np.log(total) + 0.5 * np.log(precision)
        log += log_tau - 0.5 * between + log_sigma - 0.5 * (each * noise) / 25.0
        w = np.exp(log - log.max())
        w /= w.sum()
        share = (between / total)[:, None]
        theta = share * means + (1.0 - share) * mu[:, None]
        spread = (share * noise[:, None]) + (1.0 - share) ** 2 / precision[:, None]
        level = np.column_stack([log_sigma, log_tau, mu, theta])
        none = np.zeros_like(mu)
        spread = np.column_stack(
            [none, none, 1.0 / precision, np.broadcast_to(spread, theta.shape)]
        )
        mean = w @ level
        found.append((mean, np.sqrt(w @ (spread + (level - mean) ** 2))))
    how = f"quadrature on {points[0]} x {points[1]} points, the other components in closed form"
    return of_two(found[0], found[1], how)


@case("groups-10-centred", "normal rows in 10 groups, 5,000 rows, centred", causes=NECK)
def groups_10_centred() -> Problem:
    return gaussian_groups(
        10, 500, tau=0.7, sigma=1.0, centred=True, seed=1, tau_box=(-3.5, 2.5), points=(31, 81)
    )


@case("groups-10-small", "normal rows in 10 groups, 200 rows, centred", causes=NECK)
def groups_10_small() -> Problem:
    return gaussian_groups(
        10, 20, tau=0.3, sigma=1.0, centred=True, seed=2, tau_box=(-14.0, 2.5), points=(31, 201)
    )


@case("groups-100", "normal rows in 100 groups, 2,000 rows, not centred", causes=NECK)
def groups_100() -> Problem:
    return gaussian_groups(
        100, 20, tau=0.2, sigma=1.0, centred=False, seed=3, tau_box=(-14.0, 0.5), points=(31, 201)
    )


@case("groups-1000-centred", "normal rows in 1,000 groups, 20,000 rows, centred", causes=NECK)
def groups_1000_centred() -> Problem:
    return gaussian_groups(
        1_000, 20, tau=0.5, sigma=1.0, centred=True, seed=4, tau_box=(-1.0, -0.4), points=(41, 61)
    )


@case("tau-near-zero", "normal rows in 50 groups without differences, 5,000 rows", causes=NECK)
def tau_near_zero() -> Problem:
    return gaussian_groups(
        50, 100, tau=0.0, sigma=1.0, centred=False, seed=5, tau_box=(-16.0, 0.0), points=(41, 201)
    )


@case("tau-near-zero-centred", "the same, centred: a narrow funnel", causes=NECK)
def tau_near_zero_centred() -> Problem:
    return gaussian_groups(
        50, 100, tau=0.0, sigma=1.0, centred=True, seed=5, tau_box=(-16.0, 0.0), points=(41, 201)
    )


@case("effects-logistic-200", "random effects, logistic, not centred, 200 groups, 100,000 rows")
def effects_logistic() -> Problem:
    """Two binary covariates, so that 800 cells have all that the rows say."""
    rng = np.random.default_rng(6)
    n, groups = 100_000, 200
    group = rng.integers(groups, size=n)
    x = rng.integers(2, size=(n, 2)).astype(float)
    score = -1.0 + x @ [0.8, -0.5] + 0.7 * rng.standard_normal(groups)[group]
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(float)

    def log_prior(p: Any) -> Array:
        log = half_normal(p["log_tau"]) + norm.logpdf(p["intercept"], 0.0, 5.0)
        return log + norm.logpdf(p["slope"], 0.0, 5.0).sum() + norm.logpdf(p["z"]).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        x, g, y = row
        score = p["intercept"] + x @ p["slope"] + jnp.exp(p["log_tau"]) * p["z"][g]
        return y * score - jax.nn.softplus(score)

    cell = (group * 2 + x[:, 0].astype(int)) * 2 + x[:, 1].astype(int)
    counts = np.bincount(cell, minlength=4 * groups).astype(float)
    positive = np.bincount(cell, y, 4 * groups)
    features = np.array([[a, b] for a in (0.0, 1.0) for b in (0.0, 1.0)] * groups)

    def centred(p: Any) -> Array:
        """The same with the groups' own levels in place of z, which mixes better."""
        level = norm.logpdf(p["z"], p["intercept"], jnp.exp(p["log_tau"])).sum()
        score = features @ p["slope"] + jnp.repeat(p["z"], 4)
        rows = (positive * score - counts * jax.nn.softplus(score)).sum()
        return -(log_prior(p | {"z": jnp.zeros(0)}) + level + rows)

    def position(p: Any) -> Any:
        return p | {"z": (p["z"] - p["intercept"]) * jnp.exp(-p["log_tau"])}

    start = zeros(intercept=(), log_tau=(), slope=2, z=groups)
    return Problem(
        ex.Posterior(log_prior, log_likelihood, rows(x, group, y)),
        start,
        compute=lambda: nuts(centred, start, draws=1_500, dense=False, position=position),
    )


@case(
    "radon-like", "85 counties of very different size, a slope, 12,573 rows, centred", causes=NECK
)
def radon_like() -> Problem:
    rng = np.random.default_rng(7)
    n, counties = 12_573, 85
    share = rng.pareto(1.0, counties) + 0.05
    group = rng.choice(counties, n, p=share / share.sum())
    floor = (rng.random(n) < 0.2).astype(float)
    level = 1.3 + 0.3 * rng.standard_normal(counties)
    y = level[group] - 0.6 * floor + 0.75 * rng.standard_normal(n)
    y, floor, group = rows(y, floor, group)

    def log_prior(p: Any) -> Array:
        log = half_normal(p["log_tau"]) + half_normal(p["log_sigma"])
        log += norm.logpdf(p["mu"], 0.0, 10.0) + norm.logpdf(p["slope"], 0.0, 10.0)
        return log + norm.logpdf(p["county"], p["mu"], jnp.exp(p["log_tau"])).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        y, floor, g = row
        return norm.logpdf(y, p["county"][g] + p["slope"] * floor, jnp.exp(p["log_sigma"]))

    cell = np.asarray(group) * 2 + np.asarray(floor).astype(int)
    count = np.bincount(cell, minlength=2 * counties).astype(float)
    total = np.bincount(cell, np.asarray(y, float), 2 * counties)
    square = float((np.asarray(y, float) ** 2).sum())

    def potential(p: Any) -> Array:
        mean = (p["county"][:, None] + p["slope"] * jnp.arange(2.0)).reshape(-1)
        off = square - 2.0 * (total * mean).sum() + (count * mean**2).sum()
        log = -0.5 * off * jnp.exp(-2.0 * p["log_sigma"]) - n * p["log_sigma"]
        return -(log_prior(p) + log)

    start = zeros(county=counties, log_sigma=(), log_tau=(), mu=(), slope=())
    box = {"log_sigma": (-0.35, -0.22), "log_tau": (-2.5, 0.2)}
    return Problem(
        ex.Posterior(log_prior, log_likelihood, (y, floor, group)),
        start,
        compute=lambda: quadrature(potential, start, box, (41, 61)),
    )


@case("crossed-effects", "60 students by 20 items, crossed normal effects, 1,200 rows", causes=NECK)
def crossed_effects() -> Problem:
    rng = np.random.default_rng(8)
    student, item = (x.ravel() for x in np.meshgrid(np.arange(60), np.arange(20), indexing="ij"))
    effect = 0.8 * rng.standard_normal(60)[student] + 0.4 * rng.standard_normal(20)[item]
    y, student, item = rows(2.0 + effect + rng.standard_normal(1_200), student, item)

    def log_prior(p: Any) -> Array:
        log = half_normal(p["log_a"]) + half_normal(p["log_b"]) + half_normal(p["log_sigma"])
        log += norm.logpdf(p["mu"], 0.0, 10.0) + norm.logpdf(p["a"]).sum()
        return log + norm.logpdf(p["b"]).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        y, i, j = row
        mean = p["mu"] + jnp.exp(p["log_a"]) * p["a"][i] + jnp.exp(p["log_b"]) * p["b"][j]
        return norm.logpdf(y, mean, jnp.exp(p["log_sigma"]))

    wide = np.asarray(y, np.float64).reshape(60, 20)
    by_row, by_column, grand = wide.mean(axis=1), wide.mean(axis=0), wide.mean()
    rest = float(((wide - by_row[:, None] - by_column + grand) ** 2).sum())

    def potential(p: Any) -> Array:
        """The same by the means of rows and columns: the sum of squares falls into four parts."""
        a, b = jnp.exp(p["log_a"]) * p["a"], jnp.exp(p["log_b"]) * p["b"]
        off = rest + 20.0 * ((by_row - grand - a + a.mean()) ** 2).sum()
        off += 60.0 * ((by_column - grand - b + b.mean()) ** 2).sum()
        off += 1_200.0 * (grand - p["mu"] - a.mean() - b.mean()) ** 2
        log = -0.5 * off * jnp.exp(-2.0 * p["log_sigma"]) - 1_200.0 * p["log_sigma"]
        return -(log_prior(p) + log)

    start = zeros(a=60, b=20, log_a=(), log_b=(), log_sigma=(), mu=())
    middle = 0.5 * np.log(rest / (59 * 19))
    box = {
        "log_a": (-1.0, 0.6),
        "log_b": (-2.2, 0.8),
        "log_sigma": (middle - 0.13, middle + 0.13),
    }
    return Problem(
        ex.Posterior(log_prior, log_likelihood, (y, student, item)),
        start,
        compute=lambda: quadrature(potential, start, box, (21, 25, 17)),
    )


@case("horseshoe", "regression, 100 rows, 20 coefficients, horseshoe prior", causes=NECK)
def horseshoe() -> Problem:
    rng = np.random.default_rng(9)
    x = rng.standard_normal((100, 20))
    y = x[:, :3] @ [2.0, -1.5, 1.0] + rng.standard_normal(100)

    def log_prior(p: Any) -> Array:
        log = half_cauchy(p["log_tau"], 0.1) + half_cauchy(p["log_lambda"]).sum()
        return log + norm.logpdf(p["z"]).sum() + half_normal(p["log_sigma"], 2.0)

    def log_likelihood(p: Any, row: Any) -> Array:
        x, y = row
        weights = p["z"] * jnp.exp(p["log_lambda"] + p["log_tau"])
        return norm.logpdf(y, x @ weights, jnp.exp(p["log_sigma"]))

    target = ex.Posterior(log_prior, log_likelihood, rows(x, y))
    start = zeros(log_lambda=20, log_sigma=(), log_tau=(), z=20)
    return Problem(
        target,
        start,
        compute=lambda: nuts(target.potential, start, draws=2_000, acceptance=0.98),
    )


@case("few-groups-logistic", "random effects, logistic, 5 groups, 300 rows", causes=NECK)
def few_groups_logistic() -> Problem:
    rng = np.random.default_rng(10)
    group = rng.integers(5, size=300)
    score = 0.5 + 0.5 * rng.standard_normal(5)[group]
    y = (rng.random(300) < 1.0 / (1.0 + np.exp(-score))).astype(float)

    def log_prior(p: Any) -> Array:
        log = half_cauchy(p["log_tau"], 2.5) + norm.logpdf(p["mu"], 0.0, 5.0)
        return log + norm.logpdf(p["z"]).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        g, y = row
        score = p["mu"] + jnp.exp(p["log_tau"]) * p["z"][g]
        return y * score - jax.nn.softplus(score)

    target = ex.Posterior(log_prior, log_likelihood, rows(group, y))
    start = zeros(log_tau=(), mu=(), z=5)
    return Problem(
        target,
        start,
        compute=lambda: nuts(target.potential, start, draws=4_000, acceptance=0.98),
    )


@case("slopes-by-group", "correlated intercepts and slopes of 30 groups, logistic, 3,000 rows")
def slopes_by_group() -> Problem:
    rng = np.random.default_rng(11)
    n, groups = 3_000, 30
    group, x = rng.integers(groups, size=n), rng.standard_normal(n)
    factor = np.array([[0.8, 0.0], [0.3, 0.5]])
    effects = np.array([-0.3, 0.6]) + rng.standard_normal((groups, 2)) @ factor.T
    score = effects[group, 0] + effects[group, 1] * x
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(float)

    def log_prior(p: Any) -> Array:
        log = half_normal(p["log_sd"]).sum() + norm.logpdf(p["corner"])
        return log + norm.logpdf(p["mean"], 0.0, 5.0).sum() + norm.logpdf(p["z"]).sum()

    def log_likelihood(p: Any, row: Any) -> Array:
        g, x, y = row
        sd, z = jnp.exp(p["log_sd"]), p["z"][g]
        slope = p["mean"][1] + p["corner"] * z[0] + sd[1] * z[1]
        score = p["mean"][0] + sd[0] * z[0] + slope * x
        return y * score - jax.nn.softplus(score)

    target = ex.Posterior(log_prior, log_likelihood, rows(group, x, y))
    start = zeros(corner=(), log_sd=2, mean=2, z=(groups, 2))
    return Problem(target, start, compute=lambda: nuts(target.potential, start, draws=2_500))
