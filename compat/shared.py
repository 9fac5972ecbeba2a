"""Two servers on one etcd: what one does, the other shows; and what they say when etcd is away.

Every claim is a line of output, `ok …` or `FAIL …`, as the other checks print them.
"""
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from contextlib import ExitStack

import harness
from harness import etcd, until


def ready(server):
    """The status of /readyz."""
    insecure = ssl._create_unverified_context()
    try:
        return urllib.request.urlopen(f"{server.url}/readyz", timeout=10, context=insecure).status
    except urllib.error.HTTPError as error:
        return error.code


def watched(kubeconfig, first):
    """Begins a watch with kubectl and waits until it has told of an object; the rest of its lines can be read."""
    command = [harness.tool("kubectl"), "--kubeconfig", str(kubeconfig), "-n", "default", "get", "configmaps", "-o", "name", "-w"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while first not in (line := process.stdout.readline()):
        if not line:
            raise RuntimeError("the watch ended")
    return process


def each_sees_the_other(a, b):
    plane = a.create_plane("shared")
    there = b.plane("shared")
    harness.kubectl(there, "-n", "default", "get", "configmaps")
    harness.kubectl(plane, "-n", "default", "create", "configmap", "first")
    harness.kubectl(there, "-n", "default", "get", "configmap", "first")
    watch = watched(there, "configmap/first")
    try:
        harness.kubectl(plane, "-n", "default", "create", "configmap", "second")
        while "configmap/second" not in (line := watch.stdout.readline()):
            if not line:
                raise RuntimeError("the watch on the other server ended")
    finally:
        watch.kill()
        watch.wait()


def credentials_are_shared(a, b):
    crossed = b.directory / "crossed.kubeconfig"
    crossed.write_text(a.kubeconfig.read_text().replace(a.url, b.url))
    harness.kubectl(crossed, "get", "planes")


def suspending_counts_everywhere(a, b):
    harness.kubectl(a.kubeconfig, "patch", "plane", "shared", "--type=merge", "-p", '{"spec":{"state":"Suspended"}}')
    try:
        harness.kubectl(b.plane("shared"), "-n", "default", "create", "configmap", "third")
    except RuntimeError as error:
        if "is suspended" in str(error):
            return
        raise
    raise RuntimeError("a write went through after the plane was suspended")


def deleting_counts_everywhere(a, b):
    harness.kubectl(b.kubeconfig, "delete", "plane", "shared")
    until(lambda: "shared" not in harness.kubectl(a.kubeconfig, "get", "planes", "-o", "name"))


def check():
    """(passed, failed)."""
    print("two servers on one etcd:", flush=True)
    passed = failed = 0

    def claim(text, holds, *arguments):
        nonlocal passed, failed
        try:
            holds(*arguments)
        except RuntimeError as error:
            failed += 1
            print(f"  FAIL {text}: {error}", flush=True)
        else:
            passed += 1
            print(f"  ok   {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory, ExitStack() as servers:
        ports = harness.free_port(), harness.free_port()
        with etcd(directory, *ports) as store:
            a, b = (servers.enter_context(harness.mica("--store", store)) for _ in "ab")
            claim("a plane, an object and an event of one are on the other at once", each_sees_the_other, a, b)
            claim("they have one authority: credentials of one are good at the other", credentials_are_shared, a, b)
            claim("a plane suspended on one takes no write from the other", suspending_counts_everywhere, a, b)
            claim("a plane deleted on one is gone from the other", deleting_counts_everywhere, a, b)
            claim("both are ready", lambda: until(lambda: ready(a) == ready(b) == 200))
        claim("neither is ready without etcd", lambda: until(lambda: ready(a) == ready(b) == 500))
        with etcd(directory, *ports):
            claim("both are ready when etcd is back", lambda: until(lambda: ready(a) == ready(b) == 200))
            claim("and take writes", a.create_plane, "again")
            servers.close()
    return passed, failed
