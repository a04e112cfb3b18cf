"""What a control file does to a config's machine code, and whether that is worth a try.

No GPU and no benchmark: registers, spills, instructions and the code itself, each
beside those without a control file. What changes no code, makes the code another file
makes, crashes ptxas, keeps it busy for ever or spills is dropped here. What is left is
a filter and a ranking, no proof: fewer registers are not a shorter time.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from collections.abc import Sequence

from costmodel.acf.pairs import Pair
from costmodel.compile_check import HEAVY_SPILL_BYTES
from costmodel.compiled_facts import CompiledFacts
from costmodel.compiled_facts import CompileStatus
from costmodel.frozen import dataclass
from costmodel.types import Config


class Verdict(enum.StrEnum):
    """What became of a pair."""

    NONE = "none"
    """The config without a control file: what others are compared with."""
    USEFUL = "useful"
    """Other code that fits; whether it is faster, only a measurement tells."""
    SAME_AS_NONE = "same_as_none"
    SAME_AS_OTHER = "same_as_other"
    """Its code is that of an earlier file with the same config."""
    SPILLS = "spills"
    """Spills heavily, and not less than without."""
    DOES_NOT_FIT = "does_not_fit"
    REFUSED = "refused"
    """ptxas does not take the file, or not with this kernel."""
    CRASHES = "crashes"
    HANGS = "hangs"
    FAILED = "failed"
    """Something else; it may come out another way tomorrow."""

    @property
    def is_left(self) -> bool:
        """Whether the pair may be measured or handed out."""
        return self in (Verdict.NONE, Verdict.USEFUL)


_OF_STATUS = {
    CompileStatus.CRASH: Verdict.CRASHES,
    CompileStatus.TIMEOUT: Verdict.HANGS,
    CompileStatus.PTXAS: Verdict.REFUSED,
    CompileStatus.REGISTERS: Verdict.DOES_NOT_FIT,
    CompileStatus.SHARED_MEMORY: Verdict.DOES_NOT_FIT,
    CompileStatus.TENSOR_MEMORY: Verdict.DOES_NOT_FIT,
    CompileStatus.THREADS: Verdict.DOES_NOT_FIT,
}


@dataclass(frozen=True, slots=True)
class Effect:
    """A pair and what the compiler made of it.

    Attributes:
        pair: Config and control file.
        facts: With the file.
        none: The same config without one.
        verdict: What follows.
        twin: Control file that makes the same code, where the verdict says so.
    """

    pair: Pair
    facts: CompiledFacts
    none: CompiledFacts
    verdict: Verdict
    twin: str | None = None


def judged(
    config: Config, none: CompiledFacts, found: Mapping[str, CompiledFacts]
) -> tuple[Effect, ...]:
    """A config's pairs with their verdicts, that without a control file first; pure.

    Args:
        config: Without a control file.
        none: What the compiler made of it.
        found: The same by control file, in the order in which they count: of equal
            codes the first stays.
    """
    effects = [Effect(Pair(config, None), none, none, Verdict.NONE)]
    makers: dict[str, str | None] = {}
    if none.code_digest is not None:
        makers[none.code_digest] = None
    for acf_id, facts in found.items():
        verdict, twin = _verdict(facts, none, makers)
        if verdict is Verdict.USEFUL and facts.code_digest is not None:
            makers[facts.code_digest] = acf_id
        effects.append(Effect(Pair(config, acf_id), facts, none, verdict, twin))
    return tuple(effects)


def _verdict(
    facts: CompiledFacts, none: CompiledFacts, makers: Mapping[str, str | None]
) -> tuple[Verdict, str | None]:
    if facts.status is not CompileStatus.OK:
        return _OF_STATUS.get(facts.status, Verdict.FAILED), None
    digest = facts.code_digest
    if digest is not None and digest in makers:
        twin = makers[digest]
        same = Verdict.SAME_AS_NONE if twin is None else Verdict.SAME_AS_OTHER
        return same, twin
    allowed = max(HEAVY_SPILL_BYTES, none.spill_bytes or 0)
    if (facts.spill_bytes or 0) > allowed:
        return Verdict.SPILLS, None
    return Verdict.USEFUL, None


def left(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Pairs with a control file that are worth a measurement, in their order."""
    return tuple(one for one in effects if one.verdict is Verdict.USEFUL)
