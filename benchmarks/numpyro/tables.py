"""Models of tables: regressions, hierarchies, counts, raters, Gaussian processes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import numpyro
from numpyro import distributions as dist
from numpyro.infer.reparam import TransformReparam


class Case(NamedTuple):
    """A model with its arguments."""

    model: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    ancestral: bool = False  # nothing is observed: draws in the model's order are exact


RNG = np.random.default_rng(0)
sample, plate = numpyro.sample, numpyro.plate
normal, half_normal = dist.Normal, dist.HalfNormal

EFFECTS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
ERRORS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def schools_centred(errors, y):
    mu, tau = sample("mu", normal(0, 5)), sample("tau", dist.LogNormal(0.0, 1.0))
    with plate("schools", len(errors)):
        theta = sample("theta", normal(mu, tau))
        sample("y", normal(theta, errors), obs=y)


def schools_reparametrised(errors, y):
    mu, tau = sample("mu", normal(0, 5)), sample("tau", dist.HalfCauchy(5.0))
    with plate("schools", len(errors)):
        with numpyro.handlers.reparam(config={"theta": TransformReparam()}):
            move = dist.transforms.AffineTransform(mu, tau)
            theta = sample("theta", dist.TransformedDistribution(normal(0.0, 1.0), move))
        sample("y", normal(theta, errors), obs=y)


HITS, BATS = np.array([18, 17, 16, 15, 14, 14, 13, 12, 11, 11, 10, 9, 8, 7]), np.full(14, 45)


def hits_pooled(bats, hits):
    chance = sample("chance", dist.Uniform(0, 1))
    with plate("players", len(bats)):
        sample("hits", dist.Binomial(bats, probs=chance), obs=hits)


def hits_apart(bats, hits):
    with plate("players", len(bats)):
        chance = sample("chance", dist.Uniform(0, 1))
        sample("hits", dist.Binomial(bats, probs=chance), obs=hits)


def hits_shared(bats, hits):
    mean = sample("mean", dist.Uniform(0, 1))
    concentration = sample("concentration", dist.Pareto(1.0, 1.5))
    with plate("players", len(bats)):
        chance = sample("chance", dist.Beta(mean * concentration, (1 - mean) * concentration))
        sample("hits", dist.Binomial(bats, probs=chance), obs=hits)


def hits_logit(bats, hits):
    centre, spread = sample("centre", normal(-1, 1)), sample("spread", dist.HalfCauchy(1.0))
    with plate("players", len(bats)):
        player = sample("player", normal(0, 1))
        sample("hits", dist.Binomial(bats, logits=centre + spread * player), obs=hits)


COUNTY, FLOOR = RNG.integers(0, 10, 150), RNG.integers(0, 2, 150).astype("f4")
RADON = 1.2 + RNG.normal(0, 0.4, 10)[COUNTY] - 0.6 * FLOOR + RNG.normal(0, 0.7, 150)


def radon(count, county, floor, y):
    mu, tau = sample("mu", normal(0, 2)), sample("tau", half_normal(1.0))
    slope, sigma = sample("slope", normal(0, 2)), sample("sigma", half_normal(1.0))
    with plate("counties", count):
        level = sample("level", normal(mu, tau))
    with plate("houses", len(county)):
        sample("y", normal(level[county] + slope * floor, sigma), obs=y)


DEPARTMENT, MALE = np.repeat(np.arange(6), 2), np.tile([1, 0], 6)
APPLIED = np.array([825, 108, 560, 25, 325, 593, 417, 375, 191, 393, 373, 341])
ADMITTED = np.array([512, 89, 353, 17, 120, 202, 138, 131, 53, 94, 22, 24])


def admissions(department, male, applied, admitted):
    mean = sample("mean", normal(0, 4).expand([2]).to_event(1))
    scale = sample("scale", dist.HalfCauchy(2.0).expand([2]).to_event(1))
    factor = sample("factor", dist.LKJCholesky(2, concentration=2.0))
    with plate("departments", int(department.max()) + 1):
        raw = sample("raw", normal(0, 1).expand([2]).to_event(1))
    effect = mean + raw @ (scale[:, None] * factor).T
    with plate("rows", len(applied)):
        logits = effect[department, 0] + effect[department, 1] * male
        sample("admitted", dist.Binomial(applied, logits=logits), obs=admitted)


X = RNG.normal(size=(200, 3))
LABELS = (RNG.uniform(size=200) < 1 / (1 + np.exp(-X @ np.array([1.0, -0.5, 0.2])))).astype(int)


def logistic(x, y):
    w = sample("w", normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with plate("rows", x.shape[0]):
        sample("y", dist.Bernoulli(logits=x @ w), obs=y)


def subsampled(x, y):
    w = sample("w", normal(0, 1).expand([x.shape[-1]]).to_event(1))
    with plate("rows", x.shape[0], subsample_size=20) as rows:
        sample("y", dist.Bernoulli(logits=x[rows] @ w), obs=y[rows])


def horseshoe(x, y):
    tau = sample("tau", dist.HalfCauchy(1.0))
    local = sample("local", dist.HalfCauchy(1.0).expand([x.shape[1]]).to_event(1))
    raw = sample("raw", normal(0, 1).expand([x.shape[1]]).to_event(1))
    with plate("rows", x.shape[0]):
        sample("y", dist.Bernoulli(logits=x @ (raw * local * tau)), obs=y)


def sparse(x, y):
    """Linear weights summed out by a kernel over rows."""
    noise, eta = sample("noise", dist.HalfNormal(1.0)), sample("eta", dist.HalfCauchy(1.0))
    local = sample("local", dist.HalfCauchy(1.0).expand([x.shape[1]]).to_event(1))
    kx = x * (eta * local)
    covariance = kx @ kx.T + (noise**2 + 1e-4) * jnp.eye(len(y))
    sample("y", dist.MultivariateNormal(jnp.zeros(len(y)), covariance), obs=y)


LINE = np.linspace(-1.0, 1.0, 30)
CURVE = np.sin(3 * LINE) + RNG.normal(0, 0.2, 30)


def gaussian_process(x, y):
    amplitude, noise = (sample(n, dist.LogNormal(0.0, 1.0)) for n in ("amplitude", "noise"))
    length = sample("length", dist.LogNormal(0.0, 1.0))
    covariance = amplitude * jnp.exp(-0.5 * ((x[:, None] - x[None]) / length) ** 2)
    covariance = covariance + (noise + 1e-5) * jnp.eye(len(x))
    sample("y", dist.MultivariateNormal(jnp.zeros(len(x)), covariance), obs=y)


def hilbert_space_process(x, y, edge, count):
    amplitude, length = sample("amplitude", half_normal(1.0)), sample("length", half_normal(1.0))
    roots = jnp.arange(1, count + 1) * jnp.pi / (2 * edge)
    basis = jnp.sin(roots * (x[:, None] + edge)) / jnp.sqrt(edge)
    spread = amplitude * jnp.sqrt(length) * jnp.exp(-0.25 * (length * roots) ** 2)
    weights = sample("weights", normal(0, 1).expand([count]).to_event(1))
    noise = sample("noise", half_normal(1.0))
    with plate("rows", x.shape[0]):
        sample("y", normal(basis @ (spread * weights), noise), obs=y)


def network(x, y, width):
    first = sample("first", normal(jnp.zeros((x.shape[1], width)), 1.0).to_event(2))
    last = sample("last", normal(jnp.zeros(width), 1.0).to_event(1))
    precision = sample("precision", dist.Gamma(3.0, 1.0))
    with plate("rows", x.shape[0]):
        sample("y", normal(jnp.tanh(x @ first) @ last, 1 / jnp.sqrt(precision)), obs=y)


AREAS, AGES = np.indices((5, 4)).reshape(2, -1)
PEOPLE = np.full(20, 4_000)
DEATHS = RNG.poisson(PEOPLE * np.exp(-6.0 + 0.8 * AGES + RNG.normal(0, 0.2, 5)[AREAS]))


def mortality(areas, ages, people, deaths):
    level = sample("level", normal(-5, 3))
    spread = {n: sample(f"spread_{n}", half_normal(1.0)) for n in ("age", "area")}
    with plate("ages", 4):
        age = sample("age", normal(0, 1)) * spread["age"]
    with plate("areas", 5):
        area = sample("area", normal(0, 1)) * spread["area"]
    with plate("cells", len(deaths)):
        rate = jnp.exp(level + age[ages] + area[areas])
        sample("deaths", dist.Poisson(people * rate), obs=deaths)


ITEMS = 12
TRUTH = RNG.integers(0, 2, ITEMS)
RATERS, RATED = (x.ravel() for x in np.indices((5, ITEMS)))
MARKS = np.where(RNG.uniform(size=RATED.size) < 0.8, TRUTH[RATED], 1 - TRUTH[RATED])


def marks_multinomial(marks, rated):
    """Classes are as many as there are values; each item's true class is summed out."""
    classes = int(np.max(marks)) + 1
    with plate("classes", classes):
        rows = sample("rows", dist.Dirichlet(jnp.ones(classes)))
    shares = sample("shares", dist.Dirichlet(jnp.ones(classes)))
    with plate("items", int(np.max(rated)) + 1):
        truth = sample("truth", dist.Categorical(shares), infer={"enumerate": "parallel"})
        for rater in range(5):
            mine = marks.reshape(5, -1)[rater]
            sample(f"marks_{rater}", dist.Categorical(rows[truth]), obs=mine)


