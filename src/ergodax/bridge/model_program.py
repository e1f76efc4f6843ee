"""A NumPyro model as functions of unconstrained numbers: log densities by site, and back again.

The latent sites are mapped to all real numbers by NumPyro's own maps.
"""

# pyright: reportMissingImports=false
import contextlib
import dataclasses
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ergodax import tree
from ergodax.transform import is_held

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


@dataclasses.dataclass(frozen=True, eq=False)
class Places:
    """Where each argument of a model is held; told apart by identity, as arrays have no hash."""

    kinds: list[str]  # of each leaf of (args, kwargs): "data", "array" or "fixed"
    fixed: list[Any]  # the leaves that are part of every program
    structure: Any  # of (args, kwargs)


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


Sites = dict[str, Any]


class ModelSites:
    """The constraints of a model, all latent sites together: the support of one may follow another.

    A position is a dict of the values of the latent sites. It is told apart by identity.

    Args:
        model: with primitives of NumPyro.
        args: its arguments.
        kwargs: its further arguments.

    Attributes:
        trace: of the model at random values.
        shapes: of the values of the latent sites.
    """

    def __init__(
        self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self.trace = self._run(0)
        first, second = _transforms(self.trace), _transforms(self._run(1))
        self.transforms = {name: transform for name, (transform, _) in first.items()}
        self.shapes = {name: jnp.shape(value) for name, (_, value) in first.items()}
        self.depends = any(_differ(first[name][0], second[name][0]) for name in first)
        with as_numpyro_computes():
            self.inner_shapes = {n: t.inverse_shape(self.shapes[n]) for n, (t, _) in first.items()}

    def _run(self, seed: int) -> Sites:
        """The trace of the model, each site at a random place of its support."""
        from numpyro import handlers
        from numpyro.infer import init_to_uniform

        with as_numpyro_computes():
            seeded = handlers.seed(self.model, seed)
            model = handlers.substitute(seeded, substitute_fn=init_to_uniform)
            return handlers.trace(model).get_trace(*self.args, **self.kwargs)

    def freeze(self, position: PyTree, name: str = "position") -> PyTree:
        """Hold the values of the latent sites as the samplers do, whatever their leading axes.

        Raises: TypeError for what is no dict of floating-point numbers; ValueError for other sites
        or shapes, or for values outside the support.
        """
        if is_held(position):
            return position
        if not isinstance(position, dict):
            raise TypeError(f"{name} must be a dict of the sites {sorted(self.shapes)}.")
        if set(position) != set(self.shapes):
            raise ValueError(
                f"{name} must have a value for each of the latent sites {sorted(self.shapes)}, and "
                f"no other, but it has {sorted(position)}. Try start(key)."
            )
        values = tree.freeze({key: position[key] for key in self.shapes}, name)
        leading = self._leading(values, self.shapes)
        for key, shape in self.shapes.items():
            self._check(f"{name}[{key!r}]", key, values[key], (*leading, *shape))
        return tree.Unconstrained(self.inverse(values), self)

    def _check(self, where: str, key: str, value: Array, shape: tuple[int, ...]) -> None:
        if value.shape != shape:
            raise ValueError(f"{where} must have the shape {shape}, not {value.shape}.")
        if self.depends or tree.is_traced(value):
            return
        with as_numpyro_computes():
            inside = np.asarray(self.transforms[key].codomain(value))
        if not inside.all():
            raise ValueError(
                f"{where} must lie in its prior's support, {self.transforms[key].codomain}, but it "
                f"is {np.asarray(value).tolist()!r:.200}. Start inside it."
            )

    def forward(self, u: Sites) -> Sites:
        """The values of the latent sites at unconstrained numbers, with any leading axes."""
        one = self._constrain if self.depends else self._each(lambda t, x: t(x))
        return self._over_leading(one, u, self.inner_shapes)

    def inverse(self, values: Sites) -> Sites:
        """The unconstrained numbers of values."""
        one = self._unconstrain if self.depends else self._each(lambda t, x: t.inv(x))
        return self._over_leading(one, values, self.shapes)

    def deterministic(self, values: Sites) -> Sites:
        """The deterministic sites at values of the latent ones."""
        one = functools.partial(self._constrain, deterministic=True)
        return self._over_leading(one, self.inverse(values), self.inner_shapes)

    def _constrain(self, u: Sites, *, deterministic: bool = False) -> Sites:
        """By running the model, where a support depends on another site."""
        from numpyro import handlers
        from numpyro.infer.util import constrain_fn

        with as_numpyro_computes():
            model = handlers.seed(self.model, 0)  # which discrete sites need
            found = constrain_fn(model, self.args, self.kwargs, u, deterministic)
        return {name: x for name, x in found.items() if (name not in u) == deterministic}

    def _unconstrain(self, values: Sites) -> Sites:
        """Likewise."""
        from numpyro import handlers
        from numpyro.infer.util import unconstrain_fn

        with as_numpyro_computes():
            return unconstrain_fn(handlers.seed(self.model, 0), self.args, self.kwargs, values)

    def _each(self, function: Callable[[Any, Array], Array]) -> Callable[[Sites], Sites]:
        def of_all(sites: Sites) -> Sites:
            with as_numpyro_computes():
                found = {name: function(self.transforms[name], x) for name, x in sites.items()}
                return {name: x.astype(sites[name].dtype) for name, x in found.items()}

        return of_all

    def _over_leading(
        self, one: Callable[[Sites], Sites], sites: Sites, shapes: dict[str, tuple[int, ...]]
    ) -> Sites:
        for _ in self._leading(sites, shapes):
            one = jax.vmap(one)
        return one(sites)

    @staticmethod
    def _leading(sites: Sites, shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
        """The axes before those of the sites, such as chains and draws."""
        name, shape = next(iter(shapes.items()))
        return sites[name].shape[: sites[name].ndim - len(shape)]


def _transforms(trace: Sites) -> dict[str, tuple[Any, Array]]:
    """The map of each latent site from all real numbers, and its value."""
    from numpyro.distributions import biject_to

    return {
        name: (biject_to(site["fn"].support), site["value"])
        for name, site in trace.items()
        if site["type"] == "sample"
        and not site["is_observed"]
        and not getattr(site["fn"].support, "is_discrete", False)
    }


def _differ(first: Any, second: Any) -> bool:
    """Whether two maps of one site are not the same."""
    pairs = [jax.tree.flatten(transform) for transform in (first, second)]
    if pairs[0][1] != pairs[1][1]:
        return True
    leaves = zip(pairs[0][0], pairs[1][0], strict=True)
    return any(not np.array_equal(np.asarray(a), np.asarray(b)) for a, b in leaves)
