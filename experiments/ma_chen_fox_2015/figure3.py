"""Figure 3, left, of Ma, Chen and Fox (2015): who mixes best on a correlated target.

Each sampler gets the step size at which it makes the most effective draws per gradient, of those
at which the relative errors of E x1^2 and E x2 and one standard error more are within `BOUND`;
the numbers reported come from another run at that step size. One at which a chain diverges in
either run is passed over.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Float, PRNGKeyArray

import ergodax as ex
from experiments import measured
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.ma_chen_fox_2015.samplers import (
    HEADS,
    NOISE,
    SCALE,
    STYLES,
    Sampler,
    noisy,
    samplers,
)
from experiments.measured import number
from experiments.page import Page, panels

SAMPLERS = ("SGLD", "SGHMC", "gSGRHMC")
# Ten to a decade: a best step size is known to a factor of 1.26, and so are effective draws.
STEPS = (0.016, 0.02, 0.025, 0.032, 0.04, 0.05, 0.063, 0.08, 0.1, 0.125, 0.16,
         0.2, 0.25, 0.32)  # fmt: skip
NOISES = (0.0, NOISE)
OFFSET = 0.5  # C of the metric
BOUND = 0.05  # of the relative error of E x1^2 and of E x2
START = (-2.4, 0.24)  # of the paths, on the valley's floor
QUANTITIES = ("x1", "x2", "x1²")


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    num_chains: int = 200  # of each run
    num_steps: int = 20_000  # of each chain, after a tenth as many of burn-in from exact draws
    thin: int = 5  # steps to a draw
    path: int = 60  # first steps shown
    steps: tuple[float, ...] = STEPS  # step sizes tried


QUICK = Size(100, 6_000, 6, steps=STEPS[:12:2])


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    table: pd.DataFrame  # a row for each noise and sampler, at its best step size
    grid: pd.DataFrame  # a row for each noise, sampler and step size tried
    # first steps of each sampler at its best step size with noisy gradients
    paths: dict[str, Float[np.ndarray, "steps 2"]]
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Choose the step sizes, measure at them, and take the paths."""
    target = ex.targets.banana()
    key = jax.random.key(seed)
    grid, best, paths = [], [], {}
    for noise in NOISES:
        named = samplers(noisy(target, noise), OFFSET)
        for place, name in enumerate(SAMPLERS):
            say(f"{name}, gradient noise of variance {noise:g}: {len(size.steps)} step sizes")
            own = jax.random.fold_in(jax.random.fold_in(key, place), int(noise))
            head = {"noise": noise, "sampler": name}
            tried = try_steps(named[name], size, own, progress)
            grid += [head | row for row in tried]
            again = jax.random.fold_in(own, len(size.steps))
            best.append(head | measure_anew(named[name], ranked(tried), size, again, progress))
            if noise:
                start = np.array(START, np.float32)
                kernel = named[name](best[-1]["step_size"])
                walk = ex.sample(kernel, start, size.path, key=own, progress=False)
                paths[name] = np.concatenate([start[None], walk.position[0]])
    table = pd.DataFrame(best)
    found = verdicts(table)
    facts = {
        "seed": seed, "bound": BOUND, "friction": 1.0, "metric_scale": SCALE,
        "metric_offset": OFFSET, **dataclasses.asdict(size), "exact": exact_values(),
        "rows": table.to_dict("records"), "grid": pd.DataFrame(grid).to_dict("records"),
        "verdicts": found,
    }  # fmt: skip
    return Result(table, pd.DataFrame(grid), paths, found, facts)


def exact_values() -> dict[str, float]:
    """E x1^2 and E x2."""
    target = ex.targets.banana()
    return {"x1²": float(target.covariance[0, 0]), "x2": float(target.mean[1])}


