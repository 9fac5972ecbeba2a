#!/usr/bin/env python3
"""Replays recorded answers of a real kube-apiserver against root and a plane, and compares with what is known to differ.

  check.py --recordings DIR [FILE...]       fails on a difference that known-differences.txt does not list
  check.py --recordings DIR --update        rewrites that list, and the table in docs/conformance.md
  check.py --table                          rewrites only the table, from the list

FILE is a recording's name without `.json`; all that FILES lists unless named. DIR also holds `golden.py`, which replays.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

KNOWN = Path(__file__).with_name("known-differences.txt")
DOCUMENT = harness.PROJECT / "docs" / "conformance.md"
BEGIN, END = "<!-- table: written by `make golden-update` -->", "<!-- end of table -->"
COUNTS = "<!-- recordings: written by `make golden-update` -->", "<!-- end of recordings -->"
TARGETS = ["root", "plane"]
# Where each recording is replayed. What is the same code in both places is replayed in a plane.
FILES = {
    "protocol": TARGETS,
    "kinds": TARGETS,
    "workloads": TARGETS,
    **{file: ["plane"] for file in ["customresources", "customresources_objects", "customresources_values"]},
    **{file: ["plane"] for file in ["apply", "apply_nested", "apply_strategic"]},
}
# Replays at once: more only wait for each other, and some cases wait for a time.
WORKERS = 4
UNEXPLAINED = "not looked at yet"
# What whole groups of differences come from: the first that matches "case: difference" is the reason of a new line.
REASONS = [
    (r"service account tokens|token request", "service account tokens are not issued yet"),
    (r"^(rbac|allowed|forbidden|local subject|self subject|subject access)|User .*cannot", "authorization is not built yet"),
]
HEADER = """\
# What still differs from kube-apiserver, one line each: file | target | case | why.
# The target is root, plane or both. `make golden` fails on a difference that is not here and tells of lines that no longer
# occur; `make golden-update` rewrites the list and keeps the reasons.
"""


def read_known():
    """(file, target, case) -> why."""
    known = {}
    for line in KNOWN.read_text().splitlines() if KNOWN.exists() else []:
        if line.strip() and not line.startswith("#"):
            file, target, case, why = [part.strip() for part in line.split(" | ", 3)]
            for t in TARGETS if target == "both" else [target]:
                known[file, t, case] = why
    return known


def lines(known):
    """The list's lines, with root and plane joined where both have the same reason."""
    joined = set()
    for (file, target, case), why in known.items():
        twin = known.get((file, "plane" if target == "root" else "root", case))
        if twin == why:
            if target == "root":
                joined.add((file, "both", case, why))
        else:
            joined.add((file, target, case, why))
    return sorted(joined)


def write_known(known):
    KNOWN.write_text(HEADER + "".join(f"{' | '.join(line)}\n" for line in lines(known)))


def write_counts(failed, passed):
    """How each recording came out, at each place."""
    counts = {}
    for keys, at in [(passed, 0), (failed, 1)]:
        for file, target, _ in keys:
            counts.setdefault((file, target), [0, 0])[at] += 1
    rows = [f"| {f} | {t} | {same} | {other} |" for (f, t), (same, other) in sorted(counts.items())]
    write_between(*COUNTS, ["| recording | where | as recorded | different |", "|---|---|---|---|", *rows])


def write_between(begin, end, lines):
    before, rest = DOCUMENT.read_text().split(begin, 1)
    DOCUMENT.write_text(f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{rest.split(end, 1)[1]}")


def write_table(known):
    rows = [f"| {f} | {t} | {c.replace('|', chr(92) + '|')} | {w.replace('|', chr(92) + '|')} |" for f, t, c, w in lines(known)]
    table = ["| recording | where | case | why |", "|---|---|---|---|", *rows] if rows else ["Nothing is known to differ."]
    write_between(BEGIN, END, table)


def replay(recordings, file, target, kubeconfig):
    """(failed: case -> difference, passed: set of cases) of one recording at one place."""
    command = [sys.executable, str(recordings / "golden.py"), "replay", "--kubeconfig", str(kubeconfig), "-v"]
    path = recordings / "recorded" / f"{file}.json"
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, env={**os.environ, "KUBECTL": harness.tool("kubectl")})
    failed, passed = {}, set()
    for line in done.stdout.splitlines():
        if m := re.match(r"FAIL \S+ (.*?) (step \d+ \(.*)", line):
            failed[m[1]] = m[2]
        elif m := re.match(r"ok   \S+ (.*)", line):
            passed.add(m[1])
    names = {case["name"] for case in json.loads(path.read_text())}
    if passed | set(failed) != names:
        raise SystemExit(f"golden.py did not replay all of {file} at {target}:\n{done.stdout[-1000:]}{done.stderr[-3000:]}")
    return failed, passed - set(failed)


def replay_all(recordings, files, known):
    """(file, target, case) -> difference, and the same for what passed.

    A recording with a difference that is not known is replayed once more, alone: what a busy machine made late is no regression.
    """
    failed, passed = {}, set()
    # The recordings use pod templates here and there as a kind with a rich schema.
    with harness.mica("--profile", "kubernetes") as server:
        places = {"root": server.kubeconfig, "plane": server.create_plane("golden")}
        jobs = [(f, t) for f in files for t in FILES.get(f, TARGETS)]
        with ThreadPoolExecutor(WORKERS) as pool:
            results = list(pool.map(lambda j: replay(recordings, *j, places[j[1]]), jobs))
        for (f, t), (bad, good) in zip(jobs, results):
            if any((f, t, case) not in known for case in bad):
                bad_again, good_again = replay(recordings, f, t, places[t])
                for case in sorted(set(bad) & good_again):
                    print(f"  {f} at {t}: {case}: differed once and not again: {bad[case]}")
                bad, good = {case: why for case, why in bad.items() if case in bad_again}, good | good_again - set(bad_again)
            failed.update({(f, t, case): why for case, why in bad.items()})
            passed.update((f, t, case) for case in good)
            print(f"  {f} at {t}: {len(good)} the same, {len(bad)} differ", flush=True)
    return failed, passed


def guess(case, difference):
    found = [why for pattern, why in REASONS if re.search(pattern, f"{case}: {difference}")]
    return (found or [UNEXPLAINED])[0]


def report(failed, passed, known):
    new = sorted(key for key in failed if key not in known)
    for key in new:
        print(f"NEW DIFFERENCE {' | '.join(key)}\n    {failed[key]}")
    for key in sorted(key for key in known if key in passed):
        print(f"no longer differs, take it off the list: {' | '.join(key)}")
    unexplained = sum(1 for key in failed if known.get(key) == UNEXPLAINED)
    total = len(failed) + len(passed)
    print(f"golden: {len(passed)} of {total} answers as recorded, {len(failed)} differ: {len(new)} new, {unexplained} without a reason")
    return len(new)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("files", nargs="*", default=list(FILES))
    a = parser.parse_args()
    known = read_known()
    if a.table:
        return write_table(known)
    if not (a.recordings and (a.recordings / "golden.py").exists()):
        return print("golden: no recordings here, nothing replayed (set GOLDEN to their directory)")
    failed, passed = replay_all(a.recordings.resolve(), a.files, known)
    new = report(failed, passed, known)
    if a.update:
        kept = {key: why for key, why in known.items() if key not in passed}
        write_known({**{key: guess(key[2], difference) for key, difference in failed.items()}, **kept})
        write_table(read_known())
        if a.files == list(FILES):
            write_counts(failed, passed)
    elif new:
        sys.exit(1)


if __name__ == "__main__":
    main()
