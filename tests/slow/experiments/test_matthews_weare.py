"""The experiments of Matthews and Weare: their exact laws against the samplers themselves."""

import html
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import ergodax as ex
from experiments import __main__ as main
from experiments.matthews_weare_2018 import autocorrelation, mixture
from experiments.matthews_weare_2018 import noise_orders as orders


def test_the_quadrature_agrees_with_hamiltonian_monte_carlo():
    """Mean and variances, within 6 standard errors over 64 chains."""
    mode, moments = mixture.quadrature(mixture.make_data())
    model = mixture.posterior(mixture.make_data())
    samples = ex.sample(
        ex.hmc(ex.FullGradient(model), 0.05, num_leapfrog_steps=6), jnp.asarray(mode, float), 60,
        num_chains=64, burn_in=10, key=jax.random.key(1), progress=False,
    )  # fmt: skip
    z = (samples.position - moments.mean) / np.sqrt(np.diag(moments.covariance))
    means, squares = z.mean(axis=1), (z**2).mean(axis=1)
    for values, exact in ((means, 0.0), (squares, 1.0)):
        error = values.std(axis=0, ddof=1) / 8.0
        assert np.all(np.abs(values.mean(axis=0) - exact) < 6.0 * error)  # t with 63: 1e-7
        assert np.all(error < 0.1)


SMALL = {
    "noise-orders": (orders, orders.Size((0.2, 0.15, 0.1), 4, 4, 32), 12),
    "autocorrelation": (autocorrelation, autocorrelation.Size((4.0,), 3, 2, 50.0), 120),
    "mixture": (mixture, mixture.Size((256,), (2, 4), 3), 4),
}


@pytest.mark.parametrize("name", SMALL)
def test_the_files(monkeypatch, capsys, tmp_path, name):
    module, size, count = SMALL[name]
    monkeypatch.setattr(module, "QUICK", size)
    if module is orders:  # the forms are looked at here, not the laws
        exact = lambda case, *_: orders.Law(case.grid.x, case.probabilities(case.grid.x))  # noqa: E731
        monkeypatch.setattr(orders, "stationary", exact)
        few = {name: orders.SAMPLERS[name] for name in ("NOGIN", "SGLD")}
        monkeypatch.setattr(orders, "SAMPLERS", few)
    if module is mixture:
        few = {name: mixture.SAMPLERS[name] for name in ("BAOAB", "NOGIN, the batch's own")}
        monkeypatch.setattr(mixture, "SAMPLERS", few)
    folder = tmp_path / "out"
    arguments = ["experiments", name, "--quick", "--seed", "3", "--output", str(folder)]
    monkeypatch.setattr(sys, "argv", [*arguments, "--json"])
    with pytest.raises(SystemExit) as stop:
        main.main()
    out = capsys.readouterr().out
    assert stop.value.code == 0
    written = {path.name for path in folder.iterdir()}
    assert written == {f"{name}.png", f"{name}.csv", "facts.json", "report.html"}
    facts = json.loads(out)
    assert facts["seed"] == 3 and len(pd.read_csv(folder / f"{name}.csv")) == count
    page = (folder / "report.html").read_text()
    assert all(verdict in html.unescape(page) for verdict in facts["verdicts"])
