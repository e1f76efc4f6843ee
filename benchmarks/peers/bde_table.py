"""bde's regressor on a table, in an interpreter that has it: FILE SHARE MEMBERS SEED.

FILE has x, x_test, y and y_test, standardised. The settings are those of bde's own comparison: four
hidden layers of 16, 1,200 epochs of AdamW at most, 50,000 steps of warm-up, 1,000 samples, every
tenth kept. SHARE of warm-up and samples is run. It prints, as JSON, RMSE, NLL and seconds of all
cores.
"""

import json
import sys
import time

import numpy as np
from bde import BdeRegressor  # pyright: ignore[reportMissingImports]
from bde.loss import GaussianNLL  # pyright: ignore[reportMissingImports]


def main(file: str, share: float, members: int, seed: int) -> None:
    """Fit, predict, print."""
    table = np.load(file)
    model = BdeRegressor(
        n_members=members,
        hidden_layers=[16, 16, 16, 16],
        loss=GaussianNLL(),
        epochs=1200,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        warmup_steps=max(1, round(50_000 * share)),
        n_samples=max(10, round(1_000 * share)),
        n_thinning=10,
        patience=20,
        seed=seed,
    )
    began = time.process_time()
    model.fit(table["x"], table["y"])
    mean, sd = (np.asarray(z) for z in model.predict(table["x_test"], mean_and_std=True))
    seconds = time.process_time() - began
    off = table["y_test"] - mean.ravel()
    density = -0.5 * (off / sd.ravel()) ** 2 - np.log(sd.ravel()) - 0.5 * np.log(2.0 * np.pi)
    rmse = float(np.sqrt(np.mean(off**2)))
    print(json.dumps({"rmse": rmse, "nll": -float(density.mean()), "seconds": seconds}))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
