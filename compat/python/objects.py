"""Typed calls on the kinds of every control plane: reading and writing, patches, apply, pages, errors, discovery."""
import datetime

from kubernetes import client, utils

from expect import equal, refused

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


def life_of_an_object(c):
    made = c.core.create_namespaced_config_map(c.namespace, config_map("a", k="v"))
    equal((made.metadata.name, made.data, made.metadata.namespace), ("a", {"k": "v"}, c.namespace))
    if not made.metadata.uid or made.metadata.creation_timestamp.tzinfo is None:
        raise AssertionError(f"metadata is missing: {made.metadata}")
    made.data["k"] = "w"
    replaced = c.core.replace_namespaced_config_map("a", c.namespace, made)
    refused(lambda: c.core.replace_namespaced_config_map("a", c.namespace, made), 409, "Conflict", "the object has been modified")
    equal(c.core.read_namespaced_config_map("a", c.namespace), replaced)
    equal([i.metadata.name for i in c.core.list_namespaced_config_map(c.namespace).items], ["a"])
    gone = c.core.delete_namespaced_config_map("a", c.namespace)
    equal((gone["status"], gone["details"]["name"], gone["details"]["uid"]), ("Success", "a", made.metadata.uid))


def patch_types(c):
    patch = c.core.patch_namespaced_config_map
    c.core.create_namespaced_config_map(c.namespace, config_map("p", a="1", b="2"))
    # Without a word about the type, this client sends a JSON patch.
    patched = patch("p", c.namespace, [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "replace", "path": "/data/a", "value": "3"}])
    equal(patched.data, {"a": "3", "b": "2"})
    equal(patch("p", c.namespace, {"data": {"b": None}}, _content_type=MERGE).data, {"a": "3"})
    equal(patch("p", c.namespace, {"data": {"c": "4"}}, _content_type=STRATEGIC).data, {"a": "3", "c": "4"})
    refused(lambda: patch("p", c.namespace, [{"op": "test", "path": "/data/a", "value": "9"}]), 422, "Invalid")
    refused(lambda: patch("p", c.namespace, {}, _content_type="application/x+json"), 415, "UnsupportedMediaType")


def strategic_lists(c):
    account = c.core.create_namespaced_service_account(
        c.namespace, {"metadata": {"name": "s"}, "secrets": [{"name": "one"}, {"name": "two"}]})
    equal([s.name for s in account.secrets], ["one", "two"])
    body = {"secrets": [{"name": "three"}, {"$patch": "delete", "name": "one"}]}
    patched = c.core.patch_namespaced_service_account("s", c.namespace, body, _content_type=STRATEGIC)
    equal(sorted(s.name for s in patched.secrets), ["three", "two"])


def apply_and_conflicts(c):
    def apply(manager, data, **more):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": data}
        return c.core.patch_namespaced_config_map("s", c.namespace, body, field_manager=manager, _content_type=APPLY, **more)

    first = apply("one", {"a": "1", "b": "1"})
    equal([(m.manager, m.operation) for m in first.metadata.managed_fields], [("one", "Apply")])
    equal(apply("one", {"a": "1", "b": "1"}).metadata.resource_version, first.metadata.resource_version, "a second apply's version")
    status = refused(lambda: apply("two", {"a": "2"}), 409, "Conflict", 'Apply failed with 1 conflict: conflict with "one": .data.a')
    equal(status["details"]["causes"], [{"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"}])
    equal(apply("two", {"a": "2"}, force=True).data, {"a": "2", "b": "1"})
    equal(apply("one", {}).data, {"a": "2"})
    refused(lambda: apply(None, {}), 422, "Invalid", "fieldManager: Required value: is required for apply patch")


def dry_runs(c):
    made = c.core.create_namespaced_config_map(c.namespace, config_map("dry", k="v"), dry_run="All")
    equal(made.data, {"k": "v"})
    refused(lambda: c.core.read_namespaced_config_map("dry", c.namespace), 404, "NotFound", 'configmaps "dry" not found')


