"""NumPyro models as targets: with a likelihood for each row of the data, or as a whole."""

# pyright: reportMissingImports=false
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.bridge.model_program import (
    Arguments,
    ModelProgram,
    ModelSites,
    Places,
    Sites,
    as_numpyro_computes,
    inside,
)
from ergodax.data.arrays import take
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior

WHOLE = "With plate=None the model becomes an ex.Target, evaluated on the whole data."


class _OfModel:
    """What a model's posterior and its target have in common besides the potential."""

    constraints: ModelSites

    def deterministic(self, position: PyTree) -> Sites:
        """The model's deterministic sites at values of the latent ones.

        Args:
            position: one, or many with any leading axes, such as samples.position.
        """
        return self.constraints.deterministic({n: jnp.asarray(x) for n, x in position.items()})


class ModelPosterior(_OfModel, Posterior):
    """The posterior that `bridge.numpyro` makes of a model with a plate of data.

    A position is a dict of the values of the latent sites. Samplers move in NumPyro's own
    unconstrained numbers.

    Args:
        program: the model.
        sites: its latent sites.
        data: its rows, a list of arrays.
    """

    program: ModelProgram

    def __init__(self, program: ModelProgram, sites: ModelSites, data: list[Any]) -> None:
        super().__init__(program.log_prior, program.log_likelihoods, data, batched=True)
        self.program, self.constraints = program, sites

    def prior(self, position: PyTree) -> Float[Array, ""]:
        """All but the rows of the plate, with the Jacobians."""
        return self.program.log_prior(tree.bare(position))

    def log_likelihoods(self, position: PyTree, batch: PyTree) -> Float[Array, " n"]:
        """The log density of each row of a batch."""
        return self.program.log_likelihoods(tree.bare(position), batch)

    def start(self, key: PRNGKeyArray) -> Sites:
        """A position to start from, uniform in [-2, 2] in unconstrained numbers."""
        return self.constraints.forward(_uniform(self.constraints, key))


