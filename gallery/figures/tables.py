"""Arrays as the tables that charts are drawn from."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from jaxtyping import Float


def histogram(
    draws: Float[np.ndarray, "..."], low: float, high: float, bins: int = 60
) -> pd.DataFrame:
    """Columns left, right and density: bars whose area is the share of all draws within them.

    Args:
        draws: of any shape; those beyond the ends are counted in the total and not shown.
        low: the left end of the first bar.
        high: the right end of the last.
        bins: how many bars.
    """
    counts, edges = np.histogram(draws, bins, (low, high))
    density = counts / (max(draws.size, 1) * np.diff(edges))
    return pd.DataFrame({"left": edges[:-1], "right": edges[1:], "density": density})


def curves(
    x: str,
    at: Float[np.ndarray, " points"],
    y: str,
    values: Mapping[str, Float[np.ndarray, " points"]],
    by: str = "curve",
) -> pd.DataFrame:
    """Several functions of one variable, one under the other: columns x, y and by.

    Args:
        x: the variable's name.
        at: its values.
        y: the functions' name.
        values: their values, by the name that stands in the legend.
        by: the column of those names.
    """
    parts = [pd.DataFrame({x: at, y: value, by: name}) for name, value in values.items()]
    return pd.concat(parts, ignore_index=True)


def paths(
    x: str, at: Float[np.ndarray, " points"], y: str, values: Float[np.ndarray, "paths points"]
) -> pd.DataFrame:
    """Paths of chains, one under the other: columns x, y and path, the number of the chain.

    Args:
        x: the name of time.
        at: the times.
        y: the name of the position.
        values: of all chains.
    """
    count, points = values.shape
    columns = {
        x: np.tile(at, count),
        y: values.ravel(),
        "path": np.repeat(np.arange(count), points),
    }
    return pd.DataFrame(columns)


def laws(
    x: str,
    edge: float,
    bins: int,
    density: Callable[[Float[np.ndarray, " points"]], Float[np.ndarray, " points"]],
    draws: Mapping[str, Float[np.ndarray, "..."]],
    by: str,
) -> pd.DataFrame:
    """Outlines of histograms on [-edge, edge] and the exact density: columns x, density and by.

    Args:
        x: the variable's name.
        edge: of the histograms.
        bins: how many.
        density: the exact one.
        draws: by the name that stands in the legend.
        by: the column of those names.
    """
    middle = (np.arange(bins) + 0.5) * 2.0 * edge / bins - edge
    each = {"exact": density(middle)}
    for name, values in draws.items():
        each[name] = histogram(values, -edge, edge, bins)["density"].to_numpy()
    return curves(x, middle, "density", each, by)


def cloud(draws: Float[np.ndarray, "... d"], names: list[str], shown: int) -> pd.DataFrame:
    """Some of the draws, evenly spaced: a column for each coordinate."""
    flat = draws.reshape(-1, draws.shape[-1])
    some = flat[:: max(1, len(flat) // shown)].astype(np.float64)
    return pd.DataFrame(some, columns=names)
