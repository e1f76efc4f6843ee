"""`import ergodax` is light; that imports point one way is checked by `make lint`."""

import json
import subprocess
import sys

# Each is imported only inside the function that needs it, or in a room of its own.
HEAVY = {
    "arviz_base",
    "blackjax",
    "arviz_stats",
    "cyclopts",
    "h5py",
    "matplotlib",
    "numpyro",
    "pandas",
    "pyarrow",
    "sklearn",
    "torch",
    "xarray",
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
