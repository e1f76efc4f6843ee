"""Models as statisticians write them, with constraints, against exact answers and other densities.

A figure of `infer` may be off by the bias that it claims and five of its own standard errors (a
false alarm of 6e-7 each).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import cauchy, expon, norm

import ergodax as ex

RNG = np.random.default_rng(4)
ACCURACY = 0.1  # of every figure, in posterior sds

# Eight schools: effects of coaching and their standard errors (Rubin 1981).
EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def eight_schools():
    def potential(p):
        prior = norm.logpdf(p["mu"], 0, 5) + cauchy.logpdf(p["tau"], 0, 5)
        prior = prior + jnp.sum(norm.logpdf(p["z"]))
        theta = p["mu"] + p["tau"] * p["z"]
        return -prior - jnp.sum(norm.logpdf(EFFECTS.astype("f4"), theta, ERRORS.astype("f4")))

    start = {"mu": 0.0, "tau": 1.0, "z": jnp.zeros(8)}
    return ex.Target(potential, constraints={"tau": ex.transform.positive}), start


# Radon in houses: counties, the floor that was measured, and the logarithm of the activity.
COUNTIES = 12
COUNTY, FLOOR = RNG.integers(0, COUNTIES, 150), (RNG.uniform(size=150) < 0.3).astype("f4")
ACTIVITY = 1.3 + RNG.normal(0, 0.5, COUNTIES)[COUNTY] - 0.6 * FLOOR + RNG.normal(0, 0.8, 150)


def radon():
    def log_prior(p):
        prior = norm.logpdf(p["mu"], 0, 2) + norm.logpdf(p["slope"], 0, 2)
        scales = expon.logpdf(p["tau"]) + expon.logpdf(p["sigma"])
        return prior + scales + jnp.sum(norm.logpdf(p["county"], p["mu"], p["tau"]))

    def log_likelihood(p, house):
        county, floor, y = house
        return norm.logpdf(y, p["county"][county] + p["slope"] * floor, p["sigma"])

    data = (COUNTY, FLOOR, ACTIVITY.astype("f4"))
    scales = {"tau": ex.transform.positive, "sigma": ex.transform.positive}
    start = {"mu": 0.0, "slope": 0.0, "tau": 1.0, "sigma": 1.0, "county": jnp.zeros(COUNTIES)}
    return ex.Posterior(log_prior, log_likelihood, data, constraints=scales), start


# Item response: 30 persons, 5 items of unlike difficulty and discrimination, right or wrong.
ABILITY, DIFFICULTY = RNG.normal(size=30), np.linspace(-1.5, 1.5, 5)
RIGHT = RNG.uniform(size=(30, 5)) < 1 / (1 + np.exp(-1.2 * (ABILITY[:, None] - DIFFICULTY)))
PERSON, ITEM = (x.ravel() for x in np.indices(RIGHT.shape))


def item_response():
    def log_prior(p):
        log_slope = jnp.log(p["discrimination"])  # normal, so that the slopes are log-normal
        prior = jnp.sum(norm.logpdf(p["ability"])) + jnp.sum(norm.logpdf(p["difficulty"], 0, 2))
        return prior + jnp.sum(norm.logpdf(log_slope, 0, 0.5) - log_slope)

    def log_likelihood(p, answer):
        person, item, right = answer
        gap = p["discrimination"][item] * (p["ability"][person] - p["difficulty"][item])
        return -jax.nn.softplus(jnp.where(right, -gap, gap))

    start = {"ability": jnp.zeros(30), "difficulty": jnp.zeros(5), "discrimination": jnp.ones(5)}
    constraints = {"discrimination": ex.transform.positive}
    return ex.Posterior(log_prior, log_likelihood, (PERSON, ITEM, RIGHT.ravel()),
                        constraints=constraints), start  # fmt: skip


def item_response_by_hand():
    """The same in unconstrained numbers, with the Jacobian written out."""
    target, start = item_response()
    mine = lambda u: u | {"discrimination": jnp.exp(u["log_discrimination"])}  # noqa: E731

    def log_prior(u):
        return target.log_prior(mine(u)) + jnp.sum(u["log_discrimination"])

    posterior = ex.Posterior(log_prior, lambda u, x: target.log_likelihood(mine(u), x), target.data)
    rest = {name: start[name] for name in ("ability", "difficulty")}
    return posterior, rest | {"log_discrimination": jnp.zeros(5)}


def inferred(model, key):
    target, start = model()
    result = ex.infer(target, start, key=key, accuracy=ACCURACY, progress=False)
    assert result.converged, result.verdict()
    return result


def gaps(table, means, sds):
    """How far means and sds are from exact ones, in their own standard errors."""
    for name in means:
        row = table.loc[name]
        for figure, exact in (("mean", means[name]), ("sd", sds[name])):
            off = abs(row[figure] - exact) / row["sd"] - row[f"bias_{figure}"]
            yield name, figure, off / row[f"mcse_{figure}"]


def marginals(grid, log_density, conditional):
    """Means and sds from a grid, on which `conditional` gives means and variances of others."""
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    found = {name: conditional[name] for name in conditional}
    found |= {name: (x, np.zeros_like(x)) for name, x in grid.items()}
    means = {name: float(np.sum(weights * m)) for name, (m, _) in found.items()}
    squares = {name: float(np.sum(weights * (m**2 + v))) for name, (m, v) in found.items()}
    return means, {name: np.sqrt(squares[name] - means[name] ** 2) for name in found}


def schools_by_quadrature():
    """mu is normal given tau, and so are the effects with it summed out."""
    tau = np.linspace(1e-3, 150.0, 60_001)
    precision = 1.0 / (ERRORS**2 + tau[:, None] ** 2)
    total = 1.0 / 25.0 + precision.sum(axis=1)
    mean = precision @ EFFECTS / total
    log_density = 0.5 * (
        np.log(precision).sum(axis=1)
        - np.log(total)
        - (precision * EFFECTS**2).sum(axis=1)
        + total * mean**2
    ) - np.log(1.0 + (tau / 5.0) ** 2)
    return marginals({"tau": tau}, log_density, {"mu": (mean, 1.0 / total)})


def radon_by_quadrature():
    """Everything but the two scales is Gaussian given them."""
    design = np.concatenate([np.eye(COUNTIES)[COUNTY], FLOOR[:, None]], axis=1)
    spread = np.append(np.ones(COUNTIES), 0.0)
    taus, sigmas = np.meshgrid(np.linspace(0.02, 1.8, 90), np.linspace(0.6, 1.2, 60))
    out = []
    for tau, sigma in zip(taus.ravel(), sigmas.ravel(), strict=True):
        # Of county effects and slope: the prior with mu summed out.
        prior = tau**2 * np.diag(spread) + 4.0 * np.outer(spread, spread)
        prior[-1, -1] = 4.0
        precision = np.linalg.inv(prior)
        inner = precision + design.T @ design / sigma**2
        covariance = np.linalg.inv(inner)
        mean = covariance @ (design.T @ ACTIVITY) / sigma**2
        value = -150 * np.log(sigma) - 0.5 * ACTIVITY @ ACTIVITY / sigma**2
        value += 0.5 * (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(inner)[1])
        value += 0.5 * mean @ inner @ mean - tau - sigma
        out.append((value, mean[-1], covariance[-1, -1], mean[0], covariance[0, 0]))
    value, slope, slope_variance, county, county_variance = np.transpose(out)
    others = {"slope": (slope, slope_variance), "county[0]": (county, county_variance)}
    return marginals({"tau": taus.ravel(), "sigma": sigmas.ravel()}, value, others)


@pytest.mark.parametrize(
    ("model", "exact"), [(eight_schools, schools_by_quadrature), (radon, radon_by_quadrature)]
)
def test_the_answer_is_that_of_quadrature(model, exact, key):
    table = inferred(model, key).table
    means, sds = exact()
    assert [off for off in gaps(table, means, sds) if off[2] > 5] == []
    shifted = {name: mean + 0.5 * sds[name] for name, mean in means.items()}
    assert any(off[2] > 5 for off in gaps(table, shifted, sds)), "half an sd would be seen"


def test_item_response_is_the_density_written_by_hand(key):
    (target, start), (by_hand, numbers) = item_response(), item_response_by_hand()
    free, _ = ex.target.unconstrained(target, start)
    for k in jax.random.split(key, 3):
        u = ex.normal_like(k, numbers)
        mine = u | {"discrimination": u["log_discrimination"]}
        mine = {name: mine[name] for name in start}
        value, slope = free.value_and_gradient(mine)
        expected, gradient = by_hand.value_and_gradient(u)
        np.testing.assert_allclose(value, expected, rtol=1e-5)
        np.testing.assert_allclose(
            slope["discrimination"], gradient["log_discrimination"], rtol=1e-3, atol=1e-3
        )
        without = expected + jnp.sum(u["log_discrimination"])
        assert abs(float(value - without)) > 1e-2, "without the Jacobian it is another density"


def every_constraint():
    """Laws with known moments, one for each constraint, side by side."""

    def potential(p):
        shares = jnp.array([1.0, 0.0, 2.0]) * jnp.log(p["shares"])  # Dirichlet(2, 1, 3)
        beta = jnp.log(p["p"]) + 2.0 * jnp.log1p(-p["p"])  # Beta(2, 3)
        cuts = -0.5 * jnp.sum(p["cuts"] ** 2)  # the order of two normal numbers
        return -(2.0 * jnp.log(p["rate"]) - p["rate"] + beta + jnp.sum(shares) + cuts)

    t = ex.transform
    constraints = {"rate": t.positive, "p": t.interval(0, 1), "shares": t.simplex}
    constraints |= {"cuts": t.ordered, "factor": t.correlation}
    start = {"rate": 1.0, "p": 0.5, "shares": jnp.full(3, 1 / 3), "cuts": jnp.array([0.0, 1.0])}
    return ex.Target(potential, constraints=constraints), start | {"factor": jnp.eye(3)}


def test_every_constraint_has_its_law(key):
    result = inferred(every_constraint, key)
    table = result.table
    width = 1.0 / np.sqrt(np.pi)
    exact = {  # means and sds; the rows of a flat factor are uniform in discs
        "rate": (3.0, np.sqrt(3.0)),
        "p": (0.4, np.sqrt(0.04)),
        "shares[0]": (1 / 3, np.sqrt(2 * 4 / (36 * 7))),
        "shares[2]": (0.5, np.sqrt(9 / (36 * 7))),
        "cuts[0]": (-width, np.sqrt(1.0 - width**2)),
        "cuts[1]": (width, np.sqrt(1.0 - width**2)),
        "factor[1, 0]": (0.0, np.sqrt(1 / 3)),
        "factor[2, 1]": (0.0, 0.5),
        "factor[2, 2]": (2 / 3, np.sqrt(1 / 2 - 4 / 9)),
    }
    means, sds = ({name: pair[k] for name, pair in exact.items()} for k in (0, 1))
    assert [off for off in gaps(table, means, sds) if off[2] > 5] == []
    assert table.loc["factor[0, 1]", "error"] == 0.0 and table.loc["factor[0, 0]", "mean"] == 1.0
    posterior = result.samples.to_arviz()["posterior"]
    assert posterior["factor"].shape[2:] == (3, 3) and posterior["shares"].shape[2:] == (3,)
