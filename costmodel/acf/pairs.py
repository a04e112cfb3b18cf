"""Which pairs of a config and a control file are worth a look; pure.

Joint, not two-step: a control file that undoes the spills of the third config may make
it the best there is, so the best few of the ranking each meet every file that is meant
for the kernel, and always none.
"""

from __future__ import annotations

from collections.abc import Sequence

from costmodel.acf.entry import AcfEntry
from costmodel.frozen import dataclass
from costmodel.hybrid import canonical_text
from costmodel.types import Config

MOST_CONFIGS = 4
"""Configs that meet control files. Each costs one compile to PTX, some 1 s, and one run
of ptxas for each file, 0.04 to 0.9 s (measured on CPU, design notes)."""

MOST_ACFS = 16
"""Control files that a config meets, so that pairs stay under 70."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A config without a control file, and the file it meets; None for none."""

    config: Config
    acf_id: str | None

    @property
    def key(self) -> tuple[str, str]:
        """Equal for equal pairs."""
        return canonical_text(self.config), self.acf_id or ""


def make_pairs(
    configs: Sequence[Config],
    entries: Sequence[AcfEntry],
    most_configs: int = MOST_CONFIGS,
    most_acfs: int = MOST_ACFS,
) -> tuple[Pair, ...]:
    """Each of the first configs with none, then with each of the first files.

    Args:
        configs: Best first; equal ones count once.
        entries: Control files meant for the kernel; those beyond the limit are left
            out by their order, which is the catalogue's and the same every time.
        most_configs: At most so many configs, at least 1.
        most_acfs: At most so many files.
    """
    distinct = list({canonical_text(one): one for one in configs}.values())
    ids = list(dict.fromkeys(entry.acf_id for entry in entries))[:most_acfs]
    return tuple(
        Pair(config, acf_id)
        for config in distinct[:most_configs]
        for acf_id in (None, *ids)
    )
