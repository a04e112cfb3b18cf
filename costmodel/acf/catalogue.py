"""The user's control files, each under a path that its content names.

Triton's cache key holds the path of a control file and not its bytes, so that another
file at the same path would get the old code. Here a path never means another file:
`ROOT/ptxas-13.3/DIGEST.acf`, read-only, with no space in it since Triton splits its
options at spaces. What it is meant for stands beside it, in `DIGEST.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from costmodel.acf import entry as entries_
from costmodel.acf.entry import AcfEntry
from costmodel.acf.identity import content_digest
from costmodel.atomic_file import write_atomically
from costmodel.compile_cache import user_cache
from costmodel.errors import AcfSourceError
from costmodel.errors import UnknownAcfError
from costmodel.frozen import dataclass
from costmodel.hardware import Hardware

if TYPE_CHECKING:
    from costmodel.acf.adding import AddReport
    from costmodel.acf.adding import VerifyReport
    from costmodel.acf.probe import Probe

DIR_VARIABLE = "COSTMODEL_ACF_DIR"

_FOLDERS = "ptxas-*"
_READ_ONLY = 0o444


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a catalogue holds; problems are lines for a person."""

    entries: tuple[AcfEntry, ...]
    problems: tuple[str, ...]


class AcfCatalogue:
    """A folder of control files; made on the first addition.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def open(cls, root: Path | None = None) -> AcfCatalogue:
        """The catalogue in a folder, or else the user's.

        Args:
            root: None means `COSTMODEL_ACF_DIR`, else the user's cache.
        """
        if root is None:
            named = os.environ.get(DIR_VARIABLE)
            root = Path(named) if named else user_cache() / "acf"
        return cls(root.absolute())

    def entries(self) -> tuple[AcfEntry, ...]:
        """All that are whole, in the order of their digests."""
        return self._kept().entries

    @property
    def problems(self) -> tuple[str, ...]:
        """What is in the folder and cannot be used, a line each."""
        return self._kept().problems

    def entry(self, acf_id: str) -> AcfEntry:
        """The entry with this digest.

        Raises:
            UnknownAcfError: None has it.
        """
        for found in self.entries():
            if found.acf_id == acf_id:
                return found
        raise UnknownAcfError(
            f"expected control file {acf_id[:12]} in {self.root}, found "
            f"{len(self.entries())} others: `costmodel acf add` the folder that has it"
        )

    def path(self, acf_id: str) -> Path:
        """Where the file with this digest lies; what Helion's config is given.

        Raises:
            UnknownAcfError: None has it.
        """
        found = self.entry(acf_id)
        return self._folder(found.cuda) / f"{acf_id}.acf"

    def applicable(
        self, kernel: str, hardware: Hardware, ptxas_version: str
    ) -> tuple[AcfEntry, ...]:
        """Those meant for a kernel on a GPU, and made for the ptxas that will run.

        Args:
            kernel: Name of the kernel, as Helion has it.
            hardware: The GPU.
            ptxas_version: "13.3.73".
        """
        return tuple(
            found
            for found in self.entries()
            if found.applies(kernel, hardware) and found.is_for_ptxas(ptxas_version)
        )

    def check_root(self) -> None:
        """See whether Triton could read a path in here.

        Raises:
            AcfSourceError: It could not.
        """
        if re.search(r"\s", str(self.root)):
            raise AcfSourceError(
                f"expected a catalogue without spaces in its path, found {self.root}: "
                f"set {DIR_VARIABLE}, since Triton splits ptxas options at spaces"
            )

    def put(self, found: AcfEntry, content: bytes) -> bool:
        """Keep a file and what it is meant for; the last word on that wins.

        Returns:
            Whether anything changed.

        Raises:
            AcfSourceError: The folder cannot be used.
            ValueError: The file is kept already, for another CUDA minor.
        """
        self.check_root()
        folder = self._folder(found.cuda)
        text = json.dumps(entries_.to_json(found), indent=1, sort_keys=True) + "\n"
        with self._alone():
            for other in self.root.glob(f"{_FOLDERS}/{found.acf_id}.json"):
                if other.parent != folder:
                    raise ValueError(
                        f"is kept for {other.parent.name}, expected one CUDA minor: "
                        "`costmodel acf remove` it first"
                    )
            wrote = _write_read_only(folder / f"{found.acf_id}.acf", content)
            return write_atomically(folder / f"{found.acf_id}.json", text) or wrote

    def add(self, source: Path, *, probe: Probe) -> AddReport:
        """Take over what passes the trial; see `adding.add`."""
        from costmodel.acf import adding

        return adding.add(self, source, probe)

    def verify(self, probe: Probe) -> VerifyReport:
        """Try each entry again; see `adding.verify`."""
        from costmodel.acf import adding

        return adding.verify(self, probe)

    def remove(self, acf_id_prefix: str) -> AcfEntry:
        """Forget a file, by the first digits of its digest.

        Raises:
            UnknownAcfError: None begins so, or several do.
        """
        with self._alone():
            found = [e for e in self.entries() if e.acf_id.startswith(acf_id_prefix)]
            if len(found) != 1 or not acf_id_prefix:
                raise UnknownAcfError(
                    f"expected one control file that begins with {acf_id_prefix!r} in "
                    f"{self.root}, found {len(found)}: `costmodel acf list` shows all"
                )
            folder = self._folder(found[0].cuda)
            # The entry first: a file that nobody names is harmless.
            for suffix in (".json", ".acf"):
                (folder / f"{found[0].acf_id}{suffix}").unlink(missing_ok=True)
        return found[0]

    def _folder(self, cuda: str) -> Path:
        return self.root / f"ptxas-{cuda}"

    def _kept(self) -> _Kept:
        found: dict[str, AcfEntry] = {}
        problems = []
        for path in sorted(self.root.glob(f"{_FOLDERS}/*.json")):
            try:
                kept = entries_.from_json(json.loads(path.read_text(encoding="utf-8")))
                if path.stem != kept.acf_id or path.parent != self._folder(kept.cuda):
                    raise ValueError("its name or folder is not that of its content")
                if content_digest(path.with_suffix(".acf").read_bytes()) != path.stem:
                    raise ValueError("the control file beside it was changed")
                if path.stem in found:
                    raise ValueError("kept for another CUDA minor as well")
            except (OSError, ValueError, KeyError, TypeError) as error:
                words = error.strerror if isinstance(error, OSError) else str(error)
                problems.append(f"{path}: {words}: add it again or delete it")
                continue
            found[kept.acf_id] = kept
        return _Kept(tuple(found[key] for key in sorted(found)), tuple(problems))

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other writers out; readers need not wait, as files appear whole."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.root, os.O_RDONLY)
        except OSError as error:
            raise AcfSourceError(
                f"{self.root}: cannot keep control files ({error.strerror}): set "
                f"{DIR_VARIABLE} to a folder that can be written"
            ) from None
        try:
            with contextlib.suppress(ImportError, OSError):
                import fcntl  # not on Windows; some network folders know no locks

                fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _write_read_only(path: Path, content: bytes) -> bool:
    """Write a file whole, unless it is there; nobody may write to it afterwards."""
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _READ_ONLY)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True
