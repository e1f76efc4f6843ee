"""What a report says, and that nothing of the session changes what it says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import ergodax as ex
from ergodax.verify.faults import _factor
from ergodax.verify.kernel_report import Bias, KernelReport, limit

BANANA = ex.targets.banana()


def naive(x):
    return 1.5 + jnp.sin(x)


@pytest.fixture(scope="module")
def wrong():
    return ex.verify.recipe(ex.dynamics.naive_riemannian_underdamped(naive), BANANA)


@pytest.fixture(scope="module")
def right():
    return ex.verify.recipe(ex.dynamics.underdamped(), BANANA)


@pytest.mark.parametrize(("factor", "told"), [(1.25, "1.25"), (1.00001, "1.00001")])
def test_a_factor_is_told_apart_from_one(factor, told):
    assert _factor(factor, 1.0) == f"has the factor {told} in place of 1"


def test_a_proof(right):
    lines = str(right).splitlines()
    assert lines[0] == "PROVED at these points: exp(-H/T) is invariant."
    assert "64 points" in lines[1] and "fails" not in lines[1]
    assert lines[2] == f"  region: {right.region}" and "momentum[0] in [-" in right.region
    assert lines[3:] == [
        "  D: symmetric, positive semidefinite (least eigenvalue 0)",
        "  Q: skew-symmetric",
        "  reversible: no, J is not 0",
        "  Gamma: none is needed",
        "  auxiliary: follows exp(-energy) (false alarm 1e-06)",
    ]
    assert right.ok and right.remedies == () and right.corrected_by is None


def test_a_refutation(wrong):
    text = str(wrong)
    assert text.startswith("REFUTED: exp(-H/T) is not invariant.\n")
    assert "fault: Gamma is missing. With Gamma = div(D + Q) added" in text
    failing = int(np.sum(wrong.relative > wrong.tolerance))
    assert f"it fails at {failing} of them, most at momentum[0] = " in text
    assert not wrong.ok and not wrong.invariant and not wrong.reversible
    assert wrong.corrected_by in wrong.remedies


def test_the_worst_point_is_named(wrong):
    k = int(np.argmax(wrong.relative))
    names = ["momentum[0]", "momentum[1]", "position[0]", "position[1]"]
    assert list(wrong.worst) == wrong.names == names
    np.testing.assert_array_equal(list(wrong.worst.values()), wrong.points[k])
    for name, value in wrong.worst.items():
        assert f"{name} = {value:.4g}" in str(wrong)


def test_many_coordinates_are_not_all_printed():
    target = ex.targets.gaussian(np.zeros(8), 1.0)
    recipe = ex.dynamics.naive_riemannian_langevin(naive)
    text = str(ex.verify.recipe(recipe, target))
    assert "position[5] = " in text and "position[6]" not in text and ", ..." in text


def test_shapes(wrong):
    n, d = wrong.points.shape
    assert (n, d) == (64, 4)
    assert wrong.residual.shape == wrong.relative.shape == wrong.current.shape == (n,)
    assert wrong.points.dtype == wrong.residual.dtype == np.float64


@pytest.mark.slow
@pytest.mark.parametrize("double", [False, True])
def test_the_session_keeps_its_precision(double):
    """In double precision inside, whatever the session's; also where it ends in an error."""
    with jax.enable_x64(double):
        report = ex.verify.recipe(ex.dynamics.langevin(), ex.targets.banana())
        assert report.ok and report.relative.max() < 1e-14
        with pytest.raises(ValueError, match="not finite"):
            ex.verify.sde(jnp.sqrt, lambda x: 1.0, jnp.sum, np.full((1, 1), -1.0))
        assert jax.config.jax_enable_x64 == double  # pyright: ignore[reportAttributeAccessIssue]
        assert jnp.zeros(1).dtype == (np.float64 if double else np.float32)


def test_the_same_twice_and_other_points_for_another_key():
    def prove(**options):
        return ex.verify.recipe(ex.dynamics.langevin(), BANANA, **options)

    one, two, other = prove(), prove(), prove(key=jax.random.key(1))
    np.testing.assert_array_equal(one.points, two.points)
    np.testing.assert_array_equal(one.residual, two.residual)
    assert str(one) == str(two) and other.ok
    assert not np.any(np.isin(one.points, other.points))


