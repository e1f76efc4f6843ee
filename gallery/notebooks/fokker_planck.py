"""An Ornstein-Uhlenbeck law in time, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="A law that moves")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import fokker_planck

    return charts, controls, fokker_planck, mo, pages, results


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("fokker_planck")
        + r"""

A single chain jumps about; the law of the chain flows. For $dx = f\,dt + \sqrt{2 D}\,dW$ the
density solves the Fokker-Planck equation $\partial_t p = -\partial_x (f p) + \partial_x^2 (D p)$,
without any randomness. Here $f = -\gamma x$ and $D = \gamma T$, the Ornstein-Uhlenbeck process: all
chains start at one point $x_0$, and at time $t$ the law is exactly
$N\!\left(x_0 e^{-\gamma t},\; T (1 - e^{-2 \gamma t})\right)$.

On the left the equation solved on a grid, with the exact mean and two standard deviations; on the
right 4,096 chains at the last time. Three ways to the same law.

Try a larger friction: the start is forgotten sooner, the law in the end is the same. The
temperature changes the width and nothing else.
"""
    )
    return


@app.cell
def _controls(controls):
    time = controls.scale("time $t$", 0.8, 0.1, 3.0, 0.1)
    friction = controls.scale(r"friction $\gamma$", 1.0, 0.2, 3.0, 0.1)
    temperature = controls.scale("temperature $T$", 0.5, 0.1, 2.0, 0.1)
    start = controls.scale("start $x_0$", 2.5, -3.0, 3.0, 0.5)
    again = controls.again()
    controls.row(time, friction, temperature, start, again)
    return again, friction, start, temperature, time


@app.cell
def _picture(again, charts, fokker_planck, friction, mo, results, start, temperature, time):
    law = results.once(
        fokker_planck.run, time.value, friction.value, temperature.value, start.value, again.value
    )
    left = charts.shades(
        law.picture_table(), "time", "x", "density", y_range=(-5.0, 5.0), title="The law in time"
    ) + charts.lines(
        law.band_table(), "time", "x", "curve", detail="part", dashed=["two sd"],
        colours={"exact mean": charts.EXACT, "two sd": charts.EXACT}, width=1.5,
    )  # fmt: skip
    right = charts.bars(
        law.bars(), "x", colour=charts.BLUE, x_range=(-5.0, 5.0), title=f"At time {time.value:g}"
    ) + charts.lines(
        law.density_table(), "x", "density", "law",
        colours={"Fokker-Planck on a grid": charts.ORANGE, "exact": charts.EXACT},
        dashed=["exact"],
    )  # fmt: skip
    rows = {
        "Chains": law.by_chains, "Fokker-Planck": law.by_grid, "Exact": law.by_formula
    }  # fmt: skip
    found = ". ".join(f"{name}: mean {m.mean:.3f}, sd {m.sd:.3f}" for name, m in rows.items())
    mo.vstack([charts.beside(left, right), mo.md(found + ".")])
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import jax.numpy as jnp
import ergodax as ex

friction, temperature, start, time = 1.0, 0.5, 2.5, 0.8
target = ex.targets.gaussian(0.0, 1.0)
kernel = ex.sgld(ex.FullGradient(target), time / 256, preconditioner=friction,
                 temperature=temperature)
samples = ex.sample(kernel, jnp.array([start]), 256, thin=256, num_chains=4096,
                    key=jax.random.key(0))
print(samples.position.mean(), samples.position.std())      # 1.123 and 0.632, nearly

equation = ex.verify.fokker_planck(lambda x: -friction * x, lambda x: friction * temperature,
                                   ex.verify.Axis(-6.0, 6.0, 240))
law = equation.evolve(equation.point_mass([start]), time)
print(equation.mean(lambda x: x[0], law))
```
""")
    return


if __name__ == "__main__":
    app.run()
