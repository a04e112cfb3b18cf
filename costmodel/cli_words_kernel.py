"""Words of the command line: what is asked about kernels.

Only options: the commands themselves are imported when they run.
"""

from __future__ import annotations

from typing import Any
from typing import TypeAlias

from costmodel.cli_words_data import at_least_one

# argparse has no public name for what `add_subparsers` returns.
Commands: TypeAlias = Any


def add_kernel_commands(commands: Commands) -> None:
    """Picking, looking, checking, exporting."""
    for name, text in (
        ("pick", "pick a config for a kernel, with no GPU"),
        ("explain", "say why, against Helion's default"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("kernel", metavar="FILE.py:KERNEL")
        command.add_argument(
            "--arg",
            action="append",
            default=[],
            dest="args",
            metavar="SPEC",
            help="one per argument: 'bf16[4096,5120]', 'f32[64,32]:1,64', 1e-5, [8,8]",
        )
        command.add_argument("--gpu", default="H200", help="default: %(default)s")
        command.add_argument("--model", metavar="FILE", help="default: the bundled one")
        command.add_argument(
            "--verify",
            choices=("compile", "code"),
            help="compile the pick for the GPU, without it, and take the next if it "
            "fails; or compile the best few and choose again by their code",
        )
        command.add_argument(
            "--top",
            type=at_least_one,
            default=16,
            metavar="N",
            help="picks to compile at most",
        )
        command.add_argument("--json", action="store_true")
        command.set_defaults(run=f"costmodel.cli_kernel:{name}")

    # As with `collect`: its options are read by the command itself.
    analysed = commands.add_parser(
        "analyse", help="show what a kernel is: class, loops, tiles", add_help=False
    )
    analysed.set_defaults(run="costmodel.cli_analyse:analyse", takes_rest=True)

    check = commands.add_parser("check", help="compile configs for a GPU without it")
    check.add_argument("kernel", metavar="FILE.py:KERNEL")
    check.add_argument(
        "--arg", action="append", default=[], dest="args", metavar="SPEC"
    )
    check.add_argument(
        "--config",
        action="append",
        default=[],
        dest="configs",
        metavar="JSON",
        help="a Helion config; may be given several times",
    )
    check.add_argument("--default", action="store_true", help="Helion's own config too")
    check.add_argument("--gpu", default="H200", help="default: %(default)s")
    check.add_argument(
        "--time-limit",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="for one config (default: %(default)s)",
    )
    check.add_argument("--json", action="store_true")
    check.set_defaults(run="costmodel.cli_check:check")

    controls = commands.add_parser(
        "acf", help="keep ptxas control files that you have", add_help=False
    )
    controls.set_defaults(run="costmodel.cli_acf:acf", takes_rest=True)

    _serving_commands(commands)

    doctor = commands.add_parser(
        "doctor", help="versions, hooks, model and GPU of this machine"
    )
    doctor.add_argument("--model", metavar="FILE", help="default: the bundled one")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(run="costmodel.cli_kernel:doctor")


def _serving_commands(commands: Commands) -> None:
    export = commands.add_parser(
        "export", help="write configs for many shapes in files that others read"
    )
    export.add_argument("kernel", metavar="FILE.py:KERNEL", nargs="?")
    export.add_argument("--list", metavar="FILE", help="kernels and shapes: TOML, JSON")
    export.add_argument(
        "--shape",
        nargs="+",
        action="append",
        default=[],
        dest="shapes",
        metavar="SPEC",
        help="one set of arguments; sizes may be named: 'bf16[tokens,4096]'",
    )
    export.add_argument(
        "--size",
        action="append",
        default=[],
        dest="sizes",
        metavar="NAME=1,64",
        help="values of a named size; every combination is one shape",
    )
    export.add_argument(
        "--layout",
        choices=("aot", "folders", "kernels", "decorator"),
        default="aot",
        help="aot: Helion's own; folders: KERNEL/GPU.json with keys; kernels: "
        "KERNEL.json with GPUs; decorator: one line to paste (default: %(default)s)",
    )
    export.add_argument("--output", metavar="DIR")
    export.add_argument("--gpu", default="H200", help="default: %(default)s")
    export.add_argument("--gpu-file", metavar="NAME", help="such as nvidia_h200")
    export.add_argument("--max-configs", type=int, metavar="N", help="of each kernel")
    export.add_argument("--model", metavar="FILE", help="default: the bundled one")
    export.add_argument(
        "--candidates",
        action="append",
        default=[],
        metavar="FILE",
        help="a file of configs to choose from as well, such as another GPU's",
    )
    export.add_argument(
        "--for-helion",
        choices=("1.4", "1.5"),
        default="1.5",
        help="who reads the files; 1.4 refuses some knobs (default: %(default)s)",
    )
    export.add_argument("--dry-run", action="store_true", help="write nothing")
    export.add_argument("--json", action="store_true")
    export.set_defaults(run="costmodel.cli_export:export")

    migrate = commands.add_parser(
        "migrate", help="make config files of other Helion versions current"
    )
    migrate.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="JSON, *.best_config, Python source or text with helion.Config(...)",
    )
    migrate.add_argument(
        "--kernel", metavar="FILE.py:KERNEL", help="what the configs are for"
    )
    migrate.add_argument(
        "--arg",
        action="append",
        default=[],
        dest="args",
        metavar="SPEC",
        help="its arguments; sizes may be named as in the entries' keys",
    )
    migrate.add_argument(
        "--size",
        action="append",
        default=[],
        dest="sizes",
        metavar="NAME=64",
        help="a named size, for entries whose key lacks it",
    )
    migrate.add_argument("--gpu", default="H200", help="default: %(default)s")
    migrate.add_argument("--output", metavar="DIR", help="write the current files here")
    migrate.add_argument("--json", action="store_true")
    migrate.set_defaults(run="costmodel.cli_migrate:migrate")
