"""Who fits `costmodel train`, and on what: in memory, from disk, or on a cluster."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

from costmodel.cli_measured import Measured
from costmodel.cli_measured import compiled_runs
from costmodel.cli_measured import labelled
from costmodel.cli_measured import read_measured
from costmodel.cli_scale import recorded
from costmodel.cli_scale import say
from costmodel.datasets.audit import Audit
from costmodel.datasets.audit_file import read_audit
from costmodel.datasets.compiled_table import CompiledTable
from costmodel.datasets.locations import inputs
from costmodel.datasets.locations import join
from costmodel.datasets.store import is_corpus
from costmodel.errors import RecipeError
from costmodel.frozen import dataclass
from costmodel.training.code_stage import CompiledRuns
from costmodel.training.fit_engine import IN_MEMORY
from costmodel.training.fit_engine import ByEngine
from costmodel.training.fit_engine import Fitter
from costmodel.training.labelled import LabelledWorkload
from costmodel.training.recipe import Recipe
from costmodel.training.shards import digest_of_shards
from costmodel.training.shards import is_sharded
from costmodel.training.shards import load_shards
from costmodel.training.shards import write_shards

_SHARDS = "shards"


@dataclass(frozen=True, slots=True)
class Given:
    """What a training learns from.

    Attributes:
        measured: Where it is from; its `recorded` is empty where rows stay on disk.
        workloads: What can be learned from.
        skipped: Why the others cannot.
        compiled: What a compiler made of their configs, if that is known.
    """

    measured: Measured
    workloads: Sequence[LabelledWorkload]
    skipped: Sequence[str]
    compiled: CompiledRuns | None


def given(arguments: argparse.Namespace, recipe: Recipe) -> Given:
    """Read what is to be learned from; rows stay on disk if fits are not in memory.

    Raises:
        NotEnoughDataError: Nothing can be learned from.
        RecipeError: Shards beside other data.
    """
    paths = recipe.data.paths
    sharded = [one for one in paths if is_sharded(one)]
    if not sharded and not arguments.dask and not recipe.scale.external_memory:
        measured = read_measured(paths)
        workloads, skipped = labelled(measured)
        return Given(measured, workloads, skipped, compiled_runs(measured))
    if sharded and len(paths) > 1:
        raise RecipeError(
            f"expected one folder of shards, or corpora and logs, found {sharded[0]} "
            "beside others: write the features of all to one folder"
        )
    return _stored(arguments, paths, sharded)


def _stored(
    arguments: argparse.Namespace, paths: Sequence[str], sharded: Sequence[str]
) -> Given:
    skipped: tuple[str, ...] = ()
    audit = Audit()
    table = CompiledTable([])
    location = sharded[0] if sharded else join(arguments.output, _SHARDS)
    if not sharded:
        with inputs(paths) as local:
            report = write_shards(recorded(local), location, say=say)
            skipped = report.skipped
            for path in local:
                audit.extend(read_audit(path))
                if is_corpus(Path(path)):
                    table = table.merged(CompiledTable.load(path))
        for reason in skipped:
            print(f"costmodel: left out: {reason}", file=sys.stderr)
    workloads = load_shards(location)
    compiled = None
    if len(table):
        run_ids = {one.workload_id: one.run_id for one in workloads}
        compiled = CompiledRuns(table, run_ids, table.toolchains)
    measured = Measured(tuple(paths), (), (digest_of_shards(location),), audit)
    return Given(measured, workloads, skipped, compiled)


@contextlib.contextmanager
def fitter_of(arguments: argparse.Namespace, recipe: Recipe) -> Iterator[Fitter]:
    """Who fits, as the command line and the recipe say.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    if arguments.dask:
        from costmodel.training.dask_fit import connected

        with connected(arguments.dask, recipe.scale.batch_rows) as engine:
            say(f"fitting on {engine.n_workers} workers of {arguments.dask}")
            yield ByEngine(engine)
    elif recipe.scale.external_memory:
        from costmodel.training.external import ExternalMemory

        yield ByEngine(ExternalMemory(recipe.scale.batch_rows))
    else:
        yield IN_MEMORY