def try_steps(
    sampler: Sampler, size: Size, key: PRNGKeyArray, progress: bool
) -> list[dict[str, float]]:
    """A row for each step size, up to the first at which a chain diverges."""
    rows = []
    for place, step in enumerate(size.steps):
        try:
            own = jax.random.fold_in(key, place)
            rows.append(measure(sampler(step), step, size, own, progress))
        except ex.DivergenceError:
            break
    return rows


def ranked(tried: list[dict[str, float]]) -> list[float]:
    """The step sizes with bias within the bound, most effective draws first; then by bias."""

    def place(row: dict[str, float]) -> tuple[bool, float]:
        biased = row["bias"] > BOUND
        return biased, row["bias"] if biased else -row["least_ess"]

    return [row["step_size"] for row in sorted(tried, key=place)]


def measure_anew(
    sampler: Sampler, steps: list[float], size: Size, key: PRNGKeyArray, progress: bool = False
) -> dict[str, float]:
    """A row of another run at the first step size, or at the first where no chain diverges.

    Raises:
        ValueError: chains diverge at every one.
    """
    for step in steps:
        try:
            return measure(sampler(step), step, size, key, progress)
        except ex.DivergenceError:
            continue
    raise ValueError(f"chains diverge at every step size of {steps}; add smaller ones.")


