"""The benchmarks by name: `python -m benchmarks NAME [OPTIONS]`; without a name, their list."""

import importlib
import sys
from collections.abc import Sequence

BENCHMARKS = {
    "steps": ("steps", "microseconds a step, compared with hand-written loops and BlackJAX"),
    "versions": ("versions", "microseconds a step beside those of another checkout, in turn"),
    "network_steps": ("network_steps", "milliseconds a step at 1.86 million parameters"),
    "agreement": ("agreement", "samplers of networks beside long HMC: agreement, total variation"),
    "dynamics": ("dynamics.command", "order, law and cost of every sampler; passes to a bias"),
    "nuts": ("nuts.command", "infer against NUTS, by number of rows or on a table"),
    "first_answer": ("first_answer", "seconds from import to verdict, in a process of its own"),
    "mutants": ("mutants.command", "do the tests notice a line that says something else?"),
    "calibration": ("calibration.command", "are the errors that infer reports those it makes?"),
    "confusion": ("confusion.command", "right and wrong equations: which does verify accept?"),
    "strangers": ("strangers.command", "infer on posteriors of all kinds: is the verdict right?"),
    "numpyro": ("numpyro.command", "models as NumPyro's examples have them: NUTS's answer?"),
    "tables": ("tables", "networks on tables, beside a deep ensemble: RMSE, density, seconds"),
    "topics": ("topics", "topics with nothing set, beside scikit-learn, gensim and tomotopy"),
    "groups": ("groups.command", "models with groups by infer: verdict, seconds, the truth"),
    "local": ("local.command", "learning coefficients with nothing set: right, and covered?"),
    "kills": ("kills.command", "what a run survives: kills, full disks, damage, power cuts"),
    "store": ("store", "a gigabyte of draws stored: what checksums, log and lock cost"),
    "hosts": ("hosts", "several devices and processes: a step, the loss of one"),
    "replicas": ("replicas", "workers killed on each engine; what a worker and a result cost"),
    "unbiased": ("unbiased", "gradients to an effective draw: UBUBU beside randomised HMC"),
    "streams": ("streams", "data on disk, compared with data in memory"),
    "stein_tuner": ("stein_tuner", "step sizes by a bandit on the Stein discrepancy"),
    "microcanonical": ("microcanonical", "ESS a gradient, with that of NUTS, on the bank"),
    "gallery": ("gallery", "from a slider's move to the changed picture"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the named benchmark, or list all of them."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    listed = "\n".join(f"  {each:<15}{what}" for each, (_, what) in BENCHMARKS.items())
    if name in ("-h", "--help"):
        print(f"usage: python -m benchmarks NAME [OPTIONS]\n\n{listed}\n\nNAME --help: its options")
    elif name in BENCHMARKS:
        importlib.import_module(f"benchmarks.{BENCHMARKS[name][0]}").main(rest)
    else:
        sys.exit(f"no benchmark {name!r}; there are\n{listed}")


if __name__ == "__main__":
    main()
