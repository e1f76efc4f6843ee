"""Inference without hyperparameters: choose, check, run until the error is small enough."""

import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ergodax import tree
from ergodax.cache import kept_programs
from ergodax.checks import real_number, whole_number
from ergodax.errors import DivergenceError
from ergodax.gradient.batches import check_resident
from ergodax.groups.posterior import GroupedPosterior
from ergodax.kernel import check_key
from ergodax.persist.checkpoint import Checkpoint
from ergodax.target.base import AbstractTarget
from ergodax.target.constrained import unconstrained
from ergodax.target.counted import counted
from ergodax.target.posterior import Posterior
from ergodax.target.reverse import ReverseTarget, forward_too
from ergodax.tune.background import Programs, double_precision, in_background, small_algebra
from ergodax.tune.budget import Deadline
from ergodax.tune.decisions import LARGEST_R_HAT, DecisionLog, Inference, Tuned
from ergodax.tune.device import full_precision, quicker_host
from ergodax.tune.discontinuities import EVALUATIONS, jump_between_draws
from ergodax.tune.doubts import doubt_of_density, doubt_of_draws, names_of
from ergodax.tune.estimator import LARGEST_SECOND_ORDER
from ergodax.tune.far_mass import TWO_LAWS, FarMass, missing
from ergodax.tune.grouped import infer_groups
from ergodax.tune.host import fold_in, split_key
from ergodax.tune.kept import Kept
from ergodax.tune.modes import Descents, all_modes, other_modes, scout, scout_low_places, scouting
from ergodax.tune.nuts import WHOLE, Ahead, compiling_nuts, tune_nuts, warm_up_seconds
from ergodax.tune.nuts_kernel import Nuts
from ergodax.tune.pilot import tune
from ergodax.tune.reparametrisation import ReparametrisedTarget
from ergodax.tune.rounds import APART, sample_rounds
from ergodax.tune.start import FEW_ROWS, Start, check_start, find_start, in_double, rounded
from ergodax.tune.surrogate import tune_surrogate
from ergodax.tune.tails import dearer_than, endless_tail, is_quick
from ergodax.tune.whitening import as_sampled

SMALL = 2_000  # examples whose full gradient costs what a batch's step does
NO_FORWARD_MODE = "a function of the model has no forward mode (jax.custom_vjp): no batches of rows"
INSTEAD = "ex.find_mode, then ex.sghmc with ex.Minibatch or ex.ControlVariate"
# Of the time that is left when a stage begins, its share:
MODE, MODES, PILOTS, TUNING = 0.2, 0.1, 0.4, 0.5
COMPILATION = 10.0  # seconds, of the surrogate's programs on two cores
OVER, LOOK = 0.1, 3.0  # a last look may end so late; seconds it takes beyond the five that are free
SEARCHES = 8  # for modes, after a first that found several; each if the one before found more


