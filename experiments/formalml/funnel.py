"""Neal's funnel: SGLD against SGRLD with the inverse metric diag(1, exp(v)).

v ~ N(0, 9) and x given v ~ N(0, exp(v)). In the neck the x are stable only for h < 2 exp(v), so
that no step size of SGLD serves both ends; the metric makes the stable step the same everywhere.
It depends on v alone and not on the coordinates whose entries it gives, so Gamma is 0 and is given
as such. Gradients are exact, and every sampler takes equally many from one start. With one x the
law of SGRLD is known on a grid, the error of its finite step size included.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Bool, Float, PRNGKeyArray
from scipy import stats

import ergodax as ex
from experiments import measured
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.formalml import funnel_law
from experiments.formalml.funnel_law import SCALE
from experiments.measured import number
from experiments.page import Page, lines, panels

PLACES = (-6.0, -2.0, 2.0, 6.0)
FAR = 18.0  # of v: 6 standard deviations
SGLD_STEPS = (0.1, 0.03, 0.01, 0.003, 0.001)
SGRLD_STEPS = (0.4, 0.2, 0.1, 0.05, 0.025, 0.01, 0.005)
PROBED = "SGRLD, Γ by a probe"
QUANTILES = np.array([0.001, 0.003, 0.01, 0.03, *np.linspace(0.06, 0.94, 23), 0.97, 0.99, 0.997,
                      0.999])  # fmt: skip
STYLES = {"SGLD": ("#0072B2", "o"), "SGRLD": ("#D55E00", "s")}


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    num_chains: int = 128  # all from the origin
    num_steps: int = 40_000  # of each, one gradient a step; the first quarter is left out
    thin: int = 20  # steps to a draw
    dimensions: tuple[int, ...] = (1, 9)  # numbers of x
    # step sizes of the exact laws, falling; at 0.4 mass is lost
    law_steps: tuple[float, ...] = SGRLD_STEPS[1:5]


QUICK = Size(128, 20_000, 20, (1,), SGRLD_STEPS[1:4])


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    # a row for each number of x, sampler and step size: probabilities of v, errors
    table: pd.DataFrame
    exact: pd.DataFrame  # those of the exact laws of SGRLD with one x
    # of v by sampler and step size with one x
    quantiles: dict[tuple[str, float], Float[np.ndarray, " q"]]
    # v of one chain by sampler, at the step size chosen, all draws
    paths: dict[tuple[str, float], Float[np.ndarray, " n"]]
    laws: dict[float, funnel_law.FunnelLaw]  # the exact law of SGRLD by step size
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Find the exact laws, then run every sampler at every step size."""
    key = jax.random.key(seed)
    say("exact laws of SGRLD with one x")
    laws = {h: funnel_law.stationary(h) for h in size.law_steps}
    printed = funnel_law.stationary(0.1, gamma=-1.0)
    exact = pd.DataFrame([{"step_size": h} | probabilities(law) for h, law in laws.items()])
    rows, quantiles, paths = [], {}, {}
    for x in size.dimensions:
        for place, (name, steps) in enumerate(steps_by_sampler().items()):
            if name == PROBED and x != size.dimensions[0]:
                continue
            say(f"{name}, {x} x: {len(steps)} step sizes, {size.num_steps} gradients a chain")
            for index, h in enumerate(steps):
                own = jax.random.fold_in(jax.random.fold_in(key, 100 * x + place), index)
                row, v = measure(name, h, x, size, own, progress)
                rows.append({"x": x, "sampler": name, "step_size": h} | row)
                if x == size.dimensions[0]:
                    quantiles[name, h] = np.quantile(v, QUANTILES)
                    paths[name, h] = v[0]
    table = pd.DataFrame(rows)
    found = verdicts(table, exact, float(printed.below(-2.0)), size)
    facts = {
        "seed": seed, "scale": SCALE, **dataclasses.asdict(size),
        "truth": {_name(place): truth(place) for place in PLACES},
        "with_printed_correction": probabilities(printed), "exact": exact.to_dict("records"),
        "rows": table.to_dict("records"), "verdicts": found,
    }  # fmt: skip
    return Result(table, exact, quantiles, paths, laws, found, facts)


class Alive(eqx.Module):
    """A chain's state, and whether it has stayed finite."""

    inner: Any
    alive: Bool[Array, ""]

    @property
    def position(self) -> Float[Array, "*chains d"]:
        """The last that was finite."""
        return self.inner.position


class Enduring(ex.Kernel):
    """A kernel whose chains stop, and do not end the run, where they leave the finite numbers."""

    kernel: ex.Kernel

    def init(self, key: PRNGKeyArray, position: Float[Array, " d"]) -> Alive:
        """Alive."""
        return Alive(self.kernel.init(key, position), jnp.array(True))

    def step(self, key: PRNGKeyArray, state: Alive) -> tuple[Alive, None]:
        """One step, which counts if its result is finite."""
        new, _ = self.kernel.step(key, state.inner)
        alive = state.alive & ex.tree.all_finite(new.position)
        inner = jax.tree.map(lambda a, b: jnp.where(alive, a, b), new, state.inner)
        return Alive(inner, alive), None