class ModelTarget(_OfModel, AbstractTarget):
    """The target that `bridge.numpyro` makes of a whole model, with NumPyro's own potential.

    A position is as in a `ModelPosterior`.

    Args:
        sites: the latent sites of the model.
        arguments: of the model.
        reason: why it is no posterior with batches.
    """

    arguments: Arguments
    constraints: ModelSites = eqx.field(static=True)
    of_arguments: Callable[..., Any] = eqx.field(static=True)  # -> a function of the numbers -> U
    reason: str = eqx.field(static=True)

    def __init__(self, sites: ModelSites, arguments: Arguments, reason: str) -> None:
        self.constraints, self.arguments, self.reason = sites, arguments, reason
        self.of_arguments = _initialised(sites, jax.random.key(0)).potential_fn

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U(position), the Jacobians included, discrete sites summed out."""
        args, kwargs = self.arguments.given([])
        with as_numpyro_computes():
            value = self.of_arguments(*args, **kwargs)(tree.bare(position))
        return value.astype(tree.result_dtype(position))

    def start(self, key: PRNGKeyArray) -> Sites:
        """A position to start from at which the density is positive, as NumPyro finds it."""
        return self.constraints.forward(_initialised(self.constraints, key).param_info.z)


def numpyro(
    model: Any, *args: Any, plate: str | None = "auto", **kwargs: Any
) -> ModelPosterior | ModelTarget:
    """A NumPyro model as a posterior with batches, or as a target on the whole data.

    The examples are the rows of a plate of observed sites. A batch is the rows of those
    arguments that have the plate's size as their leading axis; the model is run on it as on
    smaller data, whatever size its plate says. Everything outside the plate is the prior. Of
    several plates that serve, the one with most rows is taken.

    Where no plate serves, since its rows have latent sites of their own, for instance, or stand in
    a `scan`, the model is a Target: whatever NumPyro's NUTS runs will do, and `reason` says why. A
    position, the starts and the draws are the values of the latent sites. Samplers move in
    NumPyro's own unconstrained numbers.

    Floating-point arguments are arguments of the compiled programs; others, such as integers that
    are no rows, are constants, so that the model may take sizes from them.

    Args:
        model: with primitives of NumPyro.
        args: its arguments, data included.
        plate: the name of the data's plate, to insist on it; None for a target on the whole data.
        kwargs: its further arguments, data included. One named `plate` can't be passed.

    Returns:
        A Posterior or a Target, with `start` for a position and `deterministic` for the other sites
        of draws.

    Raises:
        ValueError: a site of `numpyro.param`, a plate that is subsampled by the model, discrete
            latent sites that can't be summed out, nothing to sample; or what is wrong with the
            plate that was asked for: latent sites of its own, data that are not arguments, or a
            density that is not the sum of a prior and one term for each row.
        TypeError: not a model.
        ImportError: NumPyro is missing, or funsor, where there are discrete latent sites.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp, numpyro, numpyro.distributions as dist
        >>> def model(x):
        ...     m = numpyro.sample("m", dist.Normal(0.0, 1.0))
        ...     with numpyro.plate("rows", len(x)):
        ...         numpyro.sample("x", dist.Normal(m, 1.0), obs=x)
        >>> posterior = ex.bridge.numpyro(model, jnp.linspace(-1.0, 3.0, 100))
        >>> posterior.num_data, [*posterior.start(jax.random.key(0))]  # rows, and latent sites
        (100, ['m'])

    Reference:
        Phan, Pradhan and Jankowiak, Composable effects for flexible and accelerated probabilistic
        programming in NumPyro, 2019.
    """
    try:
        importlib.import_module("numpyro")
    except ImportError as error:
        raise ImportError(
            "ergodax.bridge.numpyro needs NumPyro: pip install 'ergodax[numpyro]'."
        ) from error
    if not callable(model):
        raise TypeError(f"model must be a function with numpyro.sample sites, not {model!r}.")
    args, kwargs = jax.tree.map(_as_array, (args, kwargs))
    sites = ModelSites(model, args, kwargs)
    discrete = _check_sites(sites.trace)
    why = "plate=None"
    if plate is not None:
        names, why = _data_plates(sites.trace, jax.tree.leaves((args, kwargs)), plate)
        if discrete:
            names, why = [], f"the latent sites {discrete} are discrete"
        for name in names:
            try:
                return _posterior(sites, name)
            except ValueError as error:
                why = str(error)
        if plate != "auto":
            raise ValueError(f"{why}. {WHOLE}")
    return ModelTarget(sites, _held((args, kwargs), -1)[0], why)


def _posterior(sites: ModelSites, plate: str) -> ModelPosterior:
    """With the rows of a plate as the examples. Raises: ValueError."""
    num_rows = sites.trace[plate]["args"][0]
    arguments, data = _held((sites.args, sites.kwargs), num_rows)
    data = [jnp.asarray(rows) for rows in data]
    template = take(data, jnp.arange(min(2, num_rows)))
    program = ModelProgram(sites.model, arguments, plate, template)
    posterior = ModelPosterior(program, sites, data)
    _check_sum(program, sites, posterior.data)
    return posterior


def _held(given: tuple[Any, ...], num_rows: int) -> tuple[Arguments, list[Any]]:
    """The arguments of a model, and those of them that are rows."""
    leaves, structure = jax.tree.flatten(given)

    def kind(leaf: Any) -> str:
        if _is_rows(leaf, num_rows):
            return "data"
        is_array = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jnp.floating)
        return "array" if is_array else "fixed"

    kinds = [kind(leaf) for leaf in leaves]
    parts = {
        name: [leaf for leaf, k in zip(leaves, kinds, strict=True) if k == name]
        for name in ("data", "array", "fixed")
    }
    arguments = Arguments(parts["array"], Places(kinds, parts["fixed"], structure))
    return arguments, parts["data"]


def _check_sites(trace: Sites) -> list[str]:
    """Refuse what can't be sampled; the names of the discrete latent sites, if there are any."""
    for name, site in trace.items():
        if site["type"] in ("param", "mutable"):
            raise ValueError(
                f"the model has the {site['type']} site {name!r}, which belongs to optimisation. "
                "Try a numpyro.sample with a prior."
            )
        if site["type"] == "plate" and site["args"][1] not in (None, site["args"][0]):
            raise ValueError(
                f"the plate {name!r} is subsampled by the model ({site['args'][1]} of "
                f"{site['args'][0]}), and the library draws its own batches: leave out "
                "subsample_size."
            )
    latent = [s for s in trace.values() if s["type"] == "sample" and not s["is_observed"]]
    discrete = [s for s in latent if getattr(s["fn"].support, "is_discrete", False)]
    if len(discrete) == len(latent):
        raise ValueError("the model has no continuous latent site, so there is nothing to sample.")
    for site in discrete:
        if not site["fn"].has_enumerate_support:
            raise ValueError(
                f"the model has the discrete latent site {site['name']!r}, along which there is no "
                "gradient, and which has too many values to be summed out."
            )
    if discrete and importlib.util.find_spec("funsor") is None:
        raise ImportError(
            f"the model has the discrete latent site {discrete[0]['name']!r}, which NumPyro sums "
            "out by funsor: pip install funsor. Or sum it out in the model, as "
            "numpyro.distributions.MixtureSameFamily does."
        )
    return [site["name"] for site in discrete]


