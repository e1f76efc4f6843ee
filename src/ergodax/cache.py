"""The user's cache folder: digests of files, and the programs that `infer` has compiled.

A program that was compiled once need not be compiled by the next process, which is most of what a
first answer waits for. ERGODAX_CACHE names the folder (by default `ergodax` in XDG_CACHE_HOME or
~/.cache), and ERGODAX_PROGRAMS=0 keeps no programs. Where JAX has a cache of its own
(`jax_compilation_cache_dir`), that one serves.
"""

import contextlib
import hashlib
import os
import platform
from collections.abc import Generator, Mapping
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

MOST_BYTES = 2**29  # of programs; those that were not used for longest are deleted
SECONDS = 0.02  # of compilation, from which a program is worth a file
OF_A_PROCESSOR = "flags", "Features", "model name"  # lines of Linux's description


def cache_folder() -> Path:
    """Where what can be made again is kept."""
    folder = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("ERGODAX_CACHE") or Path(folder) / "ergodax")


@contextlib.contextmanager
def kept_programs() -> Generator[None]:
    """While active, programs are read from the user's cache folder, and kept there."""
    elsewhere = jax.config.jax_compilation_cache_dir or os.environ.get("ERGODAX_PROGRAMS") == "0"
    folder = None if elsewhere else _made()
    if folder is None:
        yield
        return
    settings = {
        "jax_compilation_cache_dir": str(folder),
        "jax_compilation_cache_max_size": MOST_BYTES,
        "jax_persistent_cache_min_compile_time_secs": SECONDS,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    _set(settings)
    try:
        yield
    finally:
        _set(before)


def _set(settings: Mapping[str, object]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # which else would go on with what it saw first


def _made() -> Path | None:
    """A folder in which programs can be kept, if there is one."""
    try:
        folder = cache_folder() / "programs" / _processor()
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # it can't be written, or nobody's home
        return None
    return folder if os.access(folder, os.W_OK) else None


def _processor() -> str:
    """A name for the instructions that this machine has: programs are made for them."""
    described = [platform.machine(), platform.processor()]
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        described += sorted({line for line in lines if line.startswith(OF_A_PROCESSOR)})
    return hashlib.blake2b("\n".join(described).encode(), digest_size=8).hexdigest()
