#!/usr/bin/env python3
"""Runs real foreign clients against the server, on root and on a plane.

  run.py [NAME...]            every check, or only the tours so named, `client-go` and `shared`
  run.py --reference          every check against $KUBE_APISERVER instead: shows that the checks themselves are right
  run.py --record [NAME...]   writes the tours' transcripts anew: upstream's from $KUBE_APISERVER, our own from our server
"""
import argparse
import subprocess
import sys

import harness
import shared
import tour

# Checks that are no tours.
PROGRAMS = {"client-go", "shared"}


def check_client_go(places):
    """The Go program ends with 0 when every claim held, and prints each."""
    print("client-go:", flush=True)
    program = harness.PROJECT / ".tools" / "bin" / "check-client-go"
    subprocess.run(["go", "build", "-o", str(program), "./clientgo"], cwd=harness.PROJECT / "compat", check=True)
    passed = failed = 0
    for name, kubeconfig in places.items():
        done = subprocess.run([str(program), "--kubeconfig", str(kubeconfig)], capture_output=True, text=True, timeout=300)
        for line in done.stdout.splitlines():
            print(f"  {name}: {line}")
            passed, failed = passed + line.startswith("ok "), failed + line.startswith("FAIL ")
        if done.returncode and "FAIL " not in done.stdout:
            failed += 1
            print(f"  {name}: FAIL the program ended early\n{done.stderr[-2000:]}")
    return passed, failed


def check(names, reference):
    with harness.kube_apiserver() if reference else harness.mica() as server:
        places = {"root": server.kubeconfig}
        if not reference:
            places["plane"] = server.create_plane("compat")
        totals = {}
        tours = [n for n in names if n not in PROGRAMS]
        if not names or tours:
            totals["tour"] = tour.check(server, places, tours, own=not reference)
        if not names or "client-go" in names:
            totals["client-go"] = check_client_go(places)
    if not reference and (not names or "shared" in names):
        totals["shared"] = shared.check()
    for what, (passed, failed) in totals.items():
        print(f"{what}: {passed} passed, {failed} failed")
    return sum(failed for _, failed in totals.values())


def record(names):
    upstream, own = tour.files("upstream", names), tour.files("mica", names)
    if upstream:
        with harness.kube_apiserver() as server:
            for path in upstream:
                tour.record(path, server, server.kubeconfig)
    if own:
        with harness.mica() as server:
            for path in own:
                tour.record(path, server, server.kubeconfig)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("names", nargs="*")
    a = parser.parse_args()
    if a.record:
        record(a.names)
    elif check(a.names, a.reference):
        sys.exit(1)


if __name__ == "__main__":
    main()
