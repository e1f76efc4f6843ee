"""Jumps between modes leave the law as it is, and chains that stay apart begin to jump."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm

import ergodax as ex
from ergodax.tune import Coordinates
from ergodax.tune.jumps import KINDS, SCALED, TURNED, jumps_between, jumps_of_chains

KEY = jax.random.key(8)
D = 3
BASIS = jnp.array([[1.0, 0.3, 0.0], [0.0, 0.5, 0.2], [0.0, 0.0, 2.0]])
COORDINATES = Coordinates(jnp.array([0.5, -1.0, 2.0]), BASIS)
CENTRES = np.array([[0.0, 0.0, 0.0], [7.0, -6.0, 12.0], [-9.0, 4.0, 3.0]])
SDS = np.array([[1.0, 0.5, 2.0], [0.4, 1.0, 1.0], [1.5, 0.3, 0.6]])
WEIGHTS = np.array([0.5, 0.3, 0.2])


def mixture(x):
    """Three normals far apart, in the position's own units."""
    logs = norm.logpdf(x[None], jnp.asarray(CENTRES), jnp.asarray(SDS)).sum(axis=1)
    return -jax.nn.logsumexp(logs + jnp.log(jnp.asarray(WEIGHTS)))


class Place(NamedTuple):
    """What a jump needs to know of a state."""

    position: jax.Array
    logdensity: jax.Array


def there(law, u, *numbers):
    """By plain numbers of the kind and of the modes."""
    return law.there(u, *(jnp.asarray(number) for number in numbers))


def jumps():
    modes = list(jnp.asarray(CENTRES, jnp.float32))
    found = jumps_between(ex.Target(mixture), COORDINATES, modes, KEY)
    assert found is not None
    return found


def test_a_jump_and_the_one_back_are_inverse_and_their_volume_is_that_of_the_jacobian():
    law, u = jumps(), jnp.array([0.3, -0.2, 0.4])
    for kind in KINDS:
        for i, j in ((0, 1), (1, 2), (2, 0)):
            place, volume = there(law, u, kind, i, j)
            back, reverse = there(law, place, kind, j, i)
            np.testing.assert_allclose(back, u, atol=2e-5)
            jacobian = jax.jacfwd(lambda u, k=kind, i=i, j=j: there(law, u, k, i, j)[0])(u)
            np.testing.assert_allclose(volume, jnp.linalg.slogdet(jacobian)[1], atol=1e-4)
            np.testing.assert_allclose(reverse, -volume, atol=1e-5)
        centre, _ = there(law, law.centres[1], kind, 1, 2)
        np.testing.assert_allclose(centre, law.centres[2], atol=2e-5)
    assert abs(float(there(law, u, SCALED, 0, 1)[1])) > 0.5, "or the volumes would not be tested"


def after_a_jump(law, count=40_000):
    """z of the weights and second moments of draws of the mixture, after a jump of each."""
    rng = np.random.default_rng(1)
    which = rng.choice(3, count, p=WEIGHTS)
    x = CENTRES[which] + SDS[which] * rng.standard_normal((count, D))
    u = jnp.asarray(COORDINATES.of_rows(jnp.asarray(x)), jnp.float32)
    keys = jax.random.split(KEY, count)
    at = lambda u: Place(u, -mixture(COORDINATES.position(u)))  # noqa: E731
    (moved, _), jumped = jax.vmap(lambda k, u: law.step(k, at(u), at))(keys, u)
    assert float(jumped.mean()) > 0.1, "some jump"
    before, after = (np.asarray(jax.vmap(COORDINATES.position)(v), np.float64) for v in (u, moved))
    mode = lambda y: np.argmin(np.sum((y[:, None] - CENTRES) ** 2, axis=-1), axis=1)  # noqa: E731
    seen = np.concatenate(
        [np.eye(3)[mode(after)] - WEIGHTS, after**2 - WEIGHTS @ (CENTRES**2 + SDS**2)], axis=1
    )
    assert np.any(before != after)
    return seen.mean(axis=0) / (seen.std(axis=0) / np.sqrt(count))


def test_a_jump_leaves_the_law_invariant():
    """Six z of 40,000 draws; a false alarm in 10^4."""
    limit = 4.2
    assert np.abs(after_a_jump(jumps())).max() < limit
    # The negative control: without the volumes.
    wrong = dataclasses.replace(jumps(), log_volumes=jnp.zeros(3))
    assert np.abs(after_a_jump(wrong)).max() > limit


def test_exchanged_signs_are_turned_into_each_other():
    """The ridges a b = 1 and a b = 1 on the other side are curved, and turned all the same."""
    ridge = lambda p: 50.0 * (p[0] * p[1] - 1.0) ** 2 + 0.05 * jnp.sum(p**2)  # noqa: E731
    modes = [jnp.ones(2), -jnp.ones(2)]
    law = jumps_between(ex.Target(ridge), Coordinates(jnp.zeros(2), jnp.eye(2)), modes, KEY)
    for a in (0.3, 1.0, 4.0):
        p = jnp.array([a, 1.0 / a])
        place, volume = there(law, p, TURNED, 0, 1)
        np.testing.assert_allclose(place, -p, atol=1e-5)
        assert volume == 0.0 and float(ridge(place)) == pytest.approx(float(ridge(p)), abs=1e-3)


def test_chains_that_stay_apart_tell_the_places():
    rng = np.random.default_rng(2)
    draws = rng.standard_normal((4, 200, D))
    plain = Coordinates(jnp.zeros(D), jnp.eye(D))
    assert jumps_of_chains(plain, draws) is None, "they do not"
    apart = draws + 10.0 * np.array([0, 1, 0, 1])[:, None, None]
    law = jumps_of_chains(plain, apart)
    assert law is not None
    np.testing.assert_allclose(law.centres, [np.zeros(D), np.full(D, 10.0)], atol=0.3)
    np.testing.assert_allclose(law.roots, np.eye(D)[None].repeat(2, 0), atol=0.2)
    assert jumps_of_chains(plain, apart[:, : 5 * D]) is None, "too few to tell"
    assert jumps_of_chains(Coordinates(jnp.zeros(D), jnp.ones(D)), apart) is None, "too many d"
