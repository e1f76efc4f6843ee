"""devinterp's estimate of a linear network, in an interpreter that has it: `python peer.py FILE`.

FILE (.npz) has x, y and the layers w0, w1, ... of a case with rows, t and gamma. A line of JSON a
setting: all of devinterp's own but the learning rate and n beta, which it asks for, and the
localization, so that the estimand is the same.
"""

# pyright: reportMissingImports=false
import json
import sys
import time
import warnings

import numpy as np
import torch
from datasets import Dataset
from devinterp.slt.llc import llc

METHODS = "sgmcmc_sgld", "rmsprop_sgld"
RATES = 1e-2, 1e-3, 1e-4, 1e-5  # the first is that of devinterp's SGLD


class LinearNetwork(torch.nn.Module):
    """Layers without activations."""

    def __init__(self, layers: list[np.ndarray]) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterList([torch.nn.Parameter(torch.tensor(w)) for w in layers])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs of rows."""
        for layer in self.layers:
            x = x @ layer.T
        return x


def main(file: str) -> None:
    """A line a setting."""
    with np.load(file) as saved:
        count = sum(name.startswith("w") for name in saved)
        network = LinearNetwork([saved[f"w{k}"] for k in range(count)])
        x, y = torch.tensor(saved["x"]), torch.tensor(saved["y"])
        t, gamma = float(saved["t"]), float(saved["gamma"])

    def loss(model: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
        chosen = rows[:, 0]  # devinterp takes tokens; these are numbers of rows
        return 0.5 * ((y[chosen] - model(x[chosen])) ** 2).sum(dim=1, keepdim=True)

    numbers = np.repeat(np.arange(len(x))[:, None], 2, axis=1)
    rows = Dataset.from_dict({"input_ids": numbers}).with_format("torch")
    for method in METHODS:
        for rate in RATES:
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = llc(
                    network, rows, {}, lr=rate, n_beta=t, loss_fn=loss, localization=gamma,
                    sampling_method=method, device="cpu",
                )  # fmt: skip
            told = {name: float(found[name]) for name in ("llc_mean", "llc_std")}
            seconds = time.perf_counter() - began
            print(json.dumps({"method": method, "rate": rate, "seconds": seconds, **told}))


if __name__ == "__main__":
    main(sys.argv[1])
