"""Recorded pairs: a config with a control file, beside itself without, in one run.

Logs say how long each took, and the compiler says what the file did to the code: the
kernel is made again from the log's record and compiled here, without a GPU, with the
control files of this machine's catalogue. A file that is not there, or is for another
ptxas, is left out with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costmodel.acf.catalogue import AcfCatalogue
from costmodel.acf.choice import effect_facts
from costmodel.acf.effect_check import EffectChecker
from costmodel.acf.effects import Effect
from costmodel.acf.identity import acf_id_of
from costmodel.acf.identity import without_acf
from costmodel.acf.toolchain import find_ptxas
from costmodel.datasets.workload_data import WorkloadData
from costmodel.errors import CostModelError
from costmodel.errors import UnreadableKernelError
from costmodel.features.acf_effects import effect_matrix
from costmodel.hardware import match_hardware
from costmodel.hybrid import canonical_text
from costmodel.kernel_origin import origin_of_record
from costmodel.rebuild import rebuilt_arguments
from costmodel.types import Config
from costmodel.types import FloatArray

EffectsOf = Callable[[WorkloadData, Mapping[str, Config], Sequence[str]], list[Effect]]
"""Effects of control files (by id) on configs of a workload (by canonical text)."""


@dataclass(frozen=True, slots=True)
class RecordedPairs:
    """Pairs of one run; arrays of n.

    Attributes:
        workload_id: Of the run's workload.
        kernel_id: Equal for all shapes of one kernel.
        family: The unit left out in evaluation.
        acf_ids: Control file of each pair.
        config_texts: Canonical text of each pair's config without it.
        rows: float32[n, len(ACF_NAMES)], static effects.
        gain_log: float64[n], ln(time without / time with); NaN where it failed.
        noise_floor_log: Gains closer to 0 than this are ties.
        ptxas: Assembler that made the code.
    """

    workload_id: str
    kernel_id: str
    family: str
    acf_ids: tuple[str, ...]
    config_texts: tuple[str, ...]
    rows: FloatArray
    gain_log: npt.NDArray[np.float64]
    noise_floor_log: float
    ptxas: str = ""

    def __len__(self) -> int:
        return len(self.acf_ids)


@dataclass(frozen=True, slots=True)
class FoundPairs:
    """Pairs that can be learned from, and why others cannot, a line each."""

    pairs: tuple[RecordedPairs, ...]
    skipped: tuple[str, ...]


def all_recorded_pairs(
    recorded: Iterable[WorkloadData], effects_of: EffectsOf | None = None
) -> FoundPairs:
    """Pairs of all workloads that hold some.

    Args:
        recorded: Workloads with all their rows.
        effects_of: What control files do; None compiles with this machine's.
    """
    found, skipped = [], []
    for one in recorded:
        if not one.has_acf.any():
            continue
        try:
            pairs = recorded_pairs(one, effects_of or compiled_effects)
        except CostModelError as error:
            skipped.append(f"{one.log} ({one.record.kernel_name}): {error}")
            continue
        if pairs is not None:
            found.append(pairs)
    return FoundPairs(tuple(found), tuple(skipped))


def recorded_pairs(one: WorkloadData, effects_of: EffectsOf) -> RecordedPairs | None:
    """Pairs of one run whose config was measured without a control file as well.

    Args:
        one: A workload with all its rows.
        effects_of: What control files do.

    Returns:
        None where there is no such pair, or none whose code is known.

    Raises:
        CostModelError: The kernel or its control files cannot be had here.
    """
    plain = {
        canonical_text(config): row
        for row, config in enumerate(one.configs)
        if not one.has_acf[row] and one.is_ok[row]
    }
    wanted: list[tuple[int, str, str]] = []
    for place in np.flatnonzero(one.has_acf & (one.is_ok | one.is_failure)):
        config = one.configs[place]
        acf_id, text = acf_id_of(config), canonical_text(without_acf(config))
        if acf_id is not None and text in plain:
            wanted.append((int(place), text, acf_id))
    if not wanted:
        return None
    configs = {text: one.configs[plain[text]] for _, text, _ in wanted}
    acf_ids = list(dict.fromkeys(acf_id for _, _, acf_id in wanted))
    effects = {found.pair.key: found for found in effects_of(one, configs, acf_ids)}
    kept, code, none, ptxas = [], [], [], ""
    for row, text, acf_id in wanted:
        effect = effects.get((text, acf_id))
        if effect is None:
            continue
        mine, theirs = effect_facts(effect.facts), effect_facts(effect.none)
        if mine is None or theirs is None:
            continue
        kept.append((row, text, acf_id))
        code.append(mine)
        none.append(theirs)
        ptxas = effect.facts.toolchain.ptxas
    if not kept:
        return None
    gains = [
        np.log(one.latency_us[plain[text]] / one.latency_us[row])
        if one.is_ok[row]
        else np.nan
        for row, text, _ in kept
    ]
    floors = one.noise_floor_log[one.is_ok]
    floors = floors[np.isfinite(floors)]
    return RecordedPairs(
        workload_id=one.workload_id,
        kernel_id=one.kernel_id,
        family=one.family,
        acf_ids=tuple(acf_id for _, _, acf_id in kept),
        config_texts=tuple(text for _, text, _ in kept),
        rows=effect_matrix(code, none, match_hardware(one.hardware).hardware),
        gain_log=np.array(gains, dtype=np.float64),
        noise_floor_log=float(np.median(floors)) if len(floors) else 0.0,
        ptxas=ptxas,
    )


def compiled_effects(
    one: WorkloadData, configs: Mapping[str, Config], acf_ids: Sequence[str]
) -> list[Effect]:
    """Compile a recorded workload's configs with this machine's control files.

    Raises:
        CostModelError: The kernel or its arguments cannot be made again, or no
            control file that the log names can be used here.
    """
    hardware = match_hardware(one.hardware).hardware
    major, minor = hardware.compute_capability
    tool = find_ptxas(arch=major * 10 + minor)
    catalogue = AcfCatalogue.open()
    paths = {
        entry.acf_id: str(catalogue.path(entry.acf_id))
        for entry in catalogue.entries()
        if entry.acf_id in acf_ids and entry.is_for_ptxas(tool.version)
    }
    if not paths:
        raise UnreadableKernelError(
            f"expected one of the log's {len(acf_ids)} control files in "
            f"{catalogue.root} for ptxas {tool.version}, found none: "
            "`costmodel acf add` them"
        )
    origin = origin_of_record(one.record)
    arguments = rebuilt_arguments(one.record)
    if arguments is None:
        raise UnreadableKernelError(
            "expected arguments that the log's record tells, found a scalar it does not"
        )
    with EffectChecker(origin, arguments, hardware.name, paths) as checker:
        return [
            effect for config in configs.values() for effect in checker.effects(config)
        ]