def measure(
    kernel: ex.Kernel, step: float, size: Size, key: PRNGKeyArray, progress: bool = False
) -> dict[str, float]:
    """Bias and effective draws of chains that start from exact draws.

    Raises:
        DivergenceError: the step size is too large.
    """
    from arviz_stats.base.array import array_stats

    key_start, key_run = jax.random.split(key)
    burn_in = size.num_steps // 10
    samples = ex.sample(
        kernel,
        positions=ex.targets.banana().sample(key_start, size.num_chains),
        num_steps=burn_in + size.num_steps,
        thin=size.thin,
        num_chains=size.num_chains,
        key=key_run,
        progress=progress,
    )
    draws = samples.position[:, burn_in // size.thin :].astype(np.float64)
    draws = np.concatenate([draws, draws[..., :1] ** 2], axis=-1)
    ess = array_stats.ess(draws, method="bulk", chain_axis=0, draw_axis=1)
    thousands = size.num_chains * size.num_steps / 1000
    row: dict[str, float] = {"step_size": step}
    biases = []
    for name, exact in exact_values().items():
        means = draws[..., QUANTITIES.index(name)].mean(axis=1)
        bias, error = measured.mean(means / exact - 1.0)
        biases.append(abs(bias) + error)
        row |= {f"bias_{name}": bias, f"bias_{name}_error": error}
    row |= {f"ess_{name}": float(e / thousands) for name, e in zip(QUANTITIES, ess, strict=True)}
    return row | {"bias": max(biases), "least_ess": float(np.min(ess) / thousands)}


def verdicts(table: pd.DataFrame) -> list[str]:
    """Who is ahead, with exact and with noisy gradients."""
    found = []
    for noise, group in table.groupby("noise"):
        first = group.loc[group["least_ess"].idxmax()]
        ratios = ", ".join(
            f"{first['least_ess'] / row['least_ess']:.2f} times {row['sampler']}'s"
            for _, row in group.iterrows()
            if row["sampler"] != first["sampler"]
        )
        gradients = f"noise {noise:g}" if noise else "exact gradients"
        found.append(
            f"{first['sampler']} mixes best ({gradients}): {first['least_ess']:.1f} effective "
            f"draws of the slowest quantity per 1000 gradients, {ratios}."
        )
    return found


def mixing_table(result: Result) -> pd.DataFrame:
    """A row for each gradient and sampler at its best step size, as text."""
    rows = []
    for row in result.table.to_dict("records"):
        bias = {f"bias of E {name}": str(number(row, f"bias_{name}")) for name in exact_values()}
        ess = {f"ESS {name}": f"{row[f'ess_{name}']:.1f}" for name in QUANTITIES}
        head = {"noise": f"{row['noise']:g}", "sampler": row["sampler"]}
        rows.append(head | {"h": f"{row['step_size']:g}"} | bias | ess)
    return pd.DataFrame(rows)


def show(result: Result) -> Any:
    """The first steps of each sampler over the target's contours, and how well it mixes."""
    figure, axes = panels(2, 2)
    steps = result.table[result.table["noise"] > 0].set_index("sampler")["step_size"]
    for axis, name in zip(axes.flat, SAMPLERS, strict=False):
        _contours(axis)
        path = result.paths[name]
        axis.plot(*path.T, marker=STYLES[name][1], ms=3, lw=0.8, color=STYLES[name][0])
        axis.plot(*path[0], "*", ms=11, color="black", label="start")
        axis.set_title(f"{name}, h = {steps[name]:g}: first {len(path) - 1} steps", fontsize=9)
        axis.set_xlabel("x₁")
        axis.set_ylabel("x₂")
        axis.legend(fontsize=7, frameon=False, loc="lower left")
    _mixing(axes[1, 1], result)
    figure.suptitle(
        f"Each sampler at its best step size with a bias within {100 * BOUND:g}%:\n"
        "paths with noisy gradients, and mixing"
    )
    return figure


def _contours(axis: Any) -> None:
    """The regions of highest density that hold 50, 90 and 99% of the target."""
    x, y = np.meshgrid(np.linspace(-3.4, 3.4, 141), np.linspace(-2.1, 2.3, 121))
    target = ex.targets.banana()
    points = jnp.asarray(np.stack([x.ravel(), y.ravel()], axis=1), float)
    potential = np.asarray(jax.vmap(target.potential)(points)).reshape(x.shape)
    mass = np.sort(np.exp(-potential).ravel())[::-1]
    inside = np.searchsorted(np.cumsum(mass) / mass.sum(), [0.99, 0.9, 0.5])
    levels = np.append(mass[inside], mass[0])
    colours = ["0.93", "0.82", "0.68"]
    axis.contourf(x, y, np.exp(-potential), levels=levels.tolist(), colors=colours)


def _mixing(axis: Any, result: Result) -> None:
    """Effective draws per 1000 gradients: hollow with exact gradients, filled with noisy ones."""
    table = result.table.set_index(["noise", "sampler"])
    for place, quantity in enumerate(QUANTITIES):
        for shift, name in zip((-0.2, 0.0, 0.2), SAMPLERS, strict=True):
            colour, marker = STYLES[name]
            for noise, face in zip(HEADS, ("none", colour), strict=True):
                value = table.loc[(noise, name), f"ess_{quantity}"]
                label = f"{name}, {'noisy' if noise else 'exact'}" if place == 0 else None
                axis.plot(place + shift, value, marker, ms=7, mec=colour, mfc=face, label=label)
    axis.set_yscale("log")
    axis.set_xlim(-0.5, 4.0)
    axis.set_xticks(range(3), ["x₁", "x₂", "x₁²"])
    axis.set_ylabel("effective draws per 1000 gradients")
    axis.set_title("mixing", fontsize=9)
    axis.legend(fontsize=6.5, frameon=False, loc="center right")


def figure3(*, options: Options = DEFAULTS) -> None:
    """Ma, Chen and Fox (2015), Figure 3, left: who mixes best on a correlated target.

    SGLD, SGHMC and gSGRHMC, each at the step size that is best for it among those with a bias of
    5% or less: first steps, and effective draws per 1000 gradients.

    Example: python -m experiments figure3 --quick
    """
    conduct("figure3", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The table and the picture."""
    return Page(
        title="Ma, Chen and Fox (2015), Figure 3, left: who mixes best",
        facts=result.facts,
        tables={"relative bias, and effective draws per 1000 gradients": mixing_table(result)},
        sentences=result.verdicts,
        figure=show(result),
        caption="Shaded: regions that hold 50, 90 and 99% of the target. Right: bulk effective "
        "draws per 1000 gradients; hollow with exact gradients, filled with noisy ones.",
        table=result.grid,
        numbers={"All step sizes tried": result.grid},
    )
