"""Brownian paths, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Brownian paths")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import brownian

    return brownian, charts, controls, mo, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("brownian")
        + r"""

All samplers of this gallery are driven by the same noise. Take everything else away: with
$U = 0$ a Langevin step is $x_{t+h} = x_t + \sqrt{2 D h}\,\xi$, and the path is Brownian motion,
$dx = \sqrt{2 D}\,dW$.

After time $t$ a path is a draw of $N(0, 2 D t)$: ten times as far takes a hundred times as long,
which is what a sampler that only diffuses pays. The squares of its increments add up to $2 D t$ on
*every* path, the more exactly the finer time is cut: this is why the noise of a step of size $h$
has the size $\sqrt{h}$ and not $h$.

Try more increments on the right: the paths stay as random as they were, and their quadratic
variations close in on the line.
"""
    )
    return


@app.cell
def _controls(controls):
    paths = controls.slider("paths", 64, [4, 8, 16, 32, 64, 128, 256])
    time = controls.scale("time $t$", 1.0, 0.25, 4.0, 0.25)
    diffusion = controls.scale("diffusion $D$", 1.0, 0.1, 4.0, 0.1)
    pieces = controls.slider("increments", 32, [8, 16, 32, 64, 128, 256, 512])
    again = controls.again()
    controls.row(paths, time, diffusion, pieces, again)
    return again, diffusion, paths, pieces, time


@app.cell
def _picture(again, brownian, charts, diffusion, mo, paths, pieces, results, time):
    result = results.once(brownian.run, diffusion.value, time.value, paths.value, again.value)
    far = 3.2 * result.exact_spread
    left = charts.threads(
        result.path_table(), "time", "position", "path", y_range=(-far, far), title="Paths"
    ) + charts.lines(
        result.spread_table(), "time", "position", "curve", detail="side",
        colours={"sd of the paths": charts.BLUE, "sqrt(2 D t)": charts.EXACT},
        dashed=["sqrt(2 D t)"], y_range=(-far, far),
    )  # fmt: skip
    right = charts.threads(
        result.variation_table(pieces.value), "time", "quadratic variation", "path",
        colour=charts.BLUE, y_range=(0.0, 2.0 * result.exact_spread**2),
        title="Sums of squared increments",
    ) + charts.lines(
        result.variance_table(), "time", "quadratic variation", "curve",
        colours={"2 D t": charts.EXACT}, dashed=["2 D t"],
    )  # fmt: skip
    sums = result.variation(pieces.value)[1][:, -1]
    mo.vstack(
        [
            charts.beside(left, right),
            mo.md(
                f"Spread {result.spread:.3f}, exact {result.exact_spread:.3f}. Quadratic variation "
                f"{sums.mean():.3f} with an sd of {sums.std():.3f} between paths; exact "
                f"{result.exact_spread**2:.3f} and, for {pieces.value} increments, "
                f"{result.exact_spread**2 * (2 / pieces.value) ** 0.5:.3f}."
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

free = ex.Target(lambda x: 0.0 * x.sum())                  # U = 0
kernel = ex.sgld(ex.FullGradient(free), step_size=1 / 512, temperature=1.0)
samples = ex.sample(kernel, jnp.zeros(1), 512, num_chains=64, key=jax.random.key(0))
print(samples.position[:, -1].std())                       # sqrt(2 D t) = 1.41
print((samples.position[:, 1:] - samples.position[:, :-1]).var(axis=1).mean() * 512)   # 2 D t = 2
```
""")
    return


if __name__ == "__main__":
    app.run()
