"""A posterior with a latent for each group of rows."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import (
    callable_function,
    file_path,
    flag,
    numbers,
    real_number,
    whole_number,
)
from ergodax.data.arrays import as_data, num_rows
from ergodax.data.source import Source
from ergodax.driver.samples import Samples
from ergodax.graph import uses
from ergodax.groups.conditional import Conditional
from ergodax.groups.joint import JointTarget, joint_target
from ergodax.groups.latents import Draw
from ergodax.groups.latents import latents as draw_latents
from ergodax.groups.layout import Layout, checked_groups, row_groups
from ergodax.groups.marginal import is_quadratic, log_marginal
from ergodax.groups.predict import Predicting, each_row, of_new_groups, over_draws
from ergodax.groups.quadrature import account_of
from ergodax.kernel import check_key
from ergodax.target.posterior import Posterior
from ergodax.transform import as_constraints

ACCURACY = 0.01  # posterior sds, of what a rule may move a mean by


class GroupedPosterior(eqx.Module):
    """The posterior of shared parameters and of a latent for each group of rows.

        p(shared) prod_g [p(b_g | shared) prod_(i in g) p(y_i | shared, b_g)]

    Variances and correlations of the latents are shared parameters. Other factors that cross the
    groups, or that groups are nested in, stand in `shared` as vectors, with their own hierarchical
    prior in `log_prior`; rows have their indices. Take the factor of most levels for the groups.

    `marginal` integrates the latents out, `joint` keeps them, and `ex.infer` takes the former
    where it can be had. Given the shared parameters, `latents` draws the latents. Centred or not
    is no question of the model's writing: the marginal has no latents, and the joint one is
    sampled in numbers that are close to standard normal whatever the rows tell of a group.

    Args:
        log_prior: shared -> scalar, up to a constant.
        log_latent: (latent, shared) -> scalar, the log density of ONE group's latent given the
            shared parameters; what depends on `shared` must be there, such as - log(sd).
        log_likelihood: (shared, latent, example) -> scalar, of ONE row given the latent of its
            group; what depends on `shared` or `latent` must be there.
        data: arrays, or any tree of them, with one leading axis of length N in common.
        groups: the group of each row, integers from 0 on, shape (N,).
        latent: an example of one group's latent: a number, 0 by default, or a vector.
        num_groups: how many groups there are; by default the largest index and 1.
        constraints: of the shared parameters, as in `ex.Posterior`.

    Raises:
        TypeError: a function that can't be called, groups that are not integers, data that are a
            source or no numbers, a latent that is no array.
        ValueError: not one group for each row, one that is negative or out of range, or a group
            without rows; empty data, or NaN in the data.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp, numpy as np
        >>> normal = jax.scipy.stats.norm.logpdf
        >>> posterior = ex.groups.GroupedPosterior(
        ...     lambda s: normal(s["mean"], 0.0, 10.0) + normal(s["sd"], 0.0, 1.0),
        ...     lambda b, s: normal(b, s["mean"], s["sd"]),
        ...     lambda s, b, y: normal(y, b, 0.5),
        ...     data=np.array([0.1, 0.4, 1.2, 1.0, -0.3]),
        ...     groups=np.array([0, 0, 1, 1, 2]),
        ...     constraints={"sd": ex.transform.positive},
        ... )
        >>> marginal = posterior.marginal({"mean": 0.0, "sd": 1.0})
        >>> marginal.num_data, str(marginal.log_likelihood.account)
        (3, 'in closed form: the joint density is quadratic in the latent')
    """

    log_prior: Callable[[PyTree], Float[Array, ""] | float]
    density: Conditional
    layout: Layout
    constraints: Any = eqx.field(static=True, repr=False)

    def __init__(
        self,
        log_prior: Callable[[PyTree], Float[Array, ""] | float],
        log_latent: Callable[[Any, PyTree], Any],
        log_likelihood: Callable[[PyTree, Any, PyTree], Any],
        data: PyTree,
        groups: Any,
        latent: Any = 0.0,
        *,
        num_groups: int | None = None,
        constraints: Any = None,
    ) -> None:
        self.log_prior = callable_function("log_prior", log_prior)
        if isinstance(data, Source):
            raise TypeError(
                "data must be arrays, not a source: all rows of a group are wanted together. "
                "Where they fit, take data = source.subset(source.num_rows)."
            )
        data = as_data(data)
        shape = np.shape(numbers("latent", latent))
        if len(shape) > 1 or 0 in shape:
            raise ValueError(f"latent must be a number or a vector, not of shape {shape}.")
        self.density = Conditional(
            callable_function("log_latent", log_latent),
            callable_function("log_likelihood", log_likelihood),
            shape,
        )
        self.layout = Layout(data, checked_groups(groups, num_rows(data), num_groups))
        self.constraints = as_constraints(constraints)

    @property
    def num_groups(self) -> int:
        """G."""
        return self.layout.num_groups

    @property
    def num_data(self) -> int:
        """N, the number of rows."""
        return self.layout.num_rows

    def freeze(self, shared: PyTree, name: str = "shared") -> PyTree:
        """Shared parameters as samplers hold them, after a look at what the functions make of them.

        Raises:
            TypeError: parameters that are not floating point, or a function that returns no scalar
                or has no forward mode.
            ValueError: a function fails on these shapes, or a constraint is violated.
        """
        frozen = self.outer.freeze(shared, name)
        values = tree.thaw(frozen)
        dtype = tree.result_dtype(frozen)
        latent = jax.ShapeDtypeStruct(self.density.shape, dtype)
        row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), self.layout.rows)
        _check_scalar(
            "log_latent(latent, shared)",
            lambda b: self.density.log_latent(b, values),
            (latent,),
            "the log density of ONE group's latent",
        )
        _check_scalar(
            "log_likelihood(shared, latent, example)",
            lambda b, row: self.density.log_likelihood(values, b, row),
            (latent, row),
            "the log-likelihood of ONE row",
        )
        self._check_forward(frozen, latent, row)
        return frozen

    def _check_forward(self, frozen: PyTree, latent: PyTree, row: PyTree) -> None:
        """Refuse functions that can't be differentiated in forward mode. Raises: TypeError."""

        def both(arguments: tuple[PyTree, PyTree, PyTree]) -> Any:
            shared, b, row = tree.thaw(arguments[0]), *arguments[1:]
            return self.density.log_latent(b, shared), self.density.log_likelihood(shared, b, row)

        if uses(both, (frozen, latent, row), "custom_vjp"):
            raise TypeError(
                "log_latent or log_likelihood has a function with jax.custom_vjp, as an ODE solver "
                "or a simulator may have it: it has no forward mode, by which the curvature of the "
                "latents is found. Try a solver that JAX differentiates by itself (a scan of "
                "Runge-Kutta steps), or an ex.Posterior with all latents in the position."
            )

    @property
    def outer(self) -> Posterior:
        """The shared parameters' prior, as a posterior without any information of the rows."""
        return self._with(_nothing)

    def _with(self, likelihood: Callable[..., Any]) -> Posterior:
        """The posterior of the shared parameters, with groups for examples."""
        groups = jnp.arange(self.num_groups, dtype=jnp.int32)
        options: Any = {"batched": True, "constraints": self.constraints}
        return Posterior(self.log_prior, likelihood, groups, **options)

    def marginal(
        self,
        shared: PyTree,
        *others: PyTree,
        nodes: int | None = None,
        accuracy: float = ACCURACY,
        search: bool = True,
    ) -> Posterior:
        """The posterior of the shared parameters alone, an `ex.Posterior` of groups for examples.

        A joint density that is quadratic in the latent is integrated in closed form; that it is,
        is measured. Else the integral of each group is computed by adaptive Gauss-Hermite
        quadrature, for latents of up to 4 numbers, by as many nodes as are needed to move no mean
        by more than `accuracy` posterior sds. That too is measured, against many nodes, at the
        positions given. `marginal.log_likelihood.account` says what was found.

        Args:
            shared: shared parameters, near which the posterior is; its groups' modes are where
                the search for modes begins elsewhere.
            *others: more of them, such as draws, at which the error is measured.
            nodes: of each number of a latent, for a rule of your own choice, unmeasured.
            accuracy: in posterior sds of the shared parameters.
            search: whether the modes of latents are searched for by Newton's method wherever the
                density is asked for. Without it they are predicted from those at `shared`, to first
                order: that costs a fraction, and needs `shared` to be where the posterior is.

        Returns:
            A Posterior; its data are the numbers of the groups.

        Raises:
            TypeError: parameters that are not floating point, or a function that returns no scalar
                or has no forward mode.
            ValueError: no rule is accurate enough (use `joint`), or what `freeze` raises.
        """
        if nodes is not None:
            whole_number("nodes", nodes)
        real_number("accuracy", accuracy, above=0.0)
        positions = [self.freeze(each) for each in (shared, *others)]
        likelihood = log_marginal(
            self._with,
            self.density,
            self.layout,
            positions,
            order=nodes,
            accuracy=accuracy,
            search=flag("search", search),
        )
        return self._with(likelihood)

    def is_quadratic(self, shared: PyTree) -> bool:
        """Whether the joint density is quadratic in the latent, as curvatures at `shared` tell."""
        return is_quadratic(self.density, self.layout, [tree.thaw(self.freeze(shared))])

    def joint(self, shared: PyTree) -> JointTarget:
        """The posterior of shared parameters and latents, in numbers of about unit scale.

        The latent of a group is b = m + L z, with m and L of the normal law whose precision is that
        of the latent's prior given the shared parameters, plus the information that the rows have
        at `shared`. Where the rows say little that is the non-centred form of the model, where
        they say much the centred one, and in between a mixture, group by group. The map is exact
        for whatever law; only how well it whitens depends on what the rows say.

        Args:
            shared: where the information of the rows is computed.

        Returns:
            A target without data; its `constrain` maps a position {"shared": ..., "z": ...} to
            {"shared": ..., "latent": ...}, and `start` is a position.

        Raises:
            TypeError: parameters that are not floating point, or a function that returns no scalar
                or has no forward mode.
            ValueError: what `freeze` raises.
        """
        frozen = self.freeze(shared)
        return joint_target(self.outer, self.density, self.layout, frozen)

    def latents(
        self,
        samples: Samples | PyTree,
        *,
        key: PRNGKeyArray,
        path: str | Path | None = None,
    ) -> np.ndarray:
        """A draw of every group's latent for each draw of the shared parameters.

        Each is drawn from its law given the shared parameters and its rows, by an independence
        Metropolis chain that runs until what it remembers of its start is below 0.001 in total
        variation, as the weights of its proposals say; where the joint density is quadratic in the
        latent, exactly.

        Args:
            samples: of the shared parameters, such as `ex.infer(posterior, ...).samples`, or
                their position, leaves (chains, draws, ...). Where `infer` sampled the latents with
                them, and the position is {"shared": ..., "latent": ...}, those are returned.
            key: a key of `jax.random.key`.
            path: of a .npy file to write to, for draws larger than memory; they are then a memory
                map of it.

        Returns:
            Shape (chains, draws, groups, *latent.shape).

        Raises:
            TypeError: parameters that are not floating point, or a function that returns no scalar
                or has no forward mode.
            ValueError: draws without axes of chains and draws, or what `freeze` raises.

        Warns:
            UserWarning: a latent's law is so far from normal that its draws are not that good.
        """
        shared = draws_of(samples)
        one = tree.thaw(jax.tree.map(lambda x: x[0, 0], shared))
        position = self.freeze(one)
        file = None if path is None else file_path("path", path)
        if _has_latents(drawn := _position(samples)):
            return _stored(self._checked(shared, np.asarray(drawn["latent"])), file)
        closed = is_quadratic(self.density, self.layout, [tree.thaw(position)])
        draw = Draw(self.density, self.layout, closed)
        return draw_latents(draw, shared, check_key(key), self.density.shape, file)

    def log_likelihoods(self, samples: Samples | PyTree, latents: np.ndarray) -> np.ndarray:
        """log p(row | shared, latent of its group) of every row, at every draw.

        Leaving out one row by these (as ArviZ's loo does) keeps the other rows of its group. Its
        weights are unreliable for groups of few rows, whose latents follow each row. To leave out
        whole groups see `log_marginals`.

        Args:
            samples: of the shared parameters.
            latents: of `latents`, shape (chains, draws, groups, ...).

        Returns:
            Shape (chains, draws, N), rows in the order of the data.

        Raises:
            ValueError: samples and latents that do not belong together.
        """
        shared = draws_of(samples)
        drawn = self._checked(shared, latents)
        return over_draws(each_row(self.density, self.layout), (shared, drawn), self.num_data)

    def log_marginals(self, samples: Samples | PyTree, marginal: Posterior) -> np.ndarray:
        """log p(rows of a group | shared) of every group, at every draw, latents integrated out.

        Args:
            samples: of the shared parameters.
            marginal: of `marginal`.

        Returns:
            Shape (chains, draws, groups), for leaving out one group.
        """
        of = account_of(marginal) and marginal.log_likelihood
        groups = jnp.arange(self.num_groups, dtype=jnp.int32)
        at = eqx.Partial(lambda of, groups, shared: of(tree.thaw(shared), groups), of, groups)
        return over_draws(at, (draws_of(samples),), self.layout.cells)

    def predict(
        self,
        function: Callable[[PyTree, Any, PyTree, PRNGKeyArray], Any],
        data: PyTree,
        groups: Any,
        samples: Samples | PyTree,
        latents: np.ndarray,
        *,
        key: PRNGKeyArray,
    ) -> PyTree:
        """What draws predict of rows, of groups that have been seen and of new ones.

        Args:
            function: (shared, latent, example, key) -> arrays, of ONE row: a mean, or a draw of
                what would be observed.
            data: the rows, a tree like the data, leading axis n.
            groups: of each row; numbers from `num_groups` on are new groups, whose latents are
                drawn from log_latent, one for all rows of the same number.
            samples: of the shared parameters.
            latents: of `latents`, shape (chains, draws, groups, ...).
            key: a key of `jax.random.key`.

        Returns:
            What the function returns, leaves (chains, draws, n, ...).

        Raises:
            TypeError: groups that are not integers.
            ValueError: negative ones, or not one for each row; samples and latents that do not
                belong together.
        """
        shared, rows = draws_of(samples), as_data(data)
        drawn = self._checked(shared, latents)
        numbers = row_groups(groups, num_rows(rows))
        new, places = np.unique(numbers[numbers >= self.num_groups], return_inverse=True)
        key_latents, key_rows = jax.random.split(check_key(key))
        if new.size:
            more = of_new_groups(self.density, self.layout, new.size, shared, key_latents)
            drawn = np.concatenate([drawn, more], axis=2)
            numbers[numbers >= self.num_groups] = self.num_groups + places
        chains, draws = drawn.shape[:2]
        keys = jax.random.split(key_rows, (chains, draws))
        predicting = Predicting(function, rows, jnp.asarray(numbers, jnp.int32))
        return over_draws(predicting, (shared, drawn, keys), numbers.size)

    def to_arviz(
        self, samples: Samples, latents: np.ndarray, *, dims: Any = None, coords: Any = None
    ) -> Any:
        """An ArviZ DataTree of shared parameters, latents and pointwise log-likelihoods.

        `arviz_stats.loo` takes it as it is.

        Args:
            samples: of the shared parameters.
            latents: of `latents`, shape (chains, draws, groups, ...).
            dims: as in `Samples.to_arviz`; the latents are the variable "latent".
            coords: likewise.

        Raises:
            ValueError: samples and latents that do not belong together, or weighted samples.
        """
        log_likelihood = {"row": self.log_likelihoods(samples, latents)}
        more = {"posterior": {"latent": np.asarray(latents)}, "log_likelihood": log_likelihood}
        samples = dataclasses.replace(samples, position=tree.thaw(draws_of(samples)))
        return samples.to_arviz(dims=dims, coords=coords, more=more)

    def _checked(self, shared: PyTree, latents: np.ndarray) -> np.ndarray:
        """Latents that belong to draws of shared parameters.

        Raises:
            ValueError: they do not.
        """
        draws = jax.tree.leaves(shared)[0].shape[:2]
        wanted = (*draws, self.num_groups, *self.density.shape)
        if np.shape(latents) != wanted:
            raise ValueError(
                f"latents must have shape {wanted}, as posterior.latents(samples, key=key) gives "
                f"for these samples, not {np.shape(latents)}."
            )
        return np.asarray(latents)


