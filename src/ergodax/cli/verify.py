"""`ergodax verify`: is a recipe or a sampler right?"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import jax
from cyclopts import App, Parameter
from rich.console import Console

from ergodax import verify
from ergodax.cli import subjects
from ergodax.cli.output import Json, Many, Output, folder, tell, tell_files, tell_json
from ergodax.target.analytic import AnalyticTarget
from ergodax.verify import Report

verify_app = App(
    name="verify",
    help="""Prove or refute a recipe or a sampler, of the library or of your own file.

    Exit status: 0 proved or consistent, 1 refuted or inconclusive, 2 wrong use.

    Example: ergodax verify recipe sghmc --target double_well
    """,
)


@Parameter(name="*")
@dataclass(frozen=True)
class VerifyOptions:
    """Options of both.

    Parameters
    ----------
    target
        double_well, gaussian, banana, mixture, funnel (of ex.targets, in one or two dimensions),
        or FILE.py:NAME of a target or a function that returns one; double_well by default.
    temperature
        T of the law exp(-U / T).
    seed
        Of points and draws.
    output
        Folder for picture.png, facts.json and report.html; without it none are written.
    json
        Print the facts as JSON instead of tables.
    """

    target: str | None = None
    temperature: float = 1.0
    seed: int = 0
    output: Output = None
    json: Json = False


DEFAULTS = VerifyOptions()


@verify_app.command
def recipe(
    name: str,
    /,
    *,
    position: Annotated[tuple[str, ...], Many] = (),
    noise_covariance: float | None = None,
    step_size: float | None = None,
    tolerance: float = 1e-6,
    options: VerifyOptions = DEFAULTS,
) -> int:
    """Does the equation of a recipe leave exp(-U / T) invariant? By exact derivatives, at points.

    Exit status: 0 proved, 1 refuted, 2 wrong use.

    Example: ergodax verify recipe sghmc --target banana --noise-covariance 1 --step-size 0.1

    Example: ergodax verify recipe model.py:spiral --target model.py:well

    Parameters
    ----------
    name
        A recipe of ex.dynamics or the sampler that follows it, such as sgld, sghmc, sgnht, sgrhmc,
        naive_sgrhmc, with default options and the inverse metric 1.5 + sin(sum x); or FILE.py:NAME
        of an ex.Recipe or a function of the target that returns one.
    position
        Where the target's mass is, for a target without exact draws: numbers, or FILE.py:NAME.
    noise_covariance
        Variance of a gradient noise that the recipe does not know of; needs --step-size.
    step_size
        h, at which that noise acts as a diffusion.
    tolerance
        Of the residual, relative to the terms that cancel in it.
    """
    from ergodax.report import pictures, verification

    place = None if options.output is None else folder(options.output)
    target = subjects.target_of(options.target or subjects.DEFAULT_TARGET)
    if not (position or isinstance(target, AnalyticTarget)):
        raise ValueError(
            f"--position is needed: {options.target} has no exact draws. Say where its mass is, "
            "such as --position 0 0 in two dimensions."
        )
    chosen = subjects.recipe_of(name, target, options.temperature)
    noise = {"noise_covariance": noise_covariance, "step_size": step_size}

    def at(**where: Any) -> Report:
        with subjects.blaming():
            return verify.recipe(
                chosen, target, temperature=options.temperature, tolerance=tolerance,
                key=jax.random.key(options.seed), **noise, **where,
            )  # fmt: skip

    report = at(position=subjects.position_of(position))
    draw = lambda: pictures.residuals(report, lambda states: at(points=states))  # noqa: E731
    title, settings = _of(options, recipe=name)
    found = verification.of_recipe(report, title, settings | noise)
    return _tell(found, options, place, draw)


@verify_app.command
def kernel(
    name: str,
    /,
    *,
    step_sizes: Annotated[tuple[float, ...] | None, Many] = None,
    duration: float | None = None,
    num_draws: int = 2**18,
    noise: float = 0.0,
    prepare: str | None = None,
    tolerance: float = 0.1,
    options: VerifyOptions = DEFAULTS,
) -> int:
    """Does a sampler leave its law alone as h -> 0, and with which weak order? By many short runs.

    Exit status: 0 consistent, 1 refuted or inconclusive, 2 wrong use.

    Example: ergodax verify kernel langevin --target double_well --num-draws 65536

    Example: ergodax verify kernel model.py:sampler --target model.py:well

    Parameters
    ----------
    name
        A sampler such as sgld, sghmc, langevin, nogin, sgnht, sgrhmc, naive_sghmc, naive_sgrhmc,
        with default options and the inverse metric 1.5 + sin(sum x); or FILE.py:NAME of a
        function of the step size, or of target and step size, that returns a kernel.
    step_sizes
        Three or more; by default chosen by the target.
    duration
        Time of a run, a whole number of each step size; by default 4 of the largest.
    num_draws
        Runs at each step size.
    noise
        v: the gradient of a sampler by name has a noise of covariance v / h, which small steps
        keep, so that it must be compensated.
    prepare
        FILE.py:NAME of a function (key, state) -> state, for what init does not draw from its law.
    tolerance
        The coarsest resolution at which a limit is called right, in posterior sd.
    """
    from ergodax.report import pictures, verification

    place = None if options.output is None else folder(options.output)
    subject = subjects.kernel_of(name, options.target, options.temperature, noise, prepare)
    with subjects.blaming():
        report = verify.kernel(
            subject.make, subject.target, key=jax.random.key(options.seed), step_sizes=step_sizes,
            duration=duration, temperature=options.temperature, prepare=subject.prepare,
            num_draws=num_draws, tolerance=tolerance,
        )  # fmt: skip
    title, settings = _of(options, kernel=name)
    found = verification.of_kernel(report, title, settings | {"noise": noise})
    return _tell(found, options, place, lambda: pictures.biases(report))


def _of(options: VerifyOptions, **subject: str) -> tuple[str, dict[str, Any]]:
    """The title and the settings, from the kind of the subject and its name."""
    target = options.target or subjects.DEFAULT_TARGET
    ((kind, name),) = subject.items()
    settings = {"target": target, "temperature": options.temperature, "seed": options.seed}
    return f"{kind} {name} on {target}", subject | settings


def _tell(
    found: Any, options: VerifyOptions, place: Path | None, draw: Callable[[], tuple[Any, str]]
) -> int:
    """Print what was found, write the files if they are wanted, and return the exit status."""
    from ergodax.report import verification

    console = Console(stderr=options.json)
    paths = {} if place is None else verification.write(place, found, draw())
    if options.json:
        tell_json(found.facts, paths)
    else:
        console.print(found.title, style="bold", highlight=False, markup=False)
        for sentence in found.sentences:
            style = "green" if found.ok else "red"
            console.print(sentence, style=style, highlight=False, markup=False)
        tell(console, (part for table in found.texts.items() for part in ("", table)))
    tell_files(console, paths)
    return 0 if found.ok else 1
