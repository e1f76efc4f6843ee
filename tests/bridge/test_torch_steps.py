"""The optimizers of the PyTorch bridge are the JAX kernels, step for step, given one noise.

A JAX kernel runs and its normal numbers are recorded; the optimizer is then dealt them. The
model is a logistic regression in double precision, with a loss that is a mean, as is usual there.
"""

# pyright: reportMissingImports=false
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ergodax as ex
from ergodax import convert, tree

torch = pytest.importorskip("torch", reason="PyTorch is in the extra `torch`")
from ergodax.bridge import torch as bridge  # noqa: E402

torch.set_num_threads(1)  # xdist has the other cores

RNG = np.random.default_rng(0)
N, STEPS, SCALE = 20, 3, 2.0
X, LABELS = RNG.normal(size=(N, 3)), RNG.integers(0, 2, N)
START = {"weight": RNG.normal(size=(2, 3)), "bias": RNG.normal(size=2)}
NAMES = ["weight", "bias"]  # the order of a module's parameters

pytestmark = pytest.mark.usefixtures("x64")


def module(start=START):
    linear = torch.nn.Linear(3, 2).double()
    with torch.no_grad():
        for name in NAMES:
            getattr(linear, name).copy_(torch.tensor(np.asarray(start[name])))
    return linear


def backward(model, optimizer, x=X, labels=LABELS):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(labels))
    loss.backward()
    return loss


def log_prior(p):
    return -0.5 * tree.dot(p, p) / SCALE**2


def log_likelihood(p, example):
    x, label = example
    return jax.nn.log_softmax(p["weight"] @ x + p["bias"])[label]


def gradient():
    return ex.FullGradient(ex.Posterior(log_prior, log_likelihood, (X, LABELS)))


def metric(x):
    return 0.5 + x**2


def metric_tree(p):
    return {name: metric(x) for name, x in p.items()}


def divergence(x):
    return 2.0 * x


METRIC = ex.Metric(metric_tree, divergence=lambda p: {n: divergence(x) for n, x in p.items()})
COMMON: dict[str, Any] = dict(num_data=N, prior=SCALE)
CASES = {
    "sgld": (
        lambda: ex.sgld(gradient(), 0.01, temperature=0.7),
        lambda p: bridge.SGLD(p, 0.01, temperature=0.7, **COMMON),
    ),
    "sghmc": (
        lambda: ex.sghmc(gradient(), 0.05, 1.5, mass=2.0, temperature=0.7),
        lambda p: bridge.SGHMC(p, 0.05, 1.5, mass=2.0, temperature=0.7, **COMMON),
    ),
    "sgnht": (
        lambda: ex.sgnht(gradient(), 0.05, 1.5, mass=2.0, temperature=0.7, scheme="BADODA"),
        lambda p: bridge.SGNHT(p, 0.05, 1.5, mass=2.0, temperature=0.7, **COMMON),
    ),
    "sgnht, thermal mass": (
        lambda: ex.sgnht(gradient(), 0.05, 1.5, thermal_mass=3.0, scheme="BADODA"),
        lambda p: bridge.SGNHT(p, 0.05, 1.5, thermal_mass=3.0, **COMMON),
    ),
    "sgnht, small zeta": (
        lambda: ex.sgnht(gradient(), 0.01, 1e-3, thermal_mass=1e6, scheme="BADODA"),
        lambda p: bridge.SGNHT(p, 0.01, 1e-3, thermal_mass=1e6, **COMMON),
    ),
    "sgnht, per coordinate": (
        lambda: ex.sgnht(
            gradient(), 0.05, 1.5, mass=2.0, temperature=0.7, per_coordinate=True, scheme="BADODA"
        ),
        lambda p: bridge.SGNHT(
            p, 0.05, 1.5, mass=2.0, temperature=0.7, per_coordinate=True, **COMMON
        ),
    ),
    "psgld": (
        lambda: ex.psgld(gradient(), 0.01, decay=0.9, damping=0.1, correction=False),
        lambda p: bridge.PSGLD(p, 0.01, decay=0.9, damping=0.1, **COMMON),
    ),
    "psgld, frozen": (
        lambda: ex.psgld(gradient(), 0.01, temperature=0.7, correction=False, adaptation_steps=2),
        lambda p: bridge.PSGLD(p, 0.01, temperature=0.7, adaptation_steps=2, **COMMON),
    ),
    "rsgld, differentiated": (
        lambda: ex.sgrld(gradient(), 0.01, metric_tree, temperature=0.7),
        lambda p: bridge.RSGLD(p, 0.01, metric, temperature=0.7, **COMMON),
    ),
    "rsgld, closed form": (
        lambda: ex.sgrld(gradient(), 0.01, METRIC),
        lambda p: bridge.RSGLD(p, 0.01, metric, divergence=divergence, **COMMON),
    ),
}


def tensors_of(drawn):
    """A recorded tree of normal numbers as the tensors of the module's parameters."""
    for key in ("position", "momentum"):
        drawn = drawn.get(key, drawn)
    return [torch.tensor(np.asarray(drawn[name])) for name in NAMES]


def jax_run(kernel, key):
    """The positions, and the normal numbers in the order they were drawn."""
    noise, positions = [], []
    with tree.recorded_normals() as drawn:
        state = kernel.init(key, jax.tree.map(jnp.asarray, START))
    noise += map(tensors_of, drawn)
    for step in range(STEPS):
        with tree.recorded_normals() as drawn:
            state, _ = kernel.step(jax.random.fold_in(key, step), state)
        noise += map(tensors_of, drawn)
        positions.append(state.position)
    return positions, noise


