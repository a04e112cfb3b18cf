"""Boosting from disk and on a cluster: the same examples, and models as good."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import synthetic

from costmodel.cli import main
from costmodel.datasets.store import Corpus
from costmodel.errors import ClusterError
from costmodel.features.schema import SCHEMA
from costmodel.layout import RowLayout
from costmodel.training import dask_fit
from costmodel.training.external import ExternalMemory
from costmodel.training.fit import FitSettings
from costmodel.training.fit import fit
from costmodel.training.fit_engine import ByEngine
from costmodel.training.label import label_all
from costmodel.training.objective import pair_examples
from costmodel.training.objective import regression_examples
from costmodel.training.objective import validity_examples
from costmodel.training.questions import Kind
from costmodel.training.questions import ask

BUNDLED = Path(__file__).parents[1] / "datasets" / "corpora" / "h200"
SAMPLE = BUNDLED.parent / "h200_sample"
LAYOUT = RowLayout.of(synthetic.SCHEMA)
SETTINGS = FitSettings(n_bags=2, n_trees=15, n_validity_trees=10)


@pytest.fixture(scope="module")
def corpus():
    return synthetic.make_corpus(3, planted=True, n_families=8, n_configs=60)


def weights(corpus):
    return np.random.default_rng(5).exponential(size=len(corpus)) + 0.25


@pytest.mark.parametrize("max_rows", [1, 500, 10**9])
def test_batches_together_are_the_examples_of_memory(corpus, max_rows):
    weight = weights(corpus)
    for kind, whole in (
        (
            Kind.PAIRS,
            pair_examples(corpus, LAYOUT, weight, 4, np.random.default_rng(9)),
        ),
        (Kind.REGRESSION, regression_examples(corpus, weight)),
        (Kind.VALIDITY, validity_examples(corpus, weight)),
    ):
        rng = np.random.default_rng(9) if kind is Kind.PAIRS else None
        question = ask(kind, corpus, weight, LAYOUT, 4, rng)
        batches = [one.examples() for one in question.batches(max_rows)]
        assert question.n_examples == len(whole.target)
        assert len(batches) == {1: len(corpus), 10**9: 1}.get(max_rows, len(batches))
        assert np.array_equal(np.concatenate([b.rows for b in batches]), whole.rows)
        target = np.concatenate([b.target for b in batches])
        assert np.array_equal(target, whole.target)
        # Scaled batch by batch, in float32: the last bits may differ.
        weight_of = np.concatenate([b.weight for b in batches])
        assert np.allclose(weight_of, whole.weight, rtol=1e-5)


def gains(forest, corpus):
    return np.concatenate([forest.predict(one.features).gain_log for one in corpus])


def errors(forest, corpus) -> float:
    """Root mean square of predicted less measured gain, in log ratio."""
    said = gains(forest, corpus)
    ok = np.concatenate([one.is_ok for one in corpus])
    measured = -np.concatenate([one.log_ratio for one in corpus])
    return float(np.sqrt(np.mean((said[ok] - measured[ok]) ** 2)))


def test_from_disk_in_one_batch_it_is_the_model_of_memory(corpus):
    """With all rows in one batch there is one sketch, so even the trees are equal."""
    memory, _ = fit(corpus, LAYOUT, SETTINGS, synthetic.SCHEMA.hash)
    disk = ByEngine(ExternalMemory(batch_rows=10**9))
    forest, _ = disk(corpus, LAYOUT, SETTINGS, synthetic.SCHEMA.hash)
    assert np.allclose(gains(forest, corpus), gains(memory, corpus), atol=1e-5)


def assert_as_good(forest, curves, corpus, unseen):
    """As good on kernels never seen as the spread between seeds of the same fit.

    Cuts and sums differ, so trees do; what must not differ is what the model is worth.
    Two seeds of the fit in memory differ by chance: by what they do the others may.
    """
    held_out = []
    for seed in range(4):
        settings = FitSettings(n_bags=2, n_trees=15, n_validity_trees=10, seed=seed)
        memory, expected = fit(
            corpus, LAYOUT, settings, synthetic.SCHEMA.hash, held_out=unseen
        )
        held_out.append(errors(memory, unseen))
        if seed == SETTINGS.seed:
            assert curves.train_rmse == pytest.approx(expected.train_rmse, rel=0.05)
            assert len(curves.held_out_rmse) == SETTINGS.n_trees
    spread = max(held_out) - min(held_out)
    assert errors(forest, unseen) == pytest.approx(held_out[0], abs=max(spread, 0.005))


def unseen_kernels():
    return synthetic.make_corpus(77, planted=True, n_families=6, n_configs=60)


def test_from_disk_in_batches_it_is_as_good(corpus, tmp_path):
    engine = ExternalMemory(batch_rows=400, cache=tmp_path)
    unseen = unseen_kernels()
    forest, curves = ByEngine(engine)(
        corpus, LAYOUT, SETTINGS, synthetic.SCHEMA.hash, held_out=unseen
    )
    again, _ = ByEngine(ExternalMemory(batch_rows=400))(
        corpus, LAYOUT, SETTINGS, synthetic.SCHEMA.hash
    )
    assert engine.n_examples > 400
    assert not list(tmp_path.iterdir()), "pages are left behind"
    assert np.array_equal(gains(forest, corpus), gains(again, corpus))
    assert_as_good(forest, curves, corpus, unseen)


def test_dropped_columns_stay_dropped(corpus):
    settings = FitSettings(
        n_bags=1, n_trees=5, n_validity_trees=5, dropped_columns=(0, 4, 5)
    )
    fitter = ByEngine(ExternalMemory(batch_rows=400))
    forest, _ = fitter(corpus, LAYOUT, settings, synthetic.SCHEMA.hash)
    used = forest.booster.get_score(importance_type="weight")
    assert used and not {"f0", "f4", "f5"} & used.keys()


def test_nobody_at_the_address_is_one_line(monkeypatch):
    monkeypatch.setattr(dask_fit, "_CONNECT_S", 0.5)
    with (
        pytest.raises(ClusterError, match=r"^expected a Dask scheduler at [^\n]*$"),
        dask_fit.connected("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        local_directory=str(tmp_path_factory.mktemp("dask")),
        env={"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"},
    ) as made:
        yield made.scheduler_address


# On the bundled corpus


@pytest.fixture(scope="module")
def measured():
    """Every fourth workload of the H200 corpus; a third of the families is held out."""
    recorded = Corpus.load(BUNDLED).workloads()[::4]
    workloads = label_all(recorded).workloads
    families = sorted({one.family for one in workloads})[::3]
    learned = [one for one in workloads if one.family not in families]
    return learned, [one for one in workloads if one.family in families]


def log_speedup(forest, workloads) -> float:
    """Mean ln(default time / pick's time), the pick without a gate among what ran."""
    found = []
    for one in workloads:
        gain = np.where(one.is_ok, forest.predict(one.features).gain_log, -np.inf)
        found.append(-one.log_ratio[int(np.argmax(gain))])
    return float(np.mean(found))


def assert_as_good_on_the_corpus(fitter, measured):
    """Within what two seeds of the fit in memory differ by, on families left out.

    A pick is one config of dozens: the same model with another seed picks others, and
    that spread, and no less, is the noise of both metrics here. Half as much again is
    allowed, since five seeds show less than the whole spread.
    """
    learned, unseen = measured
    layout = RowLayout.of(SCHEMA)
    settings = [
        FitSettings(n_bags=1, n_trees=20, n_validity_trees=5, seed=seed)
        for seed in range(5)
    ]
    memory = [fit(learned, layout, one, SCHEMA.hash)[0] for one in settings]
    other, _ = fitter(learned, layout, settings[0], SCHEMA.hash)
    for metric in (errors, log_speedup):
        seeds = [metric(forest, unseen) for forest in memory]
        spread = max(seeds) - min(seeds)
        assert min(seeds) - 0.5 * spread <= metric(other, unseen)
        assert metric(other, unseen) <= max(seeds) + 0.5 * spread


@pytest.mark.slow  # a hundred workloads are made features of
def test_from_disk_it_is_as_good_on_the_bundled_corpus(measured):
    engine = ExternalMemory(batch_rows=2000)
    assert_as_good_on_the_corpus(ByEngine(engine), measured)
    assert engine.n_examples > 4 * 2000, "one batch is no test"


@pytest.mark.slow
def test_on_two_workers_it_is_as_good_on_the_bundled_corpus(cluster, measured):
    with dask_fit.connected(cluster, batch_rows=2000) as engine:
        assert_as_good_on_the_corpus(ByEngine(engine), measured)


@pytest.mark.slow  # two worker processes import for some seconds
def test_on_two_workers_it_is_as_good(cluster, corpus):
    unseen = unseen_kernels()
    with dask_fit.connected(cluster, batch_rows=300) as engine:
        assert engine.n_workers == 2
        forest, curves = ByEngine(engine)(
            corpus, LAYOUT, SETTINGS, synthetic.SCHEMA.hash, held_out=unseen
        )
    assert_as_good(forest, curves, corpus, unseen)


# On the command line

RECIPE = """
[split.folds]  # two fits and the final one
dots = ["attention", "matmul", "matmul_epilogue"]
rest = ["gated_activation", "norm_forward", "pointwise", "quantiser", "softmax"]

[model]
n_bags = 1
n_trees = 4
n_validity_trees = 4

[scale]
external_memory = true
batch_rows = 1000
"""


def test_train_writes_shards_and_learns_from_them(tmp_path, capsys):
    """Logs are made shards of; the same shards give the same bytes again."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    words = ["--recipe", str(recipe), "--no-track", "--json", "--output"]
    models = []
    for number, data in enumerate((SAMPLE, tmp_path / "0" / "shards")):
        output = tmp_path / str(number)
        assert main(["train", str(data), *words, str(output)]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["n_workloads"] == 8 and told["metrics"]["speedup_geomean"] > 0
        models.append((output / "helion-costmodel.ubj").read_bytes())
    assert models[0] == models[1]
    assert not (tmp_path / "1" / "shards").exists()


@pytest.mark.slow
def test_train_on_a_cluster_reads_shards_there(tmp_path, capsys, cluster):
    """Workers open the shards themselves; folds, gate and card are made as ever."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    words = ["--recipe", str(recipe), "--no-track", "--json", "--output", str(tmp_path)]
    assert main(["train", str(SAMPLE), *words, "--dask", cluster]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["n_workloads"] == 8 and told["metrics"]["speedup_geomean"] > 0