def pages(c):
    for i in range(25):
        c.core.create_namespaced_config_map(c.namespace, config_map(f"c{i:02}"))
    seen, token, calls = [], None, 0
    while calls == 0 or token:
        page = c.core.list_namespaced_config_map(c.namespace, limit=10, _continue=token)
        seen, token, calls = seen + [i.metadata.name for i in page.items], page.metadata._continue, calls + 1
        if calls == 1:
            equal(page.metadata.remaining_item_count, 15)
            c.core.delete_namespaced_config_map("c24", c.namespace)
    equal((calls, seen), (3, [f"c{i:02}" for i in range(25)]), "what the pages show")
    c.core.delete_collection_namespaced_config_map(c.namespace, label_selector="!nothing")
    equal(c.core.list_namespaced_config_map(c.namespace).items, [])
    refused(lambda: c.core.list_namespaced_config_map(c.namespace, _continue="nonsense"), 400, "BadRequest", "continue key is not valid")


def selectors(c):
    for name, labels in [("a", {"x": "1"}), ("b", {"x": "2"}), ("c", {})]:
        c.core.create_namespaced_secret(c.namespace, {"metadata": {"name": name, "labels": labels}, "type": f"example.com/{name}"})

    def listed(**by):
        return [s.metadata.name for s in c.core.list_namespaced_secret(c.namespace, **by).items]

    equal(listed(label_selector="x in (1,2)"), ["a", "b"])
    equal(listed(label_selector="!x"), ["c"])
    equal(listed(field_selector="metadata.name=b"), ["b"])
    equal(listed(field_selector="type=example.com/c"), ["c"])
    refused(lambda: listed(label_selector="x in"), 400, "BadRequest", "unable to parse requirement")
    refused(lambda: listed(field_selector="data=1"), 400, "BadRequest", "field label not supported: data")


def table_of_errors(c):
    """Each refusal: the exception's status, and the body's reason, message and details."""
    c.core.create_namespaced_config_map(c.namespace, config_map("there"))
    uid = client.V1DeleteOptions(preconditions=client.V1Preconditions(uid="another"))
    for call, code, reason, message in [
        (lambda: c.core.read_namespaced_config_map("no", c.namespace), 404, "NotFound", 'configmaps "no" not found'),
        (lambda: c.core.create_namespaced_config_map(c.namespace, config_map("there")), 409, "AlreadyExists", 'configmaps "there" already exists'),
        (lambda: c.core.create_namespaced_config_map("nowhere", config_map("a")), 404, "NotFound", 'namespaces "nowhere" not found'),
        (lambda: c.core.create_namespaced_config_map(c.namespace, config_map("Not Good")), 422, "Invalid", "a lowercase RFC 1123 subdomain must consist of"),
        (lambda: c.core.create_namespaced_config_map(c.namespace, {"data": {}}), 422, "Invalid", "name or generateName is required"),
        (lambda: c.core.create_namespaced_config_map(c.namespace, {"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a"}}), 400, "BadRequest", "cannot be handled as a ConfigMap"),
        (lambda: c.core.create_namespaced_config_map(c.namespace, {"metadata": {"name": "a", "namespace": "other"}}), 400, "BadRequest", "the namespace of the provided object does not match the namespace sent on the request"),
        (lambda: c.core.delete_namespaced_config_map("there", c.namespace, body=uid), 409, "Conflict", "the UID in the precondition (another) does not match the UID in record"),
    ]:
        refused(call, code, reason, message)
    status = refused(lambda: c.core.create_namespaced_config_map(c.namespace, config_map("Not Good")), 422, "Invalid")
    equal((status["details"]["kind"], status["details"]["causes"][0]["field"]), ("ConfigMap", "metadata.name"))


