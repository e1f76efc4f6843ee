"""A power cut after any operation on files leaves draws that are right, or nothing that is read.

All operations of a run are recorded. After a cut the disk has the content of files up to their last
fsync, and the entries of folders up to the folder's last fsync. Of later entries it may have all,
none or some; of a file that is being appended to, any part.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.driver.progress import Clock
from ergodax.persist import disk, zarr_files


class Entry(NamedTuple):
    """A change of a folder's entries: one made, renamed or removed."""

    kind: str  # folder, file, rename, remove
    path: Path
    what: Any = None  # the number of a file, or the path it is renamed to


class Content(NamedTuple):
    """What a file has on the disk from now on."""

    number: int
    data: bytes


class Synced(NamedTuple):
    """A folder's entries are on the disk."""

    path: Path


class Recorder:
    """The operations below a folder, in their order."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.root, self.operations, self.numbers, self.count = root, [], {}, 0
        for name in ("fsync", "mkdir", "replace", "unlink"):
            patch.setattr(os, name, self._recording(getattr(self, name), getattr(os, name)))

    def _recording(self, note: Callable, real: Callable) -> Callable:
        def both(*args: Any, **more: Any) -> Any:
            result = real(*args, **more)
            note(*args)
            return result

        return both

    def fsync(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.root not in path.parents and path != self.root:
            return
        if path.is_dir():
            self.operations.append(Synced(path))
            return
        if path not in self.numbers:
            self.count += 1
            self.numbers[path] = self.count
            self.operations.append(Entry("file", path, self.count))
        self.operations.append(Content(self.numbers[path], path.read_bytes()))

    def mkdir(self, path: Any, *_: Any) -> None:
        if self.root in Path(path).parents:
            self.operations.append(Entry("folder", Path(path)))

    def replace(self, old: Any, new: Any) -> None:
        old, new = Path(old), Path(new)
        moved = {p: n for p, n in self.numbers.items() if p == old or old in p.parents}
        assert moved or not old.is_file(), f"{old} is renamed, but it was not flushed to the disk"
        for path, number in moved.items():
            del self.numbers[path]
            self.numbers[new / path.relative_to(old) if path != old else new] = number
        self.operations.append(Entry("rename", old, new))

    def unlink(self, path: Any) -> None:
        if self.numbers.pop(Path(path), None):
            self.operations.append(Entry("remove", Path(path)))


def after_a_cut(
    operations: list, there: Callable[[], bool], torn: Callable[[bytes, bytes], bytes]
) -> dict[Path, bytes | None]:
    """The disk after a cut: folders (None) and files, by path.

    Args:
        operations: up to the cut.
        there: whether an entry whose folder was not synced is there.
        torn: what a file has that was being written at the cut, of the old and new content.
    """
    entries, contents, pending = [], {}, {}
    for operation in operations:
        match operation:
            case Entry(path=path):
                entries.append(operation)
                pending.setdefault(path.parent, []).append(len(entries) - 1)
            case Synced(path=path):
                pending.pop(path, None)
            case Content(number=number, data=data):
                last = operation is operations[-1]
                contents[number] = torn(contents.get(number, b""), data) if last else data
    unsure = {k for places in pending.values() for k in places}
    names: dict[Path, int | None] = {}
    for k, (kind, path, what) in enumerate(entries):
        if k in unsure and not there():
            continue
        if kind == "folder":
            names[path] = None
        elif kind == "file":
            names[path] = what
        elif kind == "remove":
            names.pop(path, None)
        elif path in names:  # a rename
            moved = {p: n for p, n in names.items() if p == path or path in p.parents}
            for p, n in moved.items():
                del names[p]
                names[what / p.relative_to(path) if p != path else what] = n
    return {path: None if n is None else contents.get(n, b"") for path, n in names.items()}


def disks(operations: list, dice: random.Random) -> Iterator[dict[Path, bytes | None]]:
    """What may be on the disk after a cut."""
    whole = lambda old, new: new  # noqa: E731
    yield after_a_cut(operations, lambda: False, whole)
    yield after_a_cut(operations, lambda: True, whole)
    yield after_a_cut(operations, lambda: dice.random() < 0.5, whole)
    if isinstance(operations[-1], Content):
        some = lambda old, new: new[: dice.randint(len(old), len(new))]  # noqa: E731
        zeros = lambda old, new: old + bytes(max(0, len(new) - len(old)))  # noqa: E731
        for torn in (lambda old, new: old, zeros, some):
            yield after_a_cut(operations, lambda: True, torn)


class Walk:
    """A kernel with few arrays, so that there are few operations."""

    def init(self, key, position):
        return ex.State(position, {}, None, None, jnp.int32(0))

    def step(self, key, state):
        position = state.position + jax.random.normal(key, (2,))
        return ex.State(position, {}, None, None, state.step + 1), {"sum": jnp.sum(position)}


def sample(folder: Path, steps: int, **more: Any) -> ex.Samples:
    return ex.sample(
        Walk(), jnp.zeros(2), steps, num_chains=2, key=jax.random.key(1), progress=False,
        checkpoint=ex.Checkpoint(folder, every=1e-9, **more),
    )  # fmt: skip


def laid_out(there: dict[Path, bytes | None], root: Path, copy: Path) -> None:
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for path, content in sorted(there.items()):
        place = copy / path.relative_to(root)
        if not place.parent.is_dir():
            continue  # its folder is not on the disk
        place.mkdir() if content is None else place.write_bytes(content)


@pytest.mark.slow
def test_a_power_cut_at_any_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(Clock, "steps", lambda self: 3)
    monkeypatch.setattr(zarr_files, "MOST_DRAWS", 5)
    root, copy, run = tmp_path / "disk", tmp_path / "copy", tmp_path / "disk" / "run"
    root.mkdir()
    whole = sample(tmp_path / "whole", 20)
    with monkeypatch.context() as patch:
        recorder = Recorder(root, patch)
        sample(run, 9)
        earlier = (run / "checkpoint").read_bytes()
        sample(run, 14, resume=True)
        disk.write(run / "checkpoint", earlier)  # so it goes back from 14 draws to 9
        sample(run, 20, resume=True)
    operations, dice, counts, refused = recorder.operations, random.Random(0), [], 0
    sure = on_disk = -1  # draws that are there whatever entries are not, before and after the last
    for end in range(1, len(operations) + 1):
        for number, found_there in enumerate(disks(operations[:end], dice)):
            laid_out(found_there, root, copy)
            try:
                found = ex.Samples.load(copy / "run" / "draws.zarr")
            except (ex.CheckpointError, FileNotFoundError):
                refused += 1
                assert sure < 0, "a store that was on the disk is lost"
                continue
            counts.append(found.num_draws)
            on_disk = found.num_draws if number == 0 else on_disk
            assert found.num_draws >= min(sure, 9), "draws that were counted are lost"
            np.testing.assert_array_equal(found.position, whole.position[:, : found.num_draws])
            np.testing.assert_array_equal(found.info["sum"], whole.info["sum"][:, : counts[-1]])
        sure = on_disk
        if end % 20 == 0 and (copy / "run" / "checkpoint").exists():
            resumed = sample(copy / "run", 20, resume=True)
            np.testing.assert_array_equal(resumed.position, whole.position)
    assert refused and set(counts) == {0, 3, 6, 9, 12, 14, 15, 18, 20}, (refused, set(counts))
