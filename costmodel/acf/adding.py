"""Into the catalogue, after a trial; and the trial again, of what is in it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.entry import PTXAS_STAGE
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import content_digest
from costmodel.acf.probe import Probe
from costmodel.acf.probe import ProbeStatus
from costmodel.acf.source import Offer
from costmodel.acf.source import Rejection
from costmodel.acf.source import read_content
from costmodel.acf.source import read_source
from costmodel.acf.toolchain import how_to_get
from costmodel.frozen import dataclass


@dataclass(frozen=True, slots=True)
class AddReport:
    """What became of each file that was offered.

    Attributes:
        added: New, or with another purpose than before.
        unchanged: In the catalogue already, just so.
        rejected: Not taken, and why.
    """

    added: tuple[AcfEntry, ...]
    unchanged: tuple[AcfEntry, ...]
    rejected: tuple[Rejection, ...]


@dataclass(frozen=True, slots=True)
class Verified:
    """One entry on trial; `status` is a `ProbeStatus`, or "skipped"."""

    entry: AcfEntry
    status: str
    detail: str

    @property
    def is_ok(self) -> bool:
        """Whether ptxas takes it and heeds it."""
        return self.status == ProbeStatus.OK


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """All entries on trial, and what in the catalogue is no entry."""

    verdicts: tuple[Verified, ...]
    problems: tuple[str, ...]

    @property
    def is_ok(self) -> bool:
        """Whether nothing failed; what was skipped did not."""
        failed = any(not (v.is_ok or v.status == SKIPPED) for v in self.verdicts)
        return not failed and not self.problems


SKIPPED = "skipped"


def add(catalogue: AcfCatalogue, source: Path, probe: Probe) -> AddReport:
    """Take over a file, or the files of a folder, that pass the trial.

    A second time changes nothing; killed in the middle, what was taken stays.

    Raises:
        AcfSourceError: There is nothing to read, or the catalogue cannot be written.
    """
    catalogue.check_root()
    offered = read_source(source)
    rejected = list(offered.rejected)
    wanted: dict[str, tuple[AcfEntry, bytes]] = {}
    for offer in offered.offers:
        try:
            found, content = _accepted(offer, probe, wanted)
        except ValueError as error:
            rejected.append(Rejection(offer.label, str(error)))
            continue
        wanted[found.acf_id] = (found, content)
    added: list[AcfEntry] = []
    unchanged: list[AcfEntry] = []
    for found, content in wanted.values():
        try:
            is_new = catalogue.put(found, content)
        except ValueError as error:
            rejected.append(Rejection(found.name, str(error)))
            continue
        (added if is_new else unchanged).append(found)
    return AddReport(tuple(added), tuple(unchanged), tuple(rejected))


def verify(catalogue: AcfCatalogue, probe: Probe) -> VerifyReport:
    """Try each entry again; those for another CUDA minor than ptxas's are skipped."""
    verdicts = []
    for found in catalogue.entries():
        if not found.is_for_ptxas(probe.tool.version):
            why = f"made for {found.cuda}, this ptxas is {probe.tool.version}"
            verdicts.append(Verified(found, SKIPPED, why))
            continue
        verdict = probe.check(catalogue.path(found.acf_id))
        verdicts.append(Verified(found, verdict.status.value, verdict.detail))
    return VerifyReport(tuple(verdicts), catalogue.problems)


def _accepted(
    offer: Offer, probe: Probe, taken: dict[str, tuple[AcfEntry, bytes]]
) -> tuple[AcfEntry, bytes]:
    """An entry for an offer.

    Raises:
        ValueError: It is not taken; the message says why.
    """
    content = read_content(offer.path)
    digest = content_digest(content)
    if offer.sha256 is not None and offer.sha256 != digest:
        raise ValueError(
            f"expected digest {offer.sha256[:12]}, found {digest[:12]}: another file, "
            "or damaged"
        )
    if offer.stage != PTXAS_STAGE:
        raise ValueError(
            f"is for stage {offer.stage!r}, expected {PTXAS_STAGE!r}: ptxas would "
            "ignore it without a word"
        )
    tool = probe.tool
    if offer.cuda is not None and offer.cuda != tool.cuda:
        raise ValueError(
            f"is made for ptxas {offer.cuda}, found {tool.version} at {tool.path}: "
            f"{how_to_get(offer.cuda)}"
        )
    found = AcfEntry(
        digest,
        tool.cuda,
        offer.stage,
        offer.kernels,
        offer.gpus,
        offer.name,
        offer.notice,
    )
    if digest in taken:
        return _merged(taken[digest][0], found), content
    # Under a name without spaces, wherever the user keeps it.
    with tempfile.TemporaryDirectory(prefix="costmodel-acf-") as folder:
        copy = Path(folder) / f"{digest}.acf"
        copy.write_bytes(content)
        verdict = probe.check(copy)
    if not verdict.is_ok:
        raise ValueError(f"{verdict.status.value}: {verdict.detail}")
    return found, content


def _merged(one: AcfEntry, other: AcfEntry) -> AcfEntry:
    """One file listed twice is meant for what either entry says."""

    def both(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*a, *b))) if a and b else ()

    return replace(
        one,
        kernels=both(one.kernels, other.kernels),
        gpus=both(one.gpus, other.gpus),
    )
