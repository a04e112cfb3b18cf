"""What control files add to each way of answering; costs nothing without any.

By measuring: a few pairs join what is measured. Without: only a model of pairs may hand
one out, and only once its result was compared with that of the same config without it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from typing import Any

from costmodel import helion_hook
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import without_acf
from costmodel.errors import CostModelError
from costmodel.errors import ModelNotFoundError
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import ReasonCode

if TYPE_CHECKING:
    from costmodel.acf.pair_model import PairModel
    from costmodel.provider import Provider

log = logging.getLogger("costmodel")


class ControlFiles:
    """The control files of this machine, as one provider uses them."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def model(self) -> PairModel | None:
        """What judges pairs, or None where there is no evidence about any."""
        if self._provider.model() is None:
            return None
        return _pair_model(self._provider.model_path)

    def to_measure(
        self, bound: Any, args: Sequence[object], pick: Pick
    ) -> tuple[tuple[Config, Config], ...]:
        """The few pairs worth measuring, as configs without and with a control file."""
        from costmodel.acf.live import tried

        found = tried(bound, args, pick, self.model())
        if found.problem is not None:
            self._provider.count_reason(found.problem[0])
        return tuple(
            (plain, other)
            for plain, other in found.to_measure()
            if _is_wanted(bound, other)
        )

    def with_evidence(self, bound: Any, args: Sequence[object], pick: Pick) -> Pick:
        """The pick, with a control file where that is certain to gain and right."""
        from costmodel.acf.live import with_evidence

        model, pair_model = self._provider.model(), self.model()
        if model is None or pair_model is None:
            return pick
        found, problem = with_evidence(bound, args, pick, model, pair_model)
        if problem is not None:
            self._provider.count_reason(problem[0])
        if not found.config.get(KNOB) or not _is_wanted(bound, found.config):
            return pick
        objection = self._objection(bound, args, found)
        if objection is None:
            return found
        log.warning("costmodel: a control file is left out: %s", objection)
        self._provider.count_reason(ReasonCode.ACF_DIFFERS)
        return pick

    def _objection(self, bound: Any, args: Sequence[object], pick: Pick) -> str | None:
        """Why its result is not to be trusted: by the same config without the control
        file, then by Helion's default."""
        references = [without_acf(pick.config), helion_hook.default_config(bound)]
        for reference in references:
            objection = helion_hook.output_objection(
                bound, args, pick.config, reference
            )
            if objection is not None:
                return objection
        return None


def _is_wanted(bound: Any, config: Config) -> bool:
    """Whether the author's overrides and filter leave the config as it is."""
    if not helion_hook.has_user_rules(bound):
        return True
    return helion_hook.under_user_rules(bound, config) == config


@functools.lru_cache(maxsize=8)
def _pair_model(first_stage: Path) -> PairModel | None:
    from costmodel.acf.pair_model import PairModel

    try:
        return PairModel.load(first_stage)
    except ModelNotFoundError:
        return None
    except CostModelError as error:
        log.warning("costmodel: the model of control files is not used: %s", error)
        return None
