"""Are the derivatives that autodiff finds those of the values? Along segments, by quadrature.

What is hidden from automatic differentiation (stop_gradient, rounding, a custom rule, the jump of
a `where`) is hidden from div D and div Q too, and so from Gamma and from the residual. The values
are not: over an interval their difference is the integral of their slope.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from ergodax.verify.equation import Glance, Glancing

INTERVALS = 8  # of a segment, before any is halved
HALVINGS = 14
SEGMENTS = 1024  # times the dimension, at most; and 4 to 64 of them
SEEN = 1e-3  # of the change over an interval: a gap below is not seen
FLOOR = 1e-6  # of the size of the values, likewise
PROBES = 8  # columns of D and Q that are followed in higher dimensions
FEW = 4  # places of each kind that are looked at closely
WEIGHTS = np.array([1.0, 4.0, 1.0]) / 6.0  # Simpson's

Rows = Float[np.ndarray, "n d"]
Ends = Float[np.ndarray, "segments d"]
PARTS = ("H", "D", "Q", "the drift")


class Hidden(NamedTuple):
    """A change of H, D, Q or the drift that automatic differentiation does not see, and where."""

    part: str
    jumps: bool
    at: Float[np.ndarray, " d"]


class Nodes(NamedTuple):
    """Values and slopes along a segment, and the sizes they are judged by; `which` of PARTS."""

    value: Float[np.ndarray, "*n m"]
    slope: Float[np.ndarray, "*n m"]
    size: Float[np.ndarray, "*n m"]


class Probe:
    """H, D, Q and g at any states, by the program that looks at points.

    Args:
        look: the program, for points and a direction each.
        points: as many as it was compiled for.
    """

    def __init__(self, look: Glancing, points: Rows) -> None:
        self.look, self.count = look, len(points)
        d = points.shape[1]
        random = np.random.default_rng(0).standard_normal((d, PROBES)) / np.sqrt(d)
        self.columns = np.eye(d) if d <= PROBES else random
        width = d * self.columns.shape[1]
        self.which = np.repeat(np.arange(4), [1, width, width, d])

    def raw(self, at: Rows, along: Rows) -> Glance:
        """In chunks as large as those that the program was compiled for."""
        short = -len(at) % self.count
        at, along = (np.concatenate([x, np.repeat(x[-1:], short, axis=0)]) for x in (at, along))
        parts = [
            self.look(jnp.asarray(at[k : k + self.count]), jnp.asarray(along[k : k + self.count]))
            for k in range(0, len(at), self.count)
        ]
        return _joined(parts, len(at) - short)

    def __call__(self, at: Rows, along: Rows) -> Nodes:
        """All values, those of `which` of PARTS, with their slopes."""
        seen = self.raw(at, along)
        n = len(at)
        value, slope = (
            np.concatenate(
                [
                    seen.energy[k][:, None],
                    (seen.diffusion[k] @ self.columns).reshape(n, -1),
                    (seen.curl[k] @ self.columns).reshape(n, -1),
                    seen.field[k],
                ],
                axis=1,
            )
            for k in (0, 1)
        )
        largest = [np.abs(x[0]).reshape(n, -1).max(axis=1) for x in (seen.diffusion, seen.curl)]
        sizes = np.stack([np.abs(seen.energy[0]), *largest, seen.flow], axis=1)
        return Nodes(value, slope, sizes[:, self.which])


def _joined(parts: list[Glance], count: int) -> Glance:
    return jax.tree.map(lambda *x: np.concatenate([np.asarray(y) for y in x])[:count], *parts)


def segments(points: Rows, num_drawn: int | None) -> tuple[Ends, Ends]:
    """From each point drawn to the end of its ray, and to the next; or along an axis."""
    n, d = points.shape
    count = int(np.clip(SEGMENTS // d, 4, 64))
    spread = points.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    if num_drawn is None or num_drawn == n:
        start, rays = points, points + spread * np.eye(d)[np.arange(n) % d]
    else:
        start, rays = points[np.arange(n - num_drawn) % num_drawn], points[num_drawn:]
    joined = points[:num_drawn]
    starts, ends = [start, joined], [rays, np.roll(joined, 1, axis=0)]
    order = np.argsort(np.concatenate([np.arange(len(x)) for x in starts]), kind="stable")[:count]
    return np.concatenate(starts)[order], np.concatenate(ends)[order]


def hidden(look: Glancing, points: Rows, num_drawn: int | None) -> tuple[Hidden, ...]:
    """What automatic differentiation does not see along segments between the points.

    Intervals whose differences are not the integrals of their slopes, by Simpson's rule, are
    halved until they are. Where they never are, the values jump, or have a slope of their own. A
    kink is no fault: div D is then bounded. Nor is a jump of D or Q along a surface that D n or
    Q n does not jump across, n being normal to it: their divergence does not see it either.
    """
    probe = Probe(look, points)
    starts, ends = segments(points, num_drawn)
    keep = np.abs(ends - starts).max(axis=1) > 0
    starts, ends = starts[keep], ends[keep]
    if not len(starts):
        return ()
    track = _Track(probe, starts, ends - starts)
    found: dict[str, Hidden] = {}
    for part, name in enumerate(PARTS):
        if name == "the drift" and found:  # it has what D and Q hide
            break
        for k in np.flatnonzero(track.stays[:, part])[: FEW * 2]:
            fault = track.judged(int(k), part, points.std(axis=0))
            if fault is not None:
                found[name] = fault
                break
    return tuple(found.values())


class _Track:
    """The intervals on which a gap stays, however short they are made."""

    def __init__(self, probe: Probe, origins: Rows, directions: Rows) -> None:
        self.probe = probe
        grid = np.linspace(0.0, 1.0, 2 * INTERVALS + 1)
        which = np.repeat(np.arange(len(origins)), len(grid))
        nodes = probe(
            origins[which] + np.tile(grid, len(origins))[:, None] * directions[which],
            directions[which],
        )
        shape = (len(origins), len(grid), -1)
        value, slope, size = (x.reshape(shape) for x in nodes)
        triples = np.arange(INTERVALS)[:, None] * 2 + np.arange(3)
        value, slope, size = (
            x[:, triples].reshape(-1, 3, x.shape[-1]) for x in (value, slope, size)
        )
        left = np.tile(grid[:-1:2], len(origins))
        owner = np.repeat(np.arange(len(origins)), INTERVALS)
        ratio, gap = self._compared(Nodes(value, slope, size), 1.0 / INTERVALS)
        keep = (ratio > SEEN).any(axis=1)
        self.origin, self.direction = origins[owner[keep]], directions[owner[keep]]
        self.left, self.width = left[keep], 1.0 / INTERVALS
        self.ratio, self.gap = ratio[keep], gap[keep]
        self.nodes = Nodes(value[keep], slope[keep], size[keep])
        self.earlier = [self.gap]
        for _ in range(HALVINGS):
            if len(self.left):
                self._halve()
        parts = np.arange(4)
        self.stays = np.stack(
            [((self.ratio > SEEN) & (self.probe.which == p)).any(axis=1) for p in parts], axis=1
        )

    def at(self, k: int, t: float) -> Float[np.ndarray, " d"]:
        """A state on the segment of interval k."""
        return self.origin[k] + t * self.direction[k]

    def _compared(self, nodes: Nodes, width: float) -> tuple[np.ndarray, np.ndarray]:
        """The gap between difference and integral, relative to what changes, and itself."""
        value, slope, size = nodes
        change = value[:, 2] - value[:, 0]
        with np.errstate(invalid="ignore", over="ignore"):
            gap = np.abs(change - width * np.einsum("k,nkm->nm", WEIGHTS, slope))
            scale = np.abs(change) + width * np.einsum("k,nkm->nm", WEIGHTS, np.abs(slope))
            ratio = gap / (scale + FLOOR * size.max(axis=1) + 1e-300)
        # What is not finite says nothing here; at the points themselves it is refused.
        return np.nan_to_num(ratio, nan=0.0, posinf=0.0), np.nan_to_num(gap)

    def _halve(self) -> None:
        """Keep of each interval the half with the larger gap, where there still is one."""
        quarter = 0.25 * self.width
        times = np.stack([self.left + quarter, self.left + 3 * quarter], axis=1).ravel()
        twice = np.repeat(np.arange(len(self.left)), 2)
        new = self.probe(
            self.origin[twice] + times[:, None] * self.direction[twice], self.direction[twice]
        )
        self.width *= 0.5
        halves = []
        for side in (0, 1):
            value, slope, size = (
                np.stack([old[:, side], fresh[side::2], old[:, side + 1]], axis=1)
                for old, fresh in zip(self.nodes, new, strict=True)
            )
            half = Nodes(value, slope, size)
            halves.append((*self._compared(half, self.width), *half))
        # Parts that were right on the whole interval stay out of the choice.
        open_ = self.ratio > SEEN
        score = [(half[0] * open_).max(axis=1) for half in halves]
        second = score[1] > score[0]
        picked = [
            np.where(second.reshape(-1, *[1] * (a.ndim - 1)), b, a)
            for a, b in zip(*halves, strict=True)
        ]
        ratio = picked[0] * open_
        keep = (ratio > SEEN).any(axis=1)
        self.left = (self.left + second * self.width)[keep]
        self.origin, self.direction = self.origin[keep], self.direction[keep]
        self.ratio, self.gap = ratio[keep], picked[1][keep]
        self.nodes = Nodes(*(x[keep] for x in picked[2:]))
        self.earlier = [gap[keep] for gap in self.earlier[-3:]] + [self.gap]

    def judged(self, k: int, part: int, spread: Float[np.ndarray, " d"]) -> Hidden | None:
        """The fault on interval k, if what stays there is one."""
        own = np.where(self.probe.which == part, self.ratio[k], 0.0)
        m = int(own.argmax())
        at = self.at(k, self.left[k] + 0.5 * self.width)
        name = PARTS[part]
        if self.gap[k, m] > 0.5 * max(gap[k, m] for gap in self.earlier[:-1]):
            return Hidden(name, True, at) if self._across(k, part, spread) else None
        return Hidden(name, False, at) if self._around(k, m) else None

    def _around(self, k: int, m: int) -> bool:
        """Whether the slope is hidden beside the interval too: at a kink it is not."""
        w = self.width
        offsets = np.concatenate([np.linspace(-2, -1, 3), np.linspace(2, 3, 3)]) * w
        at = np.stack([self.at(k, self.left[k] + t) for t in offsets])
        nodes = self.probe(at, np.repeat(self.direction[k][None], 6, axis=0))
        value, slope, size = (x[:, [m]].reshape(2, 3, 1) for x in nodes)
        ratio, _ = self._compared(Nodes(value, slope, size), w)
        return bool((ratio > SEEN).any())

    def _across(self, k: int, part: int, spread: Float[np.ndarray, " d"]) -> bool:
        """Whether a jump adds to a divergence: (the jump) n, or n . (the jump of g), is not 0."""
        if PARTS[part] == "H":
            return True
        direction = self.direction[k]
        low, high = (self.at(k, self.left[k] + t * self.width) for t in (-1.0, 2.0))
        ends = self.probe.raw(np.stack([low, high]), np.stack([direction, direction]))
        jump = [ends.diffusion[0], ends.curl[0], ends.field[0]][part - 1]
        step = jump[1] - jump[0]
        normal = self._normal(k, part, jump, spread)
        across = step @ normal
        return bool(np.linalg.norm(across) > 1e-2 * np.linalg.norm(step) * np.linalg.norm(normal))

    def _normal(
        self, k: int, part: int, sides: np.ndarray, spread: Float[np.ndarray, " d"]
    ) -> Float[np.ndarray, " d"]:
        """The normal of the surface of a jump: how far along the segment nearby lines meet it."""
        d = len(self.direction[k])
        size = 1e-4 * np.where(spread > 0, spread, 1.0)
        reach = 1e-2
        middle = self.left[k] + 0.5 * self.width
        base = self.origin[k] + np.vstack([size[:, None] * np.eye(d), np.zeros((1, d))])
        along = np.repeat(self.direction[k][None], d + 1, axis=0)
        low, high = np.full(d + 1, middle - reach), np.full(d + 1, middle + reach)
        for _ in range(24):
            t = 0.5 * (low + high)
            seen = self.probe.raw(base + t[:, None] * along, along)
            here = [seen.diffusion[0], seen.curl[0], seen.field[0]][part - 1]
            gaps = [np.abs(here - side[None]).reshape(d + 1, -1).sum(axis=1) for side in sides]
            before: Bool[np.ndarray, " lines"] = gaps[0] < gaps[1]
            low, high = np.where(before, t, low), np.where(before, high, t)
        # The surface meets line i at base_i + t_i u, and t is that of the segment itself:
        # n_i size_i + (t_i - t) n . u = 0.
        *met, own = 0.5 * (low + high)
        return (own - np.array(met)) / size
