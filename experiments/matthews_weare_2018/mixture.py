"""Section 5.2 of Matthews and Weare (2018): the means of a mixture, by batch size and passes.

The model is y ~ (N(a, 1) + N(b, 1) + N(c, 1)) / 3 with a N(0, 100) prior on each mean; the data,
N = 1024, are drawn from it at MEANS by a fixed seed. (The paper's own data were not at hand.) The
posterior has a peak for each order of the three; a chain stays at the one where it begins. Its
moments there are known by quadrature, and each sampler is measured against them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray

import ergodax as ex
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.measured import number
from experiments.page import Page, panels

NUM_DATA = 1024
MEANS = (-2.0, 0.0, 2.5)
DATA_SEED = 2018
STEP, FRICTION = 0.05, 10.0  # the stiffest direction is stable to 0.12, the slowest is damped at 17
DECAY = 0.99  # of the moving average
REACH, NODES = 6.0, 31  # of the quadrature, in standard deviations
FULL = "BAOAB"  # with all rows: the exact gradient


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    batch_sizes: tuple[int, ...] = (32, 64, 128, 256, 1024)  # n; the last may be N
    # over the data, a multiple of which each chain makes; rising
    passes: tuple[int, ...] = (4, 16, 64, 256)
    repeats: int = 16  # independent chains, over which the root mean square is taken


QUICK = Size((32, 128), (2, 8, 32), 8)


class Moments(NamedTuple):
    """Of the posterior at one peak."""

    mean: Float[np.ndarray, " d"]
    covariance: Float[np.ndarray, "d d"]


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    table: pd.DataFrame  # a row for each sampler, batch size and number of passes
    reference: Moments  # the posterior's moments
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Find the posterior, then run every sampler at every batch size."""
    key = jax.random.key(seed)
    data = make_data()
    say("the posterior by quadrature")
    mode, reference = quadrature(data)
    model, rows = posterior(data), []
    for place, (name, sampler) in enumerate(SAMPLERS.items()):
        say(f"{name}: {len(size.batch_sizes)} batch sizes, {size.passes[-1]} passes")
        for n in size.batch_sizes:
            own = jax.random.fold_in(jax.random.fold_in(key, place), n)
            kernel = sampler(ex.Minibatch(model, n))
            start = jnp.asarray(mode, float)
            for row in measure(kernel, start, n, size, reference, own, progress):
                rows.append({"sampler": name, "batch_size": n} | row)
    table = pd.DataFrame(rows)
    found = verdicts(table)
    facts = {
        "seed": seed, "data_seed": DATA_SEED, "num_data": NUM_DATA, "means": list(MEANS),
        "step_size": STEP, "friction": FRICTION, "decay": DECAY, **dataclasses.asdict(size),
        "posterior_mean": reference.mean.tolist(),
        "posterior_covariance": reference.covariance.tolist(),
        "rows": table.to_dict("records"), "verdicts": found,
    }  # fmt: skip
    return Result(table, reference, found, facts)


def make_data() -> Float[np.ndarray, " n"]:
    """Draws from the model at MEANS."""
    rng = np.random.default_rng(DATA_SEED)
    return np.asarray(MEANS)[rng.integers(0, len(MEANS), NUM_DATA)] + rng.normal(size=NUM_DATA)


def posterior(data: Float[np.ndarray, " n"]) -> ex.Posterior:
    """Of the means, given the data."""
    return ex.Posterior(_log_prior, _log_likelihood, jnp.asarray(data, float))


def _log_prior(means: Float[Array, " 3"]) -> Float[Array, ""]:
    return -0.5 * jnp.sum((means / 10.0) ** 2)


def _log_likelihood(means: Float[Array, " 3"], y: Float[Array, ""]) -> Float[Array, ""]:
    return jax.nn.logsumexp(-0.5 * (y - means) ** 2)


def quadrature(data: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " d"], Moments]:
    """The mode at MEANS, and the moments around it: the trapezium rule on a cube.

    The cube's axes are those of the Hessian's inverse, of half length REACH standard deviations.
    For a density this smooth the rule's error is that of the ends.
    """
    with jax.enable_x64(True):
        model = posterior(data)
        mode = ex.find_mode(model, jnp.asarray(MEANS)).position
        hessian = np.asarray(jax.hessian(model.potential)(mode))
        root = np.linalg.cholesky(np.linalg.inv(hessian))
        line = np.linspace(-REACH, REACH, NODES)
        cube = np.stack(np.meshgrid(line, line, line), axis=-1).reshape(-1, len(MEANS))
        points = np.asarray(mode) + cube @ root.T
        potential = np.asarray(jax.lax.map(model.potential, jnp.asarray(points), batch_size=512))
    weights = np.exp(potential.min() - potential)
    mean = np.average(points, axis=0, weights=weights)
    return np.asarray(mode), Moments(mean, np.cov(points.T, aweights=weights, ddof=0))


def _exact(gradient: ex.Minibatch) -> ex.ScoreCovariance:
    return ex.ScoreCovariance(gradient, "dense", rows="all")


def _moving(gradient: ex.Minibatch) -> ex.ScoreCovariance:
    return ex.ScoreCovariance(gradient, "dense", average=DECAY)


