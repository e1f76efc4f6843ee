"""How long each part of the report runs."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of the runs.

    Attributes:
        rounds: interleaved rounds of the main race.
        side_rounds: of the others.
        steps: of one chain in the main table.
        python_steps: in the loop driven from Python, which is several times slower.
        chain_steps: of each of the 16 chains.
        size_steps: for each number of examples.
        sizes: numbers of examples.
        draws: batches drawn alone.
        samplers: those in the tables beside the main one.
        stream_bytes: of a file on disk.
        stream_steps: of a run from such a file.
        stream_rounds: of which the best counts.
    """

    rounds: int = 7
    side_rounds: int = 5
    steps: int = 100_000
    python_steps: int = 10_000
    chain_steps: int = 8_000
    size_steps: int = 30_000
    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    draws: int = 50_000
    samplers: tuple[str, ...] = ("sgld", "sghmc")
    stream_bytes: int = 2 * 10**9
    stream_steps: int = 200_000
    stream_rounds: int = 3


FULL = Settings()
QUICK = Settings(
    rounds=3,
    side_rounds=3,
    steps=20_000,
    python_steps=2_000,
    chain_steps=1_500,
    size_steps=10_000,
    sizes=(10_000, 1_000_000),
    draws=10_000,
    samplers=("sgld",),
    stream_bytes=10**9,
    stream_steps=50_000,
    stream_rounds=2,
)
