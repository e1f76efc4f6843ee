"""Files of every format that is read, what may happen to their bytes, and what must come of it."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd

import ergodax as ex
from ergodax.learn import tables
from property.calls.outcomes import Outcome, outcome

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.arange(40) % 2


class Format(NamedTuple):
    """How a file is written, how all of it is read, and whether a checksum covers its numbers."""

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    checked: bool = False


def _all_rows(source: Any) -> Any:
    return jax.tree.map(lambda *parts: np.concatenate(parts), *source.scan(16))


def _frame() -> pd.DataFrame:
    ward = np.array(["north", "south"])[(np.arange(40) // 3) % 2]
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "ward": ward, "y": Y})


def _write_zarr(path: Path) -> None:
    import zarr
    from zarr.codecs import Crc32cCodec

    group = zarr.create_group(path)
    for name, values in (("x", X), ("y", Y)):
        codec = Crc32cCodec()
        group.create_array(name, data=values, chunks=(10, *values.shape[1:]), compressors=codec)


def _read_table(path: Path) -> Any:
    if path.suffix == ".npz":
        table = tables.read_npz(path, "x_train", "y")
    else:
        table = tables.of_columns(*tables.read_columns(path, "y"), "logistic")
    return table.features, table.target, table.names


FORMATS = {
    "draws.zarr": Format(
        lambda path: ex.Samples({"a": X[None], "b": [X[None]]}, {"n": Y[None]}, None).save(path),
        lambda path: ex.Samples.load(path).position,
        checked=True,
    ),
    "npy": Format(lambda path: np.save(path, X), lambda path: _all_rows(ex.data.npy(path))),
    "parquet": Format(
        lambda path: _frame().to_parquet(path, row_group_size=10),
        lambda path: _all_rows(ex.data.parquet(path, ["a", "b"], target="y")),
    ),
    "zarr": Format(_write_zarr, lambda path: _all_rows(ex.data.zarr(path)), checked=True),
    "csv": Format(lambda path: _frame().to_csv(path, index=False), _read_table),
    "table.npz": Format(
        lambda path: np.savez(path, x_train=X, y=Y), _read_table, checked=True
    ),
    "table.parquet": Format(lambda path: _frame().to_parquet(path), _read_table),
}  # fmt: skip


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """The bytes after one of the things that happen to files."""
    size = len(data)
    kind = rng.choice(["cut", "flip", "empty", "swap", "header", "zeros", "double", "foreign"])
    a, b = sorted(rng.integers(0, size + 1, 2).tolist())
    if kind == "cut":
        return data[:a]
    if kind == "flip":
        changed = np.frombuffer(data, np.uint8).copy()
        places = rng.integers(0, size, 1 + rng.integers(3))
        changed[places] ^= rng.integers(1, 256, len(places)).astype(np.uint8)
        return changed.tobytes()
    if kind == "empty":
        return b""
    if kind == "swap":
        length = min(b - a, size - b)
        return (
            data[:a]
            + data[b : b + length]
            + data[a + length : b]
            + data[a : a + length]
            + (data[b + length :])
        )
    if kind == "header":
        length = int(rng.integers(1, 65))
        return rng.bytes(length) + data[length:]
    if kind == "zeros":
        return data[:a] + bytes(b - a) + data[b:]
    if kind == "double":
        return data[:b] + data[a:]
    return [b"hello", b"PK\x03\x04", b"\x93NUMPY", b"PAR1PAR1", b"{}", b"[" * 10_000][
        rng.integers(6)
    ]


def damaged_copy(whole: Path, copy: Path, rng: np.random.Generator) -> bool:
    """Damage a copy of a file, or one file of a folder; whether a checksum could tell.

    None covers Zarr's descriptions, and a chunk that is not there is one of the fill value.
    """
    if whole.is_file():
        copy.write_bytes(damaged(whole.read_bytes(), rng))
        return True
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(whole, copy)
    files = sorted(path for path in copy.rglob("*") if path.is_file())
    file = files[rng.integers(len(files))]
    if rng.random() < 0.1:
        file.unlink()
        return False
    file.write_bytes(damaged(file.read_bytes(), rng))
    return file.suffix != ".json"


def fault(form: Format, whole: Path, copy: Path, *, checked: bool) -> tuple[Outcome, str]:
    """What reading a damaged copy came to, and what is wrong with that; "" where nothing is."""
    found: list[Any] = []
    result = outcome(lambda: found.append(form.read(copy)))
    if result.kind == "refused":
        named = copy.name in result.message or str(copy) in result.message
        return result, "" if named else "the file is not named"
    if result.kind != "fine":
        return result, result.kind
    if form.checked and checked:
        right, read = jax.tree.leaves(form.read(whole)), jax.tree.leaves(found[0])
        same = len(right) == len(read) and all(map(np.array_equal, right, read))
        return result, "" if same else "other numbers"
    return result, ""


def faults(name: str, folder: Path, count: int, seed: int = 0) -> tuple[dict[str, int], list[str]]:
    """How many copies loaded or were refused, and what is wrong with any."""
    form, counts, wrong = FORMATS[name], {"loaded": 0, "refused": 0}, []
    whole, copy = folder / f"whole.{name}", folder / f"copy.{name}"
    form.write(whole)
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        checked = damaged_copy(whole, copy, rng)
        result, what = fault(form, whole, copy, checked=checked)
        counts["loaded" if result.kind == "fine" else "refused"] += 1
        if what:
            wrong.append(f"{name} {number}: {what}: {result.where} {result.message}")
    return counts, wrong
