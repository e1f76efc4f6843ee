"""SGLD with full gradients, minibatches and falling steps, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Stochastic gradients and decreasing steps")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import sgld

    return charts, controls, mo, pages, results, sgld


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("sgld")
        + r"""

The mean of 1,024 draws of $N(\mu, 1)$: the posterior is normal, with precision $k \approx 1024$,
and the law of every chain is known exactly. A step of SGLD with the gradient of a batch of $n$ rows
has two sources of noise: $N(0, 2h)$, which is meant, and $h^2 V$ with $V \approx N^2 / n$, which is
not. The standard deviation becomes

$$\text{sd} = \text{posterior sd} \times \sqrt{\frac{1 + h V / 2}{1 - h k / 2}}.$$

The heat $hV/2$ vanishes with the step size, not with the number of steps. A falling step size
$h\,(1 + t/20)^{-p}$ removes it slowly; its draws must be weighted by their step sizes, since each
stands for the time $h_t$.

Try batches of 128 and of 2 at the same step size, and then a step size ten times smaller: the law
comes right, and neighbouring draws are nearly equal. All chains start at the posterior mean.
"""
    )
    return


@app.cell
def _controls(controls, sgld):
    batch_size = controls.slider("batch size $n$", 8, sgld.BATCH_SIZES)
    relative_step = controls.slider(
        "step size $h k$", 0.1, [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0]
    )
    power = controls.scale("power $p$", 0.5, 0.1, 1.0, 0.05)
    again = controls.again()
    controls.row(batch_size, relative_step, power, again)
    return again, batch_size, power, relative_step


@app.cell
def _picture(again, batch_size, charts, mo, power, relative_step, results, sgld):
    variants = results.once(
        sgld.run, relative_step.value, batch_size.value, power.value, again.value
    )
    colours = {
        sgld.FULL: charts.BLUE, sgld.BATCH: charts.ORANGE, sgld.FALLING: charts.GREEN,
        "posterior": charts.EXACT,
    }  # fmt: skip
    far = "posterior sds from the mean"
    traces = charts.lines(
        variants.trace_table(), "step", far, "variant", colours=colours, width=1.0,
        title="A chain of each",
    )  # fmt: skip
    densities = charts.lines(
        variants.density_table(), far, "density", "variant", colours=colours,
        dashed=["posterior"], title="All draws, weighted by step size",
    )  # fmt: skip
    running = charts.lines(
        variants.running_table(), "step", "sd so far", "variant", colours=colours, log_x=True,
        title="Standard deviation so far; dashed: exactly",
    ) + charts.threads(
        variants.exact_running_table(), "step", "sd so far", "variant", colour=charts.EXACT,
        opacity=1.0, dash=[5, 4], log_x=True,
    )  # fmt: skip
    batches = charts.lines(
        variants.batch_table(), "batch size", "stationary sd", "step size", log_x=True,
        title="Exact sd at constant steps, by batch size",
    ) + charts.level(1.0)  # fmt: skip
    found = "; ".join(
        f"{name} {run.sd:.3f}, exactly {run.exact_sd:.3f}" for name, run in variants.runs.items()
    )
    mo.vstack(
        [
            charts.above([traces, densities], [running, batches]),
            mo.md(f"Standard deviation in posterior sds, of {sgld.STEPS:,} steps: {found}."),
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

x = 1.0 + jax.random.normal(jax.random.key(0), (1024, 1))
posterior = ex.Posterior(lambda mu: -0.005 * jnp.sum(mu**2),
                         lambda mu, x: -0.5 * jnp.sum((x - mu) ** 2), data=x)
gradient = ex.Minibatch(posterior, batch_size=8)
for step in 0.1 / 1024, ex.schedule.Polynomial(0.1 / 1024, offset=20.0, power=0.5):
    samples = ex.sample(ex.sgld(gradient, step), x.mean(axis=0), 2000, num_chains=32,
                        key=jax.random.key(1))
    print(32.0 * ex.postprocess.weighted(samples)["sd"])    # in posterior sds
```
""")
    return


if __name__ == "__main__":
    app.run()
