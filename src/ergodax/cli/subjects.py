"""What can be verified by name: targets, recipes, samplers, or anything of a user's file.

An error in such a file names its line.
"""

import contextlib
import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

import ergodax as ex
from ergodax import dynamics, targets, tree
from ergodax.kernel import State
from ergodax.target import AbstractTarget
from ergodax.target.analytic import AnalyticTarget


def metric(position: Array) -> Array:
    """The inverse metric of the samplers that need one: 1.5 + sin(sum of x), a multiple of I."""
    return 1.5 + jnp.sin(jnp.sum(position))


TARGETS: dict[str, Callable[[], AnalyticTarget]] = {
    "double_well": targets.double_well,
    "gaussian": lambda: targets.gaussian([0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]]),
    "banana": targets.banana,
    "mixture": lambda: targets.mixture([[-2.0, 0.0], [2.0, 0.0]], 1.0),
    "funnel": targets.funnel,
}
DEFAULT_TARGET = "double_well"
PLAIN_RECIPES = "langevin", "underdamped", "hamiltonian", "nose_hoover"
METRIC_RECIPES = (
    "riemannian_langevin", "riemannian_underdamped", "naive_riemannian_langevin",
    "naive_riemannian_underdamped", "determinant_corrected_langevin",
)  # fmt: skip
RECIPES: dict[str, Callable[[float], ex.Recipe]] = {
    **{name: lambda t, name=name: getattr(dynamics, name)() for name in PLAIN_RECIPES},
    **{name: lambda t, name=name: getattr(dynamics, name)(metric) for name in METRIC_RECIPES},
    "riemannian_hamiltonian": lambda t: dynamics.riemannian_hamiltonian(metric, 1.0, t),
}
OF_SAMPLERS = {
    "sgld": "langevin",
    "sghmc": "underdamped",
    "hmc": "hamiltonian",
    "sgnht": "nose_hoover",
    "sgrld": "riemannian_langevin",
    "sgrhmc": "riemannian_underdamped",
    "rmhmc": "riemannian_hamiltonian",
    "naive_sghmc": "hamiltonian",
    "naive_sgrhmc": "naive_riemannian_underdamped",
}
Sampler = Callable[[Any, float, float], Any]  # (gradient, step size, temperature) -> kernel


def _sampler(make: Callable[..., Any], *more: Any, **options: Any) -> Sampler:
    return lambda g, h, t: make(g, h, *more, temperature=t, **options)


PLAIN = "sgld", "sghmc", "langevin", "nogin", "msgld", "sgnht", "ccadl", "hmc"
NAIVE = ex.counterexamples
SAMPLERS: dict[str, Sampler] = {
    **{name: _sampler(getattr(ex, name)) for name in PLAIN},
    **{name: _sampler(getattr(ex, name), metric) for name in ("sgrld", "sgrhmc", "rmhmc")},
    "naive_sghmc": _sampler(NAIVE.naive_sghmc, resample_every=None),
    "naive_sgrhmc": _sampler(NAIVE.naive_sgrhmc, metric),
}
WITH_THERMOSTAT = "sgnht", "ccadl"
WITH_COVARIANCE = "nogin", "msgld", "ccadl"  # they must be told that of the gradient's noise


class Thermostat(eqx.Module):
    """Draws the thermostat from its law N(A + shift, T / d) in d dimensions; `init` has it at A."""

    temperature: float  # T
    shift: float  # what gradient noise adds to its mean

    def __call__(self, key: PRNGKeyArray, state: State) -> Any:
        """The state with a fresh thermostat."""
        zeta = state.auxiliary["thermostat"]
        spread = (self.temperature / tree.size(state.position)) ** 0.5
        fresh = zeta + self.shift + spread * jax.random.normal(key, (), zeta.dtype)
        return eqx.tree_at(lambda s: s.auxiliary["thermostat"], state, fresh)


