"""Starts the servers that the foreign-client checks talk to, and writes kubeconfigs for them.

Every server gets a fresh directory and a free loopback port, and is ended by its own pid when the `with` block is left.
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
START_SECONDS = 60
PATIENCE_SECONDS = 30


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def tool(name, variable=None):
    """Where a program is: an environment variable, the project's own tools, then the PATH."""
    named = os.environ.get(variable or name.upper().replace("-", "_"))
    own = PROJECT / ".tools" / "bin" / name
    found = named or (str(own) if own.exists() else shutil.which(name))
    if not found:
        sys.exit(f"{name} is missing: run `make tools`")
    return found


def mica_binary():
    """The binary under test: $MICA, else the debug build, made now if it is not there yet."""
    if "MICA" in os.environ:
        return os.environ["MICA"]
    if subprocess.run(["cargo", "build", "--quiet", "-p", "mica"], cwd=PROJECT).returncode:
        sys.exit("the server does not build")
    target = Path(os.environ.get("CARGO_TARGET_DIR", PROJECT / "target"))
    return str(target / "debug" / "mica")


class Server:
    """A running API server: its kubeconfig, its address, and how to reach one of its planes."""

    def __init__(self, kubeconfig, directory):
        self.kubeconfig, self.directory = Path(kubeconfig), Path(directory)
        self.url = re.search(r"server:\s*(\S+)", self.kubeconfig.read_text()).group(1).strip("\"'")

    def at(self, prefix, name):
        """A kubeconfig for a path prefix of this server, such as a plane's."""
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(self.kubeconfig.read_text().replace(self.url, self.url + prefix))
        path.chmod(0o600)
        return path

    def plane(self, name):
        return self.at(f"/clusters/{name}/control-plane", f"plane-{name}")

    def create_plane(self, name):
        manifest = f'{{"apiVersion":"mica.dev/v1alpha1","kind":"Plane","metadata":{{"name":"{name}"}}}}'
        kubectl(self.kubeconfig, "create", "--validate=false", "-f", "-", text=manifest)
        return self.plane(name)


def kubectl(kubeconfig, *args, text=None):
    command = [tool("kubectl"), "--kubeconfig", str(kubeconfig), *args]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def mica(*arguments):
    """A server like what it is compared with, a kube-apiserver alone: without controllers, and without organizations."""
    return mica_whole("--controllers=-*", "--tenancy=absent", *arguments)


@contextmanager
def mica_whole(*arguments):
    """`mica up` on an empty directory."""
    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory:
        command = [mica_binary(), "up", "--data-dir", directory, "--listen", f"127.0.0.1:{free_port()}"]
        with running([*command, *arguments], directory):
            yield Server(Path(directory) / "admin.kubeconfig", directory)


@contextmanager
def mica_with_a_past(plane):
    """`mica up` with every kind of Kubernetes on a compacted etcd: yields the server, and for root and a plane what expired."""
    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory, etcd(directory, free_port(), free_port()) as store:
        arguments = ["--profile", "kubernetes", "--store", store]
        with mica(*arguments) as server:
            expired = {"root": past(server.kubeconfig), "plane": past(server.create_plane(plane))}
        body = json.dumps({"revision": max(int(p["last"]) for p in expired.values())}).encode()
        urllib.request.urlopen(f"{store.replace('etcd', 'http', 1)}/v3/kv/compaction", body, timeout=30).close()
        # A server that has just started remembers nothing of before.
        with mica(*arguments) as server:
            yield server, expired


def past(kubeconfig):
    """Writes a few objects into the namespace `expired`: a version and a page's token that are old when it is over, and the last version."""
    kubectl(kubeconfig, "create", "namespace", "expired")
    for name in "abcd":
        kubectl(kubeconfig, "-n", "expired", "create", "configmap", name)
    listed = json.loads(kubectl(kubeconfig, "get", "--raw", "/api/v1/namespaces/expired/configmaps?limit=1"))["metadata"]
    kubectl(kubeconfig, "-n", "expired", "delete", "configmap", "d")
    last = json.loads(kubectl(kubeconfig, "get", "--raw", "/api/v1/namespaces/expired/configmaps"))["metadata"]
    return {"version": listed["resourceVersion"], "token": listed["continue"], "last": last["resourceVersion"]}


@contextmanager
def etcd(directory, port, peer):
    """A real etcd on a directory. It keeps its data, so that it can be stopped and started again."""
    client, peers = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
    command = [tool("etcd"), "--data-dir", directory, "--listen-client-urls", client, "--advertise-client-urls", client]
    command += ["--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: urllib.request.urlopen(f"{client}/health", timeout=2).status == 200)
        yield f"etcd://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def until(holds):
    """Waits for a state; an exception means that it is not there yet."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if holds():
                return
            problem = "it does not hold"
        except (OSError, RuntimeError) as error:
            problem = error
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain: {problem}")
        time.sleep(0.05)


@contextmanager
def kube_apiserver():
    """A real kube-apiserver, the one that $KUBE_APISERVER names, with etcd behind it."""
    if "KUBE_APISERVER" not in os.environ:
        sys.exit("set KUBE_APISERVER to a kube-apiserver binary")
    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory:
        command = ["cargo", "run", "--quiet", "-p", "mica-bench", "--", "reference", "--data-dir", directory]
        command += ["--kube-apiserver", os.environ["KUBE_APISERVER"], "--etcd", tool("etcd")]
        with running(command, directory):
            yield Server(Path(directory) / "admin.kubeconfig", directory)


@contextmanager
def running(command, directory):
    """Runs a server that prints one line on stdout once it is ready."""
    log = Path(directory).parent / (Path(directory).name + ".log")
    with open(log, "wb") as err:
        process = subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=err, text=True)
    try:
        ready = threading.Event()
        drain = threading.Thread(target=lambda: [ready.set() for _ in process.stdout], daemon=True)
        drain.start()
        deadline = time.monotonic() + START_SECONDS
        while not ready.wait(0.1):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not become ready:\n{log.read_text()[-4000:]}")
        yield process
        if process.poll() is not None:
            raise SystemExit(f"{command[0]} ended during the checks:\n{log.read_text()[-4000:]}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.unlink(missing_ok=True)