def _position(samples: Samples | PyTree) -> PyTree:
    return samples.position if isinstance(samples, Samples) else samples


def _has_latents(position: PyTree) -> bool:
    """Whether it is that of a `JointTarget`, as the user sees it."""
    return isinstance(position, dict) and set(position) == {"shared", "latent"}


def _stored(latents: np.ndarray, file: Path | None) -> np.ndarray:
    """The same, or a memory map of the file they are written to."""
    if file is None:
        return latents
    out = np.lib.format.open_memmap(file, "w+", latents.dtype, latents.shape)
    out[...] = latents
    return out


def draws_of(samples: Samples | PyTree) -> PyTree:
    """The shared parameters of draws as a frozen tree, leaves (chains, draws, ...).

    Raises:
        ValueError: leaves without two leading axes in common.
    """
    position = _position(samples)
    shared = tree.freeze(position["shared"] if _has_latents(position) else position, "samples")
    sizes = {x.shape[:2] for x in jax.tree.leaves(shared)}
    if len(sizes) != 1 or len(sizes.copy().pop()) < 2 or 0 in sizes.copy().pop():
        raise ValueError(
            "samples must have leaves of shape (chains, draws, ...), with the same chains and "
            f"draws for all, not {[x.shape for x in jax.tree.leaves(shared)]}."
        )
    return shared


def _nothing(shared: PyTree, groups: Int[Array, " n"]) -> Float[Array, " n"]:
    """The likelihood of no rows."""
    return jnp.zeros(groups.shape)


def _check_scalar(name: str, function: Any, arguments: tuple[Any, ...], what: str) -> None:
    """Refuse a function that fails on these shapes or returns no scalar."""
    try:
        out = jax.eval_shape(function, *arguments)
    except (TypeError, ValueError, LookupError) as error:
        shapes = [str(jax.tree.map(lambda x: x.shape, x)) for x in arguments]
        raise ValueError(
            f"{name} can't be evaluated where the latent and the row have the shapes "
            f"{', '.join(shapes)}: {str(error).splitlines()[0]} Check `latent` and the data."
        ) from error
    if isinstance(out, float | int):
        return
    if getattr(out, "shape", None) != ():
        raise TypeError(
            f"{name} must return a scalar, {what}, not {getattr(out, 'shape', out)}. Sum over the "
            "latent's or the row's own axes, as in jnp.sum(...)."
        )