def infer(
    target: AbstractTarget | GroupedPosterior,
    init: PyTree,
    *,
    key: Any,
    accuracy: float = 0.05,
    num_chains: int = 4,
    max_seconds: float = 600.0,
    progress: bool = True,
    checkpoint: Checkpoint | None = None,
) -> Inference:
    """Sample a posterior with nothing to tune, until every error is below `accuracy`.

    It looks for the mode, whitens there, looks around, and searches for other modes. Then it tries
    what may sample the posterior, the cheapest first: with data worth more than a batch, NOGIN with
    the cheapest gradient estimator, batch size and step (`tune.tune`), whose bias pilot runs
    measure and whose draws all rows check; HMC on a few rows and a polynomial of the others, with a
    test by all rows (`tune.tune_surrogate`); and NUTS (BlackJAX's) on all rows, which is the first
    choice for few rows or none. Sampling ends when, for the mean and the sd of every component of
    the position, the Monte Carlo standard error plus the measured bias is below `accuracy`
    posterior standard deviations and R-hat below 1.02, when the time is up, or when more draws
    would not help.

    An answer is called converged only if besides this the density has an integral, the dtype
    resolves the posterior and less than 1 % of NUTS's trajectories diverged; those that end where
    the density stops do no harm. Where single precision may be the cause of a fault, and the model
    takes double, all is done again in that. Chains begin at all modes that were found, so that
    modes between which no chain moves show in R-hat; a mode that was not found does not.

    With a checkpoint the decisions of the tuning are kept, and the draws as they come. The same
    call with `resume=True` then goes on where it was: after a kill during the sampling it has the
    same draws and verdict, to the bit; after one during the tuning it begins again; a finished
    inference is returned as it was, or goes on if it ended for want of time and now has more.

    Args:
        target: a Posterior, a target without data, or an `ex.groups.GroupedPosterior`, whose
            latents are integrated out where that can be done accurately.
        init: where to begin, any tree of floating-point arrays; the shared parameters of one with
            groups.
        key: a key of `jax.random.key`.
        accuracy: the error that is small enough, in posterior standard deviations.
        num_chains: independent chains, at least 2.
        max_seconds: the time for the whole. Every stage is cut at its share of it, and half of what
            is left after the search for modes is kept for sampling; the compilation of a program
            and a single step or gradient are not cut.
        progress: show bars.
        checkpoint: an `ex.Checkpoint` with a folder, where the inference is kept on disk.

    Returns:
        An Inference: verdict, draws, error table, decisions with their reasons. `print` it.

    Raises:
        TypeError: not a target, or data that are a source.
        ValueError: an accuracy that is not positive, fewer than 2 chains, or a density that can't
            be evaluated or is not finite at `init`.
        CheckpointError: the folder has an inference already and `resume` is False, or it is of
            another model, data, key or other arguments, or damaged; or another process is writing
            to it.
        StorageError: the disk is full or can't be written.
        Interrupted: it was asked to stop while it sampled.

    Example:
        >>> import ergodax as ex, jax, jax.numpy as jnp
        >>> target = ex.targets.gaussian(jnp.zeros(2), jnp.eye(2))
        >>> result = ex.infer(target, jnp.zeros(2), key=jax.random.key(0), progress=False)
        >>> result.converged
        True
    """
    if not isinstance(target, AbstractTarget | GroupedPosterior):
        raise TypeError(f"target must be an ex.Target or ex.Posterior, not {target!r}.")
    check_resident(target, "ex.infer", INSTEAD)
    real_number("accuracy", accuracy, above=0.0, hint="Try 0.05.")
    whole_number("num_chains", num_chains, at_least=2, hint="Chains are compared with each other.")
    real_number("max_seconds", max_seconds, at_least=0.0)
    key, deadline = check_key(key), Deadline.after(max_seconds)
    with kept_programs(), contextlib.ExitStack() as stack:
        if isinstance(target, GroupedPosterior):
            options = {"accuracy": accuracy, "num_chains": num_chains, "progress": progress}
            options |= {"key": key, "checkpoint": checkpoint}
            return infer_groups(infer, target, init, max_seconds=max_seconds, options=options)
        check_start(target, init)
        target, decided = _distinct(target)
        target, init = unconstrained(target, init)
        target = forward_too(target, init)
        if isinstance(target, ReverseTarget):
            decided = (*decided, ("derivatives", "in reverse mode", NO_FORWARD_MODE))
        stack.enter_context(full_precision())
        # What is kept on disk goes on to the same bits, so no clock may choose.
        quicker = None if checkpoint else quicker_host(target, init, num_chains)
        if quicker:
            stack.enter_context(jax.default_device(quicker.device))
            target, init = quicker.moved(target, init)
            decided = (*decided, ("device", "the host's processor", str(quicker)))
        arguments = {"accuracy": accuracy, "num_chains": num_chains}
        kept = Kept(checkpoint, target, init, key, max_seconds, **arguments)
        stack.callback(kept.close)
        deadline = Deadline(deadline.instant - kept.spent)
        settings = _Settings(accuracy, num_chains, deadline, progress, kept, decided)
        result = _answer(target, init, key, settings, max_seconds)
        over = None if checkpoint else Deadline(deadline.instant + OVER * max_seconds - LOOK)
        return _with_cause(result, target, init, over)


