"""The papers that a kernel comes from, read from the docstrings of what it is made of."""

import dataclasses
import inspect
import pydoc
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

SECTION = re.compile(r"^Reference:[ \t]*(.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)


class Reference(NamedTuple):
    """What was used, and the papers to cite for it."""

    used: str
    papers: str


class References(tuple[Reference, ...]):
    """References in the order of their use, outermost first; printed, a line for each."""

    def __repr__(self) -> str:
        """A line for each."""
        return "\n".join(f"{used}: {papers}" for used, papers in self) or "no reference"

    __str__ = __repr__


def cite(*things: Any) -> References:
    """The papers to cite for a kernel: its sampler, integrator, gradient estimator, all its parts.

    They are the sections "Reference" of the docstrings, so a kernel or an estimator of your own is
    cited as well, where its docstring has one.

    Args:
        things: kernels, estimators, what `ex.infer` returned, or functions and classes such as
            ex.sgld.

    Returns:
        The name of each part that has a reference, with it; printed, a line for each.

    Raises:
        TypeError: nothing was given.

    Example:
        >>> import ergodax as ex, jax.numpy as jnp
        >>> x = jnp.ones(9)
        >>> model = ex.Posterior(lambda m: -0.5 * m**2, lambda m, x: -0.5 * (x - m) ** 2, x)
        >>> ex.cite(ex.sgld(ex.SAGA(model, 3), 1e-3))  # doctest: +NORMALIZE_WHITESPACE
        sgld: Welling and Teh, Bayesian learning via stochastic gradient Langevin dynamics, 2011.
        euler_maruyama: Ma, Chen and Fox, A complete recipe for stochastic gradient MCMC, 2015,
            Eqs. (6), (9).
        SAGA: Dubey, Reddi, Poczos, Smola, Xing and Williamson, Variance reduction in stochastic
            gradient Langevin dynamics, 2016.
    """
    if not things:
        raise TypeError("cite needs something to cite: ex.cite(kernel), or ex.cite(ex.sgld).")
    found = {
        part.__name__: papers
        for thing in things
        for part in _parts(thing)
        if (papers := _papers(part)) is not None
    }
    return References(Reference(used, papers) for used, papers in found.items())


def _parts(thing: Any) -> Iterator[Any]:
    """The functions and classes that made something and what is in it."""
    if inspect.isclass(thing) or inspect.isroutine(thing):
        yield thing
    elif isinstance(thing, (tuple, list)):
        for each in thing:
            yield from _parts(each)
    elif isinstance(thing, dict):
        yield from _parts(list(thing.values()))
    elif dataclasses.is_dataclass(thing):
        yield from filter(None, map(pydoc.locate, getattr(thing, "origin", ())))
        yield from type(thing).__mro__
        for field in dataclasses.fields(thing):
            yield from _parts(getattr(thing, field.name, None))
    else:
        yield type(thing)


def _papers(part: Any) -> str | None:
    """The section of its own docstring, in one line."""
    section = SECTION.search(inspect.cleandoc(part.__doc__ or ""))
    return None if section is None else " ".join(section.group(1).split())