def steps_by_sampler() -> dict[str, tuple[float, ...]]:
    """The step sizes of each."""
    return {"SGLD": SGLD_STEPS, "SGRLD": SGRLD_STEPS, PROBED: SGRLD_STEPS[3:4]}


def truth(place: float) -> float:
    """P(v < place), of N(0, 9)."""
    return float(stats.norm.cdf(place / SCALE))


def _name(place: float) -> str:
    return f"below {place:g}"


def probabilities(law: funnel_law.FunnelLaw) -> dict[str, float]:
    """P(v < place) at all places."""
    return {_name(place): float(law.below(place)) for place in PLACES}


def inverse_metric(position: Float[Array, " d"]) -> Float[Array, " d"]:
    """The diagonal 1, exp(v), ..., exp(v)."""
    return jnp.full_like(position, jnp.exp(position[0])).at[0].set(1.0)


def sampler(name: str, step_size: float, num_x: int) -> ex.Kernel:
    """A sampler with exact gradients."""
    gradient = ex.FullGradient(ex.targets.funnel(num_x + 1, SCALE))
    if name == "SGLD":
        return ex.sgld(gradient, step_size)
    if name == PROBED:
        return ex.sgrld(gradient, step_size, inverse_metric)
    return ex.sgrld(gradient, step_size, ex.Metric(inverse_metric, divergence=jnp.zeros_like))


def measure(
    name: str, step_size: float, num_x: int, size: Size, key: PRNGKeyArray, progress: bool = False
) -> tuple[dict[str, float], Float[np.ndarray, "chains n"]]:
    """Probabilities of v with standard errors over chains, and the draws of v.

    A chain that leaves the finite numbers stays at its last place, and is counted there.
    """
    samples = ex.sample(
        Enduring(sampler(name, step_size, num_x)),
        jnp.zeros(num_x + 1),
        size.num_steps,
        thin=size.thin,
        num_chains=size.num_chains,
        key=key,
        progress=progress,
    )
    burned = samples.num_draws // 4
    v, x = (samples.position[:, burned:, place].astype(np.float64) for place in (0, 1))
    row = {"diverged": float(1.0 - np.asarray(samples.final_state.alive).mean())}
    events = {_name(place): v < place for place in PLACES}
    events |= {"far": v > FAR, "small x": np.abs(x) < 1.0}
    for event, seen in events.items():
        found = measured.mean(seen.mean(axis=1))
        row |= {event: found.value, f"{event}_error": found.error}
    row["worst"] = max(abs(row[_name(place)] - truth(place)) for place in PLACES)
    return row, samples.position[..., 0][:, burned:]


def best(table: pd.DataFrame, name: str, num_x: int = 1) -> Any:
    """The row of a sampler with the least error of a probability."""
    rows = table.query("sampler == @name and x == @num_x")
    return rows.sort_values("worst").iloc[0]


def verdicts(table: pd.DataFrame, exact: pd.DataFrame, printed: float, size: Size) -> list[str]:
    """Who has the neck, why, and what it takes."""
    found = []
    for x in size.dimensions:
        first, second = (best(table, name, x) for name in ("SGLD", "SGRLD"))
        found.append(
            f"With {x} x and {size.num_steps} gradients a chain, P(v < -2) = {truth(-2.0):.4f} is "
            f"{number(second, 'below -2')} by SGRLD at h = {second['step_size']:g} and "
            f"{number(first, 'below -2')} by SGLD at h = {first['step_size']:g}, the best of "
            f"{len(SGLD_STEPS)}; P(v < -6) = {truth(-6.0):.4f} is {number(second, 'below -6')} "
            f"and {number(first, 'below -6')}."
        )
    one = table[table["x"] == size.dimensions[0]].set_index(["sampler", "step_size"])
    wide = one.loc[("SGLD", SGLD_STEPS[0])]
    last = exact.iloc[-2:]["below -2"].to_numpy()
    large = one.loc[("SGRLD", SGRLD_STEPS[0])]
    probed = one.loc[(PROBED, SGRLD_STEPS[3])]
    found += [
        "SGLD multiplies x by 1 - h exp(-v) in a step, so it is unstable where h > 2 exp(v), below "
        f"v = log(h / 2): {np.log(SGLD_STEPS[0] / 2):.1f} at h = {SGLD_STEPS[0]:g}, "
        f"{np.log(SGLD_STEPS[-1] / 2):.1f} at {SGLD_STEPS[-1]:g}. The x that grows there throws v "
        f"up: at h = {SGLD_STEPS[0]:g} it is above {FAR:g} for {100 * wide['far']:.1f}% of the "
        f"time. At h = {SGLD_STEPS[-1]:g} v needs {SCALE**2 / SGLD_STEPS[-1]:.0f} steps to forget.",
        f"SGRLD's own error is of first order: P(v < -2) is {last[0]:.4f} and {last[1]:.4f} by the "
        f"exact law at h = {exact['step_size'].iloc[-2]:g} and {exact['step_size'].iloc[-1]:g}, "
        f"{2 * last[1] - last[0]:.4f} extrapolated. Not every step is stable: at h = "
        f"{SGRLD_STEPS[0]:g}, {100 * large['diverged']:.0f}% of the chains leave the finite "
        "numbers.",
        "Γ = 0 is given in closed form here. A random probe, which is unbiased, is too noisy in "
        f"the mouth: at h = {SGRLD_STEPS[3]:g}, {100 * probed['diverged']:.0f}% of the chains "
        "leave the finite numbers with it. The correction that Girolami and Calderhead print, "
        f"-1 for v, makes P(v < -2) {printed:.3f}.",
    ]
    return found


