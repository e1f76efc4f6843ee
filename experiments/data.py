"""Where each data file is expected, and how to get it.

A file is looked for as it is given, then in the folder ERGODAX_DATA, `data` by default.
"""

import os
from pathlib import Path

FOLDER = Path(os.environ.get("ERGODAX_DATA", "data"))
HOW = {
    "mnist": "an .npz file of x_train and x_test (N, 28, 28), y_train and y_test (N,), such as "
    "`python -m experiments data mnist` gets",
    "regression": "an .npz file of x (N, d), y (N,) and, if there are splits, test_mask "
    "(splits, N), such as `python -m experiments data boston` gets",
    "corpus": "one document a line, a folder of .txt files, a MediaWiki dump such as those of "
    "dumps.wikimedia.org, or an .npz file of word counts in compressed rows, such as "
    "`python -m experiments data reuters` gets",
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
