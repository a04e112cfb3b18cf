"""The memory of a search: one Optuna study for each search, in one journal file.

The journal is appended to and never rewritten, so that whatever ends a search, a second
start reads all trials that were finished and goes on. What is drawn next depends on
these and on the seed alone, so that an interrupted search ends as an undisturbed one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import warnings
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.errors import StoreError
from costmodel.errors import TuningError
from costmodel.training.recipe_space import Choices
from costmodel.training.recipe_space import Space
from costmodel.training.recipe_space import Value
from costmodel.training.tune_folds import Search

JOURNAL = "tune.journal"
_LOCK = "tune.lock"
_FACTS = "facts"
# Drawn evenly before the sampler believes what it saw; ten is Optuna's own for wider
# spaces, ours have some six parameters and a trial costs minutes.
_N_STARTUP = 8
# A trial that is worse than the best with this chance of error is stopped; asked after
# each fold, so that the chance over a whole trial is larger.
_PRUNE_P = 0.05


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One finished trial.

    Attributes:
        search: Name of its search.
        number: Its place in it.
        state: "complete" or "pruned".
        values: What was tried.
        loss: Mean ln(1 + regret) over kernels; None where it was stopped.
        facts: Regret, speed-up, harm share, folds done and seconds.
    """

    search: str
    number: int
    state: str
    values: Mapping[str, Value]
    loss: float | None
    facts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class SearchStudy:
    """One search and its Optuna study.

    Attributes:
        search: Its folds.
        study: Optuna's.
        place: Among the searches, for the seed.
    """

    search: Search
    study: Any
    place: int

    def finished(self) -> list[TrialRow]:
        """Trials with a result, in order."""
        return [
            TrialRow(
                search=self.search.name,
                number=one.number,
                state=one.state.name.lower(),
                values={name: decoded(value) for name, value in one.params.items()},
                loss=one.value if one.state.name == "COMPLETE" else None,
                facts=dict(one.user_attrs),
            )
            for one in self.study.get_trials(deepcopy=False)
            if one.state.name in ("COMPLETE", "PRUNED")
        ]

    def best(self) -> TrialRow | None:
        """The one with the least loss; the earliest of equals."""
        complete = [one for one in self.finished() if one.loss is not None]
        return min(complete, key=lambda one: (one.loss, one.number), default=None)

    def first(self) -> TrialRow | None:
        """The trial of the recipe's own values."""
        complete = [one for one in self.finished() if one.loss is not None]
        return complete[0] if complete else None

    def ask(self, space: Space, own: Mapping[str, Value], seed: int) -> Any:
        """The next trial, with values drawn; the first has the recipe's own."""
        optuna = import_optuna()
        n_finished = len(self.finished())
        # A fresh one for each trial: its state is the history and nothing else.
        self.study.sampler = optuna.samplers.TPESampler(
            seed=(seed * 1000 + self.place) * 100_000 + n_finished,
            n_startup_trials=_N_STARTUP,
        )
        states = [one.state.name for one in self.study.get_trials(deepcopy=False)]
        if n_finished == 0 and "WAITING" not in states:
            self.study.enqueue_trial({name: encoded(own[name]) for name in space})
        trial = self.study.ask()
        for name, domain in sorted(space.items()):
            if isinstance(domain, Choices):
                trial.suggest_categorical(name, [encoded(v) for v in domain.values])
            elif isinstance(domain.low, int):
                trial.suggest_int(name, domain.low, int(domain.high), log=domain.log)
            else:
                trial.suggest_float(name, domain.low, domain.high, log=domain.log)
        return trial


def values_of(trial: Any) -> dict[str, Value]:
    """What a trial is to try, by full name of the parameter."""
    return {name: decoded(value) for name, value in trial.params.items()}


def encoded(value: Value) -> int | float | str:
    """As Optuna stores it: a list of names becomes a text."""
    return json.dumps(value) if isinstance(value, tuple) else value


def decoded(value: int | float | str) -> Value:
    """The value that was encoded."""
    return tuple(json.loads(value)) if isinstance(value, str) else value


def import_optuna() -> Any:
    """Optuna, quiet.

    Raises:
        TuningError: It is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise TuningError(
            "expected optuna to tune with, found none: pip install "
            "'helion-costmodel[tune]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    # The pruner has been experimental since 3.6; a trial it stops is only lost time.
    warnings.filterwarnings(
        "ignore", category=optuna.exceptions.ExperimentalWarning, module="optuna"
    )
    warnings.filterwarnings(
        "ignore", category=optuna.exceptions.ExperimentalWarning, module="costmodel"
    )
    return optuna


@contextlib.contextmanager
def opened_studies(
    folder: Path, searches: Sequence[Search], facts: Mapping[str, str]
) -> Iterator[list[SearchStudy]]:
    """Studies of a folder, begun or gone on with; one process at a time.

    Args:
        folder: Where the journal lies; made if it is not there.
        searches: One study each.
        facts: What the search is of; that of the first start must be equal.

    Raises:
        StoreError: The folder cannot be written, or another process tunes there.
        TuningError: It holds a search of something else, or Optuna is missing.
    """
    optuna = import_optuna()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        raise StoreError(
            f"expected to write to {folder}, found {error.strerror}: pass another "
            "folder with --output"
        ) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(
                f"expected {folder} for this search alone, found another process that "
                "tunes there: wait for it or pass another folder with --output"
            ) from error
        _mend(folder / JOURNAL)
        backend = optuna.storages.journal.JournalFileBackend(
            str(folder / JOURNAL),
            # We hold a lock of our own, which a killed process cannot leave behind.
            lock_obj=_NoLock(),
        )
        storage = optuna.storages.JournalStorage(backend)
        yield [
            SearchStudy(one, _study(optuna, storage, one.name, facts, folder), place)
            for place, one in enumerate(searches)
        ]


def _mend(path: Path) -> None:
    """Cut off half a line of a killed process: what follows it could not be read."""
    content = path.read_bytes() if path.exists() else b""
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


class _NoLock:
    """For a journal whose folder is locked already."""

    def acquire(self) -> bool:
        """Held already."""
        return True

    def release(self) -> None:
        """By whoever holds it."""


def _study(
    optuna: Any, storage: Any, name: str, facts: Mapping[str, str], folder: Path
) -> Any:
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        direction="minimize",
        load_if_exists=True,
        pruner=optuna.pruners.WilcoxonPruner(p_threshold=_PRUNE_P),
    )
    before = study.user_attrs.get(_FACTS)
    if before is None:
        study.set_user_attr(_FACTS, dict(facts))
    elif before != dict(facts):
        other = sorted(
            key for key in {*before, *facts} if before.get(key) != facts.get(key)
        )
        raise TuningError(
            f"{folder}: expected a search of this recipe and data, found one of "
            f"another {' and '.join(other)}: pass another folder with --output"
        )
    for one in study.get_trials(deepcopy=False):
        # Of a process that was killed: never to be finished.
        if one.state.name == "RUNNING":
            study.tell(one.number, state=optuna.trial.TrialState.FAIL)
    return study
