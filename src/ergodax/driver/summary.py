"""The summary table: mean, sd, mcse, ess, r_hat for each component."""

from typing import Any

import numpy as np


def summarise(draws: dict[str, np.ndarray]) -> Any:
    """Summarise draws by name.

    Args:
        draws: arrays of shape (chains, draws, ...).

    Returns:
        A pandas DataFrame with a row for each component, such as "w[3]", and the columns
        mean, sd, mcse (of the mean), ess (bulk) and r_hat (rank-normalised, split; of a single
        chain its halves are compared).

    Raises:
        ValueError: fewer than 4 draws a chain.
    """
    import pandas as pd
    from arviz_stats.base.array import array_stats

    rows = {}
    for name, array in draws.items():
        if array.shape[1] < 4:
            raise ValueError(f"a summary needs at least 4 draws a chain, not {array.shape[1]}.")
        flat = array.reshape(*array.shape[:2], -1).astype(np.float64)
        axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
        with np.errstate(invalid="ignore", divide="ignore"):  # a constant has no R-hat: NaN
            columns = [
                flat.mean(axis=(0, 1)),
                flat.std(axis=(0, 1), ddof=1),
                array_stats.mcse(flat, method="mean", **axes),
                array_stats.ess(flat, method="bulk", **axes),
                array_stats.rhat(_at_least_two(flat), method="rank", **axes),
            ]
        table = np.stack(columns, axis=1)
        for index, row in zip(np.ndindex(array.shape[2:]), table, strict=True):
            label = f"{name}[{', '.join(map(str, index))}]" if index else name
            rows[label] = row
    return pd.DataFrame.from_dict(
        rows, orient="index", columns=pd.Index(["mean", "sd", "mcse", "ess", "r_hat"])
    )


def _at_least_two(draws: np.ndarray) -> np.ndarray:
    """Several chains as they are; one of 8 draws or more as its two halves."""
    if draws.shape[0] > 1 or draws.shape[1] < 8:
        return draws
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])
