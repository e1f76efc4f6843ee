"""H, D and Q: the two matrices and the energy that make a sampler.

dz = [-(D + Q) grad H + T Gamma] dt + sqrt(2 T D) dW leaves exp(-H / T) invariant for every
positive semidefinite D(z) and skew-symmetric Q(z), with Gamma = div(D + Q)
(Ma, Chen and Fox, 2015).
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from ergodax import tree
from ergodax.checks import shown
from ergodax.graph import depends_on, traced
from ergodax.recipe import returns
from ergodax.recipe.operators import Operator, as_operator
from ergodax.schedule import Schedule
from ergodax.tree import Number


class Scheduled(eqx.Module):
    """A part of a recipe that depends on the step: a schedule, or that multiple of an operator."""

    schedule: Schedule
    operator: Operator | None = None

    def at(self, step: Int[Array, ""]) -> Float[Array, ""] | Operator:
        """The number, or the operator, at this step."""
        value = self.schedule(step)
        return value if self.operator is None else self.operator.scaled(value)


Variables = dict[str, PyTree]  # {"position": ..., "momentum": ..., ...}, the whole state z
Name = TypeVar("Name", str, tuple[str, str])  # of a block of D, of Q
Block = tuple[str, str, float, Callable[[Variables], Operator]]


def _no_auxiliary(key: PRNGKeyArray, position: PyTree) -> Variables:
    return {}


def _no_energy(z: Variables) -> Float[Array, ""]:
    return jnp.zeros(())


def _no_curl(z: Variables) -> dict[tuple[str, str], Operator]:
    return {}


class Recipe(eqx.Module):
    """A sampler in continuous time: H(z) = U(position) + energy(z), D(z) and Q(z).

    z is a dict of named variables: "position" and whatever `auxiliary` makes.

    Args:
        diffusion: z -> {name: operator}, the diagonal blocks of D; absent names are zero.
            Each must be symmetric positive semidefinite.
        curl: z -> {(row, column): operator}, blocks of Q. Giving Q[a, b] = A sets
            Q[b, a] = -A^T, and of a block (a, a) the skew part (A - A^T) / 2 is taken, so that
            Q is skew-symmetric by construction. Default: Q = 0.
        energy: z -> scalar g(z), what H has beyond U. Default: 0.
        auxiliary: (key, position) -> dict of the other variables at the start, drawn from
            exp(-g) where possible. Default: none.
        gamma: z -> {name: tree}, Gamma = div(D + Q) in closed form, absent names being zero.
            By default it is found by differentiation. Nothing but `verify.recipe` checks whether
            what is given here is right.

    Raises:
        TypeError: an argument that is not a function.

    Example:
        Underdamped Langevin dynamics with friction 2.

        >>> import ergodax as ex
        >>> recipe = ex.Recipe(
        ...     auxiliary=lambda key, x: {"momentum": ex.normal_like(key, x)},
        ...     energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
        ...     diffusion=lambda z: {"momentum": ex.Scalar(2.0)},
        ...     curl=lambda z: {("momentum", "position"): ex.Scalar(1.0)},
        ... )
    """

    diffusion: Callable[[Variables], dict[str, Any]]
    curl: Callable[[Variables], dict[tuple[str, str], Any]] = _no_curl
    energy: Callable[[Variables], Float[Array, ""]] = _no_energy
    auxiliary: Callable[[PRNGKeyArray, PyTree], Variables] = _no_auxiliary
    gamma: Callable[[Variables], Variables] | None = None

    def __check_init__(self) -> None:
        """Functions only; what they return is looked at where there is a position."""
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not callable(value) and not (field.name == "gamma" and value is None):
                raise TypeError(
                    f"{field.name} must be a function, not {shown(value)}. Try lambda z: ... for "
                    "what is constant."
                )

    def at(self, step: Number) -> "Recipe":
        """The recipe at a step, where a part of it (a friction, say) is a schedule."""
        count = jnp.asarray(step, jnp.int32)

        def known(x: Any) -> Any:
            return x.at(count) if isinstance(x, Scheduled) else x

        now = jax.tree.map(known, self, is_leaf=lambda x: isinstance(x, Scheduled))
        made = jax.tree_util.Partial(returns.made, now.auxiliary)  # a tree, as `auxiliary` may be
        return dataclasses.replace(now, auxiliary=made)

    def check(self, z: Variables) -> None:
        """Hold every function to what it must return; nothing is computed.

        Args:
            z: the variables, or their shapes.

        Raises:
            TypeError: a function that returns what it must not.
            ValueError: a result of another shape, or for a variable that does not exist.
        """

        def called(z: Variables) -> None:
            returns.scalar(self.energy(z))
            for name, block in self.diffusion_at(z).items():
                returns.acts(f"diffusion[{name!r}]", block.mv, z[name], z[name])
            for row, column, sign, field in self.curl_blocks(z):
                name = f"curl[{(row, column)!r}]"
                if sign < 0:
                    name = f"the transpose of curl[{(column, row)!r}]"
                returns.acts(name, field(z).mv, z[column], z[row])
            self._gamma_at(z)

        jax.eval_shape(called, z)

    def traced(self, z: Variables) -> "Recipe":
        """The same recipe, each of whose functions has been called once and is not called again.

        A step evaluates and differentiates D, Q and the energy several times.
        """

        def items(
            blocks: Callable[[Variables], dict[Name, Operator]],
        ) -> Callable[[Variables], dict[Name, Operator]]:
            graph = traced(lambda z: list(blocks(z).items()), z)  # a dict would be sorted
            return lambda z: dict(graph(z))

        energy = self.energy
        found = Recipe(
            items(self.diffusion_at),
            self.curl if self.curl is _no_curl else items(self._curl_at),
            energy if energy is _no_energy else traced(lambda z: returns.scalar(energy(z)), z),
            self.auxiliary,
            None if self.gamma is None else traced(self._gamma_at, z),
        )
        found.check(z)
        return found

    def _curl_at(self, z: Variables) -> dict[tuple[str, str], Operator]:
        """The blocks of Q that the user gave, as operators."""
        found = returns.pairs(self.curl(z))
        return {pair: as_operator(a, f"curl[{pair!r}]") for pair, a in found.items()}

    def diffusion_at(self, z: Variables) -> dict[str, Operator]:
        """The diagonal blocks of D as operators.

        Raises:
            TypeError: no dict of blocks.
            ValueError: a block of a variable that does not exist.
        """
        blocks = returns.blocks("diffusion", self.diffusion(z), "of blocks", '{"position": 1.0}')
        _check_names("diffusion", blocks, z)
        return {name: as_operator(block, f"diffusion[{name!r}]") for name, block in blocks.items()}

    def curl_blocks(self, z: Variables) -> Iterator[Block]:
        """All blocks (row, column, sign, field) of Q, the transposed ones included.

        Raises:
            TypeError: no dict of blocks by pairs.
            ValueError: a block of a variable that does not exist, or a block and its transpose.
        """

        def block(pair: tuple[str, str], transposed: bool) -> Callable[[Variables], Operator]:
            def field(z: Variables) -> Operator:
                operator = as_operator(self.curl(z)[pair], f"curl[{pair!r}]")
                return operator.transpose() if transposed else operator

            return field

        for row, column in (pairs := returns.pairs(self.curl(z))):
            _check_names("curl", (row, column), z)
            if row != column and (column, row) in pairs:
                raise ValueError(
                    f"curl has both {(row, column)} and {(column, row)}; give one, the other is "
                    "minus its transpose."
                )
            half = 0.5 if row == column else 1.0
            yield row, column, half, block((row, column), False)
            yield column, row, -half, block((row, column), True)

    def gradient(self, z: Variables, potential_gradient: PyTree) -> Variables:
        """The gradient of H = U + g, given that of U (or an estimate of it)."""
        gradient = jax.grad(self.energy)(z) if self.energy is not _no_energy else {}
        full = {name: gradient.get(name, tree.zeros_like(z[name])) for name in z}
        full["position"] = (
            tree.add(potential_gradient, gradient["position"]) if gradient else potential_gradient
        )
        return full

    def drift(self, z: Variables, gradient: Variables) -> Variables:
        """-(D + Q) grad H, without Gamma."""
        drift: dict[str, PyTree] = {}
        for name, operator in self.diffusion_at(z).items():
            _accumulate(drift, name, -1.0, operator.mv(gradient[name]))
        for row, column, sign, field in self.curl_blocks(z):
            _accumulate(drift, row, -sign, field(z).mv(gradient[column]))
        return {name: drift.get(name, tree.zeros_like(z[name])) for name in z}

    def correction(self, z: Variables, key: PRNGKeyArray) -> Variables:
        """Gamma = div(D + Q), with an entry for those variables only where it is not zero.

        Raises:
            TypeError: a closed form that is no dict.
            ValueError: a closed form for a variable that does not exist, or of another shape.
        """
        if self.gamma is not None:
            return self._gamma_at(z)
        blocks = [(name, name, 1.0, self._diffusion_field(name)) for name in self.diffusion_at(z)]
        gamma: dict[str, PyTree] = {}
        for k, (row, column, sign, field) in enumerate([*blocks, *self.curl_blocks(z)]):

            def along(
                value: PyTree, field: Callable[[Variables], Operator] = field, column: str = column
            ) -> Operator:
                return field({**z, column: value})

            part = block_divergence(along, z[column], jax.random.fold_in(key, k))
            if part is not None:
                _accumulate(gamma, row, sign, part)
        return gamma

    def _gamma_at(self, z: Variables) -> Variables:
        """Gamma in closed form; nothing where there is none."""
        if self.gamma is None:
            return {}
        closed = returns.blocks("gamma", self.gamma(z), "of trees", '{"position": ...}')
        _check_names("gamma", closed, z)
        for name, value in closed.items():
            if not returns.alike(value, z[name]):
                raise ValueError(
                    f"gamma[{name!r}] has the shape {returns.shapes(value)}, and must have that of "
                    f"the variable, {returns.shapes(z[name])}."
                )
        return closed

    def _diffusion_field(self, name: str) -> Callable[[Variables], Operator]:
        return lambda z: self.diffusion_at(z)[name]


def block_divergence(
    field: Callable[[PyTree], Operator], at: PyTree, key: PRNGKeyArray
) -> PyTree | None:
    """The divergence of one block in the variable of its columns; None where it is zero.

    Whether the block depends on that variable is read off its graph, so that constant blocks cost
    nothing at run time.
    """
    if not depends_on(field, at):
        return None
    # The class of the operator is known from the trace alone; nothing is computed here.
    kind = type(eqx.filter_eval_shape(field, at))
    return kind.divergence(field, at, key)


def _accumulate(total: Variables, name: str, sign: float, part: PyTree) -> None:
    part = part if sign == 1.0 else tree.scale(sign, part)
    total[name] = tree.add(total[name], part) if name in total else part


def _check_names(what: str, names: Any, z: Variables) -> None:
    for name in names:
        if name not in z:
            raise ValueError(
                f"{what} names the variable {name!r}, which does not exist. The variables are "
                f"{sorted(z)}; `auxiliary` makes the others beside 'position'."
            )
