"""The words every room shares, as frozen dataclasses with no behaviour.

A *workload* is a kernel with shapes, dtypes, settings and a GPU. A *config* picks one
of the programs Helion can generate for it; a *candidate* is a config under
consideration. The *default* is what Helion would pick by itself.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Any
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from costmodel.frozen import dataclass

Config: TypeAlias = dict[str, Any]
"""A Helion config as plain JSON values, spelled as Helion spells it."""

FloatArray: TypeAlias = npt.NDArray[np.float32]


class KernelClass(enum.StrEnum):
    """What a kernel is made of, by structure; the family of an unlabelled workload."""

    POINTWISE = "pointwise"
    REDUCTION = "reduction"
    MATMUL = "matmul"
    MATMUL_REDUCTION = "matmul_reduction"
    MULTI_DOT = "multi_dot"
    DATA_DEPENDENT = "data_dependent"
    UNKNOWN = "unknown"


class PickSource(enum.StrEnum):
    """Who decided."""

    TUNED = "tuned"
    MEASURED = "measured"
    SEARCHED = "searched"
    LEARNED = "learned"
    ANALYTIC = "analytic"
    DEFAULT = "default"


class ReasonCode(enum.StrEnum):
    """Why that one decided; counted by `costmodel.stats()`."""

    GAIN_CERTAIN = "gain_certain"
    DEFAULT_RANKED_FIRST = "default_ranked_first"
    GAIN_BELOW_MARGIN = "gain_below_margin"
    OUT_OF_RANGE = "out_of_range"
    NO_HELION_RULE = "no_helion_rule"
    EXPORTED = "exported"
    COMPILE_REFUSED = "compile_refused"
    LAUNCH_REFUSED = "launch_refused"
    NO_MODEL = "no_model"
    MODEL_REFUSED = "model_refused"
    UNKNOWN_KERNEL = "unknown_kernel"
    UNKNOWN_GPU = "unknown_gpu"
    UNSUPPORTED_HELION = "unsupported_helion"
    UNSUPPORTED_BACKEND = "unsupported_backend"
    INTERPRET_MODE = "interpret_mode"
    DISABLED = "disabled"
    TUNED_ENTRY = "tuned_entry"
    MEASURED_BEST = "measured_best"
    MEASURE_FAILED = "measure_failed"
    SEARCHED = "searched"
    USER_RULES = "user_rules"
    USER_LIST = "user_list"
    OUTPUT_DIFFERS = "output_differs"
    STEPPED_ASIDE = "stepped_aside"
    ACF_CERTAIN = "acf_certain"
    ACF_TOOLCHAIN = "acf_toolchain"
    ACF_MISSING = "acf_missing"
    ACF_UNSUPPORTED = "acf_unsupported"
    ACF_DIFFERS = "acf_differs"
    INTERNAL_ERROR = "internal_error"


class CandidateOrigin(enum.StrEnum):
    """Where a candidate came from."""

    DEFAULT = "default"
    SEED = "seed"
    ANALYTIC = "analytic"
    MOVE = "move"
    LOG = "log"
    TUNED = "tuned"
    USER = "user"


@dataclass(frozen=True, slots=True)
class WorkloadRecord:
    """What a Helion log line and a live bound kernel both say about one workload.

    Features are computed from this alone, so that those of a log and of the live
    kernel it came from are equal to the byte.

    Attributes:
        kernel_name: For people; no decision may depend on it.
        kernel_source: Source text as Helion logs it; read for literal tile sizes.
        input_shapes: Shape of each tensor argument, in elements, in argument order.
        dtypes: As torch prints them, one per tensor argument.
        hardware: Device name as the driver prints it, such as "NVIDIA H200".
        settings: Helion's settings at the time, as JSON values.
        ir_graph: Helion's node-link graph of the device IR.
    """

    kernel_name: str
    kernel_source: str
    input_shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    hardware: str
    settings: Mapping[str, Any]
    ir_graph: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A config under consideration, where it came from and why, in words."""

    config: Config
    origin: CandidateOrigin
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Scores:
    """What a scorer says of n candidates of one workload.

    Attributes:
        gain_log: float32[n], predicted ln(default time / candidate time).
        lower_log: float32[n], a calibrated lower bound of the same.
        valid_probability: float32[n], that it compiles, runs and is not many times
            slower than the default.
    """

    gain_log: FloatArray
    lower_log: FloatArray
    valid_probability: FloatArray


@dataclass(frozen=True, slots=True)
class Pick:
    """The answer for one workload, with everything needed to explain it.

    Attributes:
        config: What to compile.
        source: Who decided.
        reason: Why, as a code to count.
        detail: Why, as one line for a person.
        predicted_speedup: Predicted default time / pick time; 1.0 for the default
            and None where nothing was predicted.
        speedup_lower: Calibrated lower bound of the same, or None.
        runner_up: Best other candidate by the same ranking, or None.
        runner_up_speedup: Its predicted speed-up, or None.
        default: Helion's own config for this workload.
        kernel_class: Class read from the graph.
        model_id: Digest of the model that scored, or None.
        n_candidates: How many were ranked.
        shortlist: Best candidates in order, the pick's ranking for a measured choice.
        shortlist_speedups: Predicted speed-up of each, and its calibrated lower bound;
            empty where nothing was predicted.
    """

    config: Config
    source: PickSource
    reason: ReasonCode
    detail: str
    predicted_speedup: float | None = None
    speedup_lower: float | None = None
    runner_up: Config | None = None
    runner_up_speedup: float | None = None
    default: Config | None = None
    kernel_class: KernelClass = KernelClass.UNKNOWN
    model_id: str | None = None
    n_candidates: int = 0
    shortlist: tuple[Config, ...] = field(default=())
    shortlist_speedups: tuple[tuple[float, float], ...] = ()
