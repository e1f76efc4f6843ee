"""`ex.cite` names the papers of a kernel and of all that it is made of."""

import cloudpickle
import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import ergodax as ex
from ergodax.tune.decisions import Tuned
from ergodax.tune.nuts_kernel import Nuts
from ergodax.tune.whitening import Coordinates
from tests.conformance.positions import minibatch
from tests.conformance.registry import KERNELS


class Halving(ex.Kernel):
    """A kernel of nobody's.

    Reference: Nobody, On halves, 2026,
        second edition.
    """

    gradient: ex.GradientEstimator

    def init(self, key, position):
        """The position."""
        return ex.State(position, {}, self.gradient.init(key, position), None, jnp.int32(0))

    def step(self, key, state):
        """Half of it."""
        return eqx.tree_at(lambda s: s.position, state, state.position / 2), None


def used(*things) -> list[str]:
    return [name for name, _ in ex.cite(*things)]


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_has_a_reference(name):
    assert ex.cite(KERNELS[name](0.05)), name


def test_the_sampler_the_integrator_and_the_estimator_are_named_in_order():
    kernel = ex.sghmc(ex.ScoreCovariance(ex.SVRG(minibatch().target, 4, 2), "dense"), 0.05)
    assert used(kernel) == ["sghmc", "euler_maruyama", "ScoreCovariance", "SVRG"]
    inside = ["cyclical", "sa_sgld", "time_rescaled", "sgld", "euler_maruyama", "Cyclical"]
    assert used(ex.cyclical(ex.sa_sgld, minibatch(), 0.05, period=10)) == inside


def test_a_kernel_from_a_recipe_cites_the_recipe_and_no_named_sampler():
    recipe = ex.dynamics.langevin(1.0)
    assert used(ex.euler_maruyama(recipe, minibatch(), 0.05)) == ["euler_maruyama"]


def test_functions_kernels_and_lists_can_be_cited_together():
    assert used(ex.hmc, [ex.sgld(minibatch(), 0.05)], {"a": ex.SAGA}) == [
        *("hmc", "sgld", "euler_maruyama", "SAGA")
    ]


def test_a_kernel_of_the_users_is_cited_from_its_docstring():
    found = ex.cite(Halving(minibatch()))
    assert found == (("Halving", "Nobody, On halves, 2026, second edition."),)
    assert repr(found) == "Halving: Nobody, On halves, 2026, second edition."


def test_what_infer_returns_is_cited_by_its_kernel():
    nuts = Nuts(ex.targets.gaussian(jnp.zeros(1), 1.0), jnp.float32(1.0))
    coordinates = Coordinates(jnp.zeros(1), jnp.ones(1))
    tuned = Tuned(nuts, coordinates, jnp.zeros((4, 1)), None, 1, 0)
    assert used(tuned) == ["Nuts"] and "Hoffman and Gelman" in repr(ex.cite(tuned))


def test_where_there_is_no_reference_that_is_said():
    assert repr(ex.cite(minibatch())) == "no reference"
    with pytest.raises(TypeError, match=r"ex\.cite\(kernel\)"):
        ex.cite()


def test_the_origin_outlives_what_jax_and_pickle_do_to_a_kernel():
    kernel = ex.nogin(ex.NoisyGradient(minibatch().target, 0.1), 0.05)
    mapped = jax.tree.map(lambda x: x, kernel)
    pickled = cloudpickle.loads(cloudpickle.dumps(kernel))
    assert used(kernel) == used(mapped) == used(pickled) == ["nogin"]
