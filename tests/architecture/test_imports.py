"""Imports point one way, and `import ergodax` is light."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


def test_the_contracts_of_import_linter_hold():
    tool = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert tool is not None, "import-linter is in the extra `lint`"
    done = subprocess.run([tool], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


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
