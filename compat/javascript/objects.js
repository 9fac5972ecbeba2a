// Typed calls: reading and writing, the patch types, apply, pages, errors, workloads, and objects of any kind.
import * as k8s from '@kubernetes/client-node';
import { apply, equal, jsonPatch, merge, refused, strategic } from './expect.js';

const configMap = (name, data) => ({ metadata: { name }, data });

async function life({ core, namespace }) {
  const made = await core.createNamespacedConfigMap({ namespace, body: configMap('a', { k: 'v' }) });
  equal([made.metadata.namespace, made.data], [namespace, { k: 'v' }]);
  if (!(made.metadata.creationTimestamp instanceof Date) || !made.metadata.uid) throw new Error(`metadata is missing: ${made.metadata}`);
  const stale = structuredClone(made);
  made.data.k = 'w';
  const replaced = await core.replaceNamespacedConfigMap({ name: 'a', namespace, body: made });
  await refused(() => core.replaceNamespacedConfigMap({ name: 'a', namespace, body: { ...configMap('a', {}), metadata: { name: 'a', resourceVersion: stale.metadata.resourceVersion } } }),
    409, 'Conflict', 'the object has been modified');
  equal((await core.readNamespacedConfigMap({ name: 'a', namespace })).metadata.resourceVersion, replaced.metadata.resourceVersion);
  const gone = await core.deleteNamespacedConfigMap({ name: 'a', namespace });
  equal([gone.status, gone.details.name], ['Success', 'a']);
  equal((await core.listNamespacedConfigMap({ namespace })).items, []);
}

async function patchTypes({ core, namespace }) {
  await core.createNamespacedConfigMap({ namespace, body: configMap('p', { a: '1', b: '2' }) });
  const patch = async (body, type) => (await core.patchNamespacedConfigMap({ name: 'p', namespace, body }, type)).data;
  equal(await patch([{ op: 'replace', path: '/data/a', value: '3' }], jsonPatch), { a: '3', b: '2' });
  equal(await patch({ data: { b: null } }, merge), { a: '3' });
  equal(await patch({ data: { c: '4' } }, strategic), { a: '3', c: '4' });
  await refused(() => patch([{ op: 'test', path: '/data/a', value: '9' }], jsonPatch), 422, 'Invalid');
  await refused(() => patch({ metadata: { name: 'q' } }, merge), 400, 'BadRequest', 'the name of the object (q) does not match the name on the URL (p)');
}

async function applied({ core, namespace }) {
  const by = (fieldManager, data, force) => core.patchNamespacedConfigMap({
    name: 's', namespace, fieldManager, force, body: { apiVersion: 'v1', kind: 'ConfigMap', ...configMap('s', data) } }, apply);
  const first = await by('one', { a: '1', b: '1' });
  equal(first.metadata.managedFields.map((m) => [m.manager, m.operation]), [['one', 'Apply']]);
  equal((await by('one', { a: '1', b: '1' })).metadata.resourceVersion, first.metadata.resourceVersion, "a second apply's version");
  const status = await refused(() => by('two', { a: '2' }), 409, 'Conflict', 'Apply failed with 1 conflict: conflict with "one": .data.a');
  equal(status.details.causes, [{ reason: 'FieldManagerConflict', message: 'conflict with "one"', field: '.data.a' }]);
  equal((await by('two', { a: '2' }, true)).data, { a: '2', b: '1' });
  equal((await by('one', {})).data, { a: '2' });
}

async function errors({ core, namespace }) {
  await core.createNamespacedConfigMap({ namespace, body: configMap('there') });
  const create = (body) => core.createNamespacedConfigMap({ namespace, body });
  for (const [call, code, reason, message] of [
    [() => core.readNamespacedConfigMap({ name: 'no', namespace }), 404, 'NotFound', 'configmaps "no" not found'],
    [() => create(configMap('there')), 409, 'AlreadyExists', 'configmaps "there" already exists'],
    [() => create(configMap('Not Good')), 422, 'Invalid', 'a lowercase RFC 1123 subdomain must consist of'],
    [() => create({ kind: 'Secret', apiVersion: 'v1', metadata: { name: 'a' } }), 400, 'BadRequest', 'cannot be handled as a ConfigMap'],
    [() => core.createNamespacedConfigMap({ namespace: 'nowhere', body: configMap('a') }), 404, 'NotFound', 'namespaces "nowhere" not found'],
    [() => core.deleteNamespacedConfigMap({ name: 'there', namespace, body: { preconditions: { uid: 'another' } } }), 409, 'Conflict', 'the UID in the precondition (another)'],
    [() => core.listNamespacedConfigMap({ namespace, fieldSelector: 'data=1' }), 400, 'BadRequest', '"data" is not a known field selector'],
  ]) {
    await refused(call, code, reason, message);
  }
}

async function pages({ core, namespace }) {
  const names = Array.from({ length: 25 }, (_, i) => `c${String(i).padStart(2, '0')}`);
  for (const name of names) await core.createNamespacedConfigMap({ namespace, body: configMap(name) });
  const seen = [];
  let calls = 0;
  let _continue;
  do {
    const page = await core.listNamespacedConfigMap({ namespace, limit: 10, _continue });
    seen.push(...page.items.map((i) => i.metadata.name));
    _continue = page.metadata._continue;
    calls += 1;
  } while (_continue);
  equal([calls, seen], [3, names], 'what the pages show');
  await core.deleteCollectionNamespacedConfigMap({ namespace });
  equal((await core.listNamespacedConfigMap({ namespace })).items, []);
}

