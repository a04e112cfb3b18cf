"""An old config, made current for one kernel, with a proof that Helion compiles it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from costmodel import helion_hook
from costmodel.frozen import dataclass
from costmodel.migrate_rules import FieldReport
from costmodel.migrate_rules import FieldStatus
from costmodel.migrate_rules import essential_loss
from costmodel.migrate_rules import migrate_fields
from costmodel.migrate_rules import status_of
from costmodel.types import Config

_TOO_LARGE = "Triton's limit"


@dataclass(frozen=True, slots=True)
class ConfigReport:
    """What became of one config.

    Attributes:
        status: Kept as it was, repaired, or refused as a whole.
        old: As it was.
        new: The current config, in full where a kernel is named; None if refused.
        fields: One report for each field of the old one.
        filled: Fields that the old one left to Helion, as they are today; defaults
            have changed between releases.
        reason: Why it is refused; "" otherwise.
    """

    status: FieldStatus
    old: Config
    new: Config | None
    fields: tuple[FieldReport, ...]
    filled: Config
    reason: str = ""


def migrate_config(config: Mapping[str, Any], bound: Any | None) -> ConfigReport:
    """Make an old config current.

    Args:
        config: As some Helion wrote it, as JSON values.
        bound: The kernel it is for, bound to its shape on its GPU; None where no kernel
            is named, and then nothing is proven.

    Returns:
        The report; with a kernel, a config that is not refused is one that Helion's own
        search could hand out and generates code for.
    """
    old = dict(config)
    space = None if bound is None else helion_hook.space(bound)
    left, fields = migrate_fields(old, space)
    loss = essential_loss(fields)
    if loss:
        return ConfigReport(FieldStatus.REFUSED, old, None, fields, {}, loss)
    if bound is None:
        return ConfigReport(status_of(fields), old, left, fields, {})
    left, fields = _within_tile_limit(bound, left, fields)
    new = helion_hook.normalize(bound, left)
    problem = _problem(bound, new)
    if new is None or problem:
        return ConfigReport(FieldStatus.REFUSED, old, None, fields, {}, problem)
    fields = tuple(_as_compiled(report, new) for report in fields)
    left_out = {report.name for report in fields}
    filled = {key: value for key, value in new.items() if key not in left_out}
    return ConfigReport(status_of(fields), old, new, fields, filled)


def _as_compiled(report: FieldReport, new: Config) -> FieldReport:
    """The report, where Helion itself compiles another value than was left."""
    if report.status is FieldStatus.REFUSED or report.name not in new:
        return report
    value = new[report.name]
    if value == report.new:
        return report
    return replace(
        report,
        status=FieldStatus.REPAIRED,
        new=value,
        reason="; ".join(filter(None, (report.reason, "Helion compiles this instead"))),
    )


def _within_tile_limit(
    bound: Any, config: Config, fields: tuple[FieldReport, ...]
) -> tuple[Config, tuple[FieldReport, ...]]:
    """Halve the largest block until no tensor has more elements than Triton allows."""
    blocks = config.get("block_sizes")
    if not isinstance(blocks, list):
        return config, fields
    sizes = list(blocks)
    while any(_TOO_LARGE in o for o in helion_hook.objections(bound, config)):
        largest = max(range(len(sizes)), key=lambda place: sizes[place])
        if sizes[largest] < 2:
            break
        sizes[largest] //= 2
        config = {**config, "block_sizes": list(sizes)}
    if sizes == blocks:
        return config, fields
    words = "more elements than a Triton tensor may have, largest block halved"
    return config, tuple(
        replace(
            report,
            status=FieldStatus.REPAIRED,
            new=list(sizes),
            reason="; ".join(filter(None, (report.reason, words))),
        )
        if report.name == "block_sizes"
        else report
        for report in fields
    )


def _problem(bound: Any, config: Config | None) -> str:
    """Why Helion would not compile this config, or ""."""
    if config is None:
        return "Helion refuses what is left of it"
    objections = helion_hook.objections(bound, config)
    if objections:
        return objections[0]
    try:
        helion_hook.triton_code(bound, config)
    except Exception as error:  # whatever Helion raises, the config does not compile
        return f"no code: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""
