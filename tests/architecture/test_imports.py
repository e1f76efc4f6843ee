"""`import ergodax` is light; that imports point one way is checked by `make lint`."""

import json
import subprocess
import sys

# Each is imported only inside the function that needs it, or in a part that is imported late.
HEAVY = {
    "arviz_base",
    "blackjax",
    "arviz_stats",
    "cyclopts",
    "matplotlib",
    "numpyro",
    "pandas",
    "pyarrow",
    "rich",
    "sklearn",
    "torch",
    "xarray",
    "zarr",
}


def test_importing_the_library_imports_nothing_heavy():
    program = "import sys, json, ergodax; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    assert "ergodax" in loaded
    assert not loaded & HEAVY


def test_what_is_imported_late_is_there():
    program = "import ergodax as ex; print(*[getattr(ex, name) is None for name in ex.__all__])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == {"False"}
