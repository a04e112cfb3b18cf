"""Made-up runs: what Helion would have written, the same every time, and learnable."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from costmodel import helion_hook
from costmodel.datasets import synth_log
from costmodel.datasets.clean import clean
from costmodel.datasets.load import load_logs
from costmodel.datasets.record import Status
from costmodel.datasets.store import Corpus
from costmodel.datasets.synth import Generator
from costmodel.datasets.synth_configs import varied
from costmodel.datasets.synth_shapes import exchangeable
from costmodel.datasets.synth_shapes import with_sizes
from costmodel.errors import NotEnoughDataError
from costmodel.features.canonical import config_id
from costmodel.rebuild import rebuild

SAMPLE = Path(__file__).parents[1] / "datasets" / "corpora" / "h200_sample"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    made = Corpus.load(tmp_path_factory.mktemp("corpus"), create=True)
    made.append(load_logs([SAMPLE]).clean_runs)
    return made


@pytest.fixture(scope="module")
def generator(corpus):
    return Generator(corpus, seed=7, n_per_run=60)


def test_a_run_depends_on_the_seed_and_its_number_alone(corpus, generator):
    list(generator.runs(100))
    again = Generator(corpus, seed=7, n_per_run=60)
    for index in (3, 1):
        one, other = generator.run(index), again.run(index)
        assert one.record == other.record
        assert one.configs == other.configs and one.status == other.status
        assert np.array_equal(one.latency_us, other.latency_us, equal_nan=True)
    another = Generator(corpus, seed=8, n_per_run=60).run(3)
    assert another.run_id != generator.run(3).run_id


def test_as_many_attempts_as_asked_for(generator):
    runs = list(generator.runs(150))
    assert sum(map(len, runs)) == 150
    assert len({one.run_id for one in runs}) == len(runs)
    for one in runs:
        assert len({config_id(config) for config in one.configs}) == len(one)
        assert one.status[0] is Status.OK
        ok = np.array([status is Status.OK for status in one.status])
        assert np.array_equal(np.isnan(one.latency_us), ~ok)
        assert (one.latency_us[ok] > 0).all()


def test_a_log_says_what_the_run_is(tmp_path, generator):
    """Through text and back it is the same corpus to the byte of its digest."""
    runs = list(generator.runs(120))
    for one in runs:
        synth_log.write_log(one, tmp_path / "logs")
    read = Corpus.load(tmp_path / "read", create=True)
    loaded = load_logs([tmp_path / "logs"])
    assert not loaded.audit.problems()
    read.append(loaded.clean_runs)
    direct = Corpus.load(tmp_path / "direct", create=True)
    direct.append(clean(synth_log.recorded(one)) for one in runs)
    assert read.digest == direct.digest
    assert {one.helion_version for one in read.workloads()} == {synth_log.VERSION}


@pytest.fixture(autouse=True)
def logs_folder(tmp_path):
    (tmp_path / "logs").mkdir()


def test_configs_stay_within_what_the_kernel_has(corpus):
    base = corpus.workloads()[0]
    default = base.configs[base.default_index]
    made = varied(base.configs, default, 80, np.random.default_rng(0))
    assert made[0] == default
    for config in made:
        assert config.keys() == default.keys()
        for key, value in config.items():
            if isinstance(value, list):
                assert len(value) in {len(one[key]) for one in base.configs}


def _graph_facts(record):
    fields = ("target", "shape", "concrete_shape", "stride", "concrete_stride", "value")
    nodes = record.ir_graph["nodes"]
    return [{name: node.get(name) for name in fields} for node in nodes]


@pytest.mark.slow  # each kernel is bound twice
def test_a_resized_record_is_what_helion_writes_at_that_size(corpus):
    """The installed Helion, bound at the new shape, writes the graph that we derived.

    It is compared with what it writes at the old shape, resized: the sample's own
    graphs may be of another version.
    """
    n_compared = 0
    for base in corpus.workloads():
        sizes = exchangeable(base.record)
        bound = rebuild(base.record, {})
        if not sizes or bound is None:
            continue
        graph = helion_hook.record_of(bound).ir_graph
        written = dataclasses.replace(base.record, ir_graph=graph)
        made = with_sizes(written, sizes[-1], 2 * sizes[-1])
        if made is None:
            continue
        again = rebuild(made[0], {})
        assert again is not None, (base.log, made[0].input_shapes)
        assert _graph_facts(helion_hook.record_of(again)) == _graph_facts(made[0])
        n_compared += 1
    assert n_compared >= 4


def test_a_size_that_the_source_spells_is_left_alone(corpus):
    for base in corpus.workloads():
        for size in exchangeable(base.record):
            assert str(size) not in base.record.kernel_source.split()


def test_a_corpus_without_defaults_is_one_clear_line(tmp_path):
    empty = Corpus.load(tmp_path / "empty", create=True)
    with pytest.raises(NotEnoughDataError, match=r"^[^\n]*name a corpus[^\n]*$"):
        Generator(empty, 0, 10)
