"""Bias and variance of averages, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Bias, variance and the step size")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import bias

    return bias, charts, controls, mo, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("bias")
        + r"""

The posterior of the mean of 64 observations, by SGLD with batches of $n$ of them. In units of the
posterior's variance the chain with step $h$ has the stationary variance $(1 + h v / 2) / (1 - h /
2)$, $v$ being the variance of the batch's gradient: a *bias* of order $h$. An average over $T$
steps has about $T h / 2$ effective draws: a *spread* of order $1 / \sqrt{T h}$. Small steps are
unbiased and slow, large ones fast and wrong.

The squares add up, and the step that is best for a length falls as $T^{-1/3}$, the error with it
as $T^{-1/3}$ too, in place of the $T^{-1/2}$ of a sampler without bias. At a fixed step the error
stops falling altogether: on the right it levels off at the bias.

Try batches of 1: nearly all of the bias is the batch's. Then look at the *mean*: on a Gaussian it
has no bias at any step size or batch size, and long steps are simply better. A test that looks at
means alone sees nothing of all this.
"""
    )
    return


@app.cell
def _controls(bias, controls, mo):
    step = controls.slider(
        "step size $h$", 0.1, [0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0]
    )
    length = controls.slider("steps $T$", 1000, [30, 50, 100, 200, 300, 500, 1000, 2000])
    batch = controls.slider("batch size $n$", 4, bias.BATCH_SIZES)
    quantity = mo.ui.dropdown(list(bias.QUANTITIES), value="variance", label="average of")
    again = controls.again()
    controls.row(step, length, batch, quantity, again)
    return again, batch, length, quantity, step


@app.cell
def _compute(again, batch, bias, results, step):
    result = results.once(bias.run, batch.value, step.value, again.value)
    return (result,)


@app.cell
def _picture(batch, bias, charts, length, mo, quantity, result):
    what, steps = quantity.value, length.value
    parts = {"total": charts.EXACT, "spread": charts.BLUE, "bias": charts.ORANGE}
    log = {"log_x": True, "log_y": True, "x_range": (0.9 * bias.LEAST, 1.1 * bias.MOST)}
    exact, measured = result.by_step(steps, what), result.measured_by_step(steps, what)
    log["y_range"] = charts.room(exact["error"], measured["error"])
    by_step = (
        charts.lines(
            exact, "step size", "error", "part", colours=parts, **log,
            title=f"Error of the {what} after {steps} steps",
        )
        + charts.points(measured, "step size", "error", colours=charts.GREY, size=50.0, **log)
        + charts.upright("step size", result.step)
    )  # fmt: skip
    log["x_range"] = (0.9 * bias.SHORTEST, 1.1 * bias.LONGEST)
    colours = {"this step size": charts.EXACT, "best for each length": charts.GREEN}
    exact, measured = result.by_length(what), result.measured_by_length(what)
    log["y_range"] = charts.room(exact["error"], measured["error"])
    by_length = (
        charts.lines(
            exact, "steps", "error", "with", colours=colours, dashed=["best for each length"],
            **log, title=f"Error at step size {result.step:g}",
        )
        + charts.points(measured, "steps", "error", colours=charts.GREY, size=50.0, **log)
        + charts.upright("steps", steps)
    )  # fmt: skip
    found, error = result.measured_bias()
    mo.vstack(
        [
            charts.beside(by_step, by_length),
            mo.md(
                f"Bias of the variance at step size {result.step:g}: {found:.3f} ± {error:.3f} "
                f"measured, {result.exact_bias():.3f} exact. Best step size for {steps} steps, "
                f"which are {steps * batch.value:,} gradients: "
                f"{result.best_step(steps, what):.3g}. Dots are chains, curves exact."
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

y = jax.random.normal(jax.random.key(1), (64,))
posterior = ex.Posterior(lambda m: -0.005 * m**2, lambda m, y: -0.5 * (y - m) ** 2, y)
for h in (0.3, 0.1, 0.03):                                    # in units of the posterior's variance
    kernel = ex.sgld(ex.Minibatch(posterior, 8, replace=True), h / 64)
    samples = ex.sample(kernel, y.mean(), 2_000, num_chains=64, key=jax.random.key(0))
    print(h, samples.position.var() * 64 - 1)                 # the bias, about h 8 / 2 + h / 2
```
""")
    return


if __name__ == "__main__":
    app.run()