def marks_by_rater(marks, ordered):
    """Dawid and Skene: a confusion matrix of each rater, better than chance on its diagonal."""
    strong = 1.0 + 4.0 * jnp.eye(2)
    with plate("raters", 5, dim=-2), plate("classes", 2):
        rows = sample("rows", dist.Dirichlet(strong))
    shares = sample("shares", dist.Dirichlet(jnp.ones(2)))
    with plate("items", marks.shape[1]):
        truth = sample("truth", dist.Categorical(shares), infer={"enumerate": "parallel"})
        for rater in range(5):
            row = rows[rater][truth]
            sample(f"marks_{rater}", dist.Categorical(row), obs=marks[rater])
    numpyro.deterministic("sum", shares.sum() + ordered)


def marks_by_logits(marks):
    """A hierarchy over raters: logits of being right around a common one."""
    centre, spread = sample("centre", normal(1, 1)), sample("spread", half_normal(0.5))
    with plate("raters", 5):
        skill = sample("skill", normal(0, 1))
    with plate("items", marks.shape[1]):
        truth = sample("truth", dist.Bernoulli(0.5), infer={"enumerate": "parallel"})
        for rater in range(5):
            right = centre + spread * skill[rater]
            logits = jnp.where(truth == 1, right, -right)
            sample(f"marks_{rater}", dist.Bernoulli(logits=logits), obs=marks[rater])