def _with_cause(
    result: Inference, target: AbstractTarget, init: PyTree, over: Deadline | None
) -> Inference:
    """The same; the first fault is why, where the density jumps or has no end that draws come to.

    `over` is when there is no time for a look; None where no clock may decide.
    """
    timed = over is not None
    if (timed and over.over) or any(TWO_LAWS in fault for fault in result.account.faults):
        return result
    draws = as_sampled(target, result.samples.position)
    apart = not result.converged and (result.table["r_hat"] > APART).any()
    quick = apart and not (timed and dearer_than(target, init, EVALUATIONS))
    if quick and (jumps := jump_between_draws(target, init, draws)):
        result.account.faults.insert(0, jumps)
        return result
    narrow = any(decision.what == "shorter step" for decision in result.account.decisions)
    other = result.tuned.target  # in whose numbers chains come to where effects have no width
    drivers = other.causes if isinstance(other, ReparametrisedTarget) else []
    suspect = narrow or drivers or not result.converged
    if not suspect or not is_quick(target, init, len(drivers), timed=timed):
        return result
    with double_precision():
        double = in_double(target, init)
        tail = "" if double is None else endless_tail(target, tree.freeze(double), draws, drivers)
    if not tail:
        return result
    result.account.faults.insert(
        0,
        f"the density does not fall off as {tail}, whatever the others do: the posterior is "
        "improper, or nearly, and has no mean. Give it a prior that falls off there",
    )
    return dataclasses.replace(result, converged=False)


def _distinct(target: AbstractTarget) -> tuple[AbstractTarget, tuple[tuple[str, str, str], ...]]:
    """The target, its equal rows counted where that leaves far fewer, and what to tell of it."""
    if type(target) is not Posterior:
        return target, ()  # one of another kind computes with its rows in its own way
    fewer = counted(target) if target.num_data > SMALL else None
    if fewer is None:
        return target, ()
    told = f"of {target.num_data:,}: the others are the same as these, and are counted"
    return fewer, (("rows", f"{fewer.num_data:,}", told),)


@dataclasses.dataclass(frozen=True)
class _Settings:
    """The arguments of `infer` of these names, what is kept on disk, and what was decided first."""

    accuracy: float
    num_chains: int
    deadline: Deadline
    progress: bool
    kept: Kept
    decided: tuple[tuple[str, str, str], ...]


def _answer(
    target: AbstractTarget, init: PyTree, key: Any, settings: _Settings, max_seconds: float
) -> Inference:
    """The first; where it is too coarse, a second with shorter steps, in double precision."""
    inference, result = _Inferring(target, init, settings, key), None
    if not settings.kept.anew:
        result = inference.gone_on()
        if result is None:
            inference.begin()
            if not inference.log.coarse:
                result = inference.sampled(noisy=bool(inference.rounded))
        enough = settings.deadline.is_enough_for_another(max_seconds)
        if result is not None and not (inference.log.coarse and enough):
            return result
    if jax.config.jax_enable_x64 or tree.result_dtype(tree.freeze(init)).itemsize == 8:
        return _again(target, init, settings, key, "with shorter steps")
    with double_precision():
        double = in_double(target, init)
        if double is not None:
            return _again(target, double, settings, key, "in double precision")
    if result is None and not settings.kept.anew:
        if not inference.log.faults:
            inference.log.faults.append(inference.rounded)
        result = inference.sampled()
        assert result is not None
        return result
    return _again(target, init, settings, key, "with shorter steps")


def _again(
    target: AbstractTarget, init: PyTree, settings: _Settings, key: Any, how: str
) -> Inference:
    """A second inference after one that went wrong."""
    inference = _Inferring(target, init, settings, key, careful=True)
    result = inference.gone_on()
    if result is None:
        inference.log.decide("anew", how, "the first attempt was too coarse for this posterior")
        inference.begin()
        result = inference.sampled()
        assert result is not None
    return result


