"""Where a config stands in the analytic list, as features and candidates say it."""

from __future__ import annotations

import parity_kernels
import pytest

from costmodel import helion_hook
from costmodel.candidates import make_candidates
from costmodel.features.extract import FeatureExtractor
from costmodel.features.graph import KernelGraph
from costmodel.features.proposed import NOT_PROPOSED_PLACE
from costmodel.features.schema import SCHEMA
from costmodel.hardware import load_hardware
from costmodel.heuristics.listed import with_list
from costmodel.types import CandidateOrigin

H200 = load_hardware("H200")
NAMES = sorted(parity_kernels.CASES)
_PLACE, _IS = SCHEMA.index("proposal_place"), SCHEMA.index("is_proposed")


def _extractor(name: str) -> FeatureExtractor:
    return FeatureExtractor(
        KernelGraph.from_record(parity_kernels.view_of(name).record), H200
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_list_is_numbered_and_others_are_not_in_it(name: str) -> None:
    view = parity_kernels.view_of(name)
    extractor = _extractor(name)
    listed = with_list(extractor, view.default)
    candidates = make_candidates(
        view, helion_hook.space(parity_kernels.bound_case(name)), extractor
    )
    rows = extractor.matrix([one.config for one in candidates], view.default)
    places = extractor.proposed.places([one.config for one in candidates])
    assert any(place is not None for place in places)
    for one, row, place in zip(candidates, rows, places, strict=True):
        assert row[_IS] == float(place is not None)
        assert row[_PLACE] == (NOT_PROPOSED_PLACE if place is None else place)
        if one.origin is CandidateOrigin.ANALYTIC:
            assert place is not None
            assert listed[place].config == one.config
        if one.origin is CandidateOrigin.MOVE:
            assert place is None  # a move that is in the list is the list's


@pytest.mark.parametrize("name", NAMES[:4])
def test_the_list_is_the_same_whoever_asked_before(name: str) -> None:
    view = parity_kernels.view_of(name)
    asked = _extractor(name)
    make_candidates(
        view, helion_hook.space(parity_kernels.bound_case(name)), asked, limit=40
    )
    assert with_list(asked, view.default) == with_list(_extractor(name), view.default)


def test_features_without_a_list_are_refused() -> None:
    view = parity_kernels.view_of(NAMES[0])
    with pytest.raises(AssertionError, match="with_list"):
        _extractor(NAMES[0]).matrix([view.default], view.default)
