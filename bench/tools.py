"""The tools. Each runs as its own manual recommends: with encryption, with compression, with its default
caches.

Each tool has a `Place` of its own, which is empty at the start of each round. It returns the commands that
make a store there, take a snapshot of a source (a file or a folder), and restore the newest snapshot.
Snapshots in a place are numbered from 1.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Command

PASSPHRASE = "not a secret"


@dataclass(frozen=True)
class Place:
    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def home(self) -> Path:
        """The tool's $HOME with its caches, which do not count as part of the store."""
        return self.root / "home"

    @property
    def key(self) -> Path:
        return self.root / "key"


class Tool:
    name: str
    program: str
    note = ""
    scenarios: frozenset[str] | None = None
    """The scenarios that it takes part in; `None` for all."""

    def version(self) -> str | None:
        """The version that the tool prints, or `None` if it is not installed."""
        if shutil.which(self.program) is None:
            return None
        said = subprocess.run([self.program, "--version"], capture_output=True, text=True)
        return (said.stdout or said.stderr).strip().splitlines()[0]

    def environment(self, place: Place) -> dict[str, str]:
        return {}

    def command(self, place: Place, *words: object, cwd: Path | None = None, stdout: Path = Path("/dev/null")) -> Command:
        argv = [self.program, *map(str, words)]
        return Command(argv, cwd, stdout, {"HOME": str(place.home), **self.environment(place)})

    def init(self, place: Place) -> list[Command]:
        raise NotImplementedError

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        raise NotImplementedError

    def restore(self, place: Place, source: Path, number: int, folder: Path) -> Command:
        """Restores snapshot `number`, the newest, as `folder / source.name`."""
        raise NotImplementedError

    def discard(self, place: Place, source: Path, number: int) -> Command | None:
        """Writes a snapshot of a file to standard output, which is thrown away. Returns `None` if the tool
        cannot do that."""
        return None


class Varve(Tool):
    def __init__(self, program: Path, name: str = "varve"):
        self.program, self.name = str(program), name

    def varve(self, place: Place, *words: object) -> Command:
        return self.command(place, "-s", place.store, "--key-file", place.key, *words)

    def init(self, place: Place) -> list[Command]:
        return [Command(["head", "-c", "32", "/dev/urandom"], stdout=place.key), Command(["chmod", "600", str(place.key)]), self.varve(place, "init")]

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        # Random bytes are no disk, but are archived as one here.
        form = ("--as", "image") if source.is_file() else ()
        return self.varve(place, "snapshot", source, *form, "--name", "bench")

    def restore(self, place: Place, source: Path, number: int, folder: Path) -> Command:
        return self.varve(place, "restore", "bench", folder / source.name)

    def discard(self, place: Place, source: Path, number: int) -> Command:
        return self.varve(place, "restore", "bench", "-")


class VarveAtFiles(Varve):
    """Varve with `--cut files`, where disks have files in common."""

    note = "only where disks are compared"
    scenarios = frozenset({"pair"})

    def __init__(self, program: Path):
        super().__init__(program, "varve-files")

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        form = ("--as", "image", "--cut", "files") if source.is_file() else ()
        return self.varve(place, "snapshot", source, *form, "--name", "bench")


class Restic(Tool):
    name = program = "restic"

    def version(self) -> str | None:
        if shutil.which(self.program) is None:
            return None
        return subprocess.run([self.program, "version"], capture_output=True, text=True).stdout.strip()

    def environment(self, place: Place) -> dict[str, str]:
        return {"RESTIC_REPOSITORY": str(place.store), "RESTIC_PASSWORD": PASSPHRASE}

    def init(self, place: Place) -> list[Command]:
        return [self.command(place, "init")]

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "backup", "--quiet", source.name, cwd=source.parent)

    def restore(self, place: Place, source: Path, number: int, folder: Path) -> Command:
        return self.command(place, "restore", "latest", "--target", folder)

    def discard(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "dump", "latest", f"/{source.name}")


class Borg(Tool):
    name = program = "borg"

    def environment(self, place: Place) -> dict[str, str]:
        return {"BORG_REPO": str(place.store), "BORG_PASSPHRASE": PASSPHRASE}

    def init(self, place: Place) -> list[Command]:
        return [self.command(place, "init", "--encryption", "repokey-blake2")]

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "create", f"::{number}", source.name, cwd=source.parent)

    def restore(self, place: Place, source: Path, number: int, folder: Path) -> Command:
        return self.command(place, "extract", f"::{number}", cwd=folder)

    def discard(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "extract", "--stdout", f"::{number}")


class Bupstash(Tool):
    name = program = "bupstash"

    def environment(self, place: Place) -> dict[str, str]:
        return {"BUPSTASH_REPOSITORY": str(place.store), "BUPSTASH_KEY": str(place.key)}

    def init(self, place: Place) -> list[Command]:
        return [self.command(place, "new-key", "-o", place.key), self.command(place, "init")]

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "put", "--quiet", f"name={number}", source)

    def restore(self, place: Place, source: Path, number: int, folder: Path) -> Command:
        if source.is_dir():
            (folder / source.name).mkdir()
            return self.command(place, "restore", "--quiet", "--into", folder / source.name, f"name={number}")
        return self.command(place, "get", "--quiet", f"name={number}", stdout=folder / source.name)

    def discard(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "get", "--quiet", f"name={number}")


class Kopia(Tool):
    name = program = "kopia"

    def environment(self, place: Place) -> dict[str, str]:
        return {"KOPIA_PASSWORD": PASSPHRASE, "KOPIA_CONFIG_PATH": str(place.home / "kopia.config")}

    def init(self, place: Place) -> list[Command]:
        compressed = self.command(place, "policy", "set", "--global", "--compression", "zstd")
        return [self.command(place, "repository", "create", "filesystem", "--path", place.store), compressed]

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "snapshot", "create", "--no-progress", source)

    def restore(self, place: Place, source: Path, number: int, folder: Path) -> Command:
        return self.command(place, "snapshot", "restore", "--no-progress", source, folder / source.name)


class Desync(Tool):
    name = program = "desync"
    note = "does not encrypt"

    def index(self, place: Place, source: Path, number: int) -> Path:
        return place.store / f"{number}.{'caidx' if source.is_dir() else 'caibx'}"

    def init(self, place: Place) -> list[Command]:
        return [Command(["mkdir", str(place.store)])]

    def snapshot(self, place: Place, source: Path, number: int) -> Command:
        words = ["tar", "--index"] if source.is_dir() else ["make"]
        return self.command(place, *words, "--store", place.store, self.index(place, source, number), source)

    def restore(self, place: Place, source: Path, number: int, folder: Path) -> Command:
        words = ["untar", "--index"] if source.is_dir() else ["extract"]
        return self.command(place, *words, "--store", place.store, self.index(place, source, number), folder / source.name)

    def discard(self, place: Place, source: Path, number: int) -> Command:
        return self.command(place, "cat", "--store", place.store, self.index(place, source, number))


PEERS: list[Tool] = [Restic(), Borg(), Bupstash(), Kopia(), Desync()]
