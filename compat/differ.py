#!/usr/bin/env python3
"""Sends the same random requests to a real kube-apiserver and to our server, and tells where the answers differ.

  KUBE_APISERVER=path differ.py [--seed N] [--count N] [PART...]    only kinds whose path contains a PART

Objects of every kind (`differ/seeds.json`; custom ones by `differ/definitions.json`) are changed at random places, then created, replaced, patched or applied; writes are
tried only (`dryRun`), but for the objects that changes start from. The recordings that `make golden` replays show what was
thought of; this shows what was not. A difference is no verdict: look at it, mend it or add it to KNOWN with the reason.
"""
import argparse
import copy
import http.client
import json
import random
import re
import ssl
import sys
from base64 import b64decode
from pathlib import Path

import harness

SEEDS = json.loads(Path(__file__).with_name("differ").joinpath("seeds.json").read_text())
DEFINITIONS = json.loads(Path(__file__).with_name("differ").joinpath("definitions.json").read_text())
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# What fields are replaced by.
ODD = [
    None, "", " ", "a b", "A", "-x", "x" * 64, "x" * 300, "a/b", "a.b/c", "0", "1", "-1", 0, 1, -1, 1.5, True, False, [], {}, [""],
    ["a", "a"], [None], {"a": "b"}, {"": ""}, {"a b": "c d"}, "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000000Z", "100m", "1Ki",
    "*", ["*"], ["*", "a"], "system:x", "example.com/x", "https://a/b", "http://a", "v1", "é", "\n", 2**31, 2**63 - 1,
]
# What is added to schemas of definitions.
KEYWORDS = [
    {"nullable": True}, {"default": None}, {"default": 1}, {"default": "x"}, {"default": {}}, {"default": {"size": 99}}, {"type": "array"},
    {"type": "array", "items": {"type": "string"}}, {"type": "strange"}, {"format": "strange"}, {"format": "int64"}, {"pattern": "("},
    {"pattern": "^a$"}, {"uniqueItems": True}, {"enum": ["a", "a"]}, {"enum": [1]}, {"minLength": 5, "maxLength": 2}, {"maximum": -1},
    {"required": ["a", "a"]}, {"required": ["absent"]}, {"x-kubernetes-preserve-unknown-fields": True},
    {"x-kubernetes-preserve-unknown-fields": False}, {"x-kubernetes-embedded-resource": True}, {"x-kubernetes-int-or-string": True},
    {"x-kubernetes-list-type": "map"}, {"x-kubernetes-list-type": "set"}, {"x-kubernetes-list-type": "odd"}, {"x-kubernetes-map-type": "granular"},
    {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"]}, {"x-kubernetes-list-map-keys": ["a", "a"]}, {"title": "x"},
    {"additionalProperties": False}, {"additionalProperties": True}, {"additionalProperties": {"type": "string"}}, {"$ref": "#/x"},
    {"anyOf": [{"type": "string"}]}, {"anyOf": [{"minimum": 1}, {"enum": ["a"]}]}, {"not": {"default": 1}}, {"allOf": [{"properties": {"q": {}}}]},
    {"oneOf": [{"required": ["size"]}, {"properties": {"size": {"minimum": 1}}}]}, {"definitions": {"a": {}}}, {"dependencies": {"a": ["b"]}},
    {"id": "x"}, {"patternProperties": {"a": {}}}, {"x-kubernetes-validations": [{"rule": "self.x"}]}, {"externalDocs": {"url": "x"}},
    {"x-kubernetes-validations": [{"rule": "true"}, {"rule": "true"}]}, {"x-kubernetes-validations": [{"rule": " "}]}, {"example": {"a": 1}},
    {"x-kubernetes-validations": [{"rule": "self == oldSelf", "reason": "Odd", "fieldPath": ".x", "message": " "}]}, {"items": {"type": "object"}},
    {"x-kubernetes-validations": [{"rule": "has(self.spec)", "optionalOldSelf": True, "messageExpression": "1"}]}, {"properties": {"a": {}}},
]
PATCHES = {
    "merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json", "apply": "application/apply-patch+yaml",
}
# What we know to differ in, and why: parts of the method and the body of a request and of upstream's answer.
KNOWN = {
    r"based on URL\) was undeterminable": "a patch that takes apiVersion away makes upstream read its own internal form",
    r"for the internal version of group": "the same",
    r"error recovery token lookahead limit": "its parser gives up",
    r"api-priority-and-fairness-config-consumer": "a controller of upstream's was there first",
    r"flowschemas.*has been modified": "the same",
    r'^PATCH \[\{"op": "(copy|move)".* \[422, ': "what a JSON patch copied is shown with its keys in order where it cannot be read",
}
# What must differ.
NORMAL = [
    (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"), (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r'(resourceVersion\W+)\d+', r"\1N"), (r"Key: /registry/", "Key: /"), (r"X509SHA256=\w+", "X509"),
]


class Target:
    """One of the two servers, and a connection to it."""

    def __init__(self, server):
        config = json.loads(harness.kubectl(server.kubeconfig, "config", "view", "--raw", "-o", "json"))
        user = config["users"][0]["user"]
        self.context = ssl._create_unverified_context()
        paths = []
        for kind in ("certificate", "key"):
            paths.append(server.directory / f"differ.{kind}")
            paths[-1].write_bytes(b64decode(user[f"client-{kind}-data"]))
            paths[-1].chmod(0o600)
        self.context.load_cert_chain(*paths)
        self.address = server.url.removeprefix("https://")
        self.connection = None

    def call(self, method, path, body=None, content_type="application/json"):
        """(status, warnings, body)."""
        if self.connection is None:
            self.connection = http.client.HTTPSConnection(self.address, context=self.context, timeout=60)
        headers = {"User-Agent": "differ/1", "Content-Type": content_type}
        try:
            self.connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = self.connection.getresponse()
            return answer.status, answer.headers.get_all("warning") or [], answer.read()
        except http.client.HTTPException:
            # Upstream's panics end the connection.
            self.connection = None
            return 0, [], b"{}"


def shown(answer):
    """An answer without what must differ; of several causes or lines the order is no promise."""
    status, warnings, body = answer
    value = json.loads(body)
    if isinstance(value.get("message"), str):
        value["message"] = "\n".join(sorted(value["message"].split("\n")))
    if value.get("kind") == "Status" and value.get("details", {}).get("causes"):
        value["details"]["causes"].sort(key=lambda cause: json.dumps(cause, sort_keys=True))
        value["message"] = ""
    text = json.dumps([status, sorted(warnings), value], sort_keys=True)
    for pattern, replacement in NORMAL:
        text = re.sub(pattern, replacement, text)
    return text


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


def changed(rng, value):
    """The object with up to two places changed."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        path = rng.choice([place for place in places(value) if place and place[0] not in ("apiVersion", "kind")])
        parent = value
        for key in path[:-1]:
            parent = parent[key]
        last, dice = path[-1], rng.random()
        if "openAPIV3Schema" in path and isinstance(parent[last], dict) and dice < 0.7:
            parent[last].update(copy.deepcopy(rng.choice(KEYWORDS)))
        elif dice < 0.2:
            del parent[last]
        elif dice < 0.3 and isinstance(parent, list):
            parent.append(copy.deepcopy(parent[last]))
        elif dice < 0.36 and isinstance(parent, dict):
            parent["unknown"] = 1
        elif dice < 0.5 and isinstance(parent[last], str):
            parent[last] = rng.choice([parent[last] + " ", parent[last].upper(), parent[last] + "/x", parent[last] * 9])
        else:
            parent[last] = copy.deepcopy(rng.choice(ODD))
        if not value:
            break
    return value


def json_patch(rng, value):
    pointer = lambda place: "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in place)
    known = [place for place in places(value) if place]
    operation = rng.choice(["add", "remove", "replace", "test", "copy", "move"])
    return [{"op": operation, "path": pointer(rng.choice(known)), "value": rng.choice(ODD), "from": pointer(rng.choice(known))}]


def change_request(rng, made):
    """A change of an object that was made: (method, query, body, content type)."""
    how = rng.choice(["put", "put", "status", *PATCHES])
    value = copy.deepcopy(made)
    metadata = value["metadata"]
    for field in ("managedFields", "uid", "creationTimestamp"):
        metadata.pop(field, None)
    version = metadata.pop("resourceVersion")
    body = json_patch(rng, value) if how == "json" else changed(rng, value)
    if how in ("put", "status"):
        if isinstance(body.get("metadata"), dict) and rng.random() < 0.8:
            body["metadata"]["resourceVersion"] = version
        return "PUT", "/status" if how == "status" else "", body, "application/json"
    return "PATCH", "?fieldManager=differ" if how == "apply" else "", body, PATCHES[how]


def established(target, name):
    """A definition once its controllers are done with it."""
    def conditions():
        seen.update(json.loads(target.call("GET", f"{CRDS}/{name}")[2]))
        return {c["type"]: c["status"] for c in seen["status"].get("conditions") or []}
    seen = {}
    harness.until(lambda: conditions().get("Established") == "True")
    return seen


def rounds(rng, targets, path):
    """Requests that go to both, as (what, answers)."""
    seed = rng.choice(SEEDS[path])
    body = changed(rng, seed)
    yield ("POST", path, body), [target.call("POST", f"{path}?dryRun=All", body) for target in targets]
    made = [target.call("POST", path, seed) for target in targets]
    if [status for status, _, _ in made] != [201, 201]:
        yield ("POST", path, seed), made
        return
    made = [json.loads(body) for _, _, body in made]
    name = made[0]["metadata"]["name"]
    if path == CRDS:
        made = [established(target, name) for target in targets]
    for _ in range(6):
        state = rng.getstate()
        answers = []
        for target, object_ in zip(targets, made):
            rng.setstate(state)
            method, query, body, content_type = change_request(rng, object_)
            place, _, options = query.partition("?")
            url = f"{path}/{name}{place}?dryRun=All&{options}"
            answers.append(target.call(method, url, body, content_type))
        yield (method, url, body), answers
    for target in targets:
        target.call("PATCH", f"{path}/{name}", {"metadata": {"finalizers": None}}, PATCHES["merge"])
        target.call("DELETE", f"{path}/{name}")
        if path == CRDS:
            harness.until(lambda: target.call("GET", f"{path}/{name}")[0] == 404)


def compare(targets, seed, count, parts):
    """How many answers were the same and how many differed."""
    rng = random.Random(seed)
    paths = [path for path in sorted(SEEDS) if not parts or any(part in path for part in parts)]
    same = differ = 0
    while same + differ < count:
        for (method, path, body), answers in rounds(rng, targets, rng.choice(paths)):
            theirs, ours = (shown(answer) for answer in answers)
            exchange = f"{method} {json.dumps(body)} {theirs}"
            # An answer of theirs that is none is a panic.
            if theirs == ours or answers[0][0] == 0 or any(re.search(known, exchange) for known in KNOWN):
                same += 1
                continue
            differ += 1
            at = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), 0)
            print(f"{method} {path}\n  {json.dumps(body)[:600]}")
            print(f"  theirs {answers[0][0]} …{theirs[max(0, at - 80):at + 240]}\n  ours   {answers[1][0]} …{ours[max(0, at - 80):at + 240]}", flush=True)
    return same, differ


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("parts", nargs="*")
    a = parser.parse_args()
    print(f"differ: seed {a.seed}", flush=True)
    with harness.kube_apiserver() as theirs, harness.mica() as ours:
        for server in (theirs, ours):
            harness.kubectl(server.kubeconfig, "create", "namespace", "differ")
        targets = [Target(theirs), Target(ours)]
        for target in targets:
            for definition in DEFINITIONS:
                target.call("POST", CRDS, definition)
                established(target, definition["metadata"]["name"])
        # Upstream serves what is established a while later.
        paths = {path for path in SEEDS if "differ.example.com" in path}
        harness.until(lambda: all(target.call("GET", path)[0] == 200 for target in targets for path in paths))
        same, differ = compare(targets, a.seed, a.count, a.parts)
    print(f"differ: seed {a.seed}: {same} the same, {differ} differ")
    sys.exit(differ > 0)


if __name__ == "__main__":
    main()
