"""Search a recipe's space by nested left-out-family regret, and judge what was chosen.

The searches take turns, trial by trial, so that whenever time is up each has had about
as many trials as the others and the report means something.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.features.schema import FeatureSchema
from costmodel.training.compare import Comparison
from costmodel.training.compare import compare
from costmodel.training.eval_table import Row
from costmodel.training.eval_table import from_parquet
from costmodel.training.eval_table import to_parquet
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.recipe import Recipe
from costmodel.training.recipe_space import Value
from costmodel.training.tune_study import SearchStudy
from costmodel.training.tune_study import TrialRow
from costmodel.training.tune_study import import_optuna
from costmodel.training.tune_study import values_of
from costmodel.training.tune_trial import Tried
from costmodel.training.tune_trial import outer_rows
from costmodel.training.tune_trial import tried

BY_TRIALS = "all trials were made"
BY_TIME = "time was up"
BY_USER = "interrupted"


class _OutOfTimeError(Exception):
    """A trial met the deadline; it is given up."""


class _HopelessError(Exception):
    """A trial is worse than the best beyond chance; it is stopped."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """What came of the searches so far.

    Attributes:
        own: The recipe's values.
        best: The trial that the recipe is made of; None where none was finished.
        first: The trial of the recipe's own values.
        trials: All finished ones, search by search.
        chosen: Of each outer fold that both could be judged on: its search's choice.
        report: Own values (a) against each fold's choice (b), on families that no
            choice was made by; None without an outer fold.
        ended: Why no further trial was made.
    """

    own: Mapping[str, Value]
    best: TrialRow | None
    first: TrialRow | None
    trials: tuple[TrialRow, ...]
    chosen: tuple[TrialRow, ...]
    report: Comparison | None
    ended: str


@dataclass(frozen=True, slots=True)
class Tuner:
    """What a search is made with.

    Attributes:
        recipe: Its own values and its space.
        workloads: All.
        schema: Of the features.
        folder: Where evaluations of outer folds are kept.
        clock: Seconds, steadily.
        say: Told what was done, a line a trial.
        after: Called after each trial with all finished ones, to record them.
    """

    recipe: Recipe
    workloads: Sequence[LabelledWorkload]
    schema: FeatureSchema
    folder: Path
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda _: None
    after: Callable[[Sequence[TrialRow]], None] = lambda _: None

    @property
    def own(self) -> dict[str, Value]:
        """The recipe's own values of what is searched."""
        return {name: self.recipe.value(name) for name in self.recipe.tune}

    def run(
        self, studies: Sequence[SearchStudy], n_trials: int, timeout_s: float | None
    ) -> Tuned:
        """Try until each search has its trials, time is up, or Ctrl-C.

        Args:
            studies: Of the searches; the first is the one that chooses.
            n_trials: Of each search, those of earlier starts included.
            timeout_s: Seconds; None for no limit.
        """
        deadline = None if timeout_s is None else self.clock() + timeout_s
        ended = BY_TRIALS
        try:
            while True:
                done = [len(one.finished()) for one in studies]
                if min(done) >= n_trials:
                    break
                study = studies[done.index(min(done))]
                if deadline is not None and not self._fits(studies, deadline):
                    ended = BY_TIME
                    break
                self._trial(study, deadline)
                self.after([row for one in studies for row in one.finished()])
        except _OutOfTimeError:
            ended = BY_TIME
        except KeyboardInterrupt:
            ended = BY_USER
        return self.result(studies, ended)

    def _fits(self, studies: Sequence[SearchStudy], deadline: float) -> bool:
        """Whether a whole trial would end in time, by those before it."""
        spent = [
            row.facts["seconds"]
            for one in studies
            for row in one.finished()
            if row.loss is not None and "same_as" not in row.facts
        ]
        expected = statistics.median(spent) if spent else 0.0
        return self.clock() + expected < deadline

    def _trial(self, study: SearchStudy, deadline: float | None) -> None:
        state = import_optuna().trial.TrialState
        trial = study.ask(self.recipe.tune, self.own, self.recipe.model.seed)
        start = self.clock()
        try:
            loss, facts = self._judged(study, trial, deadline)
        except _HopelessError as stop:
            (n_folds,) = stop.args
            trial.set_user_attr("n_folds", n_folds)
            trial.set_user_attr("seconds", self.clock() - start)
            study.study.tell(trial, state=state.PRUNED)
            self._say(study, f"stopped after fold {n_folds}, worse than the best")
            return
        except BaseException:
            # Ctrl-C, the deadline or an error: not a trial, and not a running one.
            study.study.tell(trial, state=state.FAIL)
            raise
        for name, value in {**facts, "seconds": self.clock() - start}.items():
            trial.set_user_attr(name, value)
        study.study.tell(trial, loss)
        best = study.best()
        assert best is not None
        self._say(
            study,
            f"regret {facts['regret']:.2%}, best {best.facts['regret']:.2%} (trial "
            f"{best.number}), {self.clock() - start:.0f} s",
        )

    def _judged(
        self, study: SearchStudy, trial: Any, deadline: float | None
    ) -> tuple[float, dict[str, float]]:
        values = values_of(trial)
        for one in study.finished():
            if one.values == values and one.loss is not None:
                return one.loss, dict(one.facts) | {"same_as": one.number}
        recipe = self.recipe.with_values(values)
        step_of = self._steps(study)
        n_folds = len(study.search.inner)

        def watch(n_done: int, losses: dict[str, float]) -> None:
            if deadline is not None and self.clock() > deadline:
                raise _OutOfTimeError
            for kernel, loss in losses.items():
                trial.report(loss, step_of[kernel])
            if n_done < n_folds and trial.should_prune():
                raise _HopelessError(n_done)

        made = tried(recipe, self.workloads, study.search, self.schema, watch)
        best = study.best()
        if best is None or (best.loss is not None and made.loss < best.loss):
            # Before the trial is told of, so that a best one never lacks it.
            self._judge_outer(study, recipe, values, made)
        return made.loss, {
            "regret": made.regret,
            "speedup": made.speedup,
            "harm_share": made.harm_share,
            "n_folds": n_folds,
        }

    def _steps(self, study: SearchStudy) -> dict[str, int]:
        """A number for each kernel: what trials are paired by."""
        held_out = {i for fold in study.search.inner for i in fold.test}
        kernels = sorted({self.workloads[i].source_digest for i in held_out})
        return {kernel: place for place, kernel in enumerate(kernels)}

    def _judge_outer(
        self,
        study: SearchStudy,
        recipe: Recipe,
        values: Mapping[str, Value],
        made: Tried,
    ) -> None:
        if study.search.outer is None:
            return
        rows = outer_rows(recipe, self.workloads, study.search, self.schema, made)
        path = self._outer_path(study, values)
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_bytes(to_parquet(rows))
        temporary.replace(path)

    def _outer_path(self, study: SearchStudy, values: Mapping[str, Value]) -> Path:
        digest = self.recipe.with_values(values).digest[:16]
        return self.folder / "outer" / f"{study.place}-{digest}.parquet"

    def result(self, studies: Sequence[SearchStudy], ended: str) -> Tuned:
        """What is known by now."""
        chosen, a, b = [], list[Row](), list[Row]()
        for study in studies[1:]:
            first, best = study.first(), study.best()
            if first is None or best is None:
                continue
            paths = [self._outer_path(study, one.values) for one in (first, best)]
            if all(path.exists() for path in paths):
                chosen.append(best)
                a += from_parquet(paths[0].read_bytes())
                b += from_parquet(paths[1].read_bytes())
        return Tuned(
            own=self.own,
            best=studies[0].best(),
            first=studies[0].first(),
            trials=tuple(row for one in studies for row in one.finished()),
            chosen=tuple(chosen),
            report=compare(a, b) if a else None,
            ended=ended,
        )

    def _say(self, study: SearchStudy, words: str) -> None:
        n = len(study.finished())
        self.say(f"{study.search.name}: trial {n}: {words}")
