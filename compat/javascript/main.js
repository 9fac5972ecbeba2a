// Checks a server with the JavaScript client `@kubernetes/client-node`: prints `ok` or `FAIL` for each claim, and ends with 1
// if one failed.
//
//   node main.js --kubeconfig FILE [--expired-version N --expired-token TOKEN]    both of the configmaps in the namespace `expired`
import { randomUUID } from 'node:crypto';
import { parseArgs } from 'node:util';
import * as k8s from '@kubernetes/client-node';

import { claims as objects } from './objects.js';
import { claims as custom } from './custom.js';
import { claims as watches } from './watches.js';

// Every claim is over in milliseconds on a healthy server.
const CLAIM_MILLISECONDS = 60_000;

const text = { type: 'string' };
const { values } = parseArgs({ options: { kubeconfig: text, 'expired-version': text, 'expired-token': text } });
const config = new k8s.KubeConfig();
config.loadFromFile(values.kubeconfig);

// What a claim has at hand; the namespace is its own.
const clients = {
  config,
  expired: { version: values['expired-version'], token: values['expired-token'] },
  core: config.makeApiClient(k8s.CoreV1Api),
  apps: config.makeApiClient(k8s.AppsV1Api),
  custom: config.makeApiClient(k8s.CustomObjectsApi),
  extensions: config.makeApiClient(k8s.ApiextensionsV1Api),
  objects: k8s.KubernetesObjectApi.makeApiClient(config),
};

let failed = 0;
for (const [says, attempt] of [...objects, ...custom, ...watches]) {
  const namespace = `javascript-${randomUUID().slice(0, 8)}`;
  let timer;
  try {
    await clients.core.createNamespace({ body: { metadata: { name: namespace } } });
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error('it takes too long')), CLAIM_MILLISECONDS);
    });
    await Promise.race([attempt({ ...clients, namespace }), late]);
    console.log(`ok ${says}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL ${says}: ${String(error.message).replaceAll('\n', ' ')}`);
    console.error(error.stack);
  } finally {
    clearTimeout(timer);
  }
}
process.exit(failed ? 1 : 0);
