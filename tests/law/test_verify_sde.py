"""Any equation: known residuals, what a remedy is called, and where points can't see a fault."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy

import ergodax as ex
from ergodax.verify.equation import draw_points

POINTS = 0.6 * np.random.default_rng(3).standard_normal((12, 2))


def potential(x):
    return jnp.sum(x**4) / 4 + 0.3 * x[0] * x[1] + 0.2 * x[0]


force = jax.grad(potential)


def metric(x):
    """S = G^-1/2 of the known answer, here as a diffusion."""
    off = 0.3 * x[0] * x[1]
    return jnp.array([[2 + jnp.sin(x[0]), off], [off, 1.5 + jnp.cos(x[1])]])


def spin(x):
    """A skew matrix that depends on the state."""
    q = 0.7 + 0.5 * jnp.sin(x[0]) + 0.2 * x[1]
    return q * jnp.array([[0.0, -1.0], [1.0, 0.0]])


def divergence(matrix, x):
    return jnp.einsum("ijj->i", jax.jacfwd(matrix)(x))


def drift_with(d=1.0, q=1.0):
    """-(D + Q) grad U + d div D + q div Q."""

    def drift(x):
        gamma = d * divergence(metric, x) + q * divergence(spin, x)
        return gamma - (metric(x) + spin(x)) @ force(x)

    return drift


# --- Known answers -------------------------------------------------------------------------


def test_naive_sgrhmc_by_a_known_number():
    """R = r . div S at x = (0.3, -0.7), r = (1, 2)."""

    def drift(z):
        x, r = z["x"], z["r"]
        friction = metric(x) @ metric(x) @ r
        return {"x": metric(x) @ r, "r": -metric(x) @ force(x) - friction}

    def diffusion(z):
        s = metric(z["x"])
        return jnp.zeros((4, 4)).at[:2, :2].set(s @ s)

    energy = lambda z: potential(z["x"]) + 0.5 * z["r"] @ z["r"]  # noqa: E731
    at = {"x": np.array([[0.3, -0.7]]), "r": np.array([[1.0, 2.0]])}
    report = ex.verify.sde(drift, diffusion, energy, at)
    assert report.residual[0] == pytest.approx(1.9137718636, abs=1e-9)
    assert not report.ok and report.corrected_by is not None
    assert report.corrected_by.fault == "Gamma is missing"


def test_preconditioning_without_gamma_in_one_dimension():
    """exp(-U / T) / D is what it leaves invariant."""
    t = 0.5
    u = lambda x: potential(jnp.stack([x[0], 0.3 * x[0]]))  # noqa: E731
    d = lambda x: 1.0 + x[0] ** 2  # noqa: E731
    drift = lambda x: -d(x) * jax.grad(u)(x)  # noqa: E731
    wrong = ex.verify.sde(drift, d, u, dimension=1, temperature=t)
    true = lambda x: u(x) + t * jnp.log(d(x))  # noqa: E731
    right = ex.verify.sde(drift, d, true, dimension=1, temperature=t)
    assert right.ok and right.reversible and not wrong.ok
    assert wrong.corrected_by is not None and wrong.corrected_by.name == "Gamma = div D added"


def test_a_linear_equation():
    """f = -B z has the density whose covariance solves B S + S B^T = 2 D; no other."""
    b, d = np.array([[1.0, 2.0], [-1.0, 3.0]]), np.array([1.0, 2.0])
    covariance = np.array([[1.1, -0.05], [-0.05, 0.65]])

    def report(covariance):
        precision = np.linalg.inv(covariance)
        return ex.verify.sde(
            lambda z: -jnp.asarray(b) @ z,
            lambda z: d,
            lambda z: 0.5 * z @ jnp.asarray(precision) @ z,
            POINTS,
            curl=lambda z: b @ covariance - np.diag(d),
        )

    assert report(covariance).ok and not report(covariance).reversible
    assert not report(covariance + 0.01 * np.eye(2)).ok


# --- What is wrong has a name --------------------------------------------------------------

FAULTS = {
    "Gamma = div(D + Q) added, with Q,": (0.0, 0.0),
    "Gamma = div D added": (0.0, 1.0),
    "div Q added to Gamma, with Q,": (1.0, 0.0),
    "the sign of Gamma turned": (-1.0, -1.0),
    "the sign of div D turned": (-1.0, 1.0),
    "the sign of div Q turned": (1.0, -1.0),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_remedy_is_named(name):
    report = ex.verify.sde(drift_with(*FAULTS[name]), metric, potential, POINTS, curl=spin)
    assert not report.ok and report.corrected_by is not None, report
    assert report.corrected_by.name == name and report.corrected_by.left < 1e-13
    assert report.corrected_by.fault == f"Gamma is {'wrong' if 'sign' in name else 'missing'}"


def test_right_with_curl_and_without():
    drift = drift_with()
    assert ex.verify.sde(drift, metric, potential, POINTS, curl=spin).ok
    report = ex.verify.sde(drift, metric, potential, POINTS)
    assert report.ok and report.skew is None and not report.reversible


@pytest.mark.parametrize(
    "drift, name",
    [
        (drift_with(), "Gamma multiplied by the temperature"),
        (
            lambda x: divergence(metric, x) - metric(x) @ force(x),
            "div D multiplied by the temperature",
        ),
    ],
)
def test_the_temperature_forgotten_on_gamma(drift, name):
    """Right at T = 1; at T = 1/2 refuted, and named."""
    curl = spin if "Gamma" in name else None
    report = ex.verify.sde(drift, metric, potential, POINTS, curl=curl, temperature=0.5)
    assert not report.ok and report.corrected_by is not None, report
    assert report.corrected_by.name == name


UNDERDAMPED = {  # dx = a r dt, dr = b F dt - c r dt + sqrt(2) dW
    "the friction -D grad H is missing": (1.0, 1.0, 0.0),
    "the friction -D grad H is half of what it should be": (1.0, 1.0, 0.5),
    "the friction -D grad H has the wrong sign": (1.0, 1.0, -1.0),
    "in d z[2] all but the friction is twice what it should be": (1.0, [2.0, 1.0], 1.0),
    "in d z[0] all but the friction has the wrong sign": ([-1.0, 1.0], 1.0, 1.0),
}


@pytest.mark.parametrize("fault", UNDERDAMPED)
def test_the_term_at_fault_is_named(fault):
    a, b, c = map(np.asarray, UNDERDAMPED[fault])
    report = ex.verify.sde(
        lambda z: jnp.concatenate([a * z[2:], -b * force(z[:2]) - c * z[2:]]),
        lambda z: jnp.array([0.0, 0.0, 1.0, 1.0]),
        lambda z: potential(z[:2]) + 0.5 * z[2:] @ z[2:],
        np.hstack([POINTS, POINTS[::-1]]),
    )
    assert not report.ok and report.corrected_by is not None, report
    assert fault in str(report) and report.corrected_by.left < 1e-13


def test_two_faults_have_no_single_name():
    """Half the friction in one coordinate, twice the force in the other."""
    report = ex.verify.sde(
        lambda z: jnp.stack([z[2], z[3], -z[0] - 0.5 * z[2], -2.0 * z[1] - z[3]]),
        lambda z: jnp.array([0.0, 0.0, 1.0, 1.0]),
        lambda z: 0.5 * jnp.sum(z**2),
        np.hstack([POINTS, POINTS[::-1]]),
    )
    assert not report.ok and report.corrected_by is None
    assert "not one term alone" in str(report)


@pytest.mark.parametrize("radius, failing", [(0.1, 1), (2.0, 3)])
def test_one_point_names_no_term(radius, failing):
    """One equation is met by any one factor; a term at fault is named where more points fail."""

    def drift(z):
        inside = jnp.sum((z - jnp.array([0.7, 0.2])) ** 2) < radius**2
        return -force_of_all(z) * jnp.where(inside, 1.5, 1.0)

    force_of_all = jax.grad(lambda z: 0.5 * jnp.sum(z**2) + 0.25 * z[0] ** 4)
    at = np.array([[0.72, 0.21], [0.3, -0.5], [1.4, 0.9], [5.0, 4.0], [-4.0, 3.0], [0.0, -6.0]])
    at = at if radius < 1.0 else at[:3]
    energy = lambda z: 0.5 * jnp.sum(z**2) + 0.25 * z[0] ** 4  # noqa: E731
    report = ex.verify.sde(drift, lambda z: 1.0, energy, at)
    assert not report.ok and np.sum(report.relative > 1e-6) == failing
    if failing == 1:
        assert report.corrected_by is None
        assert "fails at 1 of 6 points, too few to tell which term is wrong" in str(report)
    else:
        assert "the friction -D grad H has the factor 1.5" in str(report)


STATE = {"x": jnp.zeros(2), "r": jnp.zeros(2)}
MOVES = {
    "a tuple": lambda z: (z["r"], -z["x"] - z["r"]),
    "another name": lambda z: {"x": z["r"], "y": -z["x"] - z["r"]},
    "sizes exchanged": lambda z: {"x": jnp.zeros(3), "r": jnp.zeros(1)},
    "none": lambda z: None,
    "its own": lambda z: {"x": z["r"], "r": -z["x"] - z["r"]},
}


@pytest.mark.parametrize("name", MOVES)
def test_the_drift_has_the_structure_of_the_state(name):
    """Leaves in sorted order would pair dx with r."""
    noise = lambda z: {"x": jnp.zeros(2), "r": jnp.ones(2)}  # noqa: E731
    energy = lambda z: 0.5 * jnp.sum(z["x"] ** 2) + 0.5 * jnp.sum(z["r"] ** 2)  # noqa: E731
    if name == "its own":
        assert ex.verify.sde(MOVES[name], noise, energy, state=STATE).ok
        return
    with pytest.raises(ValueError, match="drift (must return what has the structure|returns)"):
        ex.verify.sde(MOVES[name], noise, energy, state=STATE)


@pytest.mark.parametrize(
    "noise",
    [lambda z: (jnp.zeros(2), jnp.ones(2)), lambda z: {"x": jnp.zeros(2), "y": jnp.ones(2)}],
)
def test_the_noise_has_the_structure_of_the_state(noise):
    energy = lambda z: 0.5 * jnp.sum(z["x"] ** 2) + 0.5 * jnp.sum(z["r"] ** 2)  # noqa: E731
    with pytest.raises(ValueError, match="diffusion can't be evaluated .* a tree like the block"):
        ex.verify.sde(MOVES["its own"], noise, energy, state=STATE)


# --- D and Q that are none -----------------------------------------------------------------


def test_a_diffusion_that_is_not_positive_semidefinite():
    """The residual vanishes at every point, and yet there is no such process."""
    d = np.array([1.0, -0.5])
    report = ex.verify.sde(lambda x: -d * force(x), lambda x: d, potential, POINTS)
    assert report.invariant and not report.psd and not report.ok
    assert report.least_eigenvalue == pytest.approx(-0.5)
    assert "NOT positive semidefinite" in str(report) and "REFUTED" in str(report)


def test_it_need_not_be_so_everywhere():
    """Negative only where D is small beside what it is elsewhere."""
    d = lambda x: jnp.where(x[0] > 0, 1e9, -1e-2)  # noqa: E731
    report = ex.verify.sde(lambda x: -d(x) * force(x), d, potential, POINTS)
    assert report.invariant and not report.psd
    assert [(fault.part, fault.jumps) for fault in report.hidden] == [("D", True)]


def test_a_diffusion_that_is_not_symmetric():
    d = np.array([[1.0, 0.4], [0.0, 1.0]])
    report = ex.verify.sde(lambda x: -jnp.asarray(d) @ force(x), lambda x: d, potential, POINTS)
    assert report.invariant and not report.ok
    assert report.asymmetry == pytest.approx(0.4)
    assert "D: NOT symmetric" in str(report)


def test_a_curl_that_is_not_skew_symmetric():
    q = np.array([[0.0, 0.4], [0.4, 0.0]])
    report = ex.verify.sde(lambda x: -force(x), lambda x: 1.0, potential, POINTS, curl=lambda x: q)
    assert report.invariant and report.psd and report.skew is False and not report.ok
    assert "Q: NOT skew-symmetric" in str(report)


# --- Where a fault can't be seen -----------------------------------------------------------


def test_points_on_a_symmetry_plane_are_blind():
    """On x = 0 the even parts hide what D = 1 + x^2 lacks; the points drawn here do not."""
    energy = lambda x: 0.5 * jnp.sum(x**2) + x[0] ** 4  # noqa: E731
    d = lambda x: jnp.stack([1.0 + x[0] ** 2 * x[1], 1.0 + 0.0 * x[1]])  # noqa: E731
    drift = lambda x: -d(x) * jax.grad(energy)(x)  # noqa: E731
    plane = np.stack([np.linspace(-1, 1, 5), np.zeros(5)], axis=1)
    assert ex.verify.sde(drift, d, energy, plane).ok
    drawn = ex.verify.sde(drift, d, energy, dimension=2)
    assert not drawn.ok and np.sum(drawn.relative > 1e-6) > 60


def test_a_point_far_out_does_not_hide_the_others():
    """There the terms are 1e30, and rounding is more than all that is wrong elsewhere."""
    d = lambda x: 1.0 + x**2  # noqa: E731
    far = np.vstack([POINTS, [[1e5, -2e5]]])
    report = ex.verify.sde(lambda x: -d(x) * force(x), d, potential, far)
    assert not report.ok and np.sum(report.relative > 1e-3) >= len(POINTS) - 1


def test_an_error_that_only_the_tails_show():
    """Beyond 2.5 sd, where 40 draws have a point in one case of five."""
    push = lambda x: jnp.stack([jax.nn.relu(x[0] - 2.5) ** 2, 0.0])  # noqa: E731
    normal = lambda x: 0.5 * jnp.sum(x**2)  # noqa: E731
    report = ex.verify.sde(lambda x: -x + push(x), lambda x: 1.0, normal, dimension=2)
    assert not report.ok and report.worst["z[0]"] > 2.5, report
    assert "z[0] in [" in report.region and "on rays" in report.region
    given = ex.verify.sde(lambda x: -x + push(x), lambda x: 1.0, normal, POINTS)
    assert given.ok and given.region.startswith("the 12 points given, and nothing beyond")


def test_points_reach_as_far_as_they_say():
    """1 - 1e-4 of a Gaussian of d dimensions lies within the radius of the outermost ray."""
    d, sd = 3, np.array([0.01, 1.0, 100.0])
    report = ex.verify.sde(
        lambda x: -x, lambda x: jnp.asarray(sd) ** 2, lambda x: 0.5 * jnp.sum((x / sd) ** 2),
        dimension=d,
    )  # fmt: skip
    radius = np.linalg.norm(report.points / sd, axis=1)
    assert report.ok and np.sum(radius > 3.5) >= 10
    assert radius.max() == pytest.approx(np.sqrt(scipy.stats.chi2.isf(1e-4, d)), rel=0.2)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_points_follow_the_target(scale):
    """A Gaussian of that width, centred ten widths off, seen from a start of unit width."""
    width = scale * np.array([1.0, 3.0])

    def energy(x):
        return 0.5 * jnp.sum((x / width - 10.0) ** 2)

    d = lambda x: 1.0 + (x / width) ** 2  # noqa: E731
    right = lambda x: 2.0 * x / width**2 - d(x) * jax.grad(energy)(x)  # noqa: E731
    report = ex.verify.sde(right, d, energy, dimension=2)
    assert report.ok, report
    standard = report.points / width - 10.0
    # 64 points, correlated: no more than that they are there and as wide.
    assert np.all(np.abs(standard.mean(axis=0)) < 1.5)
    assert np.all((standard.std(axis=0) > 0.3) & (standard.std(axis=0) < 3.0))


def test_trees_are_named_and_equal_to_vectors():
    """The same equation on a dict and on its vector, in the order of the raveled tree."""
    energy = lambda x: potential(x) + x[1] ** 2  # noqa: E731
    split = lambda x: {"b": x[..., :1], "w": x[..., 1]}  # noqa: E731
    join = lambda z: jnp.concatenate([z["b"], z["w"][None]])  # noqa: E731
    drift = lambda x: -jax.grad(energy)(x) * (1.0 + x**2)  # noqa: E731
    flat = ex.verify.sde(drift, lambda x: 1.0 + x**2, energy, POINTS)
    at = split(POINTS)
    nested = ex.verify.sde(
        lambda z: split(drift(join(z))),
        lambda z: {"b": 1.0 + z["b"] ** 2, "w": 1.0 + z["w"] ** 2},
        lambda z: energy(join(z)),
        at,
    )
    np.testing.assert_allclose(nested.residual, flat.residual, rtol=1e-12)
    assert nested.names == ["b[0]", "w"] and flat.names == ["z[0]", "z[1]"]


def test_points_are_drawn_from_the_density():
    """From a start 10 sd off in ten dimensions: the mean of U is 5 +- sqrt(5 / 400); 5 sd."""
    sds = np.linspace(0.3, 3.0, 10)
    with jax.enable_x64(True):
        energy = lambda z: 0.5 * jnp.sum((z / sds) ** 2)  # noqa: E731
        points = draw_points(energy, 3.0 * jnp.ones(10), 400, jax.random.key(0))
        values = np.asarray(jax.vmap(energy)(points))
    assert abs(values.mean() - 5.0) < 5.0 * np.sqrt(5.0 / 400)
    assert abs(values.var() / 5.0 - 1.0) < 0.5


@pytest.mark.parametrize("temperature", [0.0, -0.5])
def test_a_temperature_is_positive(temperature):
    with pytest.raises(ValueError, match="temperature must be positive"):
        ex.verify.sde(lambda z: -z, lambda z: 1.0, potential, POINTS, temperature=temperature)
