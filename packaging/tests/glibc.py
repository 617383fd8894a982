#!/usr/bin/env python3
"""Checks that programs start on an old system: glibc.py --newest VERSION PROGRAM...

The loader of a system refuses a program that asks for a newer version of a symbol than its glibc has. So the
newest version that a program asks for must be at most VERSION.
"""

import argparse
import re
import subprocess
import sys


def versions(program: str) -> list[tuple[int, ...]]:
    """Returns each version of glibc that the program asks for, in order. A program with relative relocations that
    are packed asks for 2.36 in words of its own."""
    needs = subprocess.run(["readelf", "--wide", "--version-info", program], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([0-9.]+)", needs.replace("GLIBC_ABI_DT_RELR", "GLIBC_2.36"))}
    if not found:
        raise SystemExit(f"{program} asks for no version of glibc: is it a program for Linux?")
    return sorted(found)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--newest", required=True, metavar="VERSION")
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    arguments = parser.parse_args()
    bound = tuple(map(int, arguments.newest.split(".")))
    failed = False
    for program in arguments.programs:
        newest = versions(program)[-1]
        text = ".".join(map(str, newest))
        if newest > bound:
            failed = True
            print(f"{program} needs glibc {text}, but must start with {arguments.newest}", file=sys.stderr)
        else:
            print(f"{program} needs glibc {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
