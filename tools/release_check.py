"""Whether this tree can be released: versions agree, and what is built works where nothing else is.

    python tools/release_check.py

builds the source distribution, the wheel from it, and the wheel from the tree, which must have the
same files. Then the wheel is installed, in a new environment of each Python that is supported, and
asked for a posterior that is known.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = 11, 12, 13  # minor versions
WANTED = "ergodax/py.typed", "dist-info/licenses/LICENSE", "dist-info/entry_points.txt"
REFUSED = "tests/", "benchmarks/", "gallery/", "experiments/", ".npz", ".ipynb", ".csv"
EXTRAS = "app,learn,flax"

SMOKE = """
import ergodax as ex, jax, jax.numpy as jnp
assert ex.__version__ == {version!r}, ex.__version__
assert "site-packages" in ex.__file__, ex.__file__
mean = jnp.array([1.0, -2.0])
target = ex.targets.gaussian(mean, jnp.eye(2))
result = ex.infer(target, jnp.zeros(2), key=jax.random.key(0), progress=False)
assert result.converged, str(result)
assert abs(result.table["mean"].to_numpy() - mean).max() < 0.25, str(result)
assert "Welling" in str(ex.cite(ex.sgld(ex.FullGradient(target), 0.1)))
"""
WITH_EXTRAS = """
import flax.linen, jax, numpy as np
from ergodax import network
from ergodax.learn import LinearRegressor
x = np.random.default_rng(0).normal(size=(200, 2)).astype("float32")
y = x @ np.array([1.0, -2.0], "float32")
assert abs(LinearRegressor().fit(x, y).score(x, y) - 1.0) < 0.01
module = flax.linen.Dense(1)
bound = module.bind(module.init(jax.random.key(0), x))
posterior = network.posterior(bound, (x, y), network.likelihoods.Gaussian(0.1))
assert np.isfinite(posterior.potential(posterior.start))
"""


class Unfit(Exception):
    """What keeps it from being released."""


def versions(root: Path) -> dict[str, str]:
    """The version that each file tells: of the package, its metadata, citation and changelog."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    named = {"pyproject.toml": project["version"]}
    for name, pattern in (
        ("src/ergodax/__init__.py", r'^__version__ = "(.+)"$'),
        ("CITATION.cff", r"^version: (.+)$"),
        ("CHANGELOG.md", r"^## \[(.+?)\]"),
    ):
        match = re.search(pattern, (root / name).read_text(), re.MULTILINE)
        named[name] = match[1] if match else "none"
    return named


def check_versions(root: Path) -> str:
    """The one version.

    Raises:
        Unfit: they differ.
    """
    named = versions(root)
    if len(set(named.values())) > 1:
        told = ", ".join(f"{name} says {version}" for name, version in named.items())
        raise Unfit(f"the versions differ: {told}.")
    return named["pyproject.toml"]


def check_date(root: Path) -> None:
    """Fail where the changelog's newest version has no date, as one that is not released."""
    heading = re.search(r"^## \[.+?\] - (.+)$", (root / "CHANGELOG.md").read_text(), re.MULTILINE)
    if heading is None or not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]):
        raise Unfit("the newest version of CHANGELOG.md has no date. Write YYYY-MM-DD after it.")


def check_wheel(wheel: Path) -> None:
    """Fail where a file is missing, or one that users do not need is in it."""
    names = zipfile.ZipFile(wheel).namelist()
    for wanted in WANTED:
        if not any(name.endswith(wanted) for name in names):
            raise Unfit(f"{wheel.name} lacks {wanted}.")
    for name in names:
        if any(name.startswith(bad) or name.endswith(bad) for bad in REFUSED):
            raise Unfit(f"{wheel.name} has {name}, which users do not need.")


def digests(wheel: Path) -> dict[str, str]:
    """A digest of each file, but for the list of them."""
    with zipfile.ZipFile(wheel) as files:
        return {
            name: hashlib.sha256(files.read(name)).hexdigest()
            for name in files.namelist()
            if not name.endswith("RECORD")
        }


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """The output of a command.

    Raises:
        Unfit: it failed.
    """
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=cwd)
    if done.returncode:
        said = (done.stdout + done.stderr)[-2_000:]
        raise Unfit(f"{' '.join(map(str, command))[:200]} failed:\n{said}")
    return done.stdout


def build(folder: Path) -> tuple[Path, Path]:
    """The source distribution, and the wheel that is built from it; the tree gives the same one."""
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "tree", ROOT)
    (other,) = (folder / "tree").glob("*.whl")
    if digests(wheel) != digests(other):
        raise Unfit("the wheel of the source distribution is not that of the tree.")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    return sdist, wheel


def check_installed(wheel: Path, version: str, minor: int, folder: Path) -> None:
    """Install the wheel for one Python, alone and then with extras, and use it."""
    python = run("sh", ROOT / "tools" / "find_python.sh", str(minor)).strip()
    run(python, "-m", "venv", folder)
    ours, constraints = folder / "bin" / "python", ROOT / "constraints.txt"
    pip = (ours, "-m", "pip", "--disable-pip-version-check", "--quiet", "install")
    run(*pip, "--constraint", constraints, wheel)
    run(ours, "-c", SMOKE.format(version=version), cwd=folder)
    bare = subprocess.run([folder / "bin" / "ergodax", "infer"], capture_output=True, text=True)
    if "ergodax[app]" not in bare.stdout + bare.stderr:
        raise Unfit(f"without its extra the command does not name it: {bare.stderr[-500:]}")
    run(*pip, "--constraint", constraints, f"{wheel}[{EXTRAS}]")
    run(ours, "-c", WITH_EXTRAS, cwd=folder)
    run(folder / "bin" / "ergodax", "infer", "--help")


def main() -> int:
    """Check all, and say what was done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--pythons", type=int, nargs="+", default=list(PYTHONS), help="minor versions (11 12 13)"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            version = check_versions(ROOT)
            print(f"version {version} everywhere", flush=True)
            sdist, wheel = build(folder)
            check_wheel(wheel)
            print(f"{sdist.name} {sdist.stat().st_size / 1e6:.1f} MB", flush=True)
            print(f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
            for minor in arguments.pythons:
                check_installed(wheel, version, minor, folder / str(minor))
                print(f"Python 3.{minor}: installed and used, alone and with extras", flush=True)
            check_date(ROOT)
        except Unfit as fault:
            print(f"NOT fit for a release: {fault}", file=sys.stderr)
            return 1
    print("fit for a release")
    return 0


if __name__ == "__main__":
    sys.exit(main())
