"""Compare ways to learn a ranking: objectives, ablations and learning curves.

    python benchmarks/compare_methods.py datasets/corpora/h200 --output build/methods
    python benchmarks/compare_methods.py --show build/methods [--markdown FILE]

One protocol for all: families are left out in the blocks of the shipped evaluation, a
method sees the other blocks' workloads and ranks the held-out ones; no gate and no
second opinion, so that objectives are compared and nothing else. Choices are to be made
on the development families; the final ones are only reported. Every method is one line
of `results.jsonl` as soon as it is done, and a second start goes on; with `--track` it
is one nested MLflow run as well. No GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy starts its threads

import numpy as np

from costmodel.datasets.store import Corpus
from costmodel.features.schema import SCHEMA
from costmodel.layout import RowLayout
from costmodel.training.crossfit import Fold
from costmodel.training.crossfit import family_folds
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.label import label_all
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.methods import ABLATIONS
from costmodel.training.methods import METHODS
from costmodel.training.methods import Method
from costmodel.training.mlflow_store import opened

FAILED_LOG = float(np.log(0.1))  # what a failed pick counts for, as everywhere here
N_DEVELOPMENT = 18
SPLIT_SEED = 20261130  # drawn once, before anything was tried
HARM_LOG = 0.05
MEASURED = (1, 2, 5)
FRACTIONS = (0.25, 0.5, 0.75)

Ranked = tuple[int, np.ndarray]


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpora", nargs="*", type=Path)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--show", type=Path, help="only print what is there")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[], help="names of methods")
    parser.add_argument(
        "--parts", nargs="*", default=["methods", "ablations", "curves"]
    )
    parser.add_argument("--track", action="store_true")
    options = parser.parse_args()
    folder = options.show or options.output
    if folder is None or (options.show is None and not options.corpora):
        parser.error("name corpora and --output, or --show FOLDER")
    if options.show is None:
        run(options)
    table = markdown(read(folder / "results.jsonl"))
    print(table)
    if options.markdown:
        options.markdown.write_text(table + "\n", encoding="utf-8")
    return 0


def run(options: argparse.Namespace) -> None:
    """Every method and seed that the folder does not hold yet."""
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "results.jsonl"
    done = {(one["name"], one["seed"]) for one in read(path)}
    recorded = [w for root in options.corpora for w in Corpus.load(root).workloads()]
    workloads = label_all(recorded).workloads
    folds = family_folds(workloads)
    for seed in range(options.seeds):
        validity: list[list[np.ndarray]] = []
        for name, words, train in _jobs(options, seed):
            if (name, seed) in done:
                continue
            validity = validity or _validity(workloads, folds, seed)
            began_s = time.perf_counter()
            ranked = _cross_fit(workloads, folds, validity, train, seed)
            line = {
                "name": name,
                "words": words,
                "seed": seed,
                "seconds": round(time.perf_counter() - began_s, 1),
                "n_workloads": len(workloads),
                **_numbers(workloads, ranked),
            }
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{name} (seed {seed}): {line['seconds']} s", file=sys.stderr)
    if options.track:
        track(read(path))


Train = Callable[[Sequence[LabelledWorkload], int], Callable[..., np.ndarray]]


def _jobs(options: argparse.Namespace, seed: int) -> Iterator[tuple[str, str, Train]]:
    methods: list[Method] = []
    methods += METHODS if "methods" in options.parts else ()
    methods += ABLATIONS if "ablations" in options.parts else ()
    for one in methods:
        if not options.only or one.name in options.only:
            yield one.name, one.words, _plain(one)
    if "curves" in options.parts and not options.only:
        for share in FRACTIONS:
            yield (
                f"{share:.0%} of families",
                "the shipped fit on fewer families",
                _thinned(lambda w, s=share: _families(w, s, seed)),
            )
        for share in FRACTIONS:
            yield (
                f"{share:.0%} of measurements",
                "the shipped fit on fewer configs of each workload",
                _thinned(lambda w, s=share: [_fewer(one, s, seed) for one in w]),
            )


def _plain(method: Method) -> Train:
    return lambda workloads, seed: method.train(workloads, SCHEMA, seed)


def _thinned(
    thin: Callable[[Sequence[LabelledWorkload]], list[LabelledWorkload]],
) -> Train:
    shipped = METHODS[0]
    return lambda workloads, seed: shipped.train(thin(workloads), SCHEMA, seed)


def _families(
    workloads: Sequence[LabelledWorkload], share: float, seed: int
) -> list[LabelledWorkload]:
    names = sorted({one.family for one in workloads})
    kept = np.random.default_rng([seed, 1]).permutation(names)
    kept = set(kept[: max(2, round(share * len(names)))])
    return [one for one in workloads if one.family in kept]


def _fewer(one: LabelledWorkload, share: float, seed: int) -> LabelledWorkload:
    """The default and a random part of the other configs."""
    rng = np.random.default_rng([seed, 2, one.n_rows])
    drawn = rng.permutation(one.n_rows)[: max(2, round(share * one.n_rows))]
    rows = np.unique([one.default_index, *drawn])
    return replace(
        one,
        default_index=int(np.searchsorted(rows, one.default_index)),
        features=one.features[rows],
        log_ratio=one.log_ratio[rows],
        is_ok=one.is_ok[rows],
        analytic_us=one.analytic_us[rows],
        configs=tuple(one.configs[i] for i in rows),
        config_ids=tuple(one.config_ids[i] for i in rows),
    )


def _validity(
    workloads: Sequence[LabelledWorkload], folds: Sequence[Fold], seed: int
) -> list[list[np.ndarray]]:
    """Of each fold's held-out workloads, by the shipped validity model."""

    def one(fold: Fold) -> list[np.ndarray]:
        settings = replace(FitSettings(), seed=seed, n_bags=1, n_trees=1)
        train = [workloads[i] for i in fold.train]
        forest, _ = fit(train, RowLayout.of(SCHEMA), settings, SCHEMA.hash)
        return [
            forest.predict(workloads[i].features).valid_probability for i in fold.test
        ]

    return _each_fold(one, folds)


