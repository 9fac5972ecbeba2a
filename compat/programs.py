"""Clients that are programs of their own: each prints a line for every claim, `ok …` or `FAIL …`, and ends with 0 if all held."""
import os
import re
import shutil
import subprocess
import tempfile

import harness

COMPAT = harness.PROJECT / "compat"
TOOLS = harness.PROJECT / ".tools"
PATIENCE_SECONDS = 300
# What an engaged project costs the server, written down.
WATCHES_OF_CONFIG_MAPS = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata, verbs: [watch], resources: [{resources: [configmaps]}]}]
"""


def go(package):
    """The program in a Go package, built now; Go knows when there is nothing to do."""
    program = TOOLS / "bin" / f"check-{package}"
    subprocess.run(["go", "build", "-o", str(program), f"./{package}"], cwd=COMPAT, check=True)
    return str(program)


def claims(title, commands, environments={}, cwd=None):
    """Runs commands by the name of what they look at, and counts the claims: (passed, failed)."""
    print(f"{title}:", flush=True)
    passed = failed = 0
    for name, command in commands.items():
        env = os.environ | environments.get(name, {})
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env=env, cwd=cwd)
            out, err, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            out, err, code = (late.stdout or b"").decode(), f"not done after {PATIENCE_SECONDS} s", 1
        if "--- " in out:
            out, err = go_claims(out), out + err
        print("".join(f"  {name}: {line}\n" for line in out.splitlines()), end="", flush=True)
        good, bad = (sum(line.startswith(word) for line in out.splitlines()) for word in ("ok ", "FAIL "))
        if not bad and (code or not good):
            bad = 1
            print(f"  {name}: FAIL the program {'ended early' if code else 'claimed nothing'}", flush=True)
        if bad:
            print(err[-4000:], flush=True)
        passed, failed = passed + good, failed + bad
    return passed, failed


def go_claims(out):
    """What `go test -v` says, as claims: a test's name is a sentence."""
    found = re.findall(r"^--- (PASS|FAIL): Test(\w+)|^(the environment .*)", out, re.MULTILINE)
    words = {"PASS": "ok", "FAIL": "FAIL"}
    return "\n".join(told or f"{words[result]} {re.sub('(?=[A-Z])', ' ', name).strip().lower()}" for result, name, told in found)


def client_go(places):
    program = go("clientgo")
    return claims("client-go", {name: [program, "--kubeconfig", str(at)] for name, at in places.items()})


def reconnect():
    command = [go("reconnect"), "--mica", harness.mica_binary()]
    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory:
        with harness.etcd(directory, harness.free_port(), harness.free_port()) as store:
            commands = {"embedded": command, "etcd": [*command, "--store", store, "--changes", "900"]}
            return claims("client-go through cuts and kills", commands)


def python(places, expired):
    return clients("Python client", [str(TOOLS / "python" / "bin" / "python"), str(COMPAT / "python" / "main.py")], places, expired)


def javascript(places, expired):
    return clients("JavaScript client", [harness.tool("node"), str(COMPAT / "javascript" / "main.js")], places, expired)


def clients(title, command, places, expired):
    """A program for every place, told what expired there if anything did."""
    commands = {name: [*command, "--kubeconfig", str(at)] for name, at in places.items()}
    for name, past in expired.items():
        commands[name] += ["--expired-version", past["version"], "--expired-token", past["token"]]
    return claims(title, commands)


def multicluster(count=4):
    """multicluster-runtime's kubeconfig provider, over planes that Secrets in root name."""
    program = go("multicluster")
    with harness.mica("--profile", "kubernetes") as server, tempfile.TemporaryDirectory(prefix="mica-compat-") as directory:
        for n in range(count):
            at = server.create_plane(f"cluster-{n}")
            os.symlink(os.path.abspath(at), os.path.join(directory, f"cluster-{n}"))
        command = [program, "--kubeconfig", str(server.kubeconfig), "--planes", directory]
        return claims("multicluster-runtime", {"planes": command})


def milo(count=200):
    """Milo's own provider, from a checkout of it, over projects that come and go."""
    program = milo_program(os.path.abspath(os.environ["MILO"]))
    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory:
        policy = os.path.join(directory, "policy.yaml")
        with open(policy, "w") as file:
            file.write(WATCHES_OF_CONFIG_MAPS)
        with harness.mica_whole("--audit-policy-file", policy) as server:
            subprocess.run([harness.mica_binary(), "org", "create", "acme", "--kubeconfig", str(server.kubeconfig)], check=True, capture_output=True)
            command = [program, "--kubeconfig", str(server.kubeconfig), "--projects", str(count)]
            command += ["--audit", str(server.directory / "audit" / "audit.log")]
            return claims("Milo's provider", {"projects": command})


def milo_program(checkout):
    """The program, built with the module of the checkout: ours says only that it needs one."""
    program, folder = str(TOOLS / "bin" / "check-milo"), COMPAT / "milo"
    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory:
        for name in ("go.mod", "go.sum"):
            shutil.copy(folder / name, directory)
        own = os.path.join(directory, "go.mod")
        subprocess.run(["go", "mod", "edit", f"-replace=go.miloapis.com/milo={checkout}", own], check=True)
        # Another revision of it may need other versions of what ours names.
        subprocess.run(["go", "build", "-mod=mod", f"-modfile={own}", "-o", program, "."], cwd=folder, check=True)
    return program


def operator(reference):
    """The operator's tests, with servers that envtest starts, and on a plane."""
    program = str(TOOLS / "bin" / "check-operator")
    subprocess.run(["go", "test", "-c", "-o", program, "./operator"], cwd=COMPAT, check=True)
    with tempfile.TemporaryDirectory(prefix="mica-compat-") as directory:
        runs = {"envtest": {"KUBEBUILDER_ASSETS": assets(directory, "alone", reference)}}
        if reference:
            return operator_claims(program, runs)
        runs["envtest on a real etcd"] = {"KUBEBUILDER_ASSETS": assets(directory, "etcd", reference, etcd=harness.tool("etcd"))}
        # Webhooks are on this machine, which planes may not reach unless they are let.
        config = os.path.join(directory, "config.yaml")
        with open(config, "w") as file:
            file.write("egress: {allow: [127.0.0.0/8]}\n")
        with harness.mica("--profile", "kubernetes", "--config", config) as server:
            runs["plane"] = {"USE_EXISTING_CLUSTER": "true", "KUBECONFIG": str(server.create_plane("operator"))}
            return operator_claims(program, runs)


def operator_claims(program, runs):
    return claims("operator", {name: [program, "-test.v"] for name in runs}, runs, cwd=COMPAT / "operator")


def assets(directory, name, reference, etcd=None):
    """A directory with the programs that envtest looks for: ours, but for what is named."""
    folder = os.path.join(directory, name)
    if reference:
        os.mkdir(folder)
        programs = {name: harness.tool(name) for name in ("kube-apiserver", "etcd")}
    else:
        subprocess.run([harness.mica_binary(), "envtest", "install", folder], check=True, capture_output=True)
        programs = {"etcd": etcd} if etcd else {}
    for name, program in ({"kubectl": harness.tool("kubectl")} | programs).items():
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            os.unlink(path)
        os.symlink(program, path)
    return folder
