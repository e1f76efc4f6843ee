"""What the figures were measured on."""

import datetime
import os
import platform
import resource
from importlib.metadata import version
from pathlib import Path

import jax

PACKAGES = ("ergodax", "jax", "jaxlib", "equinox", "numpy", "blackjax")


def describe() -> dict[str, str]:
    """Versions, processor, load, date."""
    load = f"{os.getloadavg()[0]:.1f}"
    return {
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC",
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "device": f"{jax.devices()[0].platform} ({jax.devices()[0].device_kind})",
        "processor": _processor(),
        "cores": f"{len(os.sched_getaffinity(0))} usable of {os.cpu_count()}",
        "NPROC": os.environ.get("NPROC", "not set"),
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "not set"),
        "load before": load,
    }


def peak_memory() -> float:
    """The process's largest resident size so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"
