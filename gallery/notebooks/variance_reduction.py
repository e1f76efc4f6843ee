"""Gradient estimators with less noise, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Gradients with less noise")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import variance_reduction

    return charts, controls, mo, pages, results, variance_reduction


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("variance_reduction")
        + r"""

SGLD on a linear regression with 1000 rows, by four estimators of the same gradient. A *plain
batch* is as noisy at the mode as anywhere, and its noise heats the chain. The others estimate
only the difference from a place where the gradient is known: *control variates* from the mode,
*SVRG* from a snapshot of the chain that is renewed from time to time by a pass over all data,
*SAGA* from a table of each row's last gradient. Their noise falls with the distance from there.

Try a start far away: control variates are worse than plain batches until the chain comes near the
mode, while SVRG and SAGA go with the chain. Then a long period for SVRG: its noise becomes a saw,
zero at each snapshot. On the right is the law of the coefficients that each chain draws from, in
posterior standard deviations; with small batches and long steps only the plain one is wide.
"""
    )
    return


@app.cell
def _controls(controls, variance_reduction):
    distance = controls.scale("start, in posterior sds", 20, 0, 40, 2)
    step = controls.slider("step size", 0.05, [0.01, 0.02, 0.03, 0.05, 0.1, 0.2])
    period = controls.slider("period of SVRG", 50, [5, 10, 20, 50, 100, 200])
    batch = controls.slider("batch size", 30, variance_reduction.BATCH_SIZES)
    again = controls.again()
    controls.row(distance, step, period, batch, again)
    return again, batch, distance, period, step


@app.cell
def _picture(again, batch, charts, distance, mo, pages, period, results, step, variance_reduction):
    result = results.once(
        variance_reduction.run,
        batch.value,
        step.value,
        period.value,
        float(distance.value),
        again.value,
    )
    plain, centred, svrg, saga = variance_reduction.ESTIMATORS
    colours = {
        "exact": charts.EXACT, plain: charts.ORANGE, centred: charts.BLUE, svrg: charts.GREEN,
        saga: charts.PURPLE,
    }  # fmt: skip
    noise = result.noise()
    along = charts.lines(
        noise, "step", "variance of the gradient", "estimator", colours=colours, log_y=True,
        y_range=charts.room(noise["variance of the gradient"]), width=1.5,
        title="Noise, in units of a plain batch at the mode",
    )  # fmt: skip
    laws = charts.lines(
        result.laws(), "coefficient", "density", "estimator", colours=colours,
        y_range=(0.0, 0.45),
        title=f"Law of the coefficients after {variance_reduction.BURN_IN} steps",
    )  # fmt: skip
    rows = (
        (
            row["estimator"], f"{row['variance of the gradient']:.2g}", f"{row['sd']:.3f}",
            f"{row['exact sd']:.3f}".replace("nan", ""), f"{row['gradients a step']:.0f}",
        )
        for row in result.table().to_dict("records")
    )  # fmt: skip
    headings = (
        "estimator", "variance of the gradient", "sd (posterior: 1)", "exact sd of the chain",
        "gradients a step",
    )  # fmt: skip
    mo.vstack([charts.beside(along, laws), mo.md(pages.table(headings, rows))])
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import jax.numpy as jnp
import ergodax as ex

x = jax.random.normal(jax.random.key(1), (1000, 3))
y = x.sum(axis=1) + jax.random.normal(jax.random.key(2), (1000,))
posterior = ex.Posterior(
    lambda w: -0.05 * jnp.sum(w**2), lambda w, row: -0.5 * (row[1] - row[0] @ w) ** 2, (x, y)
)
mode = ex.find_mode(posterior, jnp.zeros(3))
for gradient in (
    ex.Minibatch(posterior, 30), ex.ControlVariate(posterior, 30, mode),
    ex.SVRG(posterior, 30, period=50), ex.SAGA(posterior, 30),
):
    samples = ex.sample(ex.sgld(gradient, 5e-5), mode.position, 2_000, key=jax.random.key(0))
    print(type(gradient).__name__, samples.position.std(axis=(0, 1)) * 1000**0.5)
```
""")
    return


if __name__ == "__main__":
    app.run()