class _Inferring:
    """The stages of one inference, in the precision of its start."""

    def __init__(
        self,
        target: AbstractTarget,
        init: PyTree,
        settings: _Settings,
        key: Any,
        *,
        careful: bool = False,
    ) -> None:
        self.target, self.init, self.settings, self.careful = target, init, settings, careful
        self.log, self.deadline = DecisionLog(), settings.deadline
        self.far: FarMass | None = None  # of a single mode
        self.ahead: Ahead | None = None  # where there is no other engine
        for decision in settings.decided:
            self.log.decide(*decision)
        keys = split_key(key, 6)
        self.key_start, self.key_modes, self.key_tune, self.key_surrogate = keys[:4]
        self.key_nuts, self.key_run = keys[4:]
        self.key_look = fold_in(self.key_start, 1)
        self.posterior = None  # one of which a batch is worth it
        if isinstance(target, Posterior) and target.num_data > SMALL:
            self.posterior = target

    def begin(self) -> None:
        """Look where the posterior is, and compile meanwhile what will mostly be needed."""
        self.programs = Programs(self.settings.num_chains)
        if self.posterior is None:
            options = self.key_nuts, self.settings.num_chains, TUNING * self.deadline.left()
            self.ahead = compiling_nuts(self.target, self.init, *options)
        else:
            self.programs.guess(self.posterior, self.init, self.key_tune)
        until = self.deadline.share(MODE)
        with small_algebra():
            search = scouting(self.target, self.init, key=self.key_modes, deadline=until)
            scouts = in_background(search)
            start = find_start(self.target, self.init, self.log, self.key_start, until)
            if self.posterior is not None and start.typical:
                self.programs.look(self.posterior, start.coordinates)
            self.start, self.modes = start, self._modes(start, scouts)
        doubt = doubt_of_density(self.target, self.init, start, key=self.key_look)
        if doubt:
            self.log.coarse = False  # no precision mends it
            self.log.faults.insert(0, doubt)  # what follows from it comes after

    @functools.cached_property
    def rounded(self) -> str:
        """That rounding spoils tests by all rows; "" where it does not."""
        return rounded(self.target, self.start, few=self.posterior is None, key=self.key_look)

    def gone_on(self) -> Inference | None:
        """The answer with what an earlier call has tuned; None without, or where it is wrong."""
        kept = self.settings.kept
        decided = kept.tuned() if kept.anew == self.careful else None
        if decided is None:
            return None
        (tuned, self.modes), self.log = decided, copy.deepcopy(kept.log)
        found = self._draws(tuned)
        if found is None:
            self.log = DecisionLog()
        return found

    def sampled(self, *, noisy: bool = False) -> Inference | None:
        """Tune each engine in turn, and sample with the first that serves.

        None where rounding spoils the potential, by whose changes all but batches accept, and they
        do not serve.
        """
        for engine in self._engines(noisy):
            with self.log.timing("tuning"):
                tuned = engine()
            if tuned is not None:
                tuned = self.settings.kept.keep(tuned, self.modes, self.log, anew=self.careful)
            found = None if tuned is None else self._draws(tuned)
            if found is not None:
                return found
        return None

    def _modes(self, start: Start, scouts: Future[Descents]) -> list[PyTree]:
        """All of them where there are several, as far as searches lead to them."""
        with self.log.timing("modes"):
            found = scouts.result()
            if not start.typical:
                return []
            until, coordinates = self.deadline.share(MODES), start.coordinates
            key = fold_in(self.key_modes, 0)
            found = scout_low_places(self.target, coordinates, found, key=key, deadline=until)
            others = other_modes(self.target, coordinates, found, until)
            self.far = None if others else found.far
            known, number = 0, 0  # where there are several there may be more
            while len(others) != known and number < SEARCHES and not until.over:
                known, number = len(others), number + 1
                key = fold_in(self.key_modes, number)
                found = found.and_more(scout(self.target, self.init, key=key, deadline=until))
                others = other_modes(self.target, coordinates, found, until)
            return all_modes(coordinates, others, self.settings.num_chains, self.log)

    def _engines(self, noisy: bool) -> list[Callable[[], Tuned | None]]:
        """What may sample it, the most promising first. NUTS gives an answer, right or not."""
        start, chains = self.start, self.settings.num_chains
        if self.posterior is None or not start.typical or self.log.faults:
            return [] if noisy else [self._nuts]
        small = start.coordinates.dimension <= LARGEST_SECOND_ORDER and not self.modes
        seconds = warm_up_seconds(self.target, start.coordinates, chains)
        most = self.deadline.left()
        late, few_rows = seconds > TUNING * most, start.virial > FEW_ROWS
        # Between modes it jumps; where the mode has no mass scales mostly follow other parameters.
        if (self.modes or start.place is not start.mode) and not late:
            return [] if noisy else [self._nuts]
        surrogate = small and (late or few_rows or seconds > COMPILATION)
        alternative = min(WHOLE * seconds, TUNING * most) if surrogate or not late else np.inf
        # What NUTS takes is guessed from the normal law at the mode: nothing where few rows decide.
        limit = TUNING * most if few_rows else alternative
        exact = [lambda: self._surrogate(limit)] if surrogate else []
        batches = [lambda: self._batches(alternative)] if start.smooth else []
        if noisy:
            return batches
        return [*exact, *batches, self._nuts] if few_rows else [*batches, *exact, self._nuts]

    def _batches(self, alternative: float) -> Tuned | None:
        """NOGIN; with an alternative of so many seconds it must not be in doubt."""
        assert self.posterior is not None
        self.programs.wait()
        return tune(
            self.posterior,
            self.start.coordinates,
            self.log,
            key=self.key_tune,
            modes=self.modes,
            accuracy=self.settings.accuracy,
            num_chains=self.settings.num_chains,
            deadline=self.deadline.share(PILOTS),
            progress=self.settings.progress,
            programs=self.programs,
            alternative=alternative,
        )

    def _surrogate(self, alternative: float) -> Tuned | None:
        """HMC on a few rows and a polynomial of the others, found within so many seconds."""
        assert self.posterior is not None
        return tune_surrogate(
            self.posterior,
            self.start.place,
            self.log,
            self.key_surrogate,
            num_chains=self.settings.num_chains,
            progress=self.settings.progress,
            deadline=min(self.deadline.share(TUNING), Deadline.after(alternative)),
        )

    def _nuts(self) -> Tuned:
        """NUTS on all rows, which no law but one of separate modes defeats, if there is time."""
        target = self.target
        examples = f"{target.num_data} rows, " if isinstance(target, Posterior) else ""
        self.log.decide("sampler", "NUTS", f"{examples}with full gradients")
        tuned = tune_nuts(
            self.target,
            self.start.coordinates,
            self.key_nuts,
            self.settings.num_chains,
            self.modes,
            self.deadline.share(TUNING),
            careful=self.careful,
            ahead=self.ahead,
        )
        if isinstance(tuned.target, ReparametrisedTarget):
            changed, drivers = tuned.target.constrain.scales.told(names_of(self.init))
            self.log.decide("non-centred", changed, f"scales that follow {drivers}")
        return tuned

    def _draws(self, tuned: Tuned) -> Inference | None:
        """The answer; None where the draws of a sampler on batches turn out to be wrong."""
        settings, before = self.settings, list(self.log.faults)
        if len(self.modes) > settings.num_chains and getattr(tuned.kernel, "jumps", None) is None:
            self.log.faults.append(
                f"{len(self.modes)} modes were found, and {settings.num_chains} chains can't begin "
                "at all of them; try more chains"
            )
        try:
            result = sample_rounds(
                self.target if tuned.target is None else tuned.target,
                tuned,
                self.key_run,
                self.log,
                accuracy=settings.accuracy,
                num_chains=settings.num_chains,
                deadline=self.deadline,
                progress=settings.progress,
                kept=settings.kept,
                careful=self.careful,
            )
        except DivergenceError as error:
            doubt = f"a chain diverged at step {error.step}"
        else:
            doubt = self._doubt(tuned, result)
            if not doubt:
                return self._weighed(result)
        settings.kept.forget()
        self.log.faults[:] = before
        self.log.decide("sampling", "given up", doubt)
        return None

    def _weighed(self, result: Inference) -> Inference:
        """The same; not converged where one of two laws about the mode has no draws."""
        if self.far is not None and result.converged:
            coordinates, accuracy = self.start.coordinates, self.settings.accuracy
            draws = coordinates.of_chains(as_sampled(self.target, result.samples.position))
            if told := missing(self.far, draws.reshape(-1, coordinates.dimension), accuracy):
                result.account.faults.insert(0, told)
                return dataclasses.replace(result, converged=False)
        return result

    def _doubt(self, tuned: Tuned, result: Inference) -> str:
        """Why draws that are not NUTS's may be wrong, where all rows can tell, and others better.

        A surrogate that is too low somewhere in a tail holds its chains there; NUTS is not held.
        """
        if self.posterior is None or isinstance(tuned.kernel, Nuts):
            return ""
        if tuned.bias is None:
            apart = result.table["r_hat"].max()
            seconds = warm_up_seconds(self.target, tuned.coordinates, self.settings.num_chains)
            if apart > LARGEST_R_HAT and WHOLE * seconds < self.deadline.left():
                return f"its chains stay apart, with an R-hat of {apart:.2f}"
            return ""
        made = tuned.bias.samples.num_draws if tuned.piloted else 0
        if result.samples.num_draws <= made:
            return ""
        return doubt_of_draws(
            self.posterior,
            as_sampled(self.posterior, result.samples.position),
            result.samples.info.potential,
            key=self.key_surrogate,
            modes=self.modes,
        )
