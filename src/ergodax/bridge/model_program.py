"""A NumPyro model as functions of unconstrained numbers: log densities by site, and back again."""

# pyright: reportMissingImports=false
import contextlib
import threading
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ergodax import tree

LOCK = threading.RLock()


class Arguments(eqx.Module):
    """The arguments of a model, without those that have a row for each example.

    Floating-point arrays are arguments of every program. Everything else is a part of it, so that a
    model may take sizes from integers, and branch on them.
    """

    arrays: list[Any]
    places: "Places" = eqx.field(static=True)

    def given(self, data: list[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments and keyword arguments with these rows."""
        parts = {"data": iter(data), "array": iter(self.arrays), "fixed": iter(self.places.fixed)}
        leaves = [next(parts[kind]) for kind in self.places.kinds]
        return jax.tree.unflatten(self.places.structure, leaves)


class Places:
    """Where each argument of a model is held; told apart by identity, as arrays have no hash.

    Args:
        kinds: of each leaf of (args, kwargs): "data", "array" or "fixed".
        fixed: the leaves that are part of every program.
        structure: of (args, kwargs).
    """

    def __init__(self, kinds: list[str], fixed: list[Any], structure: Any) -> None:
        self.kinds, self.fixed, self.structure = kinds, fixed, structure


class ModelProgram(eqx.Module):
    """A model with its arguments; those with a row for each example are given apart, as data."""

    model: Callable[..., Any] = eqx.field(static=True)  # with primitives of NumPyro
    arguments: "Arguments"
    plate: str = eqx.field(static=True)  # the name of the data's plate
    template: list[Any]  # a few rows of the data, on which the prior is evaluated

    def log_prior(self, position: dict[str, Array]) -> Float[Array, ""]:
        """Everything outside the data's plate, with the Jacobians of the transforms."""
        trace, jacobian = self.run(position, self.template)
        outside = [s for s in _random(trace) if not inside(s, self.plate)]
        return _cast(sum((jnp.sum(density(s)) for s in outside), start=jacobian), position)

    def log_likelihoods(self, position: dict[str, Array], batch: list[Any]) -> Float[Array, " n"]:
        """What the observed sites inside the data's plate add, for each row of the batch."""
        trace, _ = self.run(position, batch)
        rows = jnp.zeros(batch[0].shape[0], tree.result_dtype(position))
        for site in _random(trace):
            if inside(site, self.plate):
                rows = rows + _cast(self._by_row(site, trace, rows.size), position)
        return rows

    def log_joint(self, position: dict[str, Array], data: list[Any]) -> Float[Array, ""]:
        """Everything."""
        trace, jacobian = self.run(position, data)
        every = (jnp.sum(density(s)) for s in _random(trace))
        return _cast(sum(every, start=jacobian), position)

    def run(self, position: dict[str, Array], data: list[Any]) -> tuple[dict[str, Any], Array]:
        """The trace at a position, and the log determinant of its transforms."""
        from numpyro import handlers
        from numpyro.distributions import biject_to

        jacobian = jnp.zeros((), tree.result_dtype(position))

        def constrained(site: dict[str, Any]) -> Any:
            nonlocal jacobian
            if site["type"] != "sample" or site["name"] not in position:
                return None
            transform, u = biject_to(site["fn"].support), position[site["name"]]
            value = transform(u)
            log_determinant = transform.log_abs_det_jacobian(u, value)
            jacobian = jacobian + _cast(jnp.sum(log_determinant), position)
            return value

        with as_numpyro_computes():
            model = handlers.substitute(self.model, substitute_fn=constrained)
            trace = self._trace(model, data)
        return trace, jacobian

    def _trace(self, model: Callable[..., Any], data: list[Any]) -> dict[str, Any]:
        from numpyro import handlers

        args, kwargs = self.arguments.given(data)
        with resized(self.plate, data[0].shape[0]):
            return handlers.trace(model).get_trace(*args, **kwargs)

    def _by_row(self, site: dict[str, Any], trace: dict[str, Any], count: int) -> Array:
        """The log density of a site for each row of its plate, which NumPyro may have scaled."""
        with as_numpyro_computes():
            frame = next(f for f in site["cond_indep_stack"] if f.name == self.plate)
            declared = trace[frame.name]["args"][0]
            rows = jnp.moveaxis(density(site), frame.dim, 0).reshape(count, -1)
            return jnp.sum(rows, axis=1) * (count / declared)


def resized(plate: str | None, count: int) -> Any:
    """A handler under which the data's plate has `count` rows, whatever size the model says."""
    from numpyro.primitives import Messenger

    class Handler(Messenger):
        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "plate" and msg["name"] == plate and msg["args"][0] != count:
                msg["value"] = jnp.arange(count)

    return Handler()


def density(site: dict[str, Any]) -> Array:
    """The log density at a site, by batch dimension, as scaled and masked by the model."""
    with as_numpyro_computes():
        value = site["fn"].log_prob(site["value"])
        return value if site["scale"] is None else site["scale"] * value


def inside(site: dict[str, Any], plate: str | None) -> bool:
    """Whether a site stands in a plate of this name."""
    return any(frame.name == plate for frame in site["cond_indep_stack"])


@contextlib.contextmanager
def as_numpyro_computes() -> Generator[None]:
    """JAX's usual promotion of types and ranks, which NumPyro relies on; one thread at a time.

    NumPyro's handlers stand on one stack for all threads, and programs are traced in several.
    """
    with LOCK, jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _random(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The sites with a density, observed or not."""
    return [site for site in trace.values() if site["type"] == "sample"]


def _cast(value: Any, position: dict[str, Array]) -> Array:
    return jnp.asarray(value).astype(tree.result_dtype(position))