def torch_run(make, noise, wrong=1.0):
    model, positions = module(), []
    optimizer = make(model.parameters())
    left = iter(noise)
    optimizer.normal_like = lambda _: [wrong * xi for xi in next(left)]
    for _ in range(STEPS):
        backward(model, optimizer)
        optimizer.step()
        positions.append({n: getattr(model, n).detach().numpy().copy() for n in NAMES})
    assert next(left, None) is None
    return positions


def distance(a, b):
    return max(np.max(np.abs(p[n] - q[n])) for p, q in zip(a, b, strict=True) for n in NAMES)


@pytest.mark.parametrize("name", CASES)
def test_step_for_step(name, key):
    kernel, make = CASES[name]
    positions, noise = jax_run(kernel(), key)
    assert distance(positions, torch_run(make, noise)) < 1e-12
    assert distance(positions, torch_run(make, noise, wrong=1.001)) > 1e-5
    assert distance(positions[:1], [START]) > 1e-3


def test_a_batch_is_scaled_to_the_whole_data(key):
    """The mean over disjoint batches of g is grad U."""
    moved = []
    for rows in [*np.split(np.arange(N), 5), np.arange(N)]:
        model = module()
        optimizer = bridge.SGLD(model.parameters(), 1.0, temperature=0.0, **COMMON)
        backward(model, optimizer, X[rows], LABELS[rows])
        optimizer.step()
        moved.append(START["weight"] - model.weight.detach().numpy())
    np.testing.assert_allclose(np.mean(moved[:5], axis=0), moved[5], rtol=1e-12)
    expected = gradient().target.gradient(jax.tree.map(jnp.asarray, START))["weight"]
    np.testing.assert_allclose(moved[5], expected, rtol=1e-12)


def test_a_function_as_prior_is_the_same_as_its_scale(key):
    def prior(parameters):
        return sum(-0.5 * (p**2).sum() for p in parameters) / SCALE**2

    _, noise = jax_run(CASES["sgld"][0](), key)
    a = torch_run(lambda p: bridge.SGLD(p, 0.01, num_data=N, prior=prior), noise)
    b = torch_run(lambda p: bridge.SGLD(p, 0.01, num_data=N, prior=SCALE), noise)
    flat = torch_run(lambda p: bridge.SGLD(p, 0.01, num_data=N, prior=None), noise)
    assert distance(a, b) < 1e-12 and distance(a, flat) > 1e-3


def test_a_metric_of_all_coordinates_is_differentiated_without_bias():
    """Over all signs, the probe's mean is the divergence of metric_i = sum_j (i + 1) x_j^2."""
    from itertools import product

    from ergodax.bridge.torch.overdamped import _differentiated

    x = torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64)
    weights = torch.arange(1.0, 4.0, dtype=torch.float64)

    def whole(x):
        return weights * (x**2).sum()

    signs = [torch.tensor(s, dtype=torch.float64) for s in product([-1.0, 1.0], repeat=3)]
    probes = torch.stack([_differentiated(whole, x, s)[1] for s in signs])
    torch.testing.assert_close(probes.mean(0), 2.0 * weights * x)
    constant, zero = _differentiated(lambda x: torch.ones(1, dtype=x.dtype), x, signs[0])
    assert torch.equal(constant, torch.ones_like(x)) and not zero.any()


LR, DECAY = 0.2, 0.03


def zeros():
    return [torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)]


def sgd_run(momentum, weight_decay=DECAY):
    """The positions of torch's own optimizer on the mean loss."""
    model, positions = module(), []
    optimizer = torch.optim.SGD(
        model.parameters(), lr=LR, momentum=momentum, weight_decay=weight_decay
    )
    for _ in range(STEPS):
        backward(model, optimizer)
        optimizer.step()
        positions.append({n: getattr(model, n).detach().numpy().copy() for n in NAMES})
    return positions


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("mass", [1.0, 2.3])
def test_converted_settings_of_sgd_are_taken_as_they_are(momentum, mass):
    """At temperature 0 SGHMC makes SGD's own steps, weight decay included."""
    settings = convert.from_torch_sgd(LR, momentum, num_data=N, mass=mass)
    prior = convert.from_weight_decay(DECAY, num_data=N)["scale"]

    def run(**other):
        options = {"num_data": N, "prior": prior, "temperature": 0.0, **settings, **other}
        make = lambda p: bridge.SGHMC(p, **options)  # noqa: E731
        return torch_run(make, [zeros()] * (STEPS + 1))

    assert distance(run(), sgd_run(momentum)) < 1e-12
    for wrong in (dict(num_data=1), dict(prior=None), dict(friction=2 * settings["friction"])):
        assert distance(run(**wrong), sgd_run(momentum)) > 1e-4


def test_without_momentum_it_is_sgld():
    """The same positions from the same noise, at temperature 1."""
    noise = [[torch.randn(2, 3).double(), torch.randn(2).double()] for _ in range(STEPS)]
    sgld = torch_run(lambda p: bridge.SGLD(p, LR / N, **COMMON), noise)
    settings = convert.from_torch_sgd(LR, num_data=N)
    with_momentum = [zeros(), *noise]  # friction takes all of it at once
    sghmc = torch_run(lambda p: bridge.SGHMC(p, **settings, **COMMON), with_momentum)
    assert distance(sgld, sghmc) < 1e-12
    named = torch_run(lambda p: bridge.SGLD(p, step_size=LR / N, **COMMON), noise)
    assert distance(sgld, named) == 0.0
