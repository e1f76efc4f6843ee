"""The exact stationary law of each sampler on a Gaussian, in both forms, by its affine step.

Where a step is affine in state and noise, z+ = A z + B xi, both matrices are read off by calling
the sampler, and the covariance solves a Lyapunov equation: no sampling, no tolerance for luck.
"""

# pyright: reportMissingImports=false
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is in the extra `torch`")
from ergodax.bridge import torch as bridge  # noqa: E402
from ergodax.verify import AffineStep, stationary_law  # noqa: E402

torch.set_num_threads(1)  # xdist has the other cores

N, SCALE, T = 30, 1.5, 0.7
LIKELIHOOD = np.array([[2.0, 0.5], [0.5, 1.0]])  # of the whole data
PRECISION = LIKELIHOOD + np.eye(2) / SCALE**2
METRIC = np.array([0.5, 2.0])
COMMON: dict[str, Any] = dict(num_data=N, prior=SCALE, temperature=T)


def langevin(h, metric):
    """T (L - h L G L / 2)^-1, the covariance of the Euler scheme with the constant metric G."""
    return T * np.linalg.inv(PRECISION - 0.5 * h * PRECISION @ np.diag(metric) @ PRECISION)


def semi_implicit(h, gamma, m):
    k, w = np.linalg.eigh(PRECISION)
    above = 4 * m - 2 * gamma * m * h
    return w @ np.diag(T / k * above / (above - h**2 * k)) @ w.T


def moments(x):
    return {"second_moment": (1.0 / torch.tensor(METRIC) - 0.1) ** 2, "step": 5}


CASES: dict[str, Any] = {  # class, settings, covariance, state besides the position
    "sgld": (bridge.SGLD, dict(lr=0.2), langevin(0.2, np.ones(2)), None),
    "sghmc": (
        bridge.SGHMC,
        dict(lr=0.3, friction=1.2, mass=2.0),
        semi_implicit(0.3, 1.2, 2.0),
        lambda r: {"momentum": r},
    ),
    "sgnht": (  # so heavy a thermostat stays at A; the scheme is then exact for positions
        bridge.SGNHT,
        dict(lr=0.3, friction=1.2, mass=2.0, thermal_mass=1e13),
        T * np.linalg.inv(PRECISION),
        lambda r: {"momentum": r, "thermostat": r.new_tensor(1.2)},
    ),
    "psgld": (
        bridge.PSGLD,
        dict(lr=0.1, damping=0.1, adaptation_steps=5),
        langevin(0.1, METRIC),
        moments,
    ),
    "rsgld": (
        bridge.RSGLD,
        dict(lr=0.1, metric=lambda x: torch.tensor(METRIC)),
        langevin(0.1, METRIC),
        None,
    ),
}


def loss(x):
    return 0.5 * x @ torch.tensor(LIKELIHOOD) @ x / N  # a mean over the data


def optimizer_step(sampler, settings, position, state, xi):
    x = torch.nn.Parameter(position)
    optimizer = sampler([x], **settings)
    optimizer.normal_like = lambda _: [xi]
    optimizer.state[x].update(state)
    loss(x).backward()
    optimizer.step()
    return x.detach(), optimizer.state[x].get("momentum")


def functional_step(sampler, settings, position, state, xi):
    auxiliary = {key: {"x": value} for key, value in state.items() if key != "step"}
    before = bridge.State({"x": position}, auxiliary, state.get("step", 0))
    gradients = torch.func.grad(lambda params: loss(params["x"]))(before.params)
    after = bridge.Functional(sampler, **settings).update(before, gradients, normals={"x": xi})
    return after.params["x"], after.auxiliary.get("momentum", {}).get("x")


FORMS = {"optimizer": optimizer_step, "functional": functional_step}


def covariance(form, name, **wrong):
    sampler, settings, _, state = CASES[name]
    faults = {"noise": 1.0} | wrong
    noise = faults.pop("noise")
    settings = {**settings, **COMMON, **faults}
    size = 4 if name in ("sghmc", "sgnht") else 2

    def step(z, xi):
        rest = state(torch.tensor(z[2:] if size > 2 else z)) if state else {}
        x, r = FORMS[form](sampler, settings, torch.tensor(z[:2]), rest, torch.tensor(noise * xi))
        return np.concatenate([x.numpy(), r.numpy() if size > 2 else np.zeros(0)])

    zero = step(np.zeros(size), np.zeros(2))
    np.testing.assert_allclose(zero, 0.0, atol=1e-15)
    a = np.stack([step(e, np.zeros(2)) for e in np.eye(size)], axis=1)
    b = np.stack([step(np.zeros(size), e) for e in np.eye(2)], axis=1)
    return stationary_law(AffineStep(a, b @ b.T)).covariance[:2, :2]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_the_covariance(form, name):
    np.testing.assert_allclose(covariance(form, name), CASES[name][2], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "fault", [{"num_data": 1}, {"noise": np.sqrt(0.5)}, {"temperature": 1.0}, {"prior": None}]
)
def test_a_fault_is_seen(form, name, fault):
    """A forgotten N, noise sqrt(h T) for sqrt(2 h T), a forgotten T, a forgotten prior."""
    right = CASES[name][2]
    assert np.max(np.abs(covariance(form, name, **fault) - right)) > 0.05 * np.max(right)
