"""Every recipe is proved, every planted fault is refuted, named, and corrected."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax.recipe import dynamics

MASS = np.array([[1.4, 0.5], [0.5, 0.8]])
TURN = np.array([[0.0, 0.7], [-0.7, 0.0]])
BANANA = ex.targets.banana()


def number(x):
    return 1.5 + jnp.tanh(x[0] * x[1])


def separable(x):
    return 1.5 + jnp.sin(x)


def coupled(x):
    return 1.5 + jnp.sin(x + 2.0 * x[::-1])


def dense(x):
    b = jnp.stack([jnp.stack([1.0 + 0 * x[0], 0.3 * jnp.sin(x[1])]), 0.5 * jnp.cos(x)])
    return b @ b.T + 0.5 * jnp.eye(2, dtype=x.dtype)


def low_rank(x):
    return ex.LowRank(jnp.sin(x + x[1])[None], 1.0 + 0.3 * x[0] ** 2)


def repeated(x):
    """Two equal eigenvalues everywhere, where those of a matrix have no derivative of their own."""
    return ex.LowRank((1.0 + 0.3 * jnp.sin(x[0] + x[1])) * jnp.eye(2, dtype=x.dtype), 1.0)


METRICS = {
    "number": number,
    "separable": separable,
    "coupled": coupled,
    "dense": dense,
    "low rank": low_rank,
    "repeated": repeated,
    "closed form": ex.Metric(separable, divergence=jnp.cos),
    "potential": ex.PotentialMetric(lambda u: 1.5 * jnp.sqrt(u + 0.5)),
}
PLANE = ex.targets.gaussian(np.zeros(2), np.ones(2))
TEMPERATURES = (1.0, 0.5, 2.0)
WELLS = np.random.default_rng(0).standard_normal((16, 3))  # the draws by rejection compile slowly

# --- What is right is proved ---------------------------------------------------------------


def constant_recipes():
    """Recipe, target, temperature; in three dimensions for the thermostat."""
    mixture = ex.targets.mixture([[1.0, 0.0], [-1.0, 0.5]], np.diag([0.5, 1.5]))
    wells, funnel = ex.targets.double_well(dimension=3), ex.targets.funnel(2, 1.0)
    own = ex.Target(lambda x: jnp.sum(x**4) / 4.0 + 0.3 * x[0] * x[1])
    return {
        "langevin, number": (dynamics.langevin(0.7), mixture, 0.5),
        "langevin, vector": (dynamics.langevin(np.array([0.7, 2.0])), funnel, 1.0),
        "langevin, matrix": (dynamics.langevin(MASS), BANANA, 2.0),
        "irreversible_langevin": (dynamics.irreversible_langevin(TURN, MASS), mixture, 2.0),
        "hamiltonian": (dynamics.hamiltonian(MASS), funnel, 0.5),
        "underdamped, number": (dynamics.underdamped(0.8, 2.0), wells, 2.0),
        "underdamped, vector": (dynamics.underdamped(0.8, np.array([2.0, 0.3])), mixture, 1.0),
        "underdamped, matrix": (dynamics.underdamped(0.8, MASS), own, 0.5),
        "nose_hoover": (dynamics.nose_hoover(0.8), wells, 0.5),
        "nose_hoover, mass": (dynamics.nose_hoover(1.3, 2.0, 1.7), wells, 2.0),
        "nose_hoover, each": (
            dynamics.nose_hoover(0.8, np.array([2.0, 0.5, 1.0]), per_coordinate=True),
            wells,
            0.5,
        ),
    }


CONSTANT = constant_recipes()


def first_of(cases, count):
    """All cases, of which the first few are quick enough to run each time."""
    slow = [pytest.param(*case, marks=pytest.mark.slow) for case in cases[count:]]
    return [*(pytest.param(*case) for case in cases[:count]), *slow]


@pytest.mark.parametrize("name", first_of([(name,) for name in CONSTANT], 6))
def test_with_constant_matrices(name):
    recipe, target, t = CONSTANT[name]
    position = jnp.ones(2) if isinstance(target, ex.Target) else None
    points = WELLS if isinstance(target, type(ex.targets.double_well())) else None
    report = ex.verify.recipe(recipe, target, points, position=position, temperature=t)
    assert report.ok, report
    assert report.reversible == name.startswith("langevin")
    assert report.corrected == name.startswith("nose_hoover")


RIEMANNIAN = [
    ("riemannian_langevin", metric, TEMPERATURES[k % 3]) for k, metric in enumerate(METRICS)
] + [
    ("riemannian_underdamped", metric, TEMPERATURES[(k + 1) % 3])
    for k, metric in enumerate(METRICS)
]


@pytest.mark.parametrize("name, metric, t", first_of(RIEMANNIAN[::-1], 4))
def test_with_a_metric(name, metric, t):
    """Gamma is not zero, and Langevin dynamics is reversible all the same."""
    recipe = getattr(dynamics, name)(METRICS[metric])
    report = ex.verify.recipe(recipe, BANANA, temperature=t)
    assert report.ok and report.corrected, report
    assert report.reversible == (name == "riemannian_langevin")
    assert report.gamma_error is not None and report.gamma_error < 1e-6


@pytest.mark.parametrize(
    "metric, t, friction", first_of([("dense", 0.5, 0.8), ("low rank", 2.0, 0.0)], 1)
)
def test_riemannian_hamiltonian(metric, t, friction):
    recipe = dynamics.riemannian_hamiltonian(METRICS[metric], friction, t)
    report = ex.verify.recipe(recipe, BANANA, temperature=t)
    assert report.ok and not report.corrected and not report.reversible, report


@pytest.mark.slow
def test_a_posterior_with_a_dict_of_parameters():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 2)).astype("f4")
    y = (x[:, 0] + rng.standard_normal(8) > 0).astype("f4")

    def log_likelihood(w, example):
        x, y = jax.tree.map(lambda a: a.astype(w["bias"].dtype), example)
        logit = x @ w["slope"] + w["bias"]
        return y * logit - jnp.logaddexp(0.0, logit)

    posterior = ex.Posterior(
        lambda w: -0.5 * (jnp.sum(w["slope"] ** 2) + w["bias"] ** 2), log_likelihood, (x, y)
    )
    position = {"slope": jnp.zeros(2), "bias": jnp.zeros(())}
    report = ex.verify.recipe(dynamics.underdamped(), posterior, position=position)
    assert report.ok, report
    names = ["momentum.bias", "momentum.slope[0]", "momentum.slope[1]"]
    assert report.names == names + [n.replace("momentum", "position") for n in names]


WRONG = {  # what the functions of the module are known not to leave invariant
    "determinant_corrected_langevin": lambda: dynamics.determinant_corrected_langevin(dense),
    "naive_riemannian_langevin": lambda: dynamics.naive_riemannian_langevin(dense),
    "naive_riemannian_underdamped": lambda: dynamics.naive_riemannian_underdamped(dense),
    "without_correction": lambda: dynamics.without_correction(dynamics.nose_hoover()),
}


def test_the_determinant_correction_of_a_metric_that_is_not_separable(x64):
    """2 div G^-1 + G^-1 grad log |G| of diag(1, e^v) is (-1, 0), and the right Gamma (0, 0)."""
    recipe = dynamics.determinant_corrected_langevin(lambda x: jnp.stack([1.0, jnp.exp(x[0])]))
    gamma = recipe.correction({"position": jnp.array([0.3, -0.7])}, jax.random.key(1))
    np.testing.assert_allclose(gamma["position"], [-1.0, 0.0], atol=1e-12)


def test_no_recipe_is_forgotten():
    tested = {name.split(",")[0] for name in CONSTANT} | {name for name, *_ in RIEMANNIAN}
    assert tested | {"riemannian_hamiltonian"} | set(WRONG) == set(dynamics.__all__)


# --- What is wrong is refuted --------------------------------------------------------------


def points_of(report, name):
    """The columns of one variable."""
    return report.points[:, [k for k, n in enumerate(report.names) if n.startswith(name)]]


def divergence(matrix, x):
    return jnp.einsum("ijj->i", jax.jacfwd(matrix)(x))


def missing_langevin(x):
    """R = Gamma . grad U - T div Gamma where Gamma is left out."""
    gamma = lambda y: divergence(dense, y)  # noqa: E731
    return gamma(x) @ BANANA.gradient(x) - T * jnp.trace(jax.jacfwd(gamma)(x))


def missing_underdamped(z):
    """R = r . div L^T where G^-1 = L L^T."""
    return z[:2] @ divergence(lambda y: jnp.linalg.cholesky(dense(y)).T, z[2:])


def missing_thermostat(z):
    """R = -d (zeta - A): Gamma is -d / mu, with mu = d."""
    return -2.0 * (z[4] - 1.0)


T = 0.5
CLOSED_FORM = {
    "naive_riemannian_langevin": missing_langevin,
    "naive_riemannian_underdamped": missing_underdamped,
    "without_correction": missing_thermostat,
}


@pytest.mark.parametrize("name", first_of([(name,) for name in WRONG], 3))
def test_a_counterexample_is_refuted_and_corrected(name, x64):
    report = ex.verify.recipe(WRONG[name](), BANANA, temperature=T)
    fault = "Gamma is missing" if name in CLOSED_FORM else "Gamma is wrong"
    assert not report.ok and report.relative.max() > 1e-2
    assert report.psd and report.skew and report.rooted
    assert report.corrected_by is not None and report.corrected_by.fault == fault, report
    assert report.corrected_by.left < 1e-13
    if name in CLOSED_FORM:
        expected = jax.lax.map(CLOSED_FORM[name], jnp.asarray(report.points))
        np.testing.assert_allclose(report.residual, expected, atol=1e-11)


@pytest.mark.slow
def test_repeated_eigenvalues_without_gamma():
    """The control of the metric "repeated": its Gamma is not zero, and matters."""
    report = ex.verify.recipe(dynamics.naive_riemannian_underdamped(repeated), BANANA)
    assert not report.ok and report.corrected_by is not None, report
    assert report.corrected_by.fault == "Gamma is missing"


@pytest.mark.parametrize("metric", [number, separable])
def test_the_determinant_correction_is_right_for_separable_metrics_alone(metric):
    in_one = ex.targets.double_well()
    line = dynamics.determinant_corrected_langevin(lambda x: 1.5 + jnp.sin(x))
    assert ex.verify.recipe(line, in_one).ok
    report = ex.verify.recipe(dynamics.determinant_corrected_langevin(metric), BANANA)
    assert report.ok == (metric is separable)


def test_no_gamma_is_harmless_where_it_is_zero():
    """Of diag(1, exp(v)), a metric for the funnel, the divergence is zero."""
    naive = dynamics.naive_riemannian_langevin(lambda x: jnp.exp(x[0] * jnp.arange(2.0)))
    report = ex.verify.recipe(naive, ex.targets.funnel(2, 1.0))
    assert report.ok and not report.corrected, report


# --- The noise of a gradient ---------------------------------------------------------------


@pytest.mark.parametrize("t", first_of([(0.5,), (1.0,)], 1))
def test_naive_sghmc_by_its_closed_form(t):
    """R = (h / 2) [tr(V M^-1) / T - r^T M^-1 V M^-1 r / T^2]."""
    v, h, inverse = np.array([[3.0, -1.0], [-1.0, 2.0]]), 0.1, np.linalg.inv(MASS)
    report = ex.verify.recipe(
        dynamics.hamiltonian(MASS), BANANA, temperature=t, noise_covariance=v, step_size=h
    )
    velocity = points_of(report, "momentum") @ inverse
    hot = np.einsum("ni,ij,nj->n", velocity, v, velocity)
    expected = 0.5 * h * (np.trace(v @ inverse) / t - hot / t**2)
    np.testing.assert_allclose(report.residual, expected, rtol=1e-5, atol=1e-5)
    assert report.corrected_by is not None and "no friction" in report.corrected_by.fault
    assert report.corrected_by.name == "the friction h P V P^T / (2 T) added"


@pytest.mark.parametrize(
    "recipe", [dynamics.underdamped(2.0), dynamics.irreversible_langevin(TURN, MASS)]
)
def test_noise_is_refuted_whatever_the_friction(recipe):
    """P V P^T with a P of both D and Q, and a V that depends on the position."""
    report = ex.verify.recipe(
        recipe,
        BANANA,
        temperature=2.0,
        noise_covariance=lambda x: 1.0 + x**2,
        step_size=0.1,
    )
    assert not report.ok and report.psd
    assert report.corrected_by is not None and "no friction" in report.corrected_by.fault


# --- Faults of operators and of closed forms -----------------------------------------------


class Shear(ex.Operator):
    """[[1, s], [0, 1]], correct or with a fault in the method named."""

    shear: jax.Array
    fault: str = ""

    def mv(self, x):
        return x + self.shear * jnp.stack([x[1], 0.0 * x[0]])

    def transpose(self):
        return self if self.fault == "transpose" else ex.Dense(self._matrix().T)

    def scaled(self, factor):
        return ex.Dense(factor * self._matrix())

    def _matrix(self):
        upper = np.array([[0.0, 1.0], [0.0, 0.0]])
        return jnp.eye(2) + self.shear * upper


class Spread(ex.Operator):
    """values * x, with a root that is right or not."""

    values: jax.Array
    power: float

    def mv(self, x):
        return self.values.astype(x.dtype) * x

    def transpose(self):
        return self

    def scaled(self, factor):
        return Spread(factor * self.values, self.power)

    def sqrt_mv(self, x):
        return self.values.astype(x.dtype) ** self.power * x


def with_momentum(curl, diffusion=lambda z: {"momentum": 1.0}, gamma=None):
    return ex.Recipe(
        auxiliary=lambda key, x: {"momentum": ex.normal_like(key, x)},
        energy=lambda z: 0.5 * ex.tree.dot(z["momentum"], z["momentum"]),
        diffusion=diffusion,
        curl=curl,
        gamma=gamma,
    )


@pytest.mark.parametrize("fault", ["", "transpose"])
def test_a_transpose_that_is_wrong(fault):
    recipe = with_momentum(
        lambda z: {("momentum", "position"): Shear(jnp.sin(z["position"][0]), fault)}
    )
    report = ex.verify.recipe(recipe, BANANA)
    assert report.ok == report.skew == (not fault)
    assert ("NOT skew-symmetric" in str(report)) == bool(fault)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_a_root_that_is_wrong(power):
    """What the sampler injects is R xi: an mv that is right does not help."""
    values = jnp.array([2.0, 0.5])
    report = ex.verify.recipe(ex.Recipe(lambda z: {"position": Spread(values, power)}), BANANA)
    assert report.invariant and report.psd
    assert report.ok == (power == 0.5)
    assert report.root_error == pytest.approx(0.0 if power == 0.5 else 1.0, abs=1e-6)
    assert ("sqrt_mv is NOT a root" in str(report)) == (power == 1.0)


@pytest.mark.parametrize("factor, error", [(2.0, 0.5), (-1.0, 2.0)])
def test_gamma_in_closed_form(factor, error):
    """Wrong by a factor: refuted, and the error is relative to the larger of the two."""
    recipe = dynamics.riemannian_langevin(
        ex.Metric(separable, divergence=lambda x: factor * jnp.cos(x))
    )
    report = ex.verify.recipe(recipe, BANANA, temperature=0.5)
    assert not report.ok and report.gamma_error == pytest.approx(error, abs=1e-6)
    assert report.corrected_by is not None and report.corrected_by.fault == "Gamma is wrong"
    if factor < 0:
        assert report.corrected_by.name == "the sign of div D turned"


def test_a_gradient_that_is_not_that_of_the_potential():
    class Wrong(ex.Target):
        def gradient(self, position):
            return 1.1 * super().gradient(position)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target = Wrong(lambda x: 0.5 * jnp.sum(x**2))
    report = ex.verify.recipe(dynamics.langevin(), target, position=jnp.ones(2))
    assert not report.ok and report.corrected_by is not None
    assert report.corrected_by.fault == "the target's gradient is not that of its potential"
    assert "the friction -D grad H has the factor 1.1 in place of 1" in str(report)


@pytest.mark.parametrize("seed", first_of([(seed,) for seed in range(3)], 1))
def test_a_gamma_by_random_probes_is_proved_for_every_key(seed):
    """In two dimensions two probes agree at every point with probability 1/2."""
    recipe = dynamics.riemannian_langevin(coupled)
    report = ex.verify.recipe(recipe, BANANA, jnp.array([[0.3, -0.7]]), key=jax.random.key(seed))
    assert report.ok and report.gamma_error == 0.0


def test_a_gamma_by_random_probes_with_the_wrong_mean():
    class Biased(ex.Diagonal):
        @staticmethod
        def divergence(field, at, key):
            return ex.tree.scale(1.5, ex.Operator.divergence(field, at, key))

    recipe = dynamics.riemannian_langevin(lambda x: Biased(coupled(x)))
    report = ex.verify.recipe(recipe, BANANA)
    assert not report.ok and report.gamma_error == pytest.approx(0.5, abs=0.4)
    assert report.corrected_by is not None and report.corrected_by.fault.startswith(
        "Gamma = div D has"
    )