async function secrets({ core, namespace }) {
  const bytes = Buffer.from([0, 255, 10]).toString('base64');
  const made = await core.createNamespacedSecret({ namespace, body: { metadata: { generateName: 's-' }, data: { raw: bytes }, stringData: { text: 'words' } } });
  equal([made.type, made.data], ['Opaque', { raw: bytes, text: Buffer.from('words').toString('base64') }]);
  if (!/^s-[a-z0-9]{5}$/.test(made.metadata.name)) throw new Error(`the name is ${made.metadata.name}`);
}

async function leases({ config, namespace }) {
  const api = config.makeApiClient(k8s.CoordinationV1Api);
  const renewTime = new k8s.V1MicroTime('2026-01-02T03:04:05.678Z');
  const made = await api.createNamespacedLease({ namespace, body: { metadata: { name: 'l' }, spec: { holderIdentity: 'me', leaseDurationSeconds: 5, renewTime } } });
  equal([made.spec.holderIdentity, made.spec.leaseDurationSeconds, new Date(made.spec.renewTime).getTime()], ['me', 5, renewTime.getTime()]);
}

const deployment = {
  apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'd' },
  spec: {
    replicas: 2, selector: { matchLabels: { app: 'a' } },
    template: { metadata: { labels: { app: 'a' } }, spec: { containers: [{ name: 'c', image: 'example.com/i:1', ports: [{ containerPort: 80 }] }] } },
  },
};

async function workloads({ apps, config, core, namespace }) {
  const made = await apps.createNamespacedDeployment({ namespace, body: deployment });
  equal([made.spec.strategy.rollingUpdate.maxSurge, made.spec.template.spec.restartPolicy], ['25%', 'Always'], 'the defaults');
  const body = { spec: { template: { spec: { containers: [{ name: 'c', image: 'example.com/i:2' }, { name: 'e', image: 'j' }] } } } };
  const patched = await apps.patchNamespacedDeployment({ name: 'd', namespace, body }, strategic);
  equal(patched.spec.template.spec.containers.map((c) => [c.name, c.image, c.ports?.[0].containerPort]).sort(),
    [['c', 'example.com/i:2', 80], ['e', 'j', undefined]]);
  const scale = await apps.readNamespacedDeploymentScale({ name: 'd', namespace });
  scale.spec.replicas = 4;
  await apps.replaceNamespacedDeploymentScale({ name: 'd', namespace, body: scale });
  const status = { status: { replicas: 4, readyReplicas: 3 } };
  const ready = await apps.patchNamespacedDeploymentStatus({ name: 'd', namespace, body: status }, merge);
  equal([ready.spec.replicas, ready.status.readyReplicas], [4, 3]);
  const service = await core.createNamespacedService({ namespace, body: { metadata: { name: 's' }, spec: { ports: [{ port: 80, targetPort: 'web' }] } } });
  equal([service.spec.type, service.spec.ports[0].targetPort, service.spec.clusterIPs], ['ClusterIP', 'web', [service.spec.clusterIP]]);
  const job = await config.makeApiClient(k8s.BatchV1Api).createNamespacedJob({ namespace, body: { metadata: { name: 'j' },
    spec: { template: { spec: { restartPolicy: 'Never', containers: [{ name: 'c', image: 'i' }] } } } } });
  equal(job.spec.backoffLimit, 6);
}

async function anyKind({ objects, namespace }) {
  const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'o', namespace }, data: { k: 'v' } };
  equal((await objects.create(map)).data, { k: 'v' });
  const read = await objects.read(map);
  read.data.k = 'w';
  equal((await objects.replace(read)).data, { k: 'w' });
  equal((await objects.patch({ ...map, data: { l: 'x' } }, undefined, undefined, undefined, undefined, k8s.PatchStrategy.MergePatch)).data, { k: 'w', l: 'x' });
  const forced = await objects.patch({ ...map, data: { k: 'mine' } }, undefined, undefined, 'me', true, k8s.PatchStrategy.ServerSideApply);
  equal(forced.data, { k: 'mine', l: 'x' });
  equal((await objects.list('v1', 'ConfigMap', namespace)).items.map((i) => i.metadata.name), ['o']);
  equal((await objects.delete(map)).status, 'Success');
  await refused(() => objects.read(map), 404, 'NotFound', 'configmaps "o" not found');
  const made = await objects.create({ ...deployment, metadata: { name: 'd', namespace } });
  equal(made.spec.revisionHistoryLimit, 10);
}

async function discovery({ config }) {
  const groups = (await config.makeApiClient(k8s.ApisApi).getAPIVersions()).groups;
  equal(groups.find((g) => g.name === 'apps').preferredVersion.groupVersion, 'apps/v1');
  equal((await config.makeApiClient(k8s.VersionApi).getCode()).minor, '36');
}

export const claims = [
  ['an object is made, read, replaced and deleted', life],
  ['JSON, merge and strategic patches do what they say', patchTypes],
  ['apply merges, conflicts, is forced and forgets', applied],
  ['errors are what callers match on', errors],
  ['pages cover a list once', pages],
  ['secrets keep bytes, and names are generated', secrets],
  ['times keep their fractions', leases],
  ['workloads are defaulted, patched, scaled and allotted addresses', workloads],
  ['objects of any kind are read and written', anyKind],
  ['discovery says what there is', discovery],
];
