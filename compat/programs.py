"""Clients that are programs of their own: each prints a line for every claim, `ok …` or `FAIL …`, and ends with 0 if all held."""
import subprocess

import harness

COMPAT = harness.PROJECT / "compat"
TOOLS = harness.PROJECT / ".tools"
PATIENCE_SECONDS = 300


def go(package):
    """The program in a Go package, built now; Go knows when there is nothing to do."""
    program = TOOLS / "bin" / f"check-{package}"
    subprocess.run(["go", "build", "-o", str(program), f"./{package}"], cwd=COMPAT, check=True)
    return str(program)


def claims(title, commands):
    """Runs commands by the name of what they look at, and counts the claims: (passed, failed)."""
    print(f"{title}:", flush=True)
    passed = failed = 0
    for name, command in commands.items():
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
            out, err, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            out, err, code = (late.stdout or b"").decode(), f"not done after {PATIENCE_SECONDS} s", 1
        lines = [f"{name}: {line}" if name else line for line in out.splitlines()]
        print("".join(f"  {line}\n" for line in lines), end="", flush=True)
        good, bad = (sum(line.startswith(word) for line in out.splitlines()) for word in ("ok ", "FAIL "))
        if code and not bad:
            bad = 1
            print(f"  {name}: FAIL the program ended early", flush=True)
        if bad:
            print(err[-4000:], flush=True)
        passed, failed = passed + good, failed + bad
    return passed, failed


def client_go(places):
    program = go("clientgo")
    return claims("client-go", {name: [program, "--kubeconfig", str(at)] for name, at in places.items()})


def reconnect():
    return claims("client-go through cuts and kills", {"": [go("reconnect"), "--mica", harness.mica_binary()]})


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
