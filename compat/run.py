#!/usr/bin/env python3
"""Runs real foreign clients against the server, on root and on a plane.

  run.py [NAME...]            every check, or only the tours so named and the programs so named (PROGRAMS below)
  run.py --reference          every check against $KUBE_APISERVER instead: shows that the checks themselves are right
  run.py --record [NAME...]   writes the tours' transcripts anew: upstream's from $KUBE_APISERVER, our own from our server
"""
import argparse
import os
import sys
from contextlib import contextmanager

import harness
import programs
import shared
import tour

PLANE = "compat"
# Checks that are no tours, in the order in which they run.
PROGRAMS = ["client-go", "reconnect", "python", "javascript", "operator", "multicluster", "milo", "shared"]


@contextmanager
def with_a_past(reference):
    """A server with every kind of Kubernetes, and what expired in its places; nothing did in the reference."""
    if reference:
        with harness.kube_apiserver() as server:
            yield server, {}
    else:
        with harness.mica_with_a_past(PLANE) as pair:
            yield pair


def check(names, reference):
    """How many checks failed."""
    wanted = [n for n in PROGRAMS if not names or n in names]
    tours = [n for n in names if n not in PROGRAMS]
    totals = {}
    if not names or tours or "client-go" in wanted:
        with harness.kube_apiserver() if reference else harness.mica() as server:
            places = {"root": server.kubeconfig}
            if not reference:
                places["plane"] = server.create_plane(PLANE)
            if not names or tours:
                totals["tour"] = tour.check(server, places, tours, own=not reference)
            if "client-go" in wanted:
                totals["client-go"] = programs.client_go(places)
    if "reconnect" in wanted and not reference:
        totals["reconnect"] = programs.reconnect()
    if "python" in wanted or "javascript" in wanted:
        with with_a_past(reference) as (server, expired):
            places = {"root": server.kubeconfig}
            if not reference:
                places["plane"] = server.plane(PLANE)
            for name, run in (("python", programs.python), ("javascript", programs.javascript)):
                if name in wanted:
                    totals[name] = run(places, expired)
    if "operator" in wanted:
        totals["operator"] = programs.operator(reference)
    if "multicluster" in wanted and not reference:
        totals["multicluster"] = programs.multicluster()
    if "milo" in wanted and not reference:
        if "MILO" in os.environ:
            totals["milo"] = programs.milo()
        elif "milo" in names:
            sys.exit("milo: set MILO to a checkout of Milo")
        else:
            print("milo: not run, because MILO names no checkout of Milo")
    if "shared" in wanted and not reference:
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
