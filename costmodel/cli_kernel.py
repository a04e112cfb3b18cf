"""Commands about one kernel: pick, explain, doctor."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from costmodel import __version__
from costmodel import helion_hook
from costmodel.acf.here import control_files_line
from costmodel.acf.here import ptxas_line
from costmodel.acf.identity import KNOB
from costmodel.acf.identity import to_record
from costmodel.arguments import parse_argument
from costmodel.autoload import ENABLE_VARIABLE
from costmodel.errors import BindError
from costmodel.errors import ModelNotFoundError
from costmodel.explain import Explanation
from costmodel.explain import explain_pick
from costmodel.hardware import Hardware
from costmodel.hardware import load_hardware
from costmodel.hardware import match_hardware
from costmodel.kernel_file import load_kernel
from costmodel.provider import DISABLE_VARIABLE
from costmodel.provider import MODEL_VARIABLE
from costmodel.provider import Provider
from costmodel.provider import is_disabled
from costmodel.target import bind
from costmodel.target import missing_arguments
from costmodel.target import targeting
from costmodel.types import Config
from costmodel.types import Pick
from costmodel.types import ReasonCode


def _provider(model: str | None) -> Provider:
    """A provider on the named model; one that is missing or unusable is an error."""
    if model is not None and not Path(model).exists():
        raise ModelNotFoundError(
            f"{model}: expected a published model (.ubj), found nothing: train one "
            "with `costmodel train LOGS --output DIR`"
        )
    provider = Provider(model)
    problem = provider.model_problem() if model is not None else None
    if problem is not None:
        raise ModelNotFoundError(problem[1])
    return provider


def _pick_for(arguments: argparse.Namespace) -> tuple[Any, Hardware, Pick]:
    hardware = load_hardware(arguments.gpu)
    specs = [parse_argument(text) for text in arguments.args]
    provider = _provider(arguments.model)
    kernel = load_kernel(arguments.kernel)
    lacking = missing_arguments(kernel, len(specs))
    if lacking:
        raise BindError(
            f"{arguments.kernel}: expected arguments for {', '.join(lacking)}, found "
            "none: give them with --arg, such as --arg 'bf16[4096,4096]'"
        )
    with targeting(hardware):
        bound = bind(kernel, specs, hardware)
        answer = provider.pick(bound, verify=arguments.verify, top=arguments.top)
        if answer.reason is ReasonCode.INTERPRET_MODE:
            raise BindError(f"{arguments.kernel}: {answer.detail}: no config applies")
        # Helion must accept what we print: code generation is the proof.
        helion_hook.triton_code(bound, answer.config)
    return bound, hardware, answer


def decorator_line(config: Config) -> str:
    """The line to paste above a kernel: `@helion.kernel(config=helion.Config(...))`."""
    named = to_record(config)
    inside = ", ".join(
        # Looked up where the line is pasted; "" there means no control file.
        f"{key}=costmodel.control_file({value!r})"
        if key == KNOB and value
        else f"{key}={value!r}"
        for key, value in sorted(named.items())
    )
    return f"@helion.kernel(config=helion.Config({inside}))"


def pick(arguments: argparse.Namespace) -> int:
    """Pick a config and print it ready to paste, with its reason."""
    _bound, hardware, answer = _pick_for(arguments)
    if arguments.json:
        print(json.dumps(pick_as_json(answer, hardware), indent=2))
        return 0
    print(decorator_line(answer.config))
    print()
    for label, text in pick_facts(answer, hardware):
        print(f"{label + ':':<17}{text}")
    return 0


def pick_facts(answer: Pick, hardware: Hardware) -> list[tuple[str, str]]:
    """What a person wants to know of a pick, as labelled lines."""
    facts = [
        ("GPU", f"{hardware.name} ({hardware.arch}), not needed to pick"),
        ("kernel class", answer.kernel_class.value),
        ("decided by", f"{answer.source.value} ({answer.reason.value})"),
        ("why", answer.detail),
    ]
    is_default = answer.config == answer.default
    if answer.predicted_speedup is not None and not is_default:
        gain = f"{answer.predicted_speedup:.2f}x over Helion's default"
        if answer.speedup_lower is not None:
            gain += f", at least {answer.speedup_lower:.2f}x by calibration"
        facts.append(("predicted gain", gain))
    if answer.runner_up is not None:
        facts.append(("runner-up", _runner_up(answer, is_default)))
    if answer.default is not None:
        facts.append(("against default", changed_knobs(answer.config, answer.default)))
    facts.append(("candidates", str(answer.n_candidates)))
    facts.append(("model", answer.model_id or "none"))
    return facts


def _runner_up(answer: Pick, is_default: bool) -> str:
    assert answer.runner_up is not None
    words = changed_knobs(answer.runner_up, answer.config)
    if answer.runner_up_speedup is None:
        return words
    doubt = ", not trusted" if is_default else ""
    return f"{words} ({answer.runner_up_speedup:.2f}x predicted{doubt})"


def changed_knobs(config: Config, reference: Config) -> str:
    """The knobs in which one config differs from another, as `knob: old -> new`."""
    changes = [
        change
        for key in sorted({*config, *reference})
        for change in _changes(key, reference.get(key), config.get(key))
    ]
    return ", ".join(changes) if changes else "the same config"


def _changes(name: str, old: Any, new: Any) -> list[str]:
    """Differences of one knob, slot by slot where both are lists of one length."""
    if old == new:
        return []
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) > 1:
        pairs = zip(old, new, strict=True)
        return [
            change
            for slot, (one, other) in enumerate(pairs)
            for change in _changes(f"{name}[{slot}]", one, other)
        ]
    return [f"{name}: {old!r} -> {new!r}"]


def pick_as_json(answer: Pick, hardware: Hardware) -> dict[str, Any]:
    """A pick as one JSON object."""
    return {
        "config": to_record(answer.config),
        "decorator": decorator_line(answer.config),
        "gpu": hardware.name,
        "source": answer.source.value,
        "reason": answer.reason.value,
        "detail": answer.detail,
        "kernel_class": answer.kernel_class.value,
        "predicted_speedup": answer.predicted_speedup,
        "speedup_lower": answer.speedup_lower,
        "runner_up": answer.runner_up,
        "runner_up_speedup": answer.runner_up_speedup,
        "default": answer.default,
        "n_candidates": answer.n_candidates,
        "model_id": answer.model_id,
    }


def explain(arguments: argparse.Namespace) -> int:
    """Print the pick beside Helion's default, resource by resource."""
    bound, hardware, answer = _pick_for(arguments)
    with targeting(hardware):
        explanation = explain_pick(helion_hook.view(bound), hardware, answer)
    if arguments.json:
        print(json.dumps(explanation.as_json(), indent=2))
        return 0
    _print_explanation(explanation, hardware, answer)
    return 0


