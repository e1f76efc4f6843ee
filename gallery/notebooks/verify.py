"""Refuting and correcting a sampler, a marimo notebook."""

import marimo

__generated_with = "0.25.2"
app = marimo.App(width="medium", app_title="Refuted, then corrected")


@app.cell
def _imports():
    import marimo as mo

    from gallery import charts, controls, pages, results
    from gallery.figures import verify

    return charts, controls, mo, pages, results, verify


@app.cell
def _text(mo, pages):
    mo.md(
        pages.heading("verify")
        + r"""

Let a particle on a double well be slow where $|x|$ is large: $D(x) = 1 / (1 + a x^2)$, and

$$dx = (-D\,U' + c\,D')\,dt + \sqrt{2 D}\,dW.$$

Only with all of $\Gamma = D'$, that is with $c = 1$, is $e^{-U}$ its law; else it is $e^{-U}
D^{c-1}$. Many have left $\Gamma$ out, or have put in a half of it. No small step and no long run
mends that, and the chains agree with each other whatever $c$ is.

`verify.sde` tells without running a chain. It computes the divergence of the probability current
over the density, which is zero everywhere if and only if the density is the law, and names the
term at fault.
"""
    )
    return


@app.cell
def _controls(controls):
    share = controls.scale(r"share $c$ of $\Gamma$", 0.0, 0.0, 2.0, 0.25)
    strength = controls.slider("strength $a$ of the metric", 2.0, [0.0, 0.5, 1.0, 2.0, 4.0, 8.0])
    again = controls.again()
    controls.row(strength, share, again)
    return again, share, strength


@app.cell
def _compute(again, results, share, strength, verify):
    found = results.once(verify.run, share.value, strength.value, again.value)
    return (found,)


@app.cell
def _picture(charts, found, mo, verify):
    inside = (-verify.EDGE, verify.EDGE)
    colours = {verify.RIGHT: charts.EXACT, verify.OFF: charts.ORANGE}
    law = charts.bars(
        found.bars(), "x", x_range=inside, title="Chains, their law and the one that is wanted"
    ) + charts.lines(
        found.densities(), "x", "density", "law", colours=colours, dashed=[verify.OFF],
        x_range=inside,
    )  # fmt: skip
    residual = charts.lines(
        found.residual(), "x", "div J / pi", colours=charts.ORANGE, x_range=inside,
        y_range=(-6.0, 6.0), title="Residual of the stationary equation",
    ) + charts.level(0.0)  # fmt: skip
    right, law_of, chains = found.square
    mo.vstack(
        [
            charts.beside(law, residual),
            mo.md(
                f"E x²: {right:.3f} is wanted, {law_of:.3f} is the equation's, "
                f"{chains:.3f} the chains'."
            ),
        ]
    )
    return


@app.cell
def _verdict(found, mo, verify):
    mo.md(f"`verify.sde` says:\n\n```text\n{verify.verdict(found.equation)}\n```")
    return


@app.cell
def _code(mo):
    mo.md(r"""
## The same in code

```python
import jax
import jax.numpy as jnp
import ergodax as ex

wells = ex.targets.double_well(1.0)

def diffusion(x):
    return 1.0 / (1.0 + 2.0 * x**2)

def drift(x):                                                 # Gamma is left out
    return -diffusion(x) * jax.grad(wells.potential)(x)

print(ex.verify.sde(drift, diffusion, wells.potential, dimension=1))

recipe = ex.Recipe(diffusion=lambda z: {"position": diffusion(z["position"])})
print(ex.verify.recipe(recipe, wells))                        # the library puts it in
```
""")
    return


if __name__ == "__main__":
    app.run()
