"""Which files are mutated, and which fast tests have to notice: cheap and exact ones first."""

from pathlib import Path

TESTS = Path(__file__).parents[2] / "tests"
UNIT, LAW = "tests/unit/test_", "tests/law/test_"


def _named(unit: str = "", law: str = "", contract: str = "") -> tuple[str, ...]:
    """Arguments for pytest: files by name, and rows of the conformance test by a part of theirs."""
    files = [f"{LAW}{name}.py" for name in law.split()] + [f"{UNIT}{n}.py" for n in unit.split()]
    return (*files, "contract:" + contract) if contract else tuple(files)


SAMPLER = {
    "counterexamples.py": _named(law="naive_samplers"),
    "cyclical.py": _named("cyclical", "cyclical"),
    "hamiltonian.py": _named("split_hmc delayed_acceptance", "rmhmc", "hmc"),
    "overdamped.py": _named("sample", "msgld gaussian_sgld sgrld", "msgld or sgld"),
    "preconditioned.py": _named("psgld_sgfs", "psgld sgfs", "psgld or sgfs"),
    "replica_exchange.py": _named("replica_exchange", "replica_exchange", "replica"),
    "simplex.py": _named(law="scir", contract="scir"),
    "thermostat.py": _named(law="ccadl", contract="ccadl or sgnht"),
    "time_rescaled.py": _named(law="time_rescaled", contract="sgld or samadams"),
    "underdamped.py": _named("nogin", "gaussian_sghmc nogin sms_ubu sgrhmc", "nogin or sghmc"),
    "walks.py": _named(law="walks", contract="barker or lattice"),
}
RECIPE = {
    "compensation.py": _named("compensation compensation_joint"),
    "metric.py": _named("metric metric_traces", "sgrld"),
    "recipe.py": _named("recipe divergence", "position_dependent"),
    "dynamics/counterexamples.py": _named(law="verify_recipe"),
    "dynamics/momentum.py": _named("recipe", "gaussian_sghmc position_dependent verify_recipe"),
    "dynamics/overdamped.py": _named("recipe", "gaussian_sgld verify_recipe"),
    "dynamics/riemannian.py": _named("metric", "rmhmc verify_recipe"),
    "operators/algebra.py": _named("operators compensation"),
    "operators/elementwise.py": _named("operators compensation"),
    "operators/matrices.py": _named("operators compensation divergence"),
}
INTEGRATOR = {
    "euler_maruyama.py": _named(law="gaussian_sgld position_dependent gaussian_sghmc"),
    "flows.py": _named("splitting", "gaussian_splittings ccadl position_dependent"),
    "hamiltonian.py": _named("split_hmc", "rmhmc", "hmc"),
    "splitting.py": _named("splitting", "gaussian_splittings", "splitting"),
}
GRADIENT = {
    "batches.py": _named("minibatch given_batch score_covariance"),
    "control_variate.py": _named("control_variate svrg", "variance_reduction"),
    "covariance.py": _named("noisy_gradient score_covariance", "estimated_covariance"),
    "expansion.py": _named("condensed control_variate"),
    "full.py": _named("noisy_gradient score_covariance minibatch"),
    "saga.py": _named("saga", "variance_reduction"),
    "sharded.py": _named("mesh", contract="stratified"),
}
EXACT = {
    "condensed.py": _named("condensed"),
    "confidence.py": _named("exact_bounds", "exact_sequential", "confidence or austerity"),
    "delayed_acceptance.py": _named("delayed_acceptance", contract="delayed"),
    "firefly.py": _named(law="exact_firefly", contract="firefly"),
    "logistic.py": _named("exact_bounds", "exact_firefly"),
    "sequential.py": _named("exact_bounds", "exact_sequential", "confidence or austerity"),
    "tuna.py": _named(law="exact_tuna", contract="tuna"),
}
DIAGNOSTICS = {
    "bias.py": _named(law="bias"),
    "stein.py": _named("stein"),
    "temperature.py": _named("temperature"),
}
STATS = {
    "accumulators.py": _named("online weighted"),
    "estimators.py": _named("autocorrelation summary weighted"),
    "summary.py": _named("weighted summary"),
}
VERIFY = {
    "auxiliary.py": _named(law="verify_hidden verify_recipe"),
    "curl.py": _named(law="verify_curl"),
    "curl_methods.py": _named(law="verify_curl"),
    "differences.py": _named(law="verify_hidden"),
    "equation.py": _named(law="verify_sde verify_hidden"),
    "faults.py": _named(law="verify_misprints verify_sde"),
    "fokker_planck.py": _named(law="fokker_planck"),
    "grid.py": _named(law="fokker_planck transition_law"),
    "kernel_report.py": _named("verify_report"),
    "recipe.py": _named("verify_report", "verify_recipe verify_hidden"),
    "region.py": _named(law="verify_hidden verify_sde"),
    "sde.py": _named(law="verify_sde"),
    "stationary_law.py": _named(law="stationary_law"),
    "transition.py": _named(law="transition_law"),
}
DRIVER = {
    "compile.py": _named("traced sample"),
    "cpu_fusion.py": _named("cpu_fusion traced"),
    "loop.py": _named("sample phases going_on resume"),
    "progress.py": _named("progress max_seconds"),
    "run.py": _named("sample going_on resume one_writer"),
    "sample.py": _named("sample input going_on resume"),
    "samples.py": _named("storage summary phases"),
}
ELSEWHERE = ("bad_input", "exact_kernels", "control_flow", "schedules")
# The folder of each module below src/ergodax, and its files.
MODULES = {
    "sampler": ("sampler", SAMPLER),
    "recipe": ("recipe", RECIPE),
    "integrator": ("integrator", INTEGRATOR),
    "gradient": ("gradient", GRADIENT),
    "exact": ("exact", EXACT),
    "diagnostics": ("diagnostics", DIAGNOSTICS),
    "stats": ("stats", STATS),
    "postprocess": ("stats", {"zero_variance.py": _named("zero_variance")}),
    "verify": ("verify", VERIFY),
    "driver": ("driver", DRIVER),
}


def files() -> dict[str, tuple[str, tuple[str, ...]]]:
    """By path below src/ergodax: the module it belongs to, and its tests."""
    return {
        f"{folder}/{name}": (module, tests)
        for module, (folder, named) in MODULES.items()
        for name, tests in named.items()
    }


def arguments(tests: tuple[str, ...]) -> list[list[str]]:
    """What pytest is called with, one call after the other."""
    plain = [test for test in tests if not test.startswith("contract:")]
    rows = [test.partition(":")[2] for test in tests if test not in plain]
    calls = [plain] if plain else []
    return calls + [["tests/conformance/test_contract.py", "-k", row] for row in rows]


def others() -> list[str]:
    """What runs last: wrong calls of every function, and the laws that are named for no file."""
    named = {test for _, tests in files().values() for test in tests}
    laws = {f"tests/law/{path.name}" for path in TESTS.glob("law/test_*.py")}
    return sorted(laws - named) + [f"{UNIT}{name}.py" for name in ELSEWHERE]
