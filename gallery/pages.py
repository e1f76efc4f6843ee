"""Which figures there are, and where their notebooks lie."""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path

NOTEBOOKS = Path(__file__).parent / "notebooks"


@dataclasses.dataclass(frozen=True)
class Figure:
    """A page of the gallery.

    Attributes:
        slug: its name in addresses, on the command line and of its files.
        title: its heading.
        line: what it shows, in one sentence.
    """

    slug: str
    title: str
    line: str

    @property
    def notebook(self) -> Path:
        """The file of its notebook."""
        return NOTEBOOKS / f"{self.slug}.py"


FIGURES = (
    Figure(
        "recipe",
        "Two matrices make a sampler",
        "Three choices of H, D and Q on one density: how fast they go round it, and that they "
        "agree where the step is small.",
    ),
    Figure(
        "brownian",
        "Brownian paths",
        "Paths without a force: their spread grows as the square root of time, their quadratic "
        "variation as time itself.",
    ),
    Figure(
        "fokker_planck",
        "A law that moves",
        "The Ornstein-Uhlenbeck process from one point: chains, the Fokker-Planck equation on a "
        "grid and the exact Gaussian.",
    ),
    Figure(
        "langevin",
        "Langevin dynamics between two wells",
        "What step size and temperature do to the crossings of a barrier, and to the law.",
    ),
    Figure(
        "sgld",
        "Stochastic gradients and decreasing steps",
        "SGLD with full gradients, with minibatches and with a falling step size, against the "
        "exact posterior.",
    ),
    Figure(
        "friction",
        "How much friction",
        "SGHMC: too little friction leaves the heat of noisy gradients in, too much is slow.",
    ),
    Figure(
        "bias",
        "Bias, variance and the step size",
        "The error of an average by step size and length, and the step that is best for a budget.",
    ),
    Figure(
        "variance_reduction",
        "Gradients with less noise",
        "Plain batches, control variates, SVRG and SAGA along a chain, and the law of each.",
    ),
    Figure(
        "nogin",
        "A step that knows its noise",
        "SGLD, SGHMC and NOGIN with a noisy gradient: which variance is right, by step size.",
    ),
    Figure(
        "funnel",
        "Into the neck of the funnel",
        "Neal's funnel with and without a metric: how often chains reach the neck.",
    ),
    Figure(
        "replica_exchange",
        "Over a barrier by exchange",
        "Two modes far apart: chains that never find the other one, and replicas that do.",
    ),
    Figure(
        "groups",
        "What groups take from each other",
        "Groups of few and of many rows: effects drawn to the common mean, and how much the groups "
        "differ, with the effects integrated out.",
    ),
    Figure(
        "verify",
        "Refuted, then corrected",
        "A diffusion that varies without its correction: the law that it has, and what the "
        "verifier says.",
    ),
    Figure(
        "infer",
        "What infer decides",
        "Six posteriors and no setting: the draws with the exact law, every decision with its "
        "figures, and the verdict.",
    ),
    Figure(
        "nuts",
        "Beside NUTS",
        "A logistic regression by SGLD, by NOGIN with control variates and by NUTS: errors, and "
        "effective draws for each gradient.",
    ),
)


def find(slug: str) -> Figure:
    """The figure of this name.

    Args:
        slug: such as "brownian".

    Raises:
        ValueError: there is none.
    """
    for figure in FIGURES:
        if figure.slug == slug:
            return figure
    names = ", ".join(figure.slug for figure in FIGURES)
    raise ValueError(f"figure must be one of {names}, not {slug!r}.")


def heading(slug: str) -> str:
    """The title of a notebook, under a link to the index, in Markdown."""
    return f"[All figures](../)\n\n# {find(slug).title}"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