def test_the_tolerance_decides():
    """Gamma off by a millionth: refuted, or not, as asked."""
    almost = ex.dynamics.riemannian_langevin(
        ex.Metric(naive, divergence=lambda x: 1.000001 * jnp.cos(x))
    )
    strict = ex.verify.recipe(almost, BANANA, tolerance=1e-9)
    lenient = ex.verify.recipe(almost, BANANA, tolerance=1e-5)
    assert lenient.ok and not strict.ok and strict.relative.max() < 1e-5
    np.testing.assert_array_equal(lenient.residual, strict.residual)


@pytest.mark.slow
def test_whole_states_and_positions():
    """A dict with every variable is taken as it is; positions get the other variables drawn."""
    rng = np.random.default_rng(0)
    x, r = rng.standard_normal((2, 5, 2))
    recipe = ex.dynamics.underdamped()
    whole = ex.verify.recipe(recipe, BANANA, {"position": x, "momentum": r})
    np.testing.assert_array_equal(whole.points, np.hstack([r, x]))
    given = ex.verify.recipe(recipe, BANANA, x)
    np.testing.assert_array_equal(given.points[:, 2:], x)
    assert whole.ok and given.ok and given.points[:, :2].std() > 0.3


def test_a_tree_as_state():
    state = {"b": jnp.zeros(()), "w": jnp.zeros(2)}
    report = ex.verify.sde(
        lambda z: jax.tree.map(jnp.negative, z),
        lambda z: 1.0,
        lambda z: 0.5 * (z["b"] ** 2 + z["w"] @ z["w"]),
        state=state,
    )
    assert report.ok and report.reversible and report.names == ["b", "w[0]", "w[1]"]
    assert report.points.shape == (64, 3)


@pytest.mark.slow
def test_a_curl_in_single_precision():
    """Found in float64, used in the precision of the position."""
    spin = np.array([[1.0, -1.0], [1.0, 1.0]], "f4")
    found = ex.verify.curl(
        lambda z: -jnp.asarray(spin, z.dtype) @ (z + z**3),
        lambda z: 1.0,
        lambda z: jnp.sum(z**2 / 2.0 + z**4 / 4.0),
        dimension=2,
        points=64,
    )
    q = found(jnp.ones(2)).matrix
    assert q.dtype == jnp.float32
    np.testing.assert_allclose(q, [[0.0, -1.0], [1.0, 0.0]], atol=1e-5)


def of_kernel(bias):
    """A report of one function whose bias is the same at every step size."""
    value, error = np.full((4, 1), bias), np.full((4, 1), 0.01)
    return KernelReport(
        ("x",), 0.1 * np.arange(1.0, 5.0), Bias(0.0 * value, error), Bias(value, error),
        duration=1.0, num_draws=100, budget=1e-6, tolerance=1.0, diverged=None,
        memory=np.zeros(1),
    )  # fmt: skip


def test_a_limit_is_suspicious_before_it_is_wrong():
    """Two scores a look, five looks: Bonferroni's quantiles, of 1 / 10 and of the budget."""
    low, high = scipy.stats.norm.isf(0.1 / 4), scipy.stats.norm.isf(1e-6 / 5 / 4)
    np.testing.assert_allclose(of_kernel(0.0).critical, high)
    reports = [of_kernel(bias) for bias in np.geomspace(0.01, 0.5, 200)]
    scores = np.array([report.scores.max() for report in reports])
    assert scores[0] < low and scores[-1] > high
    assert [report.right_limit for report in reports] == list(scores <= high)
    assert [report.suspicious for report in reports] == list((low < scores) & (scores <= high))


def test_the_verdict_of_a_kernel():
    assert of_kernel(0.0).verdict.startswith("Right limit: an error of ")
    assert of_kernel(0.5).verdict.startswith("Wrong limit: as h -> 0 the mean of x is off by 0.5 ")


def test_what_the_highest_power_takes_off_a_limit_is_doubted():
    """5 h + c h^6 vanishes at 0, though the parabola through it is at 0.19, known to 1e-4."""
    h = np.array([0.02, 0.04, 0.08])
    bias = np.stack([5.0 * h + 0.6 * (h / 0.08) ** 6, 0.2 + 0.3 * h - h**2], axis=1)
    value, error = limit(h, Bias(bias, np.full(bias.shape, 1e-4)))
    assert 0.15 < value[0] < 5.0 * error[0], "a curve far from its limit"
    assert abs(value[1] - 0.2) < error[1] < 0.02, "and one that is near it"
