#!/usr/bin/env python3
"""Runs the API-only specs of the Kubernetes conformance suite against root and a plane.

  run.py --e2e PATH --controller-manager PATH             fails on a spec that specs.txt says passes
  run.py ... --update                                     rewrites specs.txt and the tables in docs/conformance.md
  run.py --table                                          rewrites only the tables, from specs.txt
  run.py ... --only REGEX --at plane                      a part of it

Both programs are upstream's, unmodified and of the version that `mica version` speaks: `test/e2e/e2e.test` and `kube-controller-manager`,
which makes service accounts, deletes namespaces, collects garbage and counts quotas. Nothing of them is built here.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness  # noqa: E402

SPECS = Path(__file__).with_name("specs.txt")
DOCUMENT = harness.PROJECT / "docs" / "conformance.md"
SUMMARY = ("<!-- summary: written by `make conformance-update` -->", "<!-- end of summary -->")
LIST = ("<!-- specs: written by `make conformance-update` -->", "<!-- end of specs -->")
PLACES = ["root", "plane"]
# Specs at once in each place. Most of them wait for a controller.
SHARDS = 4
# A spec that waits for what never comes ends by itself after five to ten minutes.
SUITE_SECONDS = 3 * 3600
START_SECONDS = 60
UNEXPLAINED = "not looked at yet"
# Nodes are data here: nobody renews their leases, and a node that is called dead would take its pods with it.
CONTROLLERS = "*,-node-lifecycle-controller,-node-ipam-controller,-taint-eviction-controller,-bootstrap-signer-controller,-token-cleaner-controller"
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "data", "labels": {"kubernetes.io/hostname": "data", "kubernetes.io/os": "linux"}},
}
NODE_STATUS = {
    "status": {
        "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Data", "message": "stands for a node"}],
        "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
    }
}
HEADER = """\
# The specs of the Kubernetes conformance suite that need no running pod, one line each: root | plane | spec | why it fails.
# A result is pass, fail or - (not run). `make conformance` fails where a pass has become a failure; `make conformance-update`
# rewrites the results and keeps the reasons.
"""


def read_specs():
    """spec -> ({place: result}, why)."""
    specs = {}
    for line in SPECS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            root, plane, name, *why = [part.strip() for part in line.split(" | ", 3)]
            specs[name] = ({"root": root, "plane": plane}, why[0] if why else "")
    return specs


def write_specs(specs):
    lines = []
    for name, (results, why) in sorted(specs.items()):
        lines.append(" | ".join([results["root"], results["plane"], name] + ([why] if why else [])))
    SPECS.write_text(HEADER + "".join(line + "\n" for line in lines))


@contextmanager
def controllers(binary, kubeconfig, name, pki, log):
    """kube-controller-manager on one place, until the `with` block is left."""
    with tempfile.TemporaryDirectory(prefix="mica-controllers-") as directory:
        key = Path(directory) / "sa.key"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        command = [binary, f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--use-service-account-credentials=false"]
        command += [f"--root-ca-file={pki / 'ca.crt'}", f"--service-account-private-key-file={key}", f"--controllers={CONTROLLERS}"]
        command += [f"--secure-port={harness.free_port()}", "--bind-address=127.0.0.1", f"--cert-dir={directory}"]
        with open(log, "wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        try:
            wait_for_account(process, kubeconfig, name, log)
            yield
            if process.poll() is not None:
                raise SystemExit(f"kube-controller-manager ended at {name}; see {log}")
        finally:
            process.terminate()
            process.wait(30)


def wait_for_account(process, kubeconfig, name, log):
    """The suite's first question to every namespace: is its service account there?"""
    harness.kubectl(kubeconfig, "create", "namespace", "controllers-run")
    deadline = time.monotonic() + START_SECONDS
    while not harness.kubectl(kubeconfig, "get", "serviceaccounts", "-n", "controllers-run", "-o", "name").strip():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"kube-controller-manager does not work at {name}; see {log}")
        time.sleep(0.2)
    harness.kubectl(kubeconfig, "delete", "namespace", "controllers-run")


