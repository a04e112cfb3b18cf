"""Every exception this project raises on purpose, by who can act on it.

A message says what was expected, what was found and what to do, in one line: the
command line prints it as it is and exits with 1.
"""

from __future__ import annotations


class CostModelError(Exception):
    """Base of all errors that a user, not a programmer, can act on."""


class WrongArgumentError(CostModelError, TypeError):
    """A public function was called with something that it does not take."""


class UnreadableKernelError(CostModelError):
    """A kernel's IR graph or source cannot be resolved to tiles: the user's kernel
    gets Helion's default."""


class UnknownHardwareError(CostModelError):
    """No hardware file describes this GPU."""


class ArgumentSpecError(CostModelError):
    """An `--arg` string does not follow the argument grammar."""


class KernelFileError(CostModelError):
    """A kernel file is missing, does not import, or holds no such kernel."""


class BindError(CostModelError):
    """Helion cannot bind a kernel to the arguments given."""


class CorruptRecordError(CostModelError):
    """A log, side file or store holds something that cannot be read."""


class StoreError(CostModelError):
    """A corpus cannot be written or does not match its schema version."""


class NotEnoughDataError(CostModelError):
    """Too few workloads or families to do what was asked."""


class ModelNotFoundError(CostModelError):
    """No model file where one was expected."""


class SchemaMismatchError(CostModelError):
    """A model was trained on other features than this build computes."""


class TrackingError(CostModelError):
    """The MLflow store cannot be reached or written."""


class NoCommonConfigError(CostModelError):
    """No config, or not few enough, run at all the shapes that were named."""


class ExportError(CostModelError):
    """A list of kernels, a layout or a file of configs is not what an export needs."""


class ConfigFileError(CostModelError):
    """A file of tuned configs cannot be read, or must not be written."""


class RecipeError(CostModelError):
    """A recipe of a training has a key or a value that means nothing."""


class PromotionError(CostModelError):
    """A model version must not become champion, or there is none to go back to."""


class NoAcfToolchainError(CostModelError):
    """The ptxas that Triton would run does not take control files."""


class UnknownAcfError(CostModelError):
    """The catalogue holds no such control file."""


class AcfSourceError(CostModelError):
    """A folder, a manifest or a catalogue of control files cannot be used."""


class LocationError(CostModelError):
    """A URL cannot be read or written: no driver, no such place, no permission."""


class ClusterError(CostModelError):
    """A Dask cluster cannot be reached, or a worker of it failed."""


class TuningError(CostModelError):
    """A search of a recipe's space cannot be made here, or gone on with."""
