"""The latent sites of a NumPyro model, and NumPyro's own maps of them to all real numbers."""

# pyright: reportMissingImports=false
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from ergodax import tree
from ergodax.bridge.model_program import as_numpyro_computes
from ergodax.transform import is_held

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

        Raises:
            TypeError: not a dict, or a value that is not floating point.
            ValueError: a site without a value, a value without a site, or one of another shape or
                outside the support.
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