def _print_explanation(
    explanation: Explanation, hardware: Hardware, answer: Pick
) -> None:
    console = Console(width=100)
    for label, text in pick_facts(answer, hardware):
        console.print(f"{label + ':':<17}{text}", highlight=False, markup=False)
    table = Table(title="Estimates, not measurements", title_justify="left")
    table.add_column("quantity")
    for column in ("Helion default", "our pick", "change"):
        table.add_column(column, justify="right")
    for row in explanation.rows:
        table.add_row(row.quantity, row.default, row.pick, row.change)
    console.print(table)


def doctor(arguments: argparse.Namespace) -> int:
    """Say what this machine has and whether a pick would work on it."""
    facts = doctor_facts(arguments.model)
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        for name, value in facts.items():
            print(f"{name + ':':<20}{value}")
    return 0


def doctor_facts(model: str | None = None) -> dict[str, Any]:
    """Versions, hooks, model and GPU of this machine, as plain values."""
    provider = _provider(model)
    loaded = provider.model()
    problem = provider.model_problem()
    unsupported = helion_hook.refusal()
    return {
        "costmodel": __version__,
        "python": sys.version.split()[0],
        **helion_hook.installed_versions(),
        "helion hooks": "usable" if unsupported is None else unsupported.detail,
        "model": str(provider.model_path),
        "model id": loaded.model_id if loaded is not None else _no_model(problem),
        "gpu": _gpu_line(),
        "ptxas": ptxas_line(),
        "control files": control_files_line(),
        "disabled": f"yes, by {DISABLE_VARIABLE}" if is_disabled() else "no",
        ENABLE_VARIABLE: os.environ.get(ENABLE_VARIABLE, "not set"),
        MODEL_VARIABLE: os.environ.get(MODEL_VARIABLE, "not set"),
    }


def _no_model(problem: tuple[ReasonCode, str] | None) -> str:
    return f"none: {problem[1]}" if problem is not None else "none"


def _gpu_line() -> str:
    import torch

    if not torch.cuda.is_available():
        return "none visible: picks for a named GPU still work (--gpu)"
    name = torch.cuda.get_device_name()
    match = match_hardware(name)
    return f"{name}: {match.kind} match, {match.why}"
