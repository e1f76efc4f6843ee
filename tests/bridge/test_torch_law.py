"""The exact stationary law of each optimizer on a Gaussian, by its affine step.

Where a step is affine in state and noise, z+ = A z + B xi, both matrices are read off by calling
the optimizer, and the covariance solves a Lyapunov equation: no sampling, no tolerance for luck.
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


CASES = {
    "sgld": (lambda p, **o: bridge.SGLD(p, 0.2, **o), langevin(0.2, np.ones(2)), None),
    "sghmc": (
        lambda p, **o: bridge.SGHMC(p, 0.3, 1.2, mass=2.0, **o),
        semi_implicit(0.3, 1.2, 2.0),
        lambda r: {"momentum": r},
    ),
    "sgnht": (  # so heavy a thermostat stays at A; the scheme is then exact for positions
        lambda p, **o: bridge.SGNHT(p, 0.3, 1.2, mass=2.0, thermal_mass=1e13, **o),
        T * np.linalg.inv(PRECISION),
        lambda r: {"momentum": r, "thermostat": r.new_tensor(1.2)},
    ),
    "psgld": (
        lambda p, **o: bridge.PSGLD(p, 0.1, damping=0.1, adaptation_steps=5, **o),
        langevin(0.1, METRIC),
        moments,
    ),
    "rsgld": (
        lambda p, **o: bridge.RSGLD(p, 0.1, lambda x: torch.tensor(METRIC), **o),
        langevin(0.1, METRIC),
        None,
    ),
}


def stepped(make, state, z, xi):
    """The state after a step from z with the noise xi."""
    x = torch.nn.Parameter(torch.tensor(z[:2]))
    optimizer = make([x])
    optimizer.normal_like = lambda _: [torch.tensor(xi)]
    if state is not None:
        optimizer.state[x].update(state(torch.tensor(z[2:] if z.size > 2 else z)))
    loss = 0.5 * x @ torch.tensor(LIKELIHOOD) @ x / N  # a mean over the data
    loss.backward()
    optimizer.step()
    momentum = optimizer.state[x]["momentum"].numpy() if z.size > 2 else np.zeros(0)
    return np.concatenate([x.detach().numpy(), momentum])


def covariance(name, **wrong):
    make, _, state = CASES[name]
    faults = {"noise": 1.0} | wrong
    noise = faults.pop("noise")
    size = 4 if name in ("sghmc", "sgnht") else 2

    def step(z, xi):
        return stepped(lambda p: make(p, **{**COMMON, **faults}), state, z, noise * xi)

    zero = step(np.zeros(size), np.zeros(2))
    np.testing.assert_allclose(zero, 0.0, atol=1e-15)
    a = np.stack([step(e, np.zeros(2)) for e in np.eye(size)], axis=1)
    b = np.stack([step(np.zeros(size), e) for e in np.eye(2)], axis=1)
    return stationary_law(AffineStep(a, b @ b.T)).covariance[:2, :2]


@pytest.mark.parametrize("name", CASES)
def test_the_covariance(name):
    np.testing.assert_allclose(covariance(name), CASES[name][1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "fault", [{"num_data": 1}, {"noise": np.sqrt(0.5)}, {"temperature": 1.0}, {"prior": None}]
)
def test_a_fault_is_seen(name, fault):
    """A forgotten N, noise sqrt(h T) for sqrt(2 h T), a forgotten T, a forgotten prior."""
    right = CASES[name][1]
    assert np.max(np.abs(covariance(name, **fault) - right)) > 0.05 * np.max(right)
