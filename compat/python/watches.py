"""Watches: streams, resumption, bookmarks, an expired past, the client's informer and its leader election."""
import threading
import uuid

from kubernetes import client, watch
from kubernetes.informer import SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from custom import GROUP, define, gadget
from expect import equal, eventually, refused
from objects import MERGE, config_map


def take(stream, count):
    """The first events of a stream as (type, name)."""
    seen = []
    for event in stream:
        seen.append((event["type"], event["raw_object"]["metadata"]["name"]))
        if len(seen) == count:
            return seen
    raise AssertionError(f"the watch ended after {seen}")


def stream(c):
    c.core.create_namespaced_config_map(c.namespace, config_map("a"))
    start = c.core.list_namespaced_config_map(c.namespace).metadata.resource_version
    c.core.patch_namespaced_config_map("a", c.namespace, {"data": {"k": "v"}}, _content_type=MERGE)
    c.core.create_namespaced_config_map(c.namespace, config_map("b"))
    c.core.delete_namespaced_config_map("a", c.namespace)
    events = watch.Watch().stream(c.core.list_namespaced_config_map, c.namespace, resource_version=start)
    equal(take(events, 3), [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")])
    events = watch.Watch().stream(c.core.list_namespaced_config_map, c.namespace)
    equal(take(events, 1), [("ADDED", "b")])


def typed_events(c):
    c.core.create_namespaced_config_map(c.namespace, config_map("t", k="v"))
    for event in watch.Watch().stream(c.core.list_namespaced_config_map, c.namespace, timeout_seconds=5):
        if not isinstance(event["object"], client.V1ConfigMap):
            raise AssertionError(f"the event holds a {type(event['object'])}")
        return equal(event["object"].data, {"k": "v"})
    raise AssertionError("no event came")


def resume(c):
    """One second a watch: the client goes on from the last version it saw, without a gap or a repetition."""
    stop, names = threading.Event(), [f"c{i:02}" for i in range(30)]

    def write():
        for name in names:
            c.core.create_namespaced_config_map(c.namespace, config_map(name))
            stop.wait(0.1)

    start = c.core.list_namespaced_config_map(c.namespace).metadata.resource_version
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    watcher, seen, watches = watch.Watch(), [], 0
    while len(seen) < len(names) and watches < 30:
        watches += 1
        events = watcher.stream(c.core.list_namespaced_config_map, c.namespace, resource_version=start, timeout_seconds=1)
        seen += [e["object"].metadata.name for e in events]
        start = watcher.resource_version
    stop.set()
    writer.join()
    equal(seen, names, f"what {watches} watches saw")
    if watches < 2:
        raise AssertionError("the server did not end a watch after its second")


def initial_events(c):
    for name in "ab":
        c.core.create_namespaced_config_map(c.namespace, config_map(name))
    events, seen = c.dynamic.resources.get(api_version="v1", kind="ConfigMap").watch(
        namespace=c.namespace, send_initial_events=True, resource_version_match="NotOlderThan", allow_watch_bookmarks=True, timeout=20), []
    for event in events:
        seen.append(event["type"])
        if event["type"] == "BOOKMARK":
            equal(event["raw_object"]["metadata"]["annotations"], {"k8s.io/initial-events-end": "true"})
            return equal(seen, ["ADDED", "ADDED", "BOOKMARK"])
    raise AssertionError(f"no bookmark came after {seen}")


def custom_events(c):
    at = (GROUP, "v1", c.namespace, define(c))
    custom = client.CustomObjectsApi()
    start = custom.list_namespaced_custom_object(*at)["metadata"]["resourceVersion"]
    custom.create_namespaced_custom_object(*at, gadget("w", size=1))
    custom.patch_namespaced_custom_object(*at, "w", {"metadata": {"labels": {"x": "y"}}}, _content_type=MERGE)
    custom.delete_namespaced_custom_object(*at, "w")
    events = watch.Watch().stream(custom.list_namespaced_custom_object, *at, resource_version=start)
    equal(take(events, 3), [("ADDED", "w"), ("MODIFIED", "w"), ("DELETED", "w")])
    # Who asks for a label sees an object come and go with it.
    events = watch.Watch().stream(custom.list_namespaced_custom_object, *at, resource_version=start, label_selector="x=y")
    equal(take(events, 2), [("ADDED", "w"), ("DELETED", "w")])


def expired(c):
    """A watch and a page from before the compaction are told 410; listing again mends the one, the token that is given the other."""
    version, token = c.expired
    if not version:
        return
    maps = c.core.list_namespaced_config_map

    def watched():
        events = watch.Watch().stream(maps, "expired", resource_version=version)
        return next(events)

    try:
        raise AssertionError(f"the watch went on with {watched()}")
    except client.ApiException as error:
        equal((error.status, error.reason.split(":")[0]), (410, "Expired"), "the watch's refusal")
    status = refused(lambda: maps("expired", limit=1, _continue=token), 410, "Expired", "The provided continue parameter is too old")
    rest = maps("expired", limit=9, _continue=status["metadata"]["continue"])
    equal([i.metadata.name for i in rest.items], ["b", "c"], "the rest of the list")
    exactly = {"resource_version": version, "resource_version_match": "Exact"}
    refused(lambda: maps("expired", **exactly), 410, "Expired", "The resourceVersion for the provided list is too old")
    again = maps("expired").metadata.resource_version
    c.core.create_namespaced_config_map("expired", config_map(c.namespace))
    equal(take(watch.Watch().stream(maps, "expired", resource_version=again), 1), [("ADDED", c.namespace)])
    c.core.delete_namespaced_config_map(c.namespace, "expired")


def informer(c):
    seen = []
    c.core.create_namespaced_config_map(c.namespace, config_map("before"))
    follow = SharedInformer(c.core.list_namespaced_config_map, namespace=c.namespace)
    for kind in ("ADDED", "MODIFIED", "DELETED"):
        follow.add_event_handler(kind, lambda o, kind=kind: seen.append((kind, o.metadata.name)))
    follow.start()
    try:
        eventually(lambda: seen)
        c.core.create_namespaced_config_map(c.namespace, config_map("after"))
        c.core.patch_namespaced_config_map("after", c.namespace, {"data": {"k": "v"}}, _content_type=MERGE)
        c.core.delete_namespaced_config_map("before", c.namespace)
        eventually(lambda: len(seen) >= 4)
        equal(seen, [("ADDED", "before"), ("ADDED", "after"), ("MODIFIED", "after"), ("DELETED", "before")])
        equal([(o.metadata.name, o.data) for o in follow.cache.list()], [("after", {"k": "v"})])
    finally:
        follow.stop()


def election(c):
    leading = threading.Event()
    lock = LeaseLock("leader", c.namespace, uuid.uuid4())
    config = electionconfig.Config(lock, lease_duration=17, renew_deadline=15, retry_period=1, onstarted_leading=leading.set, onstopped_leading=None)
    threading.Thread(target=leaderelection.LeaderElection(config).run, daemon=True).start()
    if not leading.wait(30):
        raise AssertionError("nobody became leader")
    lease = client.CoordinationV1Api().read_namespaced_lease("leader", c.namespace)
    equal(lease.spec.holder_identity, str(lock.identity))


CLAIMS = [
    ("a watch tells what happened, in order", stream),
    ("events hold typed objects", typed_events),
    ("a watch resumes where it ended", resume),
    ("a watch begins with what there is, and says when that is all", initial_events),
    ("custom objects are watched, also by label", custom_events),
    ("an expired past is 410, and listing again goes on", expired),
    ("the client's informer keeps up", informer),
    ("the client's leader election finds a leader", election),
]
