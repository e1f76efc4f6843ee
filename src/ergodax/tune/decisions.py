"""What an inference decided and why, how long it took, and how far the answer can be trusted."""

import contextlib
import dataclasses
import textwrap
import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float, Int

from ergodax.diagnostics.bias import BiasReport
from ergodax.driver.samples import Samples
from ergodax.stats.draws import columns, component_names
from ergodax.stats.estimators import standard_error, widening
from ergodax.tune.heavy_tails import unseen_spread
from ergodax.tune.whitening import Coordinates

LARGEST_R_HAT = 1.02
FALSE_ALARM = 1e-3  # that two tables differ which are of one law
FEWEST = 4  # draws of a chain that a table needs
WIDTH = 80  # of what is printed
MOST_ROWS = 40  # likewise
DIGITS = ".4g", ".4g", ".2g", ".2g", ".2g", ",.0f", ".3f"
COLUMNS = (
    "mean", "sd", "mcse_mean", "mcse_sd", "bias_mean", "bias_sd", "error", "ess", "r_hat",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Decision:
    """A question, the answer that was chosen, and the figures that decided it."""

    what: str
    chosen: str
    why: str


@dataclasses.dataclass
class DecisionLog:
    """The decisions of an inference in their order, and the seconds of its stages.

    Each of the faults found on the way makes the answer one not to be trusted.

    Attributes:
        coarse: whether the precision of the position may be the cause of one.
    """

    decisions: list[Decision] = dataclasses.field(default_factory=list)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    faults: list[str] = dataclasses.field(default_factory=list)
    coarse: bool = False

    def decide(self, what: str, chosen: str, why: str) -> None:
        """Add a decision."""
        self.decisions.append(Decision(what, chosen, why))

    @contextlib.contextmanager
    def timing(self, stage: str) -> Generator[None]:
        """Add the time spent inside to a stage."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin

    def __str__(self) -> str:
        """A paragraph for each decision, then the seconds."""
        width = max((len(d.what) for d in self.decisions), default=0) + 2
        lines = [_wrapped(f"{d.what:<{width}}{d.chosen} ({d.why})", width) for d in self.decisions]
        stages = ", ".join(f"{name} {value:.1f} s" for name, value in self.seconds.items())
        return "\n".join([*lines, _wrapped(stages)])


@dataclasses.dataclass(frozen=True)
class Tuned:
    """A kernel that is ready to sample.

    Attributes:
        kernel: in the coordinates u.
        coordinates: the map to positions.
        starts: u of each chain, leading axis chains.
        bias: of the kernel's step, or None where it has none.
        piloted: whether the draws of the pilot that measured it count as the first round.
        thin: steps to a draw.
        burn_in: steps before the first draw.
        doubt: why its draws may not be good.
        target: whose numbers the positions are, where it is not the one that was given.
    """

    kernel: Any
    coordinates: Coordinates
    starts: Float[Array, "chains d"]
    bias: BiasReport | None
    thin: int
    burn_in: int
    doubt: str = ""
    piloted: bool = False
    target: Any = None


@dataclasses.dataclass(frozen=True)
class Inference:
    """What `infer` returns; `print` gives verdict, table and decision log.

    Attributes:
        samples: draws of the position.
        table: a pandas DataFrame, a row for each component: mean, sd, mcse of both in posterior
            standard deviations (`mcse_mean`, `mcse_sd`; a little larger than ArviZ's where draws
            are few or skewed, so that 1.96 of it hold in 95 of 100; with what heavy tails have
            that was not drawn), the measured bias of both
            (`bias_mean`, `bias_sd`; its own standard error is added), ess, r_hat, and `error`,
            the larger sum of mcse and bias.
        accuracy: what was asked for, in posterior standard deviations.
        converged: whether every component's error is below it, the chains agree and the log has
            no faults.
        account: the log of the decisions and of the time.
        tuned: the kernel, its coordinates and the measured bias, for sampling on.
    """

    samples: Samples
    table: Any
    accuracy: float
    converged: bool
    account: DecisionLog
    tuned: Any

    @property
    def worst(self) -> str:
        """The component with the largest error."""
        return str(self.table["error"].fillna(np.inf).idxmax())

    def verdict(self) -> str:
        """One sentence: good enough, or what is wrong and what to try."""
        if self.converged:
            return f"converged: every error is below {self.accuracy:g} posterior sd"
        error = self.table["error"][self.worst]
        what = [f"{self.worst} has an error of {error:.2g} posterior sd, not {self.accuracy:g}"]
        return f"NOT converged: {'; '.join(self.account.faults or what)}"

    def __str__(self) -> str:
        """Verdict, table and decision log; of two errors, of mean and sd, the larger one."""
        table, short = self.table, self.table[["mean", "sd"]].copy()
        for name in ("mcse", "bias"):
            short[name] = table[[f"{name}_mean", f"{name}_sd"]].max(axis=1)
        short[["error", "ess", "r_hat"]] = table[["error", "ess", "r_hat"]]
        formats = [lambda x, digits=digits: f"{x:{digits}}" for digits in DIGITS]
        lines = short.to_string(formatters=formats, max_rows=MOST_ROWS)
        return f"{_wrapped(self.verdict())}\n\n{lines}\n\n{self.account}"


def _wrapped(text: str, indent: int = 0) -> str:
    """The text in lines of a terminal's width, no word of it split."""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def is_accurate(table: Any, accuracy: float) -> bool:
    """Whether every error of a table is below `accuracy`, and the chains agree."""
    return bool((table["error"] < accuracy).all() and (table["r_hat"] < LARGEST_R_HAT).all())


def differ(first: Any, second: Any, accuracy: float) -> bool:
    """Whether means or sds of two tables differ by more than `accuracy` and than chance explains.

    Args:
        first: of independent draws of the same components, without bias, as `second`.
        second: whose sds are the units.
        accuracy: differences below it do no harm.
    """
    from scipy.special import ndtri

    scale = second["sd"].to_numpy()
    scale = np.where(scale > 0.0, scale, 1.0)  # of what a constraint fixes
    many = -ndtri(FALSE_ALARM / (4 * len(scale)))
    for what in ("mean", "sd"):
        gap = np.abs((first[what] - second[what]).to_numpy()) / scale
        errors = [table[f"mcse_{what}"] * table["sd"] / scale for table in (first, second)]
        if (gap > np.maximum(accuracy, many * np.hypot(*errors).to_numpy())).any():
            return True
    return False


def error_table(
    samples: Samples,
    bias: Any = None,
    fixed: Sequence[str] = (),
    modes: Int[np.ndarray, "chains draws"] | None = None,
) -> Any:
    """The errors of every component, in posterior standard deviations.

    Args:
        samples: draws.
        bias: a `BiasReport` of the setting that made the draws, or None for an exact sampler.
        fixed: components that a constraint fixes, such as the zeros of a Cholesky factor.
        modes: to which each draw belongs, where several are known.

    Returns:
        The DataFrame described in `Inference`.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> x = jnp.linspace(-1.0, 3.0, 100)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> samples = ex.sample(ex.hmc(model, 0.05), jnp.float32(1), 2000, key=jax.random.key(0),
        ...     num_chains=4, progress=False)
        >>> bool(ex.tune.error_table(samples)["error"].iloc[0] < 0.1)  # in posterior sd
        True
    """
    import pandas as pd

    if samples.num_draws < FEWEST:
        return _no_table(samples)
    summary = samples.summary()
    draws = columns(samples.position).values
    scale = summary["sd"]
    of_mean, of_sd = summary["mcse"].to_numpy(), standard_error(draws, "sd")
    table = pd.DataFrame(
        {
            "mean": summary["mean"],
            "sd": scale,
            "mcse_mean": of_mean * widening(draws, of_mean) / scale,
            "mcse_sd": of_sd * widening(draws, of_sd, "sd") / scale + unseen_spread(draws, modes),
            "bias_mean": 0.0,
            "bias_sd": 0.0,
        }
    )
    if bias is not None:
        for kind in ("mean", "sd"):
            measured = bias.table.xs(kind, level=1).reindex(summary.index)
            bound = measured["bias_coarse"].abs() + bias.ratio * measured["bias_error"]
            table[f"bias_{kind}"] = bound / scale
    table["error"] = np.maximum(
        table["mcse_mean"] + table["bias_mean"], table["mcse_sd"] + table["bias_sd"]
    )
    table["ess"], table["r_hat"] = summary["ess"], summary["r_hat"]
    table.loc[list(fixed), table.columns.drop(["mean", "ess", "r_hat"])] = 0.0
    table.loc[list(fixed), "r_hat"] = 1.0
    return table


def _no_table(samples: Samples) -> Any:
    """The table of so few draws that they tell nothing."""
    import pandas as pd

    draws = samples.named().items()
    names = [name for key, array in draws for name in component_names(key, array)]
    return pd.DataFrame(np.nan, index=pd.Index(names), columns=pd.Index(COLUMNS))