def suite(binary, kubeconfig, specs, report, log):
    """Runs these specs; spec -> (state, message). Several shards run at once, each a process of its own."""
    focus = "|".join(re.sub(r"([^\w\s/,-])", r"\\\1", name) for name in specs)
    command = [binary, "--kubeconfig", str(kubeconfig), "--provider=skeleton", "--allowed-not-ready-nodes=-1"]
    command += ["--minStartupPods=0", "--num-nodes=0", f"--kubectl-path={harness.tool('kubectl')}", "--ginkgo.no-color", "--ginkgo.v"]
    command += [f"--ginkgo.timeout={SUITE_SECONDS}s", f"--ginkgo.focus={focus}", f"--ginkgo.json-report={report}"]
    with open(log, "wb") as out:
        subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
    if not report.exists():
        raise SystemExit(f"the suite wrote no report; see {log}")
    return read_report(report, specs)


def read_report(report, specs):
    """What ginkgo's JSON report says of these specs: spec -> (state, message)."""
    results = {}
    for spec in json.loads(report.read_text())[0]["SpecReports"]:
        name = " ".join((spec["ContainerHierarchyTexts"] or []) + [spec["LeafNodeText"]])
        message = re.sub(r"\s+", " ", spec.get("Failure", {}).get("Message", ""))
        if spec["LeafNodeType"] == "It" and name in specs and (spec["State"] != "skipped" or message):
            results[name] = (spec["State"], message)
    return results


def run_at(a, place, kubeconfig, names, directory):
    harness.kubectl(kubeconfig, "create", "-f", "-", text=json.dumps(NODE))
    harness.kubectl(kubeconfig, "patch", "node", "data", "--subresource=status", "--type=merge", "-p", json.dumps(NODE_STATUS))
    harness.kubectl(kubeconfig, "taint", "node", "data", "node.kubernetes.io/not-ready:NoSchedule-")
    # Some change what all see: they come last, one after the other.
    alone = [name for name in names if "[Serial]" in name]
    others = [name for name in names if "[Serial]" not in name]
    results, started = {}, 0
    with ThreadPoolExecutor(SHARDS) as pool:
        for shards in [[others[i::SHARDS] for i in range(SHARDS)], [alone]]:
            jobs = []
            for shard in filter(None, shards):
                started += 1
                files = directory / f"{place}-{started}.json", directory / f"{place}-{started}.log"
                jobs.append(pool.submit(suite, a.e2e, kubeconfig, shard, *files))
            for job in jobs:
                results.update(job.result())
    return results


def run(a, specs):
    """(spec, place) -> (state, message)."""
    names = [name for name in specs if re.search(a.only, name)]
    directory = Path(a.reports or tempfile.mkdtemp(prefix="mica-conformance-"))
    directory.mkdir(parents=True, exist_ok=True)
    print(f"conformance: {len(names)} specs; logs and reports in {directory}", flush=True)
    # Something makes service accounts here, so pods may rely on them.
    config = directory / "mica.yaml"
    config.write_text("admission:\n  service-accounts: true\n")
    with harness.mica("--profile", "kubernetes", "--config", str(config)) as server:
        places = {"root": server.kubeconfig, "plane": server.create_plane("conformance")}
        pki = Path(server.directory) / "pki"
        places = {place: path for place, path in places.items() if a.at in (None, place)}
        with ExitStack() as stack:
            for place, path in places.items():
                stack.enter_context(controllers(a.controller_manager, path, place, pki, directory / f"{place}-controllers.log"))
            with ThreadPoolExecutor(len(places)) as pool:
                jobs = {place: pool.submit(run_at, a, place, path, names, directory) for place, path in places.items()}
                results = {(name, place): found for place, job in jobs.items() for name, found in job.result().items()}
    for place in places:
        for name in names:
            results.setdefault((name, place), ("missing", "the suite does not have this spec"))
    return results


def collect(directory, specs):
    """The same from the reports of an earlier run."""
    results = {}
    for place in PLACES:
        for path in sorted(Path(directory).glob(f"{place}-*.json")):
            results.update({(name, place): found for name, found in read_report(path, specs).items()})
    return results


