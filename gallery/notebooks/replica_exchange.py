"""Replica exchange between two modes, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Over a barrier by exchange")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import replica_exchange

    return charts, controls, mo, pages, replica_exchange, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("replica_exchange")
        + r"""

Two normal modes, the left one with 0.3 of the mass and the right one with 0.7. All chains begin on
the left. A plain chain stays there when the modes are far apart, and nothing that it draws tells of
the other one.

Replica exchange runs four copies at the temperatures $1, T^{1/3}, T^{2/3}, T$. The hot ones cross
the barrier. After every ten steps neighbours change places, with a probability that leaves the law
of each right, so what the hot ones find comes down to the cold one with the right weight.

Take the modes farther apart: a hottest temperature that was enough no longer is. Raise it, and the
neighbours' laws lie farther apart too; where they hardly exchange places (a rate below 0.2) there
should be more of them.
"""
    )
    return


@app.cell
def _controls(controls):
    apart = controls.scale("distance of the modes from 0", 3.0, 1.0, 6.0, 0.5)
    hottest = controls.slider("hottest temperature $T$", 27.0, [1.5, 3.0, 9.0, 27.0, 81.0])
    again = controls.again()
    controls.row(apart, hottest, again)
    return again, apart, hottest


@app.cell
def _compute(again, apart, hottest, replica_exchange, results):
    found = results.once(replica_exchange.run, apart.value, hottest.value, again.value)
    return (found,)


@app.cell
def _picture(charts, found, mo, replica_exchange):
    plain, exchanged = replica_exchange.PLAIN, replica_exchange.EXCHANGED
    colours = {plain: charts.ORANGE, exchanged: charts.BLUE, "exact": charts.EXACT}
    ends = (-found.apart - 2.5, found.apart + 2.5)
    traces = charts.lines(
        found.traces(), "step", "x", "sampler", colours=colours, width=1.0, y_range=ends,
        title="A chain of each",
    )  # fmt: skip
    laws = charts.lines(
        found.densities(), "x", "density", "sampler", colours=colours, x_range=ends,
        title="All draws",
    )  # fmt: skip
    shares = "; ".join(
        "{}: {:.3f} ± {:.3f}".format(name, *found.share(name)) for name in (plain, exchanged)
    )
    rates = ", ".join(f"{rate:.2f}" for rate in found.swap_rates)
    mo.vstack(
        [
            charts.beside(traces, laws),
            mo.md(
                f"Share of the right-hand mode, which has {replica_exchange.SHARE}: {shares}. "
                f"Neighbours change places with the probabilities {rates}."
            ),
        ]
    )
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import jax.numpy as jnp
import ergodax as ex

target = ex.targets.mixture([[-3.0], [3.0]], 0.25, [0.3, 0.7])
gradient = ex.FullGradient(target)
start, run = jnp.full(1, -3.0), {"num_chains": 16, "thin": 10, "key": jax.random.key(0)}
plain = ex.sample(ex.sgld(gradient, 0.05), start, 12_000, **run)
replicas = ex.replica_exchange(ex.sgld, gradient, 0.05, temperatures=(1.0, 3.0, 9.0, 27.0))
exchanged = ex.sample(replicas, start, 12_000, burn_in=2_000, **run)
for samples in (plain, exchanged):
    print((samples.position > 0).mean())                      # 0 and about 0.7
```
""")
    return


if __name__ == "__main__":
    app.run()
