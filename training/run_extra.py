"""What a kind of training adds to its MLflow run, besides what every training keeps."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field

from matplotlib.figure import Figure

from costmodel.training.labelled import LabelledWorkload

TRAIN = "train"


@dataclass(frozen=True, slots=True)
class NestedRun:
    """A run nested in the training's.

    Attributes:
        name: Of the run.
        tags: Its tags; `kind` is what it is found by.
        params: Its parameters.
        metrics: Its metrics.
    """

    name: str
    tags: Mapping[str, str]
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Input:
    """Measurements that went into a training.

    Attributes:
        name: For people.
        digest: Of the measurements.
        workloads: What was used of them.
        context: What for.
    """

    name: str
    digest: str
    workloads: Sequence[LabelledWorkload]
    context: str = "training"


@dataclass(frozen=True, slots=True)
class Extra:
    """What a kind of training adds.

    Attributes:
        kind: Tag `kind` of the run.
        tags: Further tags.
        params: Further parameters.
        metrics: Further metrics.
        files: Further artifacts, by path.
        figures: Further plots, by path.
        nested: Further nested runs.
        inputs: Data sets, where they are not one corpus.
        register: Whether the model becomes a version of the registered one.
    """

    kind: str = TRAIN
    tags: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    nested: tuple[NestedRun, ...] = ()
    inputs: tuple[Input, ...] = ()
    register: bool = True