def _initialised(sites: ModelSites, key: PRNGKeyArray) -> Any:
    """What NumPyro's samplers begin with: a potential of arguments and numbers, and a start."""
    from numpyro.infer.util import initialize_model

    try:
        with as_numpyro_computes():
            return initialize_model(
                key,
                sites.model,
                dynamic_args=True,
                model_args=sites.args,
                model_kwargs=sites.kwargs,
                validate_grad=False,
            )
    except RuntimeError as error:
        raise ValueError(f"NumPyro can't begin with the model: {error}") from error


def _data_plates(trace: Sites, leaves: list[Any], plate: str) -> tuple[list[str], str]:
    """The plates whose rows may be the examples, most rows first, and why others may not."""
    observed = [s for s in trace.values() if s["type"] == "sample" and s["is_observed"]]
    names = {frame.name: None for site in observed for frame in site["cond_indep_stack"]}
    if plate != "auto":
        if plate not in names:
            raise ValueError(
                f"plate={plate!r} is not a plate of observed sites; the model has {list(names)}."
            )
        names = {plate: None}
    faults = {name: _fault(trace, leaves, name) for name in names}
    good = [name for name, why in faults.items() if why is None]
    why = "; ".join(why for why in faults.values() if why)
    good.sort(key=lambda name: -trace[name]["args"][0])
    return good, why or "no plate has observed sites"


def _fault(trace: Sites, leaves: list[Any], plate: str) -> str | None:
    """Why the rows of a plate can't be the examples of a posterior; None where they can."""
    size, _ = trace[plate]["args"]
    local = [s["name"] for s in trace.values()
             if s["type"] == "sample" and not s["is_observed"] and inside(s, plate)]  # fmt: skip
    if local:
        return (
            f"the latent sites {local} are local to the plate {plate!r}: a batch of its rows says "
            "nothing of the others' (posteriors with groups are to come)"
        )
    if not any(_is_rows(leaf, size) for leaf in leaves):
        return (
            f"no argument of the model has the {size} rows of the plate {plate!r} as its leading "
            "axis: pass the data as arguments, not by a closure"
        )
    return None


def _is_rows(leaf: Any, count: int) -> bool:
    """Whether an argument is an array with this many rows."""
    return hasattr(leaf, "shape") and leaf.shape[:1] == (count,)


def _as_array(leaf: Any) -> Any:
    """Floating-point arrays as JAX's; NumPy's integers stay, so that they are known when traced."""
    is_float = isinstance(leaf, np.ndarray) and np.issubdtype(leaf.dtype, np.floating)
    return jnp.asarray(leaf) if is_float else leaf


def _check_sum(program: ModelProgram, sites: ModelSites, data: list[Any]) -> None:
    """The model on all rows must be the prior and a term for each row, which a batch shares."""
    position, count = _uniform(sites, jax.random.key(0)), data[0].shape[0]
    some = jnp.asarray([count - 1, count // 2])
    try:
        prior, whole, each, batch = _terms(program, position, data, some)
    except Exception as error:  # of the model, which is the user's
        raise ValueError(
            f"the model can't be run on a batch of rows: {str(error).splitlines()[0]} Every use of "
            "the number of rows must come from the arguments' shapes"
        ) from error
    scale = 1.0 + float(jnp.sum(jnp.abs(each))) + abs(float(prior))
    wrong = max(abs(float(whole - prior - jnp.sum(each))), float(jnp.sum(abs(batch - each[some]))))
    if not wrong <= 1e-4 * scale:
        raise ValueError(
            "the model's density is not a prior and one term for each row of the plate "
            f"{program.plate!r} (it is off by {wrong:.3g}). Look for rows used outside the plate, "
            "sums over rows, or a constant that has as many rows as the data"
        )


@eqx.filter_jit
def _terms(program: ModelProgram, position: Sites, data: list[Any], some: Array) -> tuple[Any, ...]:
    """The prior, the whole, and the likelihoods of all rows and of some of them alone."""
    each = program.log_likelihoods(position, data)
    batch = program.log_likelihoods(position, take(data, some))
    return program.log_prior(position), program.log_joint(position, data), each, batch


def _uniform(sites: ModelSites, key: PRNGKeyArray) -> Sites:
    """Unconstrained numbers, uniform in [-2, 2]."""
    shapes = sites.inner_shapes
    keys = jax.random.split(key, len(shapes))
    return {
        name: jax.random.uniform(k, shape, float, -2.0, 2.0)
        for k, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
