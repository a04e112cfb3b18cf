"""Compare code compiled without a GPU with the code that a real GPU ran.

Run as `python benchmarks/compare_compiled.py LOGS --output RESULTS.jsonl` from the root
of a checkout, where the versions of Helion and Triton installed are those of the logs:
other versions make other code. Logs are those that `costmodel collect` writes; their
side files hold a digest of the machine code, registers, local memory and shared memory
of each config that ran.

Workloads are drawn one to a family, configs at random within each, both by a seed. One
line is written for each config, and a summary in Markdown printed at the end.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costmodel.compile_check import CompileChecker
from costmodel.compiled_facts import CompileStatus
from costmodel.datasets import workloads
from costmodel.datasets.helion_log import read_logs
from costmodel.datasets.record import RecordedRun
from costmodel.datasets.record import Status
from costmodel.datasets.side_file import AttemptFacts
from costmodel.errors import BindError
from costmodel.types import Config


@dataclass(frozen=True, slots=True)
class Compared:
    """One config: what the GPU's machine recorded and what we compile.

    Attributes:
        kernel: Reference of the form `family_module:kernel_name`.
        config_id: As the log spells it.
        recorded_status: How the attempt ended on the GPU.
        status: How compiling it without a GPU ended.
        detail: Why, in one line.
        recorded: Digest, registers, local and shared memory of the GPU's machine.
        compiled: The same without a GPU.
        compile_s: Seconds to compile.
    """

    kernel: str
    config_id: str
    recorded_status: str
    status: str
    detail: str
    recorded: tuple[Any, ...]
    compiled: tuple[Any, ...]
    compile_s: float


def main() -> None:
    """Draw, compile, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, help="folder of logs and side files")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--kernels", type=int, default=15)
    parser.add_argument("--configs", type=int, default=4, help="that ran, per kernel")
    parser.add_argument("--failures", type=int, default=1, help="errors, per kernel")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gpu", default="H200")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds a config")
    options = parser.parse_args()
    runs, _audit = read_logs(sorted(options.logs.rglob("*.csv")))
    found = []
    with options.output.open("w", encoding="utf-8") as file:
        for run in drawn(runs, options.kernels, options.seed):
            for one in compare(run, options):
                found.append(one)
                file.write(json.dumps(dataclasses.asdict(one)) + "\n")
                file.flush()
    print(summary(found))


def drawn(
    runs: Sequence[RecordedRun], n_kernels: int, seed: int
) -> Iterator[RecordedRun]:
    """One workload of each of `n_kernels` families, drawn by the seed."""
    families: dict[str, list[RecordedRun]] = {}
    for run in runs:
        if run.side is not None and run.side.kernel and run.side.family:
            families.setdefault(run.side.family, []).append(run)
    chance = random.Random(seed)
    names = sorted(families)
    chance.shuffle(names)
    for name in names[:n_kernels]:
        yield chance.choice(sorted(families[name], key=lambda run: run.run_id))


def compare(run: RecordedRun, options: argparse.Namespace) -> Iterator[Compared]:
    """Compile some of a run's configs."""
    side = run.side
    assert side is not None and side.kernel is not None
    configs: dict[str, Config] = {a.config_id: a.config for a in run.attempts}
    statuses = {a.config_id: a.status for a in run.attempts}
    ran = [i for i, f in side.attempts.items() if f.code_digest and i in configs]
    failed = [i for i, status in statuses.items() if status is Status.ERROR]
    chance = random.Random(f"{options.seed} {run.run_id}")
    chosen = [
        *chance.sample(sorted(ran), min(options.configs, len(ran))),
        *chance.sample(sorted(failed), min(options.failures, len(failed))),
    ]
    module, _, name = side.kernel.partition(":")
    source = Path(next(iter(workloads.__path__))) / f"{module}.py"
    checker = CompileChecker(
        f"{source}:{name}", side.arguments, options.gpu, limit_s=options.limit
    )
    with checker:
        for config_id in chosen:
            try:
                facts = checker.check(configs[config_id]).facts
            except BindError as error:
                print(f"{side.kernel}: {error}", file=sys.stderr)
                return
            one = Compared(
                kernel=side.kernel,
                config_id=config_id,
                recorded_status=statuses[config_id].value,
                status=facts.status.value,
                detail=facts.detail,
                recorded=_recorded(side.attempts.get(config_id)),
                compiled=(
                    facts.code_digest,
                    facts.registers,
                    facts.stack_bytes,
                    facts.smem_bytes,
                ),
                compile_s=round(facts.compile_s, 3),
            )
            print(one, file=sys.stderr)
            yield one


def _recorded(facts: AttemptFacts | None) -> tuple[Any, ...]:
    if facts is None:
        return (None,) * 4
    # The driver reports local memory, which Triton counts as spills.
    return facts.code_digest, facts.registers, facts.spill_bytes, facts.smem_bytes


def summary(found: Sequence[Compared]) -> str:
    """Agreement by kernel and in all, as Markdown."""
    head = "| kernel | ran | same code | registers | local memory | shared memory |"
    lines = [head, "|---|---:|---:|---:|---:|---:|"]
    ran = [one for one in found if one.recorded[0] is not None]
    for kernel in sorted({one.kernel for one in ran}):
        lines.append(_row(kernel, [one for one in ran if one.kernel == kernel]))
    lines.append(_row("all", ran))
    failed = [one for one in found if one.recorded[0] is None]
    caught = [one for one in failed if one.status != CompileStatus.OK]
    lines += [
        "",
        f"Failed on the GPU's machine: {len(failed)}, of which we see {len(caught)}: "
        + (", ".join(sorted({one.status for one in caught})) or "none"),
    ]
    return "\n".join(lines)


def _row(name: str, rows: Sequence[Compared]) -> str:
    same = [
        sum(one.recorded[place] == one.compiled[place] for one in rows)
        for place in range(4)
    ]
    return f"| {name} | {len(rows)} | " + " | ".join(map(str, same)) + " |"


if __name__ == "__main__":
    main()