def report(results, specs):
    """Prints what changed; returns how many passes became failures."""
    worse = 0
    for (name, place), (state, message) in sorted(results.items()):
        was = specs[name][0][place]
        if state == "passed" and was == "fail":
            print(f"now passes at {place}: {name}")
        elif state != "passed":
            worse += was == "pass"
            print(f"{'NEW FAILURE' if was == 'pass' else 'fails'} at {place}: {name}\n    {state}: {message[:600]}")
    passed = sum(state == "passed" for state, _ in results.values())
    print(f"conformance: {passed} of {len(results)} pass")
    return worse


def updated(results, specs):
    merged = {name: (dict(was), why) for name, (was, why) in specs.items()}
    for (name, place), (state, _) in results.items():
        merged[name][0][place] = "pass" if state == "passed" else "fail"
    for name, (now, why) in merged.items():
        failing = "fail" in now.values()
        merged[name] = (now, (why or UNEXPLAINED) if failing else "")
    return merged


# Where the subject of a spec ends and what is claimed of it begins.
CLAIM = (
    r" \[| (?=(?:should|Should|MUST|works|removes|updates|verify|testing|no|the|default|Listing|for|CSI|Conformance|lease|Kubectl|Proxy|Set)\b)"
    r"| (?=Custom resource )| (?=Pods Set)| (?=Tests )"
)


def group_of(name):
    """`sig-x` and the subject of a spec."""
    sig, subject = re.match(r"\[(sig-[\w-]+)\] (?:\[(?=DRA\]))?(.*)", name).groups()
    return sig, re.split(CLAIM, subject.replace("DRA]", "DRA"))[0]


def counted(names, specs):
    """How many there are, and how many pass on root and on a plane."""
    passing = [sum(specs[name][0][place] == "pass" for name in names) for place in PLACES]
    return " | ".join(str(number) for number in [len(names), *passing])


def write_tables(specs):
    groups = {}
    for name in specs:
        groups.setdefault(group_of(name), []).append(name)
    rows = [f"| {sig} | {what} | {counted(names, specs)} |" for (sig, what), names in sorted(groups.items())]
    profile = [name for name in specs if "[Conformance]" in name]
    rows.append(f"| **all** | of the conformance profile | {counted(profile, specs)} |")
    rows.append(f"| | and beyond it | {counted([name for name in specs if name not in profile], specs)} |")
    failing = [f"| {name} | {r['root']} | {r['plane']} | {why} |" for name, (r, why) in sorted(specs.items()) if "fail" in r.values()]
    summary = ["| group | subject | specs | pass on root | pass on a plane |", "|---|---|---|---|---|", *rows]
    if failing:
        summary += ["", "Those that do not pass:", "", "| spec | root | plane | why |", "|---|---|---|---|", *failing]
    listed = [f"| {name} | {r['root']} | {r['plane']} |" for name, (r, _) in sorted(specs.items())]
    replace(SUMMARY, summary)
    replace(LIST, ["| spec | root | plane |", "|---|---|---|", *listed])


def replace(marks, lines):
    text = DOCUMENT.read_text()
    before, rest = text.split(marks[0], 1)
    DOCUMENT.write_text(f"{before}{marks[0]}\n" + "\n".join(lines) + f"\n{marks[1]}{rest.split(marks[1], 1)[1]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--e2e")
    parser.add_argument("--controller-manager")
    parser.add_argument("--only", default="", help="only specs that this expression finds")
    parser.add_argument("--at", choices=PLACES)
    parser.add_argument("--reports", help="a directory for logs and the suite's own reports")
    parser.add_argument("--collect", help="run nothing, and read the reports in this directory")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--table", action="store_true")
    a = parser.parse_args()
    specs = read_specs()
    if a.table:
        return write_tables(specs)
    if a.collect:
        results = collect(a.collect, specs)
    elif a.e2e and a.controller_manager:
        results = run(a, specs)
    else:
        return print("conformance: nothing run (set E2E and KUBE_CONTROLLER_MANAGER to upstream's programs)")
    worse = report(results, specs)
    if a.update:
        write_specs(updated(results, specs))
        write_tables(read_specs())
    elif worse:
        sys.exit(1)


if __name__ == "__main__":
    main()