SAMPLERS: dict[str, Callable[[ex.Minibatch], ex.Kernel]] = {
    "NOGIN, exact covariance": lambda g: ex.nogin(_exact(g), STEP, FRICTION),
    "NOGIN, moving average": lambda g: ex.nogin(_moving(g), STEP, FRICTION),
    "NOGIN, the batch's own": lambda g: ex.nogin(ex.ScoreCovariance(g, "dense"), STEP, FRICTION),
    "SGHMC, compensated": lambda g: ex.sghmc(
        ex.ScoreCovariance(g, "diagonal", average=DECAY), STEP, FRICTION, compensate=True, clip=True
    ),
    FULL: lambda g: ex.langevin(g, STEP, FRICTION),
}


def measure(
    kernel: ex.Kernel,
    start: Float[Array, " d"],
    batch_size: int,
    size: Size,
    reference: Moments,
    key: PRNGKeyArray,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """The error of chains from `start` after each number of passes."""
    steps = [passes * NUM_DATA // batch_size for passes in size.passes]
    samples = ex.sample(
        kernel, start, steps[-1], num_chains=size.repeats, key=key, progress=progress
    )
    rows = []
    for passes, count in zip(size.passes, steps, strict=True):
        squares = relative_errors(samples.position[:, :count], reference) ** 2
        root = float(np.sqrt(squares.mean()))
        error = float(squares.std(ddof=1) / np.sqrt(squares.size) / (2.0 * root))
        rows.append({"passes": passes, "error": root, "error_error": error})
    return rows


def relative_errors(
    draws: Float[np.ndarray, "chains n d"], reference: Moments
) -> Float[np.ndarray, " chains"]:
    """|S - I| / sqrt(d), S the second moments about the true mean in units of the true covariance.

    It sees errors of mean and covariance alike; n independent draws give sqrt((d + 1) / n).
    """
    d = reference.mean.size
    root = np.linalg.cholesky(reference.covariance)
    z = np.linalg.solve(root, (draws - reference.mean).reshape(-1, d).T).T.reshape(draws.shape)
    moments = np.einsum("cni,cnj->cij", z, z) / draws.shape[1]
    return np.linalg.norm(moments - np.eye(d), axis=(1, 2)) / np.sqrt(d)


def verdicts(table: pd.DataFrame) -> list[str]:
    """Every sampler with the smallest and a middle batch, beside the full gradient."""
    last = table[table["passes"] == table["passes"].max()].set_index(["batch_size", "sampler"])
    sizes = sorted(set(table["batch_size"]))
    found = []
    for n in (sizes[0], sizes[len(sizes) // 2]):
        rows = last.loc[n].sort_values("error")
        listed = ", ".join(f"{name} {number(row, 'error')}" for name, row in rows.iterrows())
        found.append(f"With batches of {n}, after {last['passes'].iloc[0]} passes: {listed}.")
    if (NUM_DATA, FULL) in last.index:
        full = last.loc[(NUM_DATA, FULL)]
        error = number(full, "error")
        found.append(f"The exact gradient leaves {error} after as many passes ({FULL}).")
    return found


def errors_table(result: Result) -> pd.DataFrame:
    """A row for each sampler and number of passes, a column for each batch size."""
    table = result.table.pivot_table(
        index=["sampler", "passes"], columns="batch_size", values="error", sort=False
    )
    texts = table.map(lambda x: f"{x:.3g}").reset_index()
    texts.columns = [str(name) for name in texts.columns]
    return texts.astype(str)


def show(result: Result) -> Any:
    """A heat map of the error for each sampler."""
    from matplotlib.colors import LogNorm

    names = list(SAMPLERS)
    figure, axes = panels(2, 3)
    image: Any = None
    for axis, name in zip(axes.flat, names, strict=False):
        rows = result.table[result.table["sampler"] == name]
        grid = rows.pivot_table(index="passes", columns="batch_size", values="error")
        image = axis.imshow(
            grid, origin="lower", aspect="auto", norm=LogNorm(0.05, 5.0), cmap="cividis"
        )
        for place, value in np.ndenumerate(grid.to_numpy()):
            text = f"{value:.2g}" if value < 10 else f"{value:.0f}"
            axis.text(place[1], place[0], text, ha="center", va="center", fontsize=8,
                      color="black" if value > 0.5 else "white")  # fmt: skip
        axis.set_xticks(range(grid.shape[1]), [str(n) for n in grid.columns])
        axis.set_yticks(range(grid.shape[0]), [str(p) for p in grid.index])
        axis.set_title(name, fontsize=9)
        axis.set_xlabel("batch size")
        axis.set_ylabel("passes over the data")
    axes.flat[-1].set_axis_off()
    figure.colorbar(image, ax=axes, label="relative error of second moments", extend="both")
    return figure


def mixture(*, options: Options = DEFAULTS) -> None:
    """Matthews and Weare (2018), section 5.2: a mixture's means, by batch size and passes.

    NOGIN with the exact covariance of the gradient, with a moving average and with each batch's
    own, SGHMC and BAOAB, against quadrature.

    Example: python -m experiments mixture --quick
    """
    conduct("mixture", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The tables and the picture."""
    return Page(
        title="Matthews and Weare (2018), 5.2: a mixture's means by batch size and passes",
        facts=result.facts,
        tables={
            "relative error of the posterior's second moments, by batch size": errors_table(result)
        },
        sentences=result.verdicts,
        figure=show(result),
        caption="Second moments about the true mean, in units of the true covariance, less I: "
        "root mean square of the Frobenius norm over chains, divided by the square root of the "
        "dimension. The passes that the exact covariance takes are not counted.",
        table=result.table,
    )
