"""The kubectl tour: transcripts of a terminal that must come out the same.

A line `$ command` is run by bash, lines `> …` below it are more of the command, and what follows is what it must print,
stdout and stderr together, with `[exit N]` where it fails. Lines that begin with `##` are comments; `## not yet: why` lets
the command below it come out differently for now, `## none of it yet: why` the whole file. Blank lines count for nothing. What must differ from run to run (uids, times, ages, versions, addresses) is
replaced by a word first. Each transcript has its own namespace, and `$SERVER` is the address.
"""
import difflib
import os
import re
import subprocess
import tempfile
from pathlib import Path

import harness

FOLDER = Path(__file__).with_name("tour")
COMMAND_SECONDS = 60
NOT_YET, NONE_YET = "## not yet: ", "## none of it yet: "

# Sourced by every command's shell: waiting for a state, never for a time.
PRELUDE = """
wait_for() { # file text
  for _ in $(seq 200); do grep -q -- "$2" "$1" 2>/dev/null && return; sleep 0.05; done
  echo "never saw $2 in $1:"; cat "$1"; return 1
}
"""

REPLACED = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uid>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<time>"),
    (r'(resourceVersion\\?"?: ?\\?"?)[1-9]\d*', r"\1<rv>"),
    (r"(Resource Version: +)\d+", r"\1<rv>"),
    (r"\d+\.\d+\.\d+\.\d+:\d+", "<address>"),
    (r"(?<=\s)\d+(ms|s|m|h|d)(\d+[smh])?(?=\s|$)", "<age>"),
    (r"(?<=\S) {3,}", "   "),  # columns are as wide as their widest cell, which may be an age
    (r"[ \t]+$", ""),
]


class Step:
    """A command and what it printed."""

    def __init__(self, comments):
        self.comments, self.command, self.output = comments, [], []

    def text(self):
        first, *more = self.command
        return "\n".join([*self.comments, f"$ {first}", *(f"> {line}" for line in more), *self.output])


def parse(path):
    steps, comments = [], []
    for line in path.read_text().splitlines():
        if line.startswith("##") or not line.strip():
            comments.append(line)
        elif line.startswith("$ "):
            steps.append(Step(comments))
            steps[-1].command.append(line[2:])
            comments = []
        elif line.startswith("> ") and not steps[-1].output:
            steps[-1].command.append(line[2:])
        else:
            steps[-1].output.append(line)
    return steps


def files(group, names=()):
    found = sorted((FOLDER / group).glob("*.txt"))
    return [path for path in found if not names or path.stem in names]


def normal(text, server_urls):
    for url in sorted(server_urls, key=len, reverse=True):
        text = text.replace(url, "<server>")
    for pattern, word in REPLACED:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [line for line in text.splitlines() if line.strip()]


def play(path, server, kubeconfig):
    """Runs a transcript's commands; returns its steps with what they really printed."""
    steps = parse(path)
    with tempfile.TemporaryDirectory(prefix="mica-tour-") as home:
        own = Path(home) / "kubeconfig"
        own.write_text(Path(kubeconfig).read_text())
        namespace = f"tour-{path.stem}"
        harness.kubectl(own, "create", "namespace", namespace)
        harness.kubectl(own, "config", "set-context", "--current", "--namespace", namespace)
        prelude = Path(home) / "prelude"
        prelude.write_text(PRELUDE)
        url = re.search(r"server:\s*(\S+)", own.read_text()).group(1).strip("\"'")
        tools = os.path.dirname(harness.tool("kubectl"))
        env = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": home, "KUBECONFIG": str(own), "SERVER": url}
        env |= {"LC_ALL": "C", "TZ": "UTC", "TERM": "dumb", "BASH_ENV": str(prelude)}
        for step in steps:
            command = ["bash", "-c", "\n".join(step.command)]
            done = subprocess.run(command, cwd=home, env=env, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=COMMAND_SECONDS)
            step.output = normal(done.stdout, [url, server.url])
            if done.returncode:
                step.output.append(f"[exit {done.returncode}]")
    return steps


def compare(path, server, kubeconfig):
    """How many steps there are, those that came out differently (as text for people), and those that need not yet."""
    whole = NONE_YET in path.read_text()
    wanted = parse(path)
    wrong, later = [], []
    for want, got in zip(wanted, play(path, server, kubeconfig)):
        not_yet = whole or any(line.startswith(NOT_YET) for line in want.comments)
        if want.output != got.output:
            more = " …" if want.command[1:] else ""
            difference = [line for line in difflib.ndiff(want.output, got.output) if not line.startswith("? ")]
            (later if not_yet else wrong).append("\n".join([f"    $ {want.command[0]}{more}", *(f"    {line}" for line in difference)]))
        elif not_yet and not whole:
            print(f"  {path.stem}: now comes out as recorded, take its `not yet` out: {want.command[0]}")
    if whole and not later:
        print(f"  {path.stem}: all of it now comes out as recorded, take its `none of it yet` out")
    return len(wanted), wrong, later


def check(server, places, names, own):
    """Plays upstream's transcripts on every place, and where the server is ours our own on root. Returns passed and failed."""
    print("tour:", flush=True)
    runs = [(path, name, config) for path in files("upstream", names) for name, config in places.items()]
    runs += [(path, "root", server.kubeconfig) for path in files("mica", names) if own]
    passed = failed = 0
    shown = set()
    for path, name, kubeconfig in runs:
        steps, wrong, later = compare(path, server, kubeconfig)
        good = steps - len(wrong) - len(later)
        passed, failed = passed + good, failed + len(wrong)
        print(f"  {path.stem} on {name}: {good} of {steps} as recorded" + (f", {len(later)} not yet" if later else ""), flush=True)
        for difference in wrong:  # most of what differs on the plane differed on root already
            if (path, difference) not in shown:
                print(difference, flush=True)
            shown.add((path, difference))
    return passed, failed


def record(path, server, kubeconfig):
    steps = play(path, server, kubeconfig)
    path.write_text("\n".join(step.text() for step in steps) + "\n")
    print(f"recorded {path.stem}: {len(steps)} steps")
