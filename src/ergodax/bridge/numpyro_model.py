"""NumPyro models as targets: unconstrained, with a likelihood for each row of the data."""

# pyright: reportMissingImports=false
import importlib
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.bridge.model_program import ModelProgram, as_numpyro_computes, inside
from ergodax.data.arrays import take
from ergodax.target.base import AbstractTarget
from ergodax.target.posterior import Posterior

Sites = dict[str, Any]
WHOLE = "With plate=None the model becomes an ex.Target, evaluated on the whole data."


class _OfModel:
    """What a model's posterior and its target have in common besides the potential."""

    program: ModelProgram

    def start(self, key: PRNGKeyArray) -> dict[str, Array]:
        """A position to start from, uniform in [-2, 2]."""
        return _start(self.program, key)

    def constrain(self, position: PyTree) -> Sites:
        """The model's own sites, deterministic ones included, at positions.

        Args:
            position: one position, or many with any leading axes, such as samples.position.
        """
        position = {name: jnp.asarray(position[name]) for name, _ in self.program.sites}
        name, shape = self.program.sites[0]
        leading = position[name].shape[: position[name].ndim - len(shape)]
        flat = {name: position[name].reshape(-1, *shape) for name, shape in self.program.sites}
        sites = _constrain_many(self.program, self._rows(), flat)
        return jax.tree.map(lambda x: x.reshape(*leading, *x.shape[1:]), sites)

    def unconstrain(self, values: Sites) -> dict[str, Array]:
        """The position at which the latent sites have these values.

        Args:
            values: one for each latent site.

        Raises:
            ValueError: a latent site has no value.
        """
        missing = {name for name, _ in self.program.sites} - set(values)
        if missing:
            raise ValueError(
                f"values has no {sorted(missing)}, which are latent sites of the model."
            )
        latent = {name: jnp.asarray(values[name]) for name, _ in self.program.sites}
        return eqx.filter_jit(ModelProgram.unconstrain)(self.program, latent, self._rows())

    def _rows(self) -> list[Any]:
        return getattr(self, "data", [])


class ModelPosterior(_OfModel, Posterior):
    """The posterior that `bridge.numpyro` makes of a model with a plate of data.

    A position is a dict: for each latent site, its value mapped to all real numbers.

    Args:
        program: the model.
        data: its rows, a list of arrays.
    """

    program: ModelProgram

    def __init__(self, program: ModelProgram, data: list[Any]) -> None:
        super().__init__(program.log_prior, program.log_likelihoods, data, batched=True)
        self.program = program


class ModelTarget(_OfModel, AbstractTarget):
    """The target that `bridge.numpyro` makes of a model without a plate of data.

    A position is a dict: for each latent site, its value mapped to all real numbers.

    Args:
        program: the model.
    """

    program: ModelProgram

    def potential(self, position: PyTree) -> Float[Array, ""]:
        """U(position), the Jacobians included."""
        return -self.program.log_joint(tree.thaw(position), [])


def numpyro(
    model: Any, *args: Any, plate: str | None = "auto", **kwargs: Any
) -> ModelPosterior | ModelTarget:
    """A NumPyro model as a posterior with batches, or as a target.

    The examples are the rows of a plate of observed sites. A batch is the rows of those
    arguments that have the plate's size as their leading axis; the model is run on it as on
    smaller data, whatever size its plate says. Everything outside the plate is the prior. Sites
    are mapped to all real numbers, and the Jacobians belong to the prior.

    Args:
        model: with primitives of NumPyro.
        args: its arguments, data included.
        plate: the name of the data's plate, where several will do; None for a target on the whole
            data.
        kwargs: its further arguments, data included. One named `plate` can't be passed.

    Returns:
        A Posterior (a Target, where no plate holds observed sites), with `constrain` for draws in
        the model's own space, `unconstrain`, and `start` for a position.

    Raises:
        ValueError: a discrete latent site, a plate that is subsampled already, latent sites
            local to the data's plate, data that are not arguments, or a model whose density is
            not the sum of a prior and one term for each row.
        TypeError: not a model.
        ImportError: NumPyro is missing.

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
    leaves, structure = jax.tree.flatten((args, kwargs))
    plate, num_rows, sites = _read(model, args, kwargs, plate)
    is_data = tuple(_is_rows(leaf, num_rows) for leaf in leaves)
    data = [leaf for leaf, yes in zip(leaves, is_data, strict=True) if yes]
    rest = tree.hide([leaf for leaf, yes in zip(leaves, is_data, strict=True) if not yes])
    template = take(data, jnp.arange(min(2, num_rows))) if data else []
    program = ModelProgram(model, rest, is_data, structure, plate, sites, template)
    if plate is None:
        return ModelTarget(program)
    posterior = ModelPosterior(program, data)
    _check_sum(program, posterior.data)
    return posterior


def _read(
    model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], plate: str | None
) -> tuple[str | None, int, tuple[Any, ...]]:
    """The data's plate, its rows (-1 without one), and the latent sites with their shapes."""
    from numpyro import handlers
    from numpyro.distributions import biject_to

    found: list[tuple[Any, ...]] = []

    def look() -> None:
        with as_numpyro_computes(), handlers.seed(rng_seed=0), _no_control_flow():
            trace = handlers.trace(model).get_trace(*args, **kwargs)
            shapes = {
                site["name"]: jnp.shape(biject_to(site["fn"].support).inv(site["value"]))
                for site in _latent_sites(trace)
            }
        name = _data_plate(trace, jax.tree.leaves((args, kwargs)), plate)
        num_rows = trace[name]["args"][0] if name else -1
        found.append((name, num_rows, tuple(shapes.items())))

    jax.eval_shape(look)
    return found[0]


