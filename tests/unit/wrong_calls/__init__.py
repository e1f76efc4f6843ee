"""Wrong calls, by the room that they are made in."""

from unit.wrong_calls import (
    equations,
    estimators,
    grids,
    inference,
    library,
    modes,
    recipes,
    subsets,
)

ROOMS = {
    "library": library.CASES,
    "equations": equations.CASES,
    "recipes": recipes.CASES,
    "estimators": estimators.CASES,
    "grids": grids.CASES,
    "inference": inference.CASES,
    "modes": modes.CASES,
    "subsets": subsets.CASES,
}
CASES = {f"{room}: {name}": case for room, cases in ROOMS.items() for name, case in cases.items()}
