"""Custom resources: definitions, objects of them through three clients, their subresources and refusals."""
from kubernetes import client

from expect import equal, eventually, refused
from objects import APPLY, MERGE

GROUP = "python.example.com"
SCHEMA = {"type": "object", "properties": {
    "spec": {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9}, "color": {"type": "string", "default": "red"}, "replicas": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.color != 'black' || self.size > 5", "message": "black is large"}]},
    "status": {"type": "object", "properties": {"ready": {"type": "boolean"}, "replicas": {"type": "integer"}}}}}


def define(c, plural="gadgets", kind="Gadget", scope="Namespaced"):
    """The definition, made once and waited for."""
    extensions = client.ApiextensionsV1Api()
    name = f"{plural}.{GROUP}"
    try:
        extensions.create_custom_resource_definition({"metadata": {"name": name}, "spec": {
            "group": GROUP, "scope": scope, "names": {"plural": plural, "kind": kind, "shortNames": [plural[:3]]},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA},
                          "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                          "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]}]}})
    except client.ApiException as error:
        equal(error.status, 409, "the refusal")
    established = eventually(lambda: {k.type: k.status for k in extensions.read_custom_resource_definition(name).status.conditions or []}.get("Established"))
    equal(established, "True")
    return plural


def gadget(name, **spec):
    return {"apiVersion": f"{GROUP}/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec}


def custom_objects(c):
    at = (GROUP, "v1", c.namespace, define(c))
    custom = client.CustomObjectsApi()
    made = custom.create_namespaced_custom_object(*at, gadget("g", size=3, unknown=1))
    equal(made["spec"], {"size": 3, "color": "red"}, "the pruned and defaulted spec")
    made["spec"]["size"] = 4
    equal(custom.replace_namespaced_custom_object(*at, "g", made)["metadata"]["generation"], 2)
    equal(custom.patch_namespaced_custom_object(*at, "g", {"spec": {"color": "blue"}}, _content_type=MERGE)["spec"], {"size": 4, "color": "blue"})
    patched = custom.patch_namespaced_custom_object_status(*at, "g", {"spec": {"size": 9}, "status": {"ready": True}}, _content_type=MERGE)
    equal((patched["spec"]["size"], patched["status"]), (4, {"ready": True}))
    custom.patch_namespaced_custom_object_scale(*at, "g", {"spec": {"replicas": 7}}, _content_type=MERGE)
    equal(custom.get_namespaced_custom_object(*at, "g")["spec"]["replicas"], 7)
    equal([i["metadata"]["name"] for i in custom.list_cluster_custom_object(GROUP, "v1", "gadgets", field_selector=f"metadata.namespace={c.namespace}")["items"]], ["g"])
    equal(custom.delete_namespaced_custom_object(*at, "g")["status"], "Success")
    equal(custom.list_namespaced_custom_object(*at)["items"], [])


def refusals(c):
    at = (GROUP, "v1", c.namespace, define(c))
    custom = client.CustomObjectsApi()
    status = refused(lambda: custom.create_namespaced_custom_object(*at, gadget("g", size=10)), 422, "Invalid",
                     f'Gadget.{GROUP} "g" is invalid: spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9')
    equal(status["details"]["causes"][0]["field"], "spec.size")
    refused(lambda: custom.create_namespaced_custom_object(*at, gadget("g", size=1, color="black")), 422, "Invalid", "black is large")
    refused(lambda: custom.create_namespaced_custom_object(*at, gadget("g")), 422, "Invalid", "spec.size: Required value")
    refused(lambda: custom.get_namespaced_custom_object(*at, "g"), 404, "NotFound", f'gadgets.{GROUP} "g" not found')
    refused(lambda: custom.create_namespaced_custom_object(*at, gadget("g", size=1, x=2), field_validation="Strict"), 400, "BadRequest",
            'strict decoding error: unknown field "spec.x"')
    _, _, headers = custom.create_namespaced_custom_object_with_http_info(*at, gadget("w", size=1, x=2))
    equal(headers["Warning"], '299 - "unknown field \\"spec.x\\""', "the warning")


def applied(c):
    at = (GROUP, "v1", c.namespace, define(c))
    custom = client.CustomObjectsApi()
    # This client has no name for what a patch that creates answers (201), so it is read.
    custom.patch_namespaced_custom_object(*at, "a", gadget("a", size=2), field_manager="one", _content_type=APPLY)
    equal(custom.get_namespaced_custom_object(*at, "a")["spec"], {"size": 2, "color": "red"})
    refused(lambda: custom.patch_namespaced_custom_object(*at, "a", gadget("a", size=3), field_manager="two", _content_type=APPLY),
            409, "Conflict", 'Apply failed with 1 conflict: conflict with "one": .spec.size')
    forced = custom.patch_namespaced_custom_object(*at, "a", gadget("a", size=3), field_manager="two", force=True, _content_type=APPLY)
    equal(forced["spec"]["size"], 3)


def dynamically(c):
    define(c, "engines", "Engine", "Cluster")
    c.dynamic.resources.invalidate_cache()
    engines = c.dynamic.resources.get(api_version=f"{GROUP}/v1", kind="Engine")
    name = f"e-{c.namespace}"
    made = engines.create(body={"apiVersion": f"{GROUP}/v1", "kind": "Engine", "metadata": {"name": name, "finalizers": ["example.com/hold"]}, "spec": {"size": 1}})
    equal(made.spec.color, "red")
    engines.status.patch(name=name, body={"status": {"ready": True}}, content_type=MERGE)
    engines.delete(name=name)
    held = engines.get(name=name)
    if not held.metadata.deletionTimestamp or held.status.ready is not True:
        raise AssertionError(f"a finalizer does not hold it: {held}")
    engines.patch(name=name, body={"metadata": {"finalizers": None}}, content_type=MERGE)
    refused(lambda: engines.get(name=name), 404, "NotFound")


def definition_ends(c):
    plural = define(c, "shorts", "Short")
    custom, extensions = client.CustomObjectsApi(), client.ApiextensionsV1Api()
    at = (GROUP, "v1", c.namespace, plural)
    custom.create_namespaced_custom_object(*at, {"apiVersion": f"{GROUP}/v1", "kind": "Short", "metadata": {"name": "s"}, "spec": {"size": 1}})
    extensions.delete_custom_resource_definition(f"{plural}.{GROUP}")

    def gone():
        try:
            custom.list_namespaced_custom_object(*at)
        except client.ApiException as error:
            return error.status == 404

    eventually(gone)
    eventually(lambda: f"{plural}.{GROUP}" not in [d.metadata.name for d in extensions.list_custom_resource_definition().items])
    define(c, "shorts", "Short")
    equal(custom.list_namespaced_custom_object(*at)["items"], [])


CLAIMS = [
    ("custom objects are pruned, defaulted, patched and scaled", custom_objects),
    ("custom objects that break their schema or rules are refused", refusals),
    ("custom objects are applied", applied),
    ("the dynamic client finds a new kind, and finalizers hold", dynamically),
    ("a definition goes with its objects and can be made again", definition_ends),
]
