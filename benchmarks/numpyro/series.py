"""Models of time, of shapes and of populations: scans, hidden Markov models, densities."""

import jax.numpy as jnp
import numpy as np
import numpyro
from jax.experimental.ode import odeint
from numpyro import distributions as dist
from numpyro.contrib.control_flow import scan

from benchmarks.numpyro.tables import Case, half_normal, normal, plate, sample

RNG = np.random.default_rng(1)
TIMES = 40


def path(slopes, noise):
    """An autoregression."""
    y = np.zeros(TIMES)
    for t in range(2, TIMES):
        y[t] = slopes[0] * y[t - 1] + slopes[1] * y[t - 2] + RNG.normal(0, noise)
    return y


SERIES = path((0.6, -0.3), 0.5)


def autoregression(y):
    first, second = sample("first", normal(0, 1)), sample("second", normal(0, 1))
    noise = sample("noise", half_normal(1.0))

    def step(carry, _):
        mean = first * carry[0] + second * carry[1]
        new = sample("y", normal(mean, noise))
        return (new, carry[0]), None

    with numpyro.handlers.condition(data={"y": jnp.asarray(y[2:])}):
        scan(step, (y[1], y[0]), jnp.arange(len(y) - 2))


def autoregression_unrolled(y):
    first, second = sample("first", normal(0, 1)), sample("second", normal(0, 1))
    noise = sample("noise", half_normal(1.0))
    for t in range(2, 12):
        sample(f"y_{t}", normal(first * y[t - 1] + second * y[t - 2], noise), obs=y[t])


def exponential_smoothing(y):
    level, season = sample("level", dist.Beta(1, 1)), sample("season", dist.Beta(1, 1))
    noise, start = sample("noise", half_normal(1.0)), sample("start", normal(0, 1))
    seasons = sample("seasons", normal(0, 1).expand([4]).to_event(1))

    def step(carry, observed):
        mean, cycle = carry
        sample("y", normal(mean + cycle[0], noise), obs=observed)
        new = level * (observed - cycle[0]) + (1 - level) * mean
        last = season * (observed - new) + (1 - season) * cycle[0]
        return (new, jnp.concatenate([cycle[1:], last[None]])), None

    scan(step, (start, seasons), y)


RETURNS = RNG.standard_t(5, 30) * 0.02


def volatility(y):
    step_size, degrees = sample("step", dist.Exponential(50.0)), sample("nu", dist.Exponential(0.1))
    walk = sample("walk", dist.GaussianRandomWalk(step_size, len(y)))
    with plate("days", len(y)):
        sample("y", dist.StudentT(degrees, 0.0, jnp.exp(walk - 4.0)), obs=y)


STATES = np.cumsum(RNG.uniform(size=TIMES) < 0.2) % 2
WORDS = np.where(RNG.uniform(size=TIMES) < 0.85, STATES, 1 - STATES)


def hidden_markov_supervised(states, words):
    with plate("rows", 2):
        move = sample("move", dist.Dirichlet(jnp.ones(2)))
        emit = sample("emit", dist.Dirichlet(jnp.array([2.0, 1.0])))
    with plate("times", len(words) - 1):
        sample("states", dist.Categorical(move[states[:-1]]), obs=states[1:])
        sample("words", dist.Categorical(emit[states[1:]]), obs=words[1:])


def hidden_markov_forward(words):
    """States summed out by the forward algorithm."""
    with plate("rows", 2):
        move = sample("move", dist.Dirichlet(jnp.ones(2)))
    chance = sample("chance", dist.Uniform(0.5, 1.0))
    emit = jnp.where(words[:, None] == jnp.arange(2), chance, 1 - chance)
    forward = jnp.full(2, 0.5) * emit[0]
    total = 0.0
    for row in emit[1:20]:
        forward = (forward @ move) * row
        total = total + jnp.log(forward.sum())
        forward = forward / forward.sum()
    numpyro.factor("words", total)


def hidden_markov_enumerated(words):
    """States that NumPyro sums out, in a scan."""
    with plate("rows", 2):
        move = sample("move", dist.Dirichlet(jnp.ones(2) + 4.0 * jnp.eye(2)))
    chance = sample("chance", dist.Uniform(0.5, 1.0))

    def step(before, word):
        state = sample("state", dist.Categorical(move[before]), infer={"enumerate": "parallel"})
        right = jnp.where(state == 1, chance, 1 - chance)
        sample("word", dist.Bernoulli(right), obs=word)
        return state, None

    scan(step, 0, words)


CAUGHT = (RNG.uniform(size=(30, 6)) < 0.5).astype(int)


