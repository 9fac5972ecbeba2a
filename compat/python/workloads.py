"""Typed calls on workloads, which the server keeps as plain data: defaults, subresources, scale, eviction, binding."""
from kubernetes import client

from expect import equal, refused
from objects import JSON_PATCH, MERGE, STRATEGIC

TEMPLATE = client.V1PodTemplateSpec(
    metadata=client.V1ObjectMeta(labels={"app": "a"}),
    spec=client.V1PodSpec(containers=[client.V1Container(
        name="c", image="example.com/i:1", ports=[client.V1ContainerPort(container_port=80)],
        resources=client.V1ResourceRequirements(requests={"cpu": "100m", "memory": "64Mi"}))]))


def deployment():
    return client.V1Deployment(
        metadata=client.V1ObjectMeta(name="d"),
        spec=client.V1DeploymentSpec(replicas=2, selector=client.V1LabelSelector(match_labels={"app": "a"}), template=TEMPLATE))


def deployments(c):
    made = c.apps.create_namespaced_deployment(c.namespace, deployment())
    spec = made.spec
    equal((spec.strategy.type, spec.strategy.rolling_update.max_surge, spec.revision_history_limit), ("RollingUpdate", "25%", 10), "the defaults")
    equal((spec.template.spec.restart_policy, spec.template.spec.containers[0].image_pull_policy), ("Always", "IfNotPresent"), "the pod's defaults")
    body = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "example.com/i:2"}, {"name": "d", "image": "j"}]}}}}
    patched = c.apps.patch_namespaced_deployment("d", c.namespace, body, _content_type=STRATEGIC)
    containers = {i.name: i for i in patched.spec.template.spec.containers}
    equal((containers["c"].image, containers["c"].ports[0].container_port, containers["d"].image), ("example.com/i:2", 80, "j"))
    equal(patched.metadata.generation, 2)
    changed = {"spec": {"selector": {"matchLabels": {"app": "b"}}}}
    refused(lambda: c.apps.patch_namespaced_deployment("d", c.namespace, changed, _content_type=MERGE), 422, "Invalid", "field is immutable")


def scale(c):
    c.apps.create_namespaced_deployment(c.namespace, deployment())
    now = c.apps.read_namespaced_deployment_scale("d", c.namespace)
    equal((now.spec.replicas, now.status.selector), (2, "app=a"))
    now.spec.replicas = 5
    equal(c.apps.replace_namespaced_deployment_scale("d", c.namespace, now).spec.replicas, 5)
    equal(c.apps.read_namespaced_deployment("d", c.namespace).spec.replicas, 5)
    body = [{"op": "replace", "path": "/spec/replicas", "value": 1}]
    equal(c.apps.patch_namespaced_deployment_scale("d", c.namespace, body, _content_type=JSON_PATCH).spec.replicas, 1)


def status_of_its_own(c):
    c.apps.create_namespaced_deployment(c.namespace, deployment())
    body = {"spec": {"replicas": 9}, "status": {"readyReplicas": 1, "replicas": 1, "conditions": [{"type": "Available", "status": "True"}]}}
    patched = c.apps.patch_namespaced_deployment_status("d", c.namespace, body, _content_type=STRATEGIC)
    equal((patched.spec.replicas, patched.status.ready_replicas, patched.status.conditions[0].type), (2, 1, "Available"))


def pods(c):
    made = c.core.create_namespaced_pod(c.namespace, client.V1Pod(metadata=client.V1ObjectMeta(name="p", labels={"app": "a"}), spec=TEMPLATE.spec))
    equal((made.status.phase, made.status.qos_class, made.spec.dns_policy), ("Pending", "Burstable", "ClusterFirst"))
    # The answer to a binding is a Status, for which this client has no model in its signature.
    c.core.create_namespaced_pod_binding("p", c.namespace, {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}, _preload_content=False)
    equal([p.metadata.name for p in c.core.list_namespaced_pod(c.namespace, field_selector="spec.nodeName=n").items], ["p"])
    c.core.patch_namespaced_pod_status("p", c.namespace, {"status": {"phase": "Running", "podIP": "10.0.0.9"}}, _content_type=MERGE)
    equal(c.core.read_namespaced_pod("p", c.namespace).status.phase, "Running")
    body = {"spec": {"ephemeralContainers": [{"name": "debug", "image": "i"}]}}
    c.core.patch_namespaced_pod_ephemeralcontainers("p", c.namespace, body, _content_type=STRATEGIC)
    equal(c.core.read_namespaced_pod("p", c.namespace).spec.ephemeral_containers[0].name, "debug")
    c.core.create_namespaced_pod_eviction("p", c.namespace, client.V1Eviction(
        metadata=client.V1ObjectMeta(name="p"), delete_options=client.V1DeleteOptions(grace_period_seconds=0)), _preload_content=False)
    refused(lambda: c.core.read_namespaced_pod("p", c.namespace), 404, "NotFound", 'pods "p" not found')


def other_groups(c):
    job = c.batch.create_namespaced_job(c.namespace, client.V1Job(metadata=client.V1ObjectMeta(name="j"), spec=client.V1JobSpec(
        template=client.V1PodTemplateSpec(spec=client.V1PodSpec(restart_policy="Never", containers=[client.V1Container(name="c", image="i")])))))
    equal((job.spec.backoff_limit, job.spec.completions, job.spec.selector.match_labels["batch.kubernetes.io/controller-uid"]), (6, 1, job.metadata.uid))
    service = c.core.create_namespaced_service(c.namespace, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}})
    equal((service.spec.type, service.spec.ports[0].target_port, service.spec.cluster_ips), ("ClusterIP", 80, [service.spec.cluster_ip]))
    ingress = client.NetworkingV1Api().create_namespaced_ingress(c.namespace, {"metadata": {"name": "i"}, "spec": {
        "defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}})
    equal(ingress.spec.default_backend.service.port.number, 80)
    scaler = client.AutoscalingV2Api().create_namespaced_horizontal_pod_autoscaler(c.namespace, {"metadata": {"name": "h"}, "spec": {
        "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
    equal((scaler.spec.min_replicas, scaler.spec.metrics[0].resource.target.average_utilization), (1, 80))
    budget = client.PolicyV1Api().create_namespaced_pod_disruption_budget(c.namespace, {"metadata": {"name": "b"}, "spec": {"minAvailable": "50%"}})
    equal(budget.spec.min_available, "50%")
    claim = c.core.create_namespaced_persistent_volume_claim(c.namespace, {"metadata": {"name": "v"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1.5Gi"}}}})
    equal((claim.spec.resources.requests["storage"], claim.status.phase), ("1536Mi", "Pending"))


CLAIMS = [
    ("deployments are defaulted, patched by container and validated", deployments),
    ("deployments are scaled", scale),
    ("a status is written alone", status_of_its_own),
    ("pods are bound, run, debugged and evicted as data", pods),
    ("batch, networking, autoscaling, policy and storage keep every field", other_groups),
]