def _latent_sites(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The sites to be sampled, all of them continuous."""
    for name, site in trace.items():
        if site["type"] in ("param", "mutable"):
            raise ValueError(
                f"the model has the {site['type']} site {name!r}, which belongs to optimisation. "
                "Try a numpyro.sample with a prior."
            )
    latent = [s for s in trace.values() if s["type"] == "sample" and not s["is_observed"]]
    for site in latent:
        if getattr(site["fn"].support, "is_discrete", False):
            raise ValueError(
                f"the model has the discrete latent site {site['name']!r}, along which there is "
                "no gradient. Sum it out, as numpyro.distributions.MixtureSameFamily does."
            )
    if not latent:
        raise ValueError("the model has no latent site, so there is nothing to sample.")
    return latent


def _data_plate(trace: dict[str, Any], leaves: list[Any], plate: Any) -> str | None:
    """The plate whose rows are the examples; None where no plate has observed sites."""
    if plate is None:
        return None
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
    if len(good) > 1:
        raise ValueError(f"the data may be the plates {good}: say which, as in plate={good[0]!r}.")
    if not good and faults:
        raise ValueError("; ".join(why for why in faults.values() if why) + f". {WHOLE}")
    return good[0] if good else None


def _fault(trace: dict[str, Any], leaves: list[Any], plate: str) -> str | None:
    """Why the rows of a plate can't be the examples of a posterior; None where they can."""
    size, subsample_size = trace[plate]["args"]
    if subsample_size not in (None, size):
        return (
            f"the plate {plate!r} is subsampled by the model ({subsample_size} of {size}), and "
            "the library draws its own batches: leave out subsample_size"
        )
    local = [s["name"] for s in trace.values()
             if s["type"] == "sample" and not s["is_observed"] and inside(s, plate)]  # fmt: skip
    if local:
        return (
            f"the latent sites {local} are local to the plate {plate!r}: a batch of its rows says "
            "nothing of the others'"
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


def _no_control_flow() -> Any:
    """A handler that refuses sites inside compiled loops, whose transforms it could not see."""
    from numpyro.primitives import Messenger

    class Handler(Messenger):
        def process_message(self, msg: dict[str, Any]) -> None:
            if msg["type"] == "control_flow":
                raise ValueError(
                    "the model has a scan or cond of numpyro.contrib.control_flow, which is not "
                    "supported. Try ex.Target(lambda u: numpyro.infer.util.potential_energy(model, "
                    "args, kwargs, u)), or sites outside the loop."
                )

    return Handler()


def _as_array(leaf: Any) -> Any:
    return jnp.asarray(leaf) if isinstance(leaf, jax.Array | np.ndarray) else leaf


def _check_sum(program: ModelProgram, data: list[Any]) -> None:
    """The model on all rows must be the prior and a term for each row, which a batch shares."""
    position, count = _start(program, jax.random.key(0)), data[0].shape[0]
    some = jnp.asarray([count - 1, count // 2])
    try:
        prior, whole, each, batch = _terms(program, position, data, some)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the model can't be run on a batch of rows: {str(error).splitlines()[0]} Every use of "
            f"the number of rows must come from the arguments' shapes. {WHOLE}"
        ) from error
    scale = 1.0 + float(jnp.sum(jnp.abs(each))) + abs(float(prior))
    wrong = max(abs(float(whole - prior - jnp.sum(each))), float(jnp.sum(abs(batch - each[some]))))
    if not wrong <= 1e-4 * scale:
        raise ValueError(
            "the model's density is not a prior and one term for each row of the plate "
            f"{program.plate!r} (it is off by {wrong:.3g}). Look for rows used outside the plate, "
            f"sums over rows, or a constant that has as many rows as the data. {WHOLE}"
        )


@eqx.filter_jit
def _terms(program: ModelProgram, position: Sites, data: list[Any], some: Array) -> tuple[Any, ...]:
    """The prior, the whole, and the likelihoods of all rows and of some of them alone."""
    each = program.log_likelihoods(position, data)
    batch = program.log_likelihoods(position, take(data, some))
    return program.log_prior(position), program.log_joint(position, data), each, batch


def _start(program: ModelProgram, key: PRNGKeyArray) -> dict[str, Array]:
    keys = jax.random.split(key, len(program.sites))
    return {
        name: jax.random.uniform(k, shape, float, -2.0, 2.0)
        for k, (name, shape) in zip(keys, program.sites, strict=True)
    }


@eqx.filter_jit
def _constrain_many(program: ModelProgram, data: list[Any], positions: dict[str, Array]) -> Sites:
    return jax.vmap(lambda position: program.constrain(position, data))(positions)