def capture_recapture(seen):
    """Jolly-Seber in small: the last occasion each was seen, survival and detection constant."""
    survival, detection = sample("survival", dist.Uniform(0, 1)), sample("p", dist.Uniform(0, 1))
    last = jnp.max(jnp.where(seen == 1, jnp.arange(seen.shape[1]), 0), axis=1)
    unseen = jnp.ones(())
    never = [unseen]
    for _ in range(seen.shape[1] - 1):
        never.append(1 - survival + survival * (1 - detection) * never[-1])
    gone = jnp.stack(never)[seen.shape[1] - 1 - last]
    before = jnp.sum(seen, axis=1) - (seen[:, 0] == 1)
    with plate("animals", len(seen)):
        logs = before * jnp.log(detection) + (last - before) * jnp.log1p(-detection)
        numpyro.factor("seen", logs + last * jnp.log(survival) + jnp.log(gone))


def capture_alive(seen):
    """Whether each is alive at each occasion is a discrete site, summed out."""
    survival, detection = sample("survival", dist.Uniform(0, 1)), sample("p", dist.Uniform(0, 1))
    with plate("animals", len(seen)):
        alive = jnp.ones(len(seen), int)
        for t in range(1, 4):
            chance = alive * survival
            alive = sample(f"alive_{t}", dist.Bernoulli(chance), infer={"enumerate": "parallel"})
            sample(f"seen_{t}", dist.Bernoulli(alive * detection), obs=seen[:, t])


def shells():
    """One ring; the example has two, between which no chain moves."""
    place = sample("place", dist.Uniform(-6, 6).expand([2]).to_event(1))
    numpyro.factor("ring", -0.5 * ((jnp.linalg.norm(place) - 2.0) / 0.2) ** 2)


def banana():
    """A curved valley, in place of the two moons."""
    x = sample("x", normal(0, 2))
    sample("y", normal(0.3 * x**2, 0.5))


def funnel(count):
    spread = sample("spread", normal(0, 3))
    with numpyro.handlers.reparam(config={"x": numpyro.infer.reparam.LocScaleReparam(0)}):
        sample("x", normal(jnp.zeros(count), jnp.exp(spread / 2)).to_event(1))


POINTS = np.where(RNG.uniform(size=60) < 0.3, RNG.normal(-2, 1, 60), RNG.normal(2, 1, 60))


def mixture(y):
    shares = sample("shares", dist.Dirichlet(jnp.ones(2)))
    means = sample("means", normal(jnp.array([-2.0, 2.0]), 1.0).to_event(1))
    with plate("points", len(y)):
        which = sample("which", dist.Categorical(shares), infer={"enumerate": "parallel"})
        sample("y", normal(means[which], 1.0), obs=y)


YEARS = np.arange(8.0)
PREY = np.array([[30.0, 4], [47, 6], [70, 10], [77, 36], [36, 59], [21, 42], [18, 19], [21, 13]])


def predator_prey(years, counts):
    rates = sample(
        "rates",
        dist.TruncatedNormal(
            jnp.array([1.0, 0.05, 1.0, 0.05]), jnp.array([0.5, 0.05, 0.5, 0.05]), low=0.0
        ),
    )
    start = sample("start", dist.LogNormal(np.log(10.0), 1.0).expand([2]).to_event(1))
    noise = sample("noise", dist.LogNormal(-1.0, 1.0).expand([2]).to_event(1))

    def slope(z, _, r):
        return jnp.stack([(r[0] - r[1] * z[1]) * z[0], (r[3] * z[0] - r[2]) * z[1]])

    paths = odeint(slope, start, years, rates, rtol=1e-5, atol=1e-4, mxstep=500)
    sample("counts", dist.LogNormal(jnp.log(paths), noise), obs=counts)


SERIES_CASES = {
    "AR(2), scan": Case(autoregression, (SERIES,)),
    "AR(2), unrolled": Case(autoregression_unrolled, (SERIES,)),
    "exponential smoothing": Case(exponential_smoothing, (SERIES,)),
    "stochastic volatility": Case(volatility, (RETURNS,)),
    "hidden Markov, supervised": Case(hidden_markov_supervised, (STATES, WORDS)),
    "hidden Markov, forward": Case(hidden_markov_forward, (WORDS,)),
    "hidden Markov, enumerated": Case(hidden_markov_enumerated, (WORDS,)),
    "capture-recapture": Case(capture_recapture, (CAUGHT,)),
    "capture-recapture, enumerated": Case(capture_alive, (CAUGHT,)),
    "shell": Case(shells),
    "banana": Case(banana, ancestral=True),
    "funnel, reparametrised": Case(funnel, (4,), ancestral=True),
    "mixture, enumerated": Case(mixture, (POINTS,)),
    "predator and prey": Case(predator_prey, (YEARS, PREY)),
}
