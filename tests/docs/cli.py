"""docs/cli.md has every command and option of the program, and every variable that the sources read."""

import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def help_of(program, *command):
    return subprocess.run([program, *command, "--help"], check=True, stdout=subprocess.PIPE, text=True).stdout


def options_of(text):
    """The options that a help text lists, but not those of its examples."""
    return set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M)) - {"--help", "--version"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    page = (ROOT / "docs/cli.md").read_text()
    sections = dict(re.findall(r"^### treadle (\w+)\n(.*?)(?=^##)", page, re.M | re.S))
    commands = re.findall(r"^  (\w+) {2,}", help_of(program).partition("Subcommands:")[2], re.M)
    said = []
    if not commands or set(commands) != set(sections):
        said.append(f"the program has {sorted(commands)}, the page {sorted(sections)}")
    for command in set(commands) & set(sections):
        there, shown = options_of(help_of(program, command)), set(re.findall(r"`(--[a-z-]+)`", sections[command]))
        said += [f"treadle {command}: the page lacks {option}" for option in sorted(there - shown)]
        said += [f"treadle {command}: there is no {option}" for option in sorted(shown - there)]
        if not there:
            said.append(f"treadle {command}: no option was found")

    read = {name for file in (ROOT / "src").rglob("*.cpp") for name in re.findall(r'variable\("(TREADLE_\w+)"\)', file.read_text())}
    shown = set(re.findall(r"^\| `(TREADLE_\w+)` \|", page, re.M))
    if not read or read != shown:
        said.append(f"sources read {sorted(read)}, the page has {sorted(shown)}")
    sys.exit("\n".join(said) or 0)


main()
