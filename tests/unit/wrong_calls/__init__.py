"""Wrong calls, by the room that they are made in."""

from unit.wrong_calls import equations, grids, library

ROOMS = {"library": library.CASES, "equations": equations.CASES, "grids": grids.CASES}
CASES = {f"{room}: {name}": case for room, cases in ROOMS.items() for name, case in cases.items()}
