"""What may be on the disk after a power cut: all operations on files are recorded, a part replayed.

After a cut the disk has the content of files up to their last fsync, and the entries of folders up
to the folder's last fsync. Of later entries it may have all, none or some; of a file that is being
written, any part.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


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


Disk = dict[Path, bytes | None]  # folders (None) and files


class Recorder:
    """The operations below a folder, in their order, while it is a context.

    Args:
        root: the folder; what is in it is on the disk.

    Attributes:
        operations: that were recorded.
        first: how many of them stand for what was there before.
        unflushed: files that were renamed before they were on the disk.
    """

    NAMES = ("fsync", "mkdir", "replace", "unlink")

    def __init__(self, root: Path) -> None:
        self.root, self.operations, self.numbers, self.count = root, [], {}, 0
        self.unflushed: list[Path] = []
        for path in sorted(root.rglob("*")):
            if path.is_dir():
                self.mkdir(path)
            else:
                self._content(path)
        self.operations += [Synced(path) for path in (root, *root.rglob("*")) if path.is_dir()]
        self.first = len(self.operations)

    def __enter__(self) -> "Recorder":
        self.real = {name: getattr(os, name) for name in self.NAMES}
        for name, real in self.real.items():
            setattr(os, name, self._recording(getattr(self, name), real))
        return self

    def __exit__(self, *exception: object) -> None:
        for name, real in self.real.items():
            setattr(os, name, real)

    def _recording(self, note: Callable, real: Callable) -> Callable:
        def both(*args: Any, **more: Any) -> Any:
            result = real(*args, **more)
            note(*args)
            return result

        return both

    def fsync(self, descriptor: int) -> None:
        """Note that a file's content, or a folder's entries, are on the disk."""
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.root not in path.parents and path != self.root:
            return
        if path.is_dir():
            self.operations.append(Synced(path))
        else:
            self._content(path)

    def _content(self, path: Path) -> None:
        self.operations += [*self._known(path), Content(self.numbers[path], path.read_bytes())]

    def _known(self, path: Path) -> list[Entry]:
        """The entry of a file that has none yet."""
        if path in self.numbers:
            return []
        self.count += 1
        self.numbers[path] = self.count
        return [Entry("file", path, self.count)]

    def mkdir(self, path: Any, *_: Any) -> None:
        """Note a folder."""
        if self.root in Path(path).parents:
            self.operations.append(Entry("folder", Path(path)))

    def replace(self, old: Any, new: Any) -> None:
        """Note another name; a file that was not flushed has some of its content, or none."""
        old, new = Path(old), Path(new)
        if self.root not in new.parents:
            return
        if new.is_file() and old not in self.numbers:
            self.unflushed.append(new)
            self.operations += self._known(old)
        moved = {p: n for p, n in self.numbers.items() if p == old or old in p.parents}
        for path, number in moved.items():
            del self.numbers[path]
            self.numbers[new / path.relative_to(old) if path != old else new] = number
        self.operations.append(Entry("rename", old, new))

    def unlink(self, path: Any) -> None:
        """Note that a file is gone."""
        if self.numbers.pop(Path(path), None):
            self.operations.append(Entry("remove", Path(path)))


def disks(operations: list, dice: random.Random) -> Iterator[Disk]:
    """What may be on the disk after a cut; the first has nothing that it need not have."""
    whole = lambda old, new: new  # noqa: E731
    yield _after_a_cut(operations, lambda: False, whole)
    yield _after_a_cut(operations, lambda: True, whole)
    yield _after_a_cut(operations, lambda: dice.random() < 0.5, whole)
    if isinstance(operations[-1], Content):
        some = lambda old, new: new[: dice.randint(min(len(old), len(new)), len(new))]  # noqa: E731
        zeros = lambda old, new: old + bytes(max(0, len(new) - len(old)))  # noqa: E731
        for torn in (lambda old, new: old, zeros, some):
            yield _after_a_cut(operations, lambda: True, torn)


def _after_a_cut(
    operations: list, there: Callable[[], bool], torn: Callable[[bytes, bytes], bytes]
) -> Disk:
    """The disk after a cut.

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


def lay_out(disk: Disk, root: Path, copy: Path) -> None:
    """Make a folder as the one that was recorded would be on that disk."""
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir()
    for path, content in sorted(disk.items()):
        place = copy / path.relative_to(root)
        if not place.parent.is_dir():
            continue  # its folder is not on the disk
        place.mkdir() if content is None else place.write_bytes(content)
