"""Section 4.3 of Matthews and Weare (2018): autocorrelation under NOGIN by the gradient's noise.

On N(0, 1) with gradient noise of standard deviation C and no friction a step is linear, so its
autocorrelation follows from its matrix, which is read off the sampler itself. The closed form of
the paper's slow mode, (1 + e) / (1 - e) with e the largest eigenvalue, is that of C^4 + 4 under
the root, where C^4 - 4 is printed. The integrated autocorrelation time of x is C^2 at every h.
"""

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PRNGKeyArray

import ergodax as ex
from experiments import measured
from experiments.command import DEFAULTS, Options, Say, conduct
from experiments.measured import Measured, number
from experiments.page import Page, panels

STEPS = (0.25, 0.5, 1.0)
NOISES = tuple(float(c) for c in np.round(np.geomspace(0.7, 24.0, 40), 4))


@dataclasses.dataclass(frozen=True)
class Size:
    """How much to run."""

    noises: tuple[float, ...] = (1.0, 2.0, 4.0, 8.0, 16.0)  # C of the chains
    repeats: int = 20  # groups of chains, over which standard errors are taken
    num_chains: int = 8  # of each group
    times: float = 400.0  # of autocorrelation that each chain lasts


QUICK = Size((2.0, 4.0, 8.0), 10, 4, 200.0)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found."""

    table: pd.DataFrame  # exact times for each h and C
    chains: pd.DataFrame  # measured times for each h and C, with standard errors
    verdicts: list[str]  # sentences, from the numbers
    facts: dict[str, Any]  # everything that is a number, for JSON


def run(size: Size, seed: int, progress: bool, say: Say) -> Result:
    """Read off the matrices, then run chains."""
    key = jax.random.key(seed)
    say(f"matrices of a step at {len(STEPS) * len(NOISES)} pairs of h and C")
    table = pd.DataFrame([exact(h, c) for h in STEPS for c in NOISES])
    rows = []
    for place, h in enumerate(STEPS):
        say(f"chains at h = {h:g}: {len(size.noises)} values of C")
        for index, c in enumerate(size.noises):
            own = jax.random.fold_in(jax.random.fold_in(key, place), index)
            time, error = measure(h, c, size, own, progress)
            row = {"step_size": h, "noise": c, "time": time, "time_error": error}
            known = exact(h, c)
            rows.append(row | {"exact": known["time"], "slow_mode": known["slow_mode"]})
    chains = pd.DataFrame(rows)
    found = verdicts(table, chains)
    facts = {
        "seed": seed, "friction": 0.0, "step_sizes": list(STEPS), **dataclasses.asdict(size),
        "rows": table.to_dict("records"), "chains": chains.to_dict("records"), "verdicts": found,
    }  # fmt: skip
    return Result(table, chains, found, facts)


def sampler(h: float, c: float) -> ex.Kernel:
    """NOGIN on N(0, 1) without friction."""
    gradient = ex.NoisyGradient(ex.targets.gaussian(np.zeros(1), 1.0), c**2)
    return ex.nogin(gradient, h, 0.0)


def step_matrix(kernel: ex.Kernel) -> Float[np.ndarray, "2 2"]:
    """What a step multiplies (x, r) with, differentiated in double precision."""
    with jax.enable_x64(True):
        return np.asarray(_jacobian(kernel, jnp.zeros(2)))


@eqx.filter_jit
def _jacobian(kernel: ex.Kernel, start: Float[Array, " 2"]) -> Float[Array, "2 2"]:
    key = jax.random.key(0)  # of the noise, which is added and has no part in the derivative

    def step(z: Float[Array, " 2"]) -> Float[Array, " 2"]:
        state = kernel.init(key, z[:1])
        state = eqx.tree_at(lambda s: s.auxiliary["momentum"], state, z[1:])
        new, _ = kernel.step(key, state)
        return jnp.concatenate([new.position, new.auxiliary["momentum"]])

    return jax.jacfwd(step)(start)


def exact(h: float, c: float) -> dict[str, float]:
    """The times in steps: of x and of the slow mode from the matrix, and by formula.

    The law has no correlation between x and r, so the sum over lags of the autocorrelation of x
    is the first entry of (I + A) (I - A)^-1. A slow mode exists where the eigenvalues are real.
    """
    with jax.enable_x64(True):
        a = step_matrix(sampler(h, c))
    one = np.eye(2)
    values = np.linalg.eigvals(a)
    largest = float("nan") if np.iscomplex(values).any() else float(np.real(values).max())
    return {
        "step_size": h,
        "noise": c,
        "time": float(((one + a) @ np.linalg.inv(one - a))[0, 0]),
        "slow_mode": (1.0 + largest) / (1.0 - largest),
        "closed_form": slow_mode(h, c),
        "as_printed": slow_mode(h, c, -4.0),
        "printed_limit": 4.0 / h**2 + c**2 - 1.0,
    }


def slow_mode(h: float, c: float, constant: float = 4.0) -> float:
    """(1 + e) / (1 - e) in closed form; nan where e is complex."""
    under = h**2 * (c**4 + constant) - 16.0
    if under < 0:
        return float("nan")
    root = h * np.sqrt(under)
    return float((8.0 + (c**2 - 2.0) * h**2 + root) / ((c**2 + 2.0) * h**2 - root))


def measure(h: float, c: float, size: Size, key: PRNGKeyArray, progress: bool = False) -> Measured:
    """Draws per effective draw of x, by ArviZ, of groups of chains that start at the target."""
    from arviz_stats.base.array import array_stats

    key_start, key_run = jax.random.split(key)
    chains = size.repeats * size.num_chains
    time = max(1.0, c**2, 16.0 / (h * c) ** 2)  # where noise is small, of the energy
    samples = ex.sample(
        sampler(h, c),
        positions=jax.random.normal(key_start, (chains, 1)),
        num_steps=int(size.times * time),
        num_chains=chains,
        key=key_run,
        progress=progress,
    )
    draws = samples.position[..., 0].astype(np.float64)
    groups = draws.reshape(size.repeats, size.num_chains, -1)
    effective = [array_stats.ess(g, method="mean", chain_axis=0, draw_axis=1) for g in groups]
    return measured.mean(groups[0].size / np.asarray(effective))


def verdicts(table: pd.DataFrame, chains: pd.DataFrame) -> list[str]:
    """Whether formula, matrix and chains agree, and what h does."""
    real = table.dropna(subset=["slow_mode", "closed_form"])
    gap = (real["closed_form"] / real["slow_mode"] - 1.0).abs().max()
    loud = real[real["noise"] >= 8.0]
    form, limit = (
        100 * float(np.max(np.abs(loud[name] / loud["slow_mode"] - 1.0)))
        for name in ("as_printed", "printed_limit")
    )
    square = (table["time"] / table["noise"] ** 2 - 1.0).abs().max()
    off = chains["time"] / chains["exact"] - 1.0
    slow = chains["slow_mode"].notna()
    return [
        f"The closed form with C⁴ + 4 is that of the sampler's own matrix, up to {gap:.0e} of "
        f"itself in {len(real)} cases.",
        f"For C ≥ 8 the form with C⁴ - 4 is off by up to {form:.1g}%, and the printed limit "
        f"4/h² + C² - 1 by up to {limit:.2g}%.",
        f"The integrated autocorrelation time of x is C² in steps, whatever h: up to {square:.0e} "
        f"of itself at h = {', '.join(f'{h:g}' for h in STEPS)}.",
        f"On chains ArviZ finds it within {100 * np.abs(off[slow]).max():.2g}% in the {slow.sum()} "
        f"cases with a slow mode; in the {(~slow).sum()} where the chain oscillates it finds up to "
        f"{off[~slow].max() + 1.0:.2g} times as much, since it takes no negative sums of lags.",
    ]


def times_table(result: Result) -> pd.DataFrame:
    """A row for each h and C of the chains."""
    rows = []
    for row in result.chains.to_dict("records"):
        known = exact(row["step_size"], row["noise"])
        columns = {
            "exact": "time", "slow mode": "slow_mode", "closed form": "closed_form",
            "with C⁴ - 4": "as_printed", "printed limit": "printed_limit",
        }  # fmt: skip
        rows.append(
            {"h": f"{row['step_size']:g}", "C": f"{row['noise']:g}"}
            | {"ArviZ": str(number(row, "time"))}
            | {name: _shown(known[column]) for name, column in columns.items()}
        )
    return pd.DataFrame(rows)


def _shown(x: float) -> str:
    return f"{x:.4f}" if math.isfinite(x) else "complex"


def show(result: Result) -> Any:
    """Times by C: exact, in closed form, as printed, and measured."""
    figure, axes = panels(1, len(STEPS))
    for axis, h in zip(axes[0], STEPS, strict=True):
        rows = result.table[result.table["step_size"] == h]
        chains = result.chains[result.chains["step_size"] == h]
        c = rows["noise"]
        axis.loglog(c, rows["time"], "k", lw=1, label="x, exact: C²")
        axis.loglog(c, rows["closed_form"], color="#56B4E9", lw=3, label="slow mode, closed form")
        axis.loglog(c[::3], rows["slow_mode"][::3], "+", color="#0072B2", label="its matrix")
        axis.loglog(c, rows["printed_limit"], ":", color="#D55E00", label="printed limit")
        errors = 2.0 * chains["time_error"]
        axis.errorbar(chains["noise"], chains["time"], errors, fmt="o", ms=4, label="by ArviZ")
        axis.set(title=f"h = {h:g}", xlabel="standard deviation C of the gradient")
    axes[0, 0].set_ylabel("autocorrelation time, steps")
    axes[0, 0].legend(fontsize=7, frameon=False)
    return figure


def autocorrelation(*, options: Options = DEFAULTS) -> None:
    """Matthews and Weare (2018), section 4.3: autocorrelation under NOGIN by gradient noise.

    On N(0, 1) without friction, at three step sizes: from the matrix of a step, by the closed
    form of the slow mode, as printed, and by ArviZ on chains.

    Example: python -m experiments autocorrelation --quick
    """
    conduct("autocorrelation", options, run, present, QUICK if options.quick else Size())


def present(result: Result) -> Page:
    """The tables and the picture."""
    return Page(
        title="Matthews and Weare (2018), 4.3: autocorrelation by gradient noise",
        facts=result.facts,
        tables={"autocorrelation time in steps": times_table(result)},
        sentences=result.verdicts,
        figure=show(result),
        caption="Where the closed form ends the eigenvalues are complex: the chain oscillates, and "
        "ArviZ's estimate, which takes no negative sums of lags, is too large.",
        table=result.table,
    )