def _cross_fit(
    workloads: Sequence[LabelledWorkload],
    folds: Sequence[Fold],
    validity: list[list[np.ndarray]],
    train: Train,
    seed: int,
) -> list[Ranked]:
    """Expected gain of each config of each held-out workload."""

    def one(fold: Fold) -> list[Ranked]:
        rank = train([workloads[i] for i in fold.train], seed)
        chances = validity[list(folds).index(fold)]
        found = []
        for i, chance in zip(fold.test, chances, strict=True):
            gain = rank(workloads[i])
            expected = chance * gain + (1.0 - chance) * FAILED_LOG
            expected[workloads[i].default_index] = 0.0
            found.append((i, expected))
        return found

    return [ranked for part in _each_fold(one, folds) for ranked in part]


def _each_fold(one: Callable[[Fold], list], folds: Sequence[Fold]) -> list:  # type: ignore[type-arg]
    with ThreadPoolExecutor(max_workers=max(1, min(4, os.cpu_count() or 1))) as pool:
        return list(pool.map(one, folds))


def _numbers(
    workloads: Sequence[LabelledWorkload], ranked: Sequence[Ranked]
) -> dict[str, float]:
    names = sorted({one.family for one in workloads})
    drawn = np.random.default_rng(SPLIT_SEED).permutation(names)
    development = set(drawn[:N_DEVELOPMENT])
    parts: dict[str, Callable[[LabelledWorkload], bool]] = {
        "development": lambda w: w.promoted and w.family in development,
        "final": lambda w: w.promoted and w.family not in development,
        "no_rule": lambda w: not w.promoted,
    }
    found = {}
    for part, belongs in parts.items():
        mine = [(workloads[i], e) for i, e in ranked if belongs(workloads[i])]
        for name, value in _part(mine).items():
            found[f"{part}_{name}"] = value
    return found


def _part(mine: Sequence[tuple[LabelledWorkload, np.ndarray]]) -> dict[str, float]:
    """Shares of the log headroom, by the pick and after measuring a few."""
    headroom = picked = 0.0
    left = dict.fromkeys(MEASURED, 0.0)
    kept = []
    for one, expected in mine:
        logs = np.where(one.is_ok, one.log_ratio, np.inf)
        pick = int(np.argmax(expected))
        kept.append(-float(logs[pick]) if one.is_ok[pick] else FAILED_LOG)
        order = [i for i in np.argsort(-expected, kind="stable")]
        others = [i for i in order if i != one.default_index]
        headroom -= float(logs.min())
        for k in MEASURED:
            left[k] += float(logs[[one.default_index, *others[:k]]].min() - logs.min())
    picked = float(np.sum(kept))
    return {
        "n": len(mine),
        "speedup": float(np.exp(np.mean(kept))),
        "best": float(np.exp(headroom / len(mine))),
        "share": picked / headroom,
        "harm_share": float(np.mean(np.array(kept) < -HARM_LOG)),
        "worst": float(np.exp(np.min(kept))),
        **{f"share_after_{k}": 1.0 - left[k] / headroom for k in MEASURED},
    }


def read(path: Path) -> list[dict[str, float | str]]:
    """Lines of results; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def markdown(lines: Sequence[dict[str, float | str]]) -> str:
    """Means over seeds, with half the range between them, methods as they came."""
    head = (
        "| method | seeds | dev: pick | +1 | +2 | +5 | harm | final: pick | +2 | +5 "
        "| harm | no rule: pick | +2 |\n|---|" + "---|" * 12
    )
    columns = (
        "development_share",
        "development_share_after_1",
        "development_share_after_2",
        "development_share_after_5",
        "development_harm_share",
        "final_share",
        "final_share_after_2",
        "final_share_after_5",
        "final_harm_share",
        "no_rule_share",
        "no_rule_share_after_2",
    )
    rows = []
    for name in dict.fromkeys(str(one["name"]) for one in lines):
        mine = [one for one in lines if one["name"] == name]
        cells = []
        for column in columns:
            values = [float(one[column]) for one in mine]
            spread = (
                f" ±{50 * (max(values) - min(values)):.0f}" if len(mine) > 1 else ""
            )
            cells.append(f"{100 * np.mean(values):.0f}{spread}")
        rows.append(f"| {name} | {len(mine)} | " + " | ".join(cells) + " |")
    return "\n".join([head, *rows])


def track(lines: Sequence[dict[str, float | str]]) -> None:
    """One MLflow run for the comparison, one nested in it for each method and seed."""
    with opened() as store:
        import mlflow

        mlflow.set_experiment("helion-costmodel methods")
        with mlflow.start_run(run_name="compare methods"):
            mlflow.set_tag("schema_hash", SCHEMA.hash)
            for line in lines:
                name = f"{line['name']} (seed {line['seed']})"
                with mlflow.start_run(run_name=name, nested=True):
                    mlflow.log_params({k: line[k] for k in ("name", "words", "seed")})
                    numbers = {k: v for k, v in line.items() if isinstance(v, float)}
                    mlflow.log_metrics(numbers)
        print(f"tracked in {store.uri}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
