"""Tables and images from .npz files, prepared for a network."""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np

import ergodax as ex
from experiments.data import find

archive = ex.data.archive

HELD_OUT = 0.1  # of the rows, where a file has no test rows

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Task:
    """Rows to learn from and rows to predict, float32, inputs standardised."""

    name: str  # of the file
    kind: Literal["regression", "classification"]  # what is predicted
    # training inputs, shape (N, d), and targets: standardised numbers, or labels from 0
    x: np.ndarray
    # training inputs, shape (N, d), and targets: standardised numbers, or labels from 0
    y: np.ndarray
    x_test: np.ndarray  # the same, held out
    y_test: np.ndarray  # the same, held out
    unit: float  # the standard deviation of the targets, in which they are measured; 1 for classes
    classes: int  # how many; 0 for regression
    # inputs of another kind, for which a network should be unsure; or None
    strange: np.ndarray | None = None
    strange_kind: str = ""  # what they are


def regression(path: Path, split: int) -> Task:
    """A regression task from the arrays x and y, and test_mask (splits, N) if there is one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, arrays that are missing or do not fit, numbers that are not
            finite, or no such split.
    """
    path = find(path, "regression")
    arrays = _read(path, ("x", "y"), ("test_mask",))
    numbers = {name: arrays[name] for name in ("x", "y")}
    shapes = [array.shape for array in numbers.values()]
    if len(shapes[0]) != 2 or shapes[0][1] == 0 or shapes[1] != shapes[0][:1]:
        raise ValueError(
            f"{path}: x must have shape (N, d) and y (N,), not {shapes[0]} and {shapes[1]}. "
            "Try x.reshape(N, -1) and y.ravel()."
        )
    archive.check_lengths(path, numbers)
    archive.check_real(path, numbers)
    archive.check_finite(path, numbers)
    x, y = (array.astype(float) for array in numbers.values())
    held_out = _held_out(path, arrays, len(x), split)
    train = ~held_out
    if not (train.any() and held_out.any()):
        raise ValueError(f"{path}: split {split} leaves no rows to learn from, or none to test on.")
    mean, scale = y[train].mean(), y[train].std()
    if not scale > 0:
        raise ValueError(f"{path}: y is constant over the training rows; nothing is to be learnt.")
    inputs = _standardised(x, train)
    targets = ((y - mean) / scale).astype(np.float32)
    return Task(
        path.stem, "regression", inputs[train], targets[train], inputs[held_out],
        targets[held_out], float(scale), 0,
    )  # fmt: skip


def has_classes(path: Path) -> bool:
    """Whether the file is one for `classification`.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not an .npz file, or a damaged one.
    """
    return "x_train" in archive.names(find(path, "regression"))


def classification(
    path: Path,
    *,
    rows: int | None = None,
    test_rows: int | None = None,
    unseen: tuple[int, ...] = (),
) -> Task:
    """A classification task from the arrays x_train, y_train, x_test and y_test.

    Bytes are standardised by one mean and scale, other numbers column by column. Strange inputs are
    the test rows of the unseen classes; or, for square images, the test images turned by a quarter.

    Raises:
        FileNotFoundError: no such file.
        ValueError: a damaged file, arrays that are missing or do not fit, numbers that are not
            finite, rows that are too few, or an unseen class that does not occur.
    """
    for name, count in {"rows": rows, "test_rows": test_rows}.items():
        if count is not None and count < 1:
            raise ValueError(f"{name} must be at least 1, not {count}.")
    path = find(path, "mnist")
    x, y, x_test, y_test = _labelled(path)
    labels = np.intersect1d(y, y_test).tolist()
    for label in unseen:
        if label not in labels:
            raise ValueError(f"the unseen class {label} is not among the labels {labels}.")
    strange, kind = None, ""
    if unseen:
        strange, kind = x_test[np.isin(y_test, unseen)][:test_rows], f"unseen classes {unseen}"
    keep, keep_test = ~np.isin(y, unseen), ~np.isin(y_test, unseen)
    x, y = x[keep][:rows], y[keep][:rows]
    x_test, y_test = x_test[keep_test][:test_rows], y_test[keep_test][:test_rows]
    if strange is None and x.ndim == 3 and x.shape[1] == x.shape[2]:
        strange, kind = np.rot90(x_test, axes=(1, 2)), "test images turned by 90 degrees"
    seen, numbered = np.unique(y, return_inverse=True)
    if len(seen) < 2 or not np.isin(y_test, seen).all():
        raise ValueError(
            f"{path}: the training rows have the classes {seen.tolist()} only, and the test rows "
            f"{np.unique(y_test).tolist()}. Take more rows."
        )
    prepare = _preparation(x)
    return Task(
        path.stem, "classification", prepare(x), numbered.astype(np.int32), prepare(x_test),
        np.searchsorted(seen, y_test).astype(np.int32), 1.0, len(seen),
        None if strange is None else prepare(strange), kind,
    )  # fmt: skip


