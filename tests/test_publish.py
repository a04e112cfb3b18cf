"""Publishing: whole or not at all, and the same bytes from the same corpus."""

from __future__ import annotations

import json
import os

import pytest
from synthetic import SCHEMA
from synthetic import make_corpus

from costmodel.errors import StoreError
from costmodel.learned import LearnedModel
from costmodel.training.fit import FitSettings
from costmodel.training.publish import publish
from costmodel.training.train import train

QUICK = FitSettings(n_bags=1, n_trees=10, n_validity_trees=5, learning_rate=0.3)


@pytest.fixture(scope="module")
def training():
    corpus = make_corpus(0, planted=True, n_families=3, n_configs=20)
    return train(corpus, SCHEMA, "digest", QUICK, name="toy", git_commit="abc")


def test_a_pair_is_written_and_loads(training, tmp_path) -> None:
    path = publish(training, tmp_path / "new" / "folder")
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == ["toy.json", "toy.ubj"]
    assert LearnedModel.load(path, SCHEMA).model_id == training.model.model_id


def test_the_card_says_what_matters(training, tmp_path) -> None:
    path = publish(training, tmp_path)
    card = json.loads(path.with_suffix(".json").read_text())
    assert card["corpus_digest"] == "digest"
    assert card["git_commit"] == "abc"
    assert card["schema_hash"] == SCHEMA.hash
    assert card["group_hashes"] == dict(SCHEMA.group_hashes)
    assert card["families"] == ["family0", "family1", "family2"]
    assert card["n_workloads"] == 3
    assert set(card["gate"]["margin_log"]) == {"dot", "mixed", "other"}
    assert {"speedup_geomean", "harm_share", "regret_at_5"} <= set(card["metrics"])
    assert "xgboost" in card["versions"]


def test_publishing_twice_gives_equal_bytes(training, tmp_path) -> None:
    again = train(
        make_corpus(0, planted=True, n_families=3, n_configs=20),
        SCHEMA,
        "digest",
        QUICK,
        name="toy",
        git_commit="abc",
    )
    first, second = publish(training, tmp_path / "a"), publish(again, tmp_path / "b")
    for suffix in (".ubj", ".json"):
        one, two = first.with_suffix(suffix), second.with_suffix(suffix)
        assert one.read_bytes() == two.read_bytes()


def test_a_full_disk_leaves_the_old_model(training, tmp_path, monkeypatch) -> None:
    path = publish(training, tmp_path)
    before = path.read_bytes(), path.with_suffix(".json").read_bytes()

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StoreError, match="No space left on device"):
        publish(training, tmp_path)
    assert (path.read_bytes(), path.with_suffix(".json").read_bytes()) == before
    assert len(list(tmp_path.iterdir())) == 2  # no temporary file is left


def test_a_folder_that_cannot_be_is_one_clear_line(training, tmp_path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    with pytest.raises(StoreError, match="--output") as caught:
        publish(training, blocker)
    assert "\n" not in str(caught.value)
