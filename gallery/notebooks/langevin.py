"""Langevin dynamics between two wells, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Langevin dynamics between two wells")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import langevin

    return charts, controls, langevin, mo, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("langevin")
        + r"""

Downhill, plus noise: $x^+ = x - h\,U'(x) + N(0, 2 h T)$. In the limit of small steps the law is
$e^{-U/T}$. 64 chains start in the left well, and each takes 2,000 steps.

Two errors can be told apart here, because in one dimension the law of the *steps* can be computed
as well. Where the histogram differs from the dashed curve, the chains have not run for long enough:
lower the temperature, and they stay where they began. Where the dashed curve differs from the black
one, the step is too large, and running for longer does not help.

Try a large step on the double well: its force grows like $x^3$, so a chain that is thrown far out
is thrown back further, until it leaves the finite numbers. The mixture's force grows like $x$, and
its chains stand larger steps.
"""
    )
    return


@app.cell
def _controls(controls, langevin, mo):
    target = mo.ui.dropdown(list(langevin.TARGETS), value="double well", label="target")
    step_size = controls.slider(
        "step size $h$", 0.03, [0.005, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.1, 0.12]
    )
    temperature = controls.scale("temperature $T$", 0.5, 0.2, 1.5, 0.05)
    again = controls.again()
    controls.row(target, step_size, temperature, again)
    return again, step_size, target, temperature


@app.cell
def _picture(again, charts, langevin, mo, results, step_size, target, temperature):
    wells = results.once(
        langevin.run, target.value, step_size.value, temperature.value, again.value
    )
    left = charts.threads(
        wells.path_table(), "step", "x", "path", colour=charts.BLUE, opacity=0.6,
        y_range=(-2.5, 2.5), title="Two of the chains",
    )  # fmt: skip
    right = charts.bars(wells.bars(), "x", x_range=(-2.5, 2.5), title="All draws") + charts.lines(
        wells.density_table(), "x", "density", "law", x_range=(-2.5, 2.5),
        colours={"exact": charts.EXACT, "exact law of the steps": charts.ORANGE},
        dashed=["exact law of the steps"],
    )  # fmt: skip
    exact = wells.on_grid(wells.exact)
    found = f"E x² exactly {exact.square:.4f}, P(x > 0) {exact.right:.3f}."
    if wells.steps is None:
        found += " The steps have no stationary law: far out they overshoot."
    else:
        law = wells.on_grid(wells.steps)
        found += f" Of the law of the steps {law.square:.4f} and {law.right:.3f}."
    if wells.chains.diverged is None:
        chains = wells.by_chains
        found += (
            f" Of the chains {chains.square:.4f} ± {wells.error:.4f} and {chains.right:.3f}, with "
            f"{wells.crossings} crossings in 128,000 steps."
        )
    else:
        found += f" A chain diverged at step {wells.chains.diverged}."
    mo.vstack([charts.beside(left, right), mo.md(found)])
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import jax.numpy as jnp
import ergodax as ex

wells, h, temperature = ex.targets.double_well(1.5), 0.03, 0.5
kernel = ex.sgld(ex.FullGradient(wells), h, temperature=temperature)
samples = ex.sample(kernel, jnp.array([-1.0]), 2000, num_chains=64, key=jax.random.key(0))
law = ex.verify.transition_law(lambda x: -wells.gradient(x), lambda x: temperature, h,
                               ex.verify.Axis(-3.0, 3.0, 150))
print((samples.position**2).mean(), law.mean(lambda x: x[0] ** 2))
```
""")
    return


if __name__ == "__main__":
    app.run()