class Subject(NamedTuple):
    """A function from step size to kernel, and what it is verified on."""

    make: Callable[[float], Any]
    target: AbstractTarget
    prepare: Callable[[Any, Any], Any] | None


def target_of(text: str) -> AbstractTarget:
    """A target by name, or FILE.py:NAME: a target, or a function that returns one.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no such name, or the file ends in an exception.
        TypeError: the name is of something else.
    """
    if not is_file(text):
        return _known(TARGETS, text, "target")()
    found = load(text)
    if callable(found) and not isinstance(found, AbstractTarget):
        with blaming():
            found = found()
    if not isinstance(found, AbstractTarget):
        raise TypeError(
            f"--target {text} is {_kind(found)}. It must be an ex.Target, an ex.Posterior or one "
            "of ex.targets, or a function without arguments that returns one."
        )
    return found


def position_of(texts: tuple[str, ...]) -> Any:
    """A position from numbers, or from FILE.py:NAME; None from nothing.

    Raises:
        FileNotFoundError: no such file.
        ValueError: neither numbers nor a name of a file.
    """
    if not texts:
        return None
    if len(texts) == 1 and is_file(texts[0]):
        return load(texts[0])
    try:
        return jnp.asarray([float(text) for text in texts])
    except ValueError:
        raise ValueError(
            f"--position {' '.join(texts)} must be numbers, or FILE.py:NAME of a position."
        ) from None


def recipe_of(text: str, target: AbstractTarget, temperature: float) -> ex.Recipe:
    """A recipe by name, or FILE.py:NAME: a Recipe, or a function target -> Recipe.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no such name, or the file ends in an exception.
        TypeError: the name is of something else.
    """
    if not is_file(text):
        known = RECIPES | {name: RECIPES[recipe] for name, recipe in OF_SAMPLERS.items()}
        return _known(known, text, "recipe")(temperature)
    found = load(text)
    if callable(found) and not isinstance(found, ex.Recipe):
        with blaming():
            found = found(target) if _needed(found, text, ("target",)) else found()
    if not isinstance(found, ex.Recipe):
        raise TypeError(
            f"{text} is {_kind(found)}. It must be an ex.Recipe, or a function of the target that "
            "returns one. For a kernel, try ergodax verify kernel."
        )
    return found


def kernel_of(
    text: str, target: str | None, temperature: float, noise: float, prepare: str | None
) -> Subject:
    """A sampler by name, or FILE.py:NAME: a function of the step size, or of target and step size.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no such name, the file ends in an exception, or no target.
        TypeError: the name is of something else.
    """
    ready = None if prepare is None else load(prepare)
    if not is_file(text):
        on = target_of(target or DEFAULT_TARGET)
        sampler = _known(SAMPLERS, text, "sampler")
        if ready is None and text in WITH_THERMOSTAT:
            shift = 0.5 * noise / temperature if text == "sgnht" else 0.0
            ready = Thermostat(temperature, shift)
        told = bool(noise) or text in WITH_COVARIANCE

        def make(h: float) -> Any:
            # Noise of covariance v / h is what the limit of small steps keeps.
            gradient = ex.NoisyGradient(on, noise / h) if told else ex.FullGradient(on)
            return sampler(gradient, h, temperature)

        return Subject(make, on, ready)
    if noise:
        raise ValueError("--noise is for samplers by name; a function makes its own gradient.")
    found = load(text)
    if not callable(found) or (hasattr(found, "step") and not isinstance(found, type)):
        raise TypeError(
            f"{text} is {_kind(found)}. It must be a function of the step size that returns a "
            "kernel, or of target and step size. For a recipe, try ergodax verify recipe."
        )
    if _needed(found, text, ("target", "step_size")) == 2:
        on = target_of(target or DEFAULT_TARGET)
        return Subject(lambda h: found(on, h), on, ready)
    if target is None:
        raise ValueError(f"--target is needed: the one whose law {text} samples.")
    return Subject(found, target_of(target), ready)


