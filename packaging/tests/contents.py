#!/usr/bin/env python3
"""Checks a package for Debian: contents.py DEB [SECOND_DEB]

The package has the programs, their pages, their completions and their units, and enables nothing. Its units are
valid for systemd, and its alert rules ask only for metrics that the program writes. If a second package is
named, which was made from the same sources, it must be the same to the byte.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True

# Files of the package. The pages of the single commands and the guide are checked apart.
FILES = [
    "usr/bin/varve",
    "usr/bin/varve-plan",
    "usr/lib/systemd/system/varve.service",
    "usr/lib/systemd/system/varve.timer",
    "usr/lib/systemd/user/varve.service",
    "usr/lib/systemd/user/varve.timer",
    "usr/share/bash-completion/completions/varve",
    "usr/share/bash-completion/completions/varve-plan",
    "usr/share/doc/varve/CHANGELOG.md",
    "usr/share/doc/varve/copyright",
    "usr/share/doc/varve/examples/varve.toml",
    "usr/share/doc/varve/format.md",
    "usr/share/fish/vendor_completions.d/varve-plan.fish",
    "usr/share/fish/vendor_completions.d/varve.fish",
    "usr/share/man/man1/varve.1.gz",
    "usr/share/varve/alerts.yml",
    "usr/share/zsh/vendor-completions/_varve",
    "usr/share/zsh/vendor-completions/_varve-plan",
]
# A larger package has programs that are not stripped.
PACKAGE_BYTES_MAX = 100 << 20
# The programs, with some of the commands of each.
PROGRAMS = {"varve": {"run", "status", "setup", "snapshot", "restore", "explain"}, "varve-plan": {"predict", "trace"}}
# A source with a file, and promises of each kind that needs no time.
CONFIG = """
state = "state"
[store.main]
at = "store"
key-file = "key"
[source.home]
folder = "home"
every = "day"
[promise]
snapshot-within = "3d"
verified-within = "60d"
reclaimed-within = "21d"
room-for = "30d"
"""


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> int:
    deb = Path(sys.argv[1]).resolve()
    others = [Path(name).resolve() for name in sys.argv[2:]]
    with tempfile.TemporaryDirectory(prefix="varve-package.") as folder:
        root, control = Path(folder) / "root", Path(folder) / "control"
        output("dpkg-deb", "--extract", deb, root)
        output("dpkg-deb", "--control", deb, control)
        for check in (owners, files, the_programs, pages, dependencies, scripts, units, example, metrics):
            check(deb, root, control)
            print(f"ok: {check.__doc__}", flush=True)
    for other in others:
        assert deb.read_bytes() == other.read_bytes(), f"{deb} and {other} differ"
        print("ok: both packages have the same bytes")
    return 0


def owners(deb: Path, root: Path, control: Path) -> None:
    """everything belongs to root, and only root can change it"""
    for line in output("dpkg-deb", "--contents", deb).splitlines():
        mode, owner = line.split()[:2]
        assert owner in ("root/root", "0/0"), line
        assert mode[5] == "-" and mode[8] == "-", line
        assert "s" not in mode[1:], line


def files(deb: Path, root: Path, control: Path) -> None:
    """all files are there, and none is in /etc or /var"""
    found = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    assert not set(FILES) - found, f"missing: {sorted(set(FILES) - found)}"
    free = re.compile(r"usr/share/man/man1/varve-[a-z0-9-]+\.1\.gz|usr/share/doc/varve/guide/[a-z-]+\.md(\.gz)?")
    strange = [name for name in found - set(FILES) if not free.fullmatch(name)]
    assert not strange, f"not expected: {strange}"
    guide = {path.name.removesuffix(".gz") for path in (root / "usr/share/doc/varve/guide").iterdir()}
    assert {"daily.md", "recovery.md", "keys.md"} <= guide, guide
    assert deb.stat().st_size < PACKAGE_BYTES_MAX, deb.stat().st_size


def the_programs(deb: Path, root: Path, control: Path) -> None:
    """the programs run and are stripped"""
    for name in PROGRAMS:
        program = root / "usr/bin" / name
        version = output(program, "--version").split()[1]
        assert output("dpkg-deb", "--field", deb, "Version").strip().startswith(f"{version}-")
        sections = output("readelf", "--wide", "--section-headers", program)
        assert ".symtab" not in sections and ".debug_" not in sections, sections


def pages(deb: Path, root: Path, control: Path) -> None:
    """each command has a page, and the completions know it"""
    pages_there = {path.name for path in (root / "usr/share/man/man1").iterdir()}
    for program, some in PROGRAMS.items():
        listed = output(root / "usr/bin" / program, "--help")
        script = (root / "usr/share/bash-completion/completions" / program).read_text()
        assert f"VARVE_COMPLETE=bash {program} --" in script, script
        shell = ("env", "VARVE_COMPLETE=bash", root / "usr/bin" / program, "--")
        completions = output(*shell, program, "").splitlines()
        names = [line.split()[0] for line in listed.splitlines() if re.match(r"  [a-z][a-z-]*  ", line)]
        assert some <= set(names), names
        for name in names:
            assert name in completions, name
            assert name == "help" or f"{program}-{name}.1.gz" in pages_there, name
    page = gzip.decompress((root / "usr/share/man/man1/varve.1.gz").read_bytes()).decode()
    assert page.startswith((".ie", ".TH")) and "EXIT STATUS" in page, page[:200]


def dependencies(deb: Path, root: Path, control: Path) -> None:
    """it depends on the shared libraries that the program needs"""
    depends = output("dpkg-deb", "--field", deb, "Depends")
    needed = re.findall(r"NEEDED.*\[(.*)\]", output("readelf", "--dynamic", "--wide", root / "usr/bin/varve"))
    owners = {"libc.so.6": "libc6", "libm.so.6": "libc6", "ld-linux-x86-64.so.2": "libc6", "libgcc_s.so.1": "libgcc-s1"}
    for library in needed:
        package = owners.get(library, library)
        assert re.search(rf"\b{re.escape(package)}\b", depends), f"{library}: {depends}"
    assert re.search(r"libc6 \(>= [0-9.]+\)", depends), depends


def scripts(deb: Path, root: Path, control: Path) -> None:
    """its scripts enable and start nothing, and remove no key and no archive"""
    names = {path.name for path in control.iterdir()} - {"control", "md5sums"}
    assert names == {"postinst", "prerm", "postrm"}, names
    for name in names:
        script = (control / name).read_text()
        output("sh", "-n", control / name)
        assert not re.search(r"systemctl.*(enable|start|preset)|rm -[a-z]*r", script), script
    assert not list(root.rglob("*.wants")), "an enabled unit"


def units(deb: Path, root: Path, control: Path) -> None:
    """its units are valid for systemd"""
    if not shutil.which("systemd-analyze"):
        print("skipping the check of units: systemd-analyze is missing")
        return
    program = root / "usr/bin/varve"
    for kind, mode in (("system", ()), ("user", ("--user",))):
        folder = control / kind
        shutil.copytree(root / "usr/lib/systemd" / kind, folder)
        service = folder / "varve.service"
        # The program that is checked is that of the package, which need not be installed.
        service.write_text(service.read_text().replace("/usr/bin/varve", str(program)))
        names = [folder / "varve.service", folder / "varve.timer"]
        environment = os.environ | {"XDG_RUNTIME_DIR": str(folder), "SYSTEMD_UNIT_PATH": f"{folder}:"}
        done = subprocess.run(
            ["systemd-analyze", *mode, "verify", "--man=no", "--recursive-errors=one", *names],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment,
        )
        assert done.returncode == 0 and "varve" not in done.stdout, f"{kind}: {done.stdout}"


def example(deb: Path, root: Path, control: Path) -> None:
    """its example is a valid configuration"""
    file = root / "usr/share/doc/varve/examples/varve.toml"
    done = subprocess.run([root / "usr/bin/varve", "config", "check", file], stdout=subprocess.PIPE, text=True)
    # This machine need not have the folders and the store that the example names.
    assert done.returncode in (0, 1), done
    assert f"{file} is good" in done.stdout or f"{file} is well-formed" in done.stdout, done.stdout
    for source in ("home", "etc"):
        assert f"goes into the store main (/backup/store) as {source}" in done.stdout, done.stdout


def metrics(deb: Path, root: Path, control: Path) -> None:
    """its alert rules ask for metrics that the program writes"""
    folder = control / "run"
    (folder / "home").mkdir(parents=True)
    (folder / "home/letter").write_text("dear\n")
    (folder / "varve.toml").write_text(CONFIG)
    key = folder / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(32))
    program = root / "usr/bin/varve"
    output(program, "--quiet", "--store", folder / "store", "--key-file", key, "init")
    output(program, "run", "--config", folder / "varve.toml")
    written = output(program, "status", "--metrics", "--config", folder / "varve.toml")
    rules = (root / "usr/share/varve/alerts.yml").read_text()
    expressions = "\n".join(re.findall(r"expr: (.*)", rules))
    asked = set(re.findall(r"\bvarve_[a-z_]+", expressions))
    assert len(asked) >= 4, asked
    for name in asked:
        assert re.search(rf"^{name}[ {{]", written, re.M), f"{name} is not written: {written}"
    for promise in re.findall(r'promise!?="([a-z-]+)"', expressions):
        assert f'promise="{promise}"' in written, f"{promise}: {written}"


if __name__ == "__main__":
    sys.exit(main())