def several_groups(c):
    rules = [client.V1PolicyRule(api_groups=[""], resources=["configmaps"], verbs=["get"])]
    rbac = client.RbacAuthorizationV1Api()
    role = rbac.create_namespaced_role(c.namespace, client.V1Role(metadata=client.V1ObjectMeta(name="r"), rules=rules))
    equal(role.rules[0].resources, ["configmaps"])
    binding = rbac.create_namespaced_role_binding(c.namespace, {
        "metadata": {"name": "b"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "somebody"}]})
    equal(binding.subjects[0].api_group, "rbac.authorization.k8s.io")
    now = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.timezone.utc)
    leases = client.CoordinationV1Api()
    lease = leases.create_namespaced_lease(c.namespace, client.V1Lease(
        metadata=client.V1ObjectMeta(name="l"), spec=client.V1LeaseSpec(holder_identity="me", renew_time=now, lease_duration_seconds=5)))
    equal((lease.spec.renew_time, lease.spec.lease_duration_seconds), (now, 5))
    event = client.EventsV1Api().create_namespaced_event(c.namespace, {
        "metadata": {"name": "e"}, "eventTime": "2026-01-02T03:04:05.678901Z", "type": "Normal", "reason": "R", "action": "A",
        "reportingController": "example.com/x", "reportingInstance": "i",
        "regarding": {"kind": "ConfigMap", "namespace": c.namespace, "name": "a"}})
    equal(event.event_time, now)
    equal([e.metadata.name for e in c.core.list_namespaced_event(c.namespace, field_selector="involvedObject.name=a").items], ["e"])
    quota = c.core.create_namespaced_resource_quota(c.namespace, {"metadata": {"name": "q"}, "spec": {"hard": {"count/configmaps": "10", "requests.memory": "1Gi"}}})
    equal(quota.spec.hard, {"count/configmaps": "10", "requests.memory": "1Gi"})


def namespaces_end(c):
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    c.core.patch_namespace(c.namespace, hold, _content_type=MERGE)
    c.core.delete_namespace(c.namespace)
    equal(c.core.read_namespace(c.namespace).status.phase, "Terminating")
    status = refused(lambda: c.core.create_namespaced_config_map(c.namespace, config_map("late")), 403, "Forbidden", "because it is being terminated")
    equal(status["details"]["causes"][0]["reason"], "NamespaceTerminating")
    c.core.patch_namespace(c.namespace, {"metadata": {"finalizers": None}}, _content_type=MERGE)


def discovery(c):
    groups = {g.name: g for g in client.ApisApi().get_api_versions().groups}
    equal(groups["rbac.authorization.k8s.io"].preferred_version.version, "v1")
    maps = next(r for r in c.core.get_api_resources().resources if r.name == "configmaps")
    equal((maps.kind, maps.short_names, maps.namespaced), ("ConfigMap", ["cm"], True))
    equal(client.VersionApi().get_code().minor, "36")


def manifests(c):
    documents = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"k": "v"}},
        {"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}]},
    ]
    utils.create_from_yaml(c.api, yaml_objects=documents, namespace=c.namespace)
    equal(c.core.read_namespaced_config_map("m", c.namespace).data, {"k": "v"})
    c.core.read_namespaced_secret("s", c.namespace)
    documents[0]["data"]["k"] = "w"
    utils.create_from_yaml(c.api, yaml_objects=documents[:1], namespace=c.namespace, apply=True, force_conflicts=True)
    equal(c.core.read_namespaced_config_map("m", c.namespace).data, {"k": "w"})


def dynamic_objects(c):
    maps = c.dynamic.resources.get(api_version="v1", kind="ConfigMap")
    made = maps.create(namespace=c.namespace, body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"k": "v"}})
    made.data.k = "w"
    equal(maps.replace(namespace=c.namespace, body=made.to_dict()).data.k, "w")
    equal(maps.patch(namespace=c.namespace, name="d", body={"data": {"l": "x"}}).data.to_dict(), {"k": "w", "l": "x"})
    applied = maps.server_side_apply(namespace=c.namespace, body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"z": "1"}}, field_manager="dynamic")
    equal(applied.data.z, "1")
    equal([i.metadata.name for i in maps.get(namespace=c.namespace).items], ["d"])
    maps.delete(name="d", namespace=c.namespace)
    equal(maps.get(namespace=c.namespace).items, [])
    if not list(c.dynamic.resources.search(kind="Role")):
        raise AssertionError("the dynamic client finds no roles")


CLAIMS = [
    ("an object is made, read, replaced, listed and deleted", life_of_an_object),
    ("JSON, merge and strategic patches do what they say", patch_types),
    ("strategic patches merge lists by key", strategic_lists),
    ("apply merges, conflicts, is forced and forgets", apply_and_conflicts),
    ("a dry run changes nothing", dry_runs),
    ("pages show one moment", pages),
    ("labels and fields select", selectors),
    ("errors are what callers match on", table_of_errors),
    ("objects of several groups keep every field", several_groups),
    ("a namespace that ends takes nothing in", namespaces_end),
    ("discovery says what there is", discovery),
    ("manifests are created and applied", manifests),
    ("the dynamic client does the same", dynamic_objects),
]
