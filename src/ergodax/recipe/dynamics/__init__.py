"""The named recipes: each function returns the (H, D, Q) of a row of the method table.

The functions of a recipe are methods of small modules rather than closures, so that two
recipes that differ only in their numbers share one compiled program.
"""

from ergodax.recipe.dynamics.counterexamples import (
    determinant_corrected_langevin,
    naive_riemannian_langevin,
    naive_riemannian_underdamped,
    without_correction,
)
from ergodax.recipe.dynamics.momentum import hamiltonian, nose_hoover, underdamped
from ergodax.recipe.dynamics.overdamped import irreversible_langevin, langevin, riemannian_langevin
from ergodax.recipe.dynamics.riemannian import riemannian_hamiltonian, riemannian_underdamped

__all__ = [
    "determinant_corrected_langevin",
    "hamiltonian",
    "irreversible_langevin",
    "langevin",
    "naive_riemannian_langevin",
    "naive_riemannian_underdamped",
    "nose_hoover",
    "riemannian_hamiltonian",
    "riemannian_langevin",
    "riemannian_underdamped",
    "underdamped",
    "without_correction",
]