def item_difficulty(items, rated, right):
    centre, spread = sample("centre", normal(0, 1)), sample("spread", half_normal(1.0))
    with plate("items", items):
        difficulty = sample("difficulty", normal(0, 1))
    with plate("marks", len(rated)):
        logits = centre + spread * difficulty[rated]
        sample("right", dist.Bernoulli(logits=logits), obs=right)


def item_response(items, raters, rated, rater, right):
    spread = sample("spread", half_normal(1.0))
    with plate("raters", raters):
        ability = sample("ability", normal(0, 1))
    with plate("items", items):
        difficulty = sample("difficulty", normal(0, 1))
    with plate("marks", len(rated)):
        logits = spread * ability[rater] - difficulty[rated]
        sample("right", dist.Bernoulli(logits=logits), obs=right)


def proportions(x, clicks):
    """Beyond the example's two arms: an improper prior of the intercept."""
    intercept = sample("intercept", dist.ImproperUniform(dist.constraints.real, (), ()))
    effect = sample("effect", normal(0, 1).expand([x.shape[1]]).to_event(1))
    with plate("visits", x.shape[0]):
        sample("clicks", dist.Bernoulli(logits=intercept + x @ effect), obs=clicks)


RIGHT = (MARKS == TRUTH[RATED]).astype(int)
BY_RATER = MARKS.reshape(5, ITEMS)
Y = X @ np.array([1.0, 0.0, -0.5]) + RNG.normal(0, 0.5, 200)
TABLES = {
    "eight schools, centred": Case(schools_centred, (ERRORS, EFFECTS)),
    "eight schools, reparametrised": Case(schools_reparametrised, (ERRORS, EFFECTS)),
    "baseball, pooled": Case(hits_pooled, (BATS, HITS)),
    "baseball, apart": Case(hits_apart, (BATS, HITS)),
    "baseball, partially pooled": Case(hits_shared, (BATS, HITS)),
    "baseball, logit": Case(hits_logit, (BATS, HITS)),
    "radon": Case(radon, (10, COUNTY, FLOOR, RADON)),
    "admissions": Case(admissions, (DEPARTMENT, MALE, APPLIED, ADMITTED)),
    "logistic regression": Case(logistic, (X, LABELS)),
    "logistic, subsampled": Case(subsampled, (X, LABELS)),
    "horseshoe": Case(horseshoe, (X, LABELS)),
    "sparse regression": Case(sparse, (X[:40], Y[:40])),
    "Gaussian process": Case(gaussian_process, (LINE, CURVE)),
    "Hilbert space process": Case(hilbert_space_process, (LINE, CURVE, 1.5, 8)),
    "neural network": Case(network, (X[:50], Y[:50], 2)),
    "mortality": Case(mortality, (AREAS, AGES, PEOPLE, DEATHS)),
    "annotation, multinomial": Case(marks_multinomial, (MARKS, RATED)),
    "annotation, Dawid and Skene": Case(marks_by_rater, (BY_RATER, 0.0)),
    "annotation, hierarchy": Case(marks_by_logits, (BY_RATER,)),
    "annotation, item difficulty": Case(item_difficulty, (ITEMS, RATED, RIGHT)),
    "annotation, random effects": Case(item_response, (ITEMS, 5, RATED, RATERS, RIGHT)),
    "improper prior": Case(proportions, (X, LABELS)),
}