def funnel_table(result: Result) -> pd.DataFrame:
    """A row for each sampler and step size, and the funnel's own."""
    rows = []
    for row in result.table.to_dict("records"):
        head = {"x": str(row["x"]), "sampler": row["sampler"], "h": f"{row['step_size']:g}"}
        rows.append(head | _shown(row) | {"chains lost": f"{100 * row['diverged']:.0f}%"})
    for row in result.exact.to_dict("records"):
        exact = {f"P(v < {p:g})": f"{row[f'below {p:g}']:.4f}" for p in PLACES}
        head = {"x": "1", "sampler": "SGRLD, exact law", "h": f"{row['step_size']:g}"}
        rows.append(head | exact)
    exact = {f"P(v < {p:g})": f"{truth(p):.4f}" for p in PLACES}
    rows.append({"x": "", "sampler": "funnel", "h": "", "P(|x| < 1)": "0.6223"} | exact)
    return pd.DataFrame(rows).fillna("")


def _shown(row: Any) -> dict[str, str]:
    found = {f"P(v < {p:g})": str(number(row, f"below {p:g}")) for p in PLACES}
    return found | {"P(|x| < 1)": str(number(row, "small x"))}


def show(result: Result) -> Any:
    """Quantiles, two probabilities by step size, and a chain of each sampler."""
    figure, ((left, right), (below, paths)) = panels(2, 2)
    left.axline((0.0, 0.0), slope=1.0, color="0.5", lw=1)
    for name, (colour, marker) in STYLES.items():
        h = float(best(result.table, name)["step_size"])
        style = {"color": colour, "label": f"{name}, h = {h:g}"}
        normal = SCALE * stats.norm.ppf(QUANTILES)
        left.plot(normal, result.quantiles[name, h], marker, ms=4, mfc="none", **style)
        path = result.paths[name, h][:500]
        paths.plot(result.facts["thin"] * np.arange(path.size), path, lw=0.7, **style)
        if name == "SGLD":
            label = "below: SGLD is unstable"
            paths.axhline(np.log(h / 2.0), color=colour, lw=1, ls="--", label=label)
    left.set(xlabel="quantile of N(0, 9)", ylabel="quantile of v")
    paths.set(xlabel="step", title="v of one chain")
    for axis, place in ((right, -2.0), (below, -6.0)):
        event = _name(place)
        for x in result.table["x"].unique():
            own = result.table[(result.table["x"] == x) & (result.table["diverged"] == 0)]
            own = own.assign(sampler=own["sampler"] + f", {x} x")
            styles = {f"{n}, {x} x": (c, m if x == 1 else "x") for n, (c, m) in STYLES.items()}
            lines(axis, own, "step_size", event, "sampler", styles, yscale="linear")
        label = "SGRLD, 1 x, exact law"
        axis.plot(result.exact["step_size"], result.exact[event], "k:", lw=1, label=label)
        axis.axhline(truth(place), color="black", lw=1, ls="--", label="funnel")
        axis.set(xlabel="step size", title=f"P(v < {place:g})", ylim=(0.0, None))
    for axis in (left, right, paths):
        axis.legend(fontsize=7, frameon=False)
    figure.suptitle("Neal's funnel: v ~ N(0, 9), x | v ~ N(0, exp(v)), exact gradients")
    return figure


def funnel(*, options: Options = DEFAULTS) -> None:
    """Neal's funnel: SGLD against SGRLD with the inverse metric diag(1, exp(v)).

    Probabilities of v after equally many gradients, beside the exact law of SGRLD's steps.

    Example: python -m experiments funnel --quick
    """
    conduct("funnel", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The tables and the picture."""
    return Page(
        title="Neal's funnel: SGLD against SGRLD",
        facts=result.facts,
        tables={"probabilities of v": funnel_table(result)},
        sentences=result.verdicts,
        figure=show(result),
        caption="Each sampler takes as many gradients from one start. Filled: one x; hollow: "
        "nine. Bars: two standard errors over chains. Step sizes at which a chain diverged are "
        "not drawn.",
        table=result.table,
    )