def _read(path: Path, wanted: tuple[str, ...], optional: tuple[str, ...] = ()) -> Arrays:
    if path.exists() and path.suffix != ".npz":
        raise ValueError(f"{path} must be an .npz file, as np.savez writes it.")
    return archive.read(path, wanted, optional)


def _labelled(path: Path) -> tuple[np.ndarray, ...]:
    """Training inputs and labels, and those of the test."""
    arrays = _read(path, ("x_train", "y_train", "x_test", "y_test"))
    for part in ("train", "test"):
        inputs, labels = f"x_{part}", f"y_{part}"
        pair = {name: arrays[name] for name in (inputs, labels)}
        archive.check_lengths(path, pair)
        archive.check_real(path, {inputs: pair[inputs]})
        archive.check_finite(path, {n: a for n, a in pair.items() if a.dtype.kind in archive.REAL})
        if pair[labels].ndim != 1:
            raise ValueError(
                f"{path}: {labels} must have shape (N,), a label for each row, not "
                f"{pair[labels].shape}. Try {labels}.argmax(axis=1) if it has a column a class."
            )
    x, x_test = arrays["x_train"], arrays["x_test"]
    if x.shape[1:] != x_test.shape[1:] or 0 in x.shape:
        raise ValueError(
            f"{path}: the rows of x_train and x_test must be of one shape and not empty, not of "
            f"{x.shape[1:]} and {x_test.shape[1:]}."
        )
    return tuple(arrays.values())


def _held_out(path: Path, arrays: Arrays, rows: int, split: int) -> np.ndarray:
    if "test_mask" not in arrays:
        chosen = np.random.default_rng(split).permutation(rows)[: max(1, round(HELD_OUT * rows))]
        return np.isin(np.arange(rows), chosen)
    masks = np.asarray(arrays["test_mask"], bool)
    if masks.ndim != 2 or masks.shape[1] != rows:
        raise ValueError(f"{path}: test_mask must have shape (splits, {rows}), not {masks.shape}.")
    if not 0 <= split < len(masks):
        raise ValueError(f"split must lie in [0, {len(masks)}), not {split}.")
    return masks[split]


def _standardised(x: np.ndarray, train: np.ndarray) -> np.ndarray:
    mean, scale = x[train].mean(axis=0), x[train].std(axis=0)
    return ((x - mean) / np.where(scale > 0, scale, 1.0)).astype(np.float32)


def _preparation(x: np.ndarray) -> Any:
    """The function that makes rows inputs, as the training rows tell."""
    if x.dtype == np.uint8:  # of an image, whose pixels have one scale
        mean, scale = float(x.mean()), float(x.std()) or 1.0
        return lambda rows: ((rows.reshape(len(rows), -1) - mean) / scale).astype(np.float32)
    flat = x.reshape(len(x), -1).astype(float)
    mean, scale = flat.mean(axis=0), flat.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    return lambda rows: ((rows.reshape(len(rows), -1) - mean) / scale).astype(np.float32)
