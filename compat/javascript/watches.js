// Watches and the client's informer: streams, resumption, bookmarks, an expired past.
import { setTimeout as pause } from 'node:timers/promises';
import { makeInformer, Watch } from '@kubernetes/client-node';
import { define, gizmo, group, plural, version } from './custom.js';
import { equal, eventually, merge, refused } from './expect.js';

const path = (namespace) => `/api/v1/namespaces/${namespace}/configmaps`;
const configMap = (name) => ({ metadata: { name } });

// Watches until `count` events came or the server ended it: what came, and how it ended.
async function watch({ config }, at, query, count = Infinity) {
  const seen = [];
  let last;
  let ended;
  const end = new Promise((resolve) => { ended = resolve; });
  const controller = await new Watch(config).watch(at, query, (type, object) => {
    seen.push(type === 'ERROR' ? [type, object.code] : [type, object.metadata.name]);
    last = object.metadata?.resourceVersion ?? last;
    if (seen.length === count) ended(null);
  }, ended);
  const error = await end;
  controller.abort();
  return { seen, last, error };
}

async function stream(c) {
  const { core, namespace } = c;
  await core.createNamespacedConfigMap({ namespace, body: configMap('a') });
  const { resourceVersion } = (await core.listNamespacedConfigMap({ namespace })).metadata;
  await core.patchNamespacedConfigMap({ name: 'a', namespace, body: { data: { k: 'v' } } }, merge);
  await core.createNamespacedConfigMap({ namespace, body: configMap('b') });
  await core.deleteNamespacedConfigMap({ name: 'a', namespace });
  equal((await watch(c, path(namespace), { resourceVersion }, 3)).seen, [['MODIFIED', 'a'], ['ADDED', 'b'], ['DELETED', 'a']]);
  equal((await watch(c, path(namespace), {}, 1)).seen, [['ADDED', 'b']]);
}

async function resume(c) {
  const { core, namespace } = c;
  const names = Array.from({ length: 30 }, (_, i) => `c${String(i).padStart(2, '0')}`);
  let { resourceVersion } = (await core.listNamespacedConfigMap({ namespace })).metadata;
  const writer = (async () => {
    for (const name of names) {
      await core.createNamespacedConfigMap({ namespace, body: configMap(name) });
      await pause(100);
    }
  })();
  const seen = [];
  let watches = 0;
  while (seen.length < names.length && watches < 30) {
    const { seen: more, last } = await watch(c, path(namespace), { resourceVersion, timeoutSeconds: 1 });
    seen.push(...more.map(([, name]) => name));
    resourceVersion = last ?? resourceVersion;
    watches += 1;
  }
  await writer;
  equal(seen, names, `what ${watches} watches saw`);
  if (watches < 2) throw new Error('the server did not end a watch after its second');
}

async function initialEvents(c) {
  const { core, namespace } = c;
  for (const name of ['a', 'b']) await core.createNamespacedConfigMap({ namespace, body: configMap(name) });
  const query = { sendInitialEvents: true, resourceVersionMatch: 'NotOlderThan', allowWatchBookmarks: true };
  equal((await watch(c, path(namespace), query, 3)).seen.map(([type]) => type), ['ADDED', 'ADDED', 'BOOKMARK']);
}

async function expired(c) {
  const { core } = c;
  const { version: resourceVersion, token } = c.expired;
  if (!resourceVersion) return;
  const { seen, error } = await watch(c, path('expired'), { resourceVersion }, 1);
  equal(error?.statusCode ?? seen[0], seen.length ? ['ERROR', 410] : 410, "the watch's refusal");
  const status = await refused(() => core.listNamespacedConfigMap({ namespace: 'expired', limit: 1, _continue: token }), 410, 'Expired');
  const rest = await core.listNamespacedConfigMap({ namespace: 'expired', limit: 9, _continue: status.metadata._continue ?? status.metadata.continue });
  equal(rest.items.map((i) => i.metadata.name), ['b', 'c'], 'the rest of the list');
  // The informer is told the same and lists again by itself.
  let lists = 0;
  const list = async () => {
    const found = await core.listNamespacedConfigMap({ namespace: 'expired' });
    lists += 1;
    if (lists === 1) found.metadata.resourceVersion = resourceVersion;
    return found;
  };
  await follow(c, path('expired'), list, async (seen) => {
    await eventually(() => lists === 2);
    await core.createNamespacedConfigMap({ namespace: 'expired', body: configMap(c.namespace) });
    await eventually(() => seen.some(([verb, name]) => verb === 'add' && name === c.namespace));
  });
  await core.deleteNamespacedConfigMap({ name: c.namespace, namespace: 'expired' });
}

// follow runs the client's informer and what it tells.
async function follow({ config }, at, list, changes) {
  const seen = [];
  const informer = makeInformer(config, at, list);
  for (const verb of ['add', 'update', 'delete']) informer.on(verb, (object) => seen.push([verb, object.metadata.name]));
  informer.on('error', (error) => seen.push(['error', String(error)]));
  await informer.start();
  try {
    await changes(seen, informer);
  } finally {
    await informer.stop();
  }
}

async function informer(c) {
  const { core, namespace } = c;
  await core.createNamespacedConfigMap({ namespace, body: configMap('before') });
  await follow(c, path(namespace), () => core.listNamespacedConfigMap({ namespace }), async (seen, informer) => {
    await core.createNamespacedConfigMap({ namespace, body: configMap('after') });
    for (const k of ['1', '2']) await core.patchNamespacedConfigMap({ name: 'after', namespace, body: { data: { k } } }, merge);
    await core.deleteNamespacedConfigMap({ name: 'before', namespace });
    await eventually(() => seen.length >= 5);
    equal(seen, [['add', 'before'], ['add', 'after'], ['update', 'after'], ['update', 'after'], ['delete', 'before']]);
    equal(informer.list().map((o) => [o.metadata.name, o.data]), [['after', { k: '2' }]]);
  });
}

async function customInformer(c) {
  await define(c);
  const at = { group, version, plural, namespace: c.namespace };
  await follow(c, `/apis/${group}/${version}/namespaces/${c.namespace}/${plural}`, () => c.custom.listNamespacedCustomObject(at), async (seen) => {
    await c.custom.createNamespacedCustomObject({ ...at, body: gizmo('g', { size: 1 }) });
    await c.custom.patchNamespacedCustomObjectStatus({ ...at, name: 'g', body: { status: { ready: true } } }, merge);
    await c.custom.deleteNamespacedCustomObject({ ...at, name: 'g' });
    await eventually(() => seen.length >= 3);
    equal(seen, [['add', 'g'], ['update', 'g'], ['delete', 'g']]);
  });
}

export const claims = [
  ['a watch tells what happened, in order', stream],
  ['a watch resumes where it ended', resume],
  ['a watch begins with what there is, and says when that is all', initialEvents],
  ['an expired past is 410, and listing again goes on', expired],
  ["the client's informer keeps up", informer],
  ["the client's informer follows custom objects", customInformer],
];