def _known(table: Mapping[str, Any], name: str, kind: str) -> Any:
    if name not in table:
        raise ValueError(
            f"no {kind} is called {name!r}. Try {', '.join(table)}, or FILE.py:NAME for your own."
        )
    return table[name]


def _needed(function: Callable[..., Any], text: str, most: tuple[str, ...]) -> int:
    """How many arguments a function must be given, of those in `most`."""
    given = inspect.signature(function).parameters.values()
    places = [p for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in places if p.default is p.empty]
    count = len(needed)
    if len(most) == 2 and places and count < 2:
        count = 2 if places[0].name == "target" and len(places) > 1 else 1
    if count > len(most) or (len(most) == 2 and count == 0):
        names = ", ".join(p.name for p in needed)
        raise TypeError(
            f"{text} takes ({names}). It must take {' and '.join(most)}"
            f"{', or the last alone' if len(most) == 2 else ', or nothing'}."
        )
    return count


def _kind(found: Any) -> str:
    text = repr(found)
    return f"{text if len(text) < 60 else text[:57] + '...'} of type {type(found).__name__}"


def is_file(text: str) -> bool:
    """Whether a text is FILE.py:NAME rather than a plain name."""
    return ".py" in text or ":" in text


def load(text: str) -> Any:
    """The object that FILE.py:NAME says; the file is run once.

    Raises:
        FileNotFoundError: no such file.
        ValueError: no name, no such name, or the file ends in an exception.
    """
    before, colon, after = text.rpartition(":")
    path, name = (Path(before), after) if colon else (Path(text), "")
    if not path.is_file():
        raise FileNotFoundError(
            f"no such file: {path}, in {text!r}. The path is taken from {Path.cwd()}."
        )
    if path.suffix != ".py":
        raise ValueError(f"{path} must be a Python file, whose name ends in .py.")
    _TYPED[str(path.resolve())] = path
    with blaming():
        module = _run(path.resolve(), path.stat().st_mtime_ns)
    names = [
        known
        for known, value in vars(module).items()
        if not (known.startswith("_") or isinstance(value, ModuleType))
    ]
    if not name:
        raise ValueError(f"{text!r} says no name. Try {path}:NAME, with one of {_listed(names)}.")
    if not hasattr(module, name):
        raise ValueError(f"{path} has no name {name!r}; it has {_listed(names)}.")
    return getattr(module, name)


@contextlib.contextmanager
def blaming() -> Generator[None]:
    """While active, an exception that passed through a user's file says through which line.

    Raises:
        ValueError: in place of the exception.
    """
    try:
        yield
    except (Exception, SystemExit) as error:
        line = _line(error)
        if line is None:
            raise
        text = str(error).strip() or "no message"
        raise ValueError(f"{line}\n  {type(error).__name__}: {text.splitlines()[0]}") from error


_TYPED: dict[str, Path] = {}  # what the user calls a file, by the name that a traceback has


@functools.cache
def _run(path: Path, modified: int) -> ModuleType:
    """The module of a file as it stands."""
    name = f"ergodax_verified_{len(_TYPED)}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and Equinox look there
    sys.path.insert(0, str(path.parent))  # its neighbours can be imported, as by `python FILE.py`
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module


def _line(error: BaseException) -> str | None:
    """The last line of a user's file that an exception passed through, as a traceback has it."""
    if isinstance(error, SyntaxError) and error.filename in _TYPED:
        source = (error.text or "").strip()
        return f"{_TYPED[error.filename]}, line {error.lineno}: {source}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename in _TYPED]
    if not frames:
        return None
    last = frames[-1]
    inside = "" if last.name == "<module>" else f", in {last.name}"
    return f"{_TYPED[last.filename]}, line {last.lineno}{inside}: {last.line}"


def _listed(names: list[str]) -> str:
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "") if names else "no names"
