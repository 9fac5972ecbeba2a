// Custom resources: definitions, objects of them through two clients, their subresources and refusals.
import { apply, equal, eventually, merge, refused } from './expect.js';
import { PatchStrategy } from '@kubernetes/client-node';

export const group = 'javascript.example.com';
export const version = 'v1';
export const plural = 'gizmos';

// The client's names for `default` and `x-kubernetes-validations` are its own.
const schema = {
  type: 'object',
  properties: {
    spec: {
      type: 'object', required: ['size'],
      properties: { size: { type: 'integer', maximum: 9 }, color: { type: 'string', _default: 'red' }, replicas: { type: 'integer' } },
      x_kubernetes_validations: [{ rule: "self.color != 'black' || self.size > 5", message: 'black is large' }],
    },
    status: { type: 'object', properties: { ready: { type: 'boolean' }, replicas: { type: 'integer' } } },
  },
};

// The definition, made once and waited for.
export async function define({ extensions }) {
  const name = `${plural}.${group}`;
  const definition = {
    metadata: { name },
    spec: {
      group, scope: 'Namespaced', names: { plural, kind: 'Gizmo' },
      versions: [{
        name: version, served: true, storage: true, schema: { openAPIV3Schema: schema },
        subresources: { status: {}, scale: { specReplicasPath: '.spec.replicas', statusReplicasPath: '.status.replicas' } },
      }],
    },
  };
  await extensions.createCustomResourceDefinition({ body: definition }).catch((error) => equal(error.code, 409, 'the refusal'));
  await eventually(async () => {
    const { status } = await extensions.readCustomResourceDefinition({ name });
    return status?.conditions?.some((c) => c.type === 'Established' && c.status === 'True');
  });
}

export const gizmo = (name, spec) => ({ apiVersion: `${group}/${version}`, kind: 'Gizmo', metadata: { name }, spec });

async function life(c) {
  await define(c);
  const at = { group, version, plural, namespace: c.namespace };
  const made = await c.custom.createNamespacedCustomObject({ ...at, body: gizmo('g', { size: 3, unknown: 1 }) });
  equal(made.spec, { size: 3, color: 'red' }, 'the pruned and defaulted spec');
  made.spec.size = 4;
  equal((await c.custom.replaceNamespacedCustomObject({ ...at, name: 'g', body: made })).metadata.generation, 2);
  const status = await c.custom.patchNamespacedCustomObjectStatus({ ...at, name: 'g', body: { spec: { size: 9 }, status: { ready: true } } }, merge);
  equal([status.spec.size, status.status], [4, { ready: true }]);
  await c.custom.patchNamespacedCustomObjectScale({ ...at, name: 'g', body: { spec: { replicas: 7 } } }, merge);
  equal((await c.custom.getNamespacedCustomObject({ ...at, name: 'g' })).spec.replicas, 7);
  equal((await c.custom.deleteNamespacedCustomObject({ ...at, name: 'g' })).status, 'Success');
  equal((await c.custom.listNamespacedCustomObject(at)).items, []);
}

async function refusals(c) {
  await define(c);
  const create = (spec) => c.custom.createNamespacedCustomObject({ group, version, plural, namespace: c.namespace, body: gizmo('g', spec), fieldValidation: 'Strict' });
  const status = await refused(() => create({ size: 10 }), 422, 'Invalid',
    `Gizmo.${group} "g" is invalid: spec.size: Invalid value: 10: spec.size in body should be less than or equal to 9`);
  equal(status.details.causes[0].field, 'spec.size');
  await refused(() => create({ size: 1, color: 'black' }), 422, 'Invalid', 'black is large');
  await refused(() => create({}), 422, 'Invalid', 'spec.size: Required value');
  await refused(() => create({ size: 1, x: 1 }), 400, 'BadRequest', 'strict decoding error: unknown field "spec.x"');
}

async function applied(c) {
  await define(c);
  const by = (fieldManager, size, force) => c.custom.patchNamespacedCustomObject({
    group, version, plural, namespace: c.namespace, name: 'a', fieldManager, force, body: gizmo('a', { size }) }, apply);
  await by('one', 2);
  await refused(() => by('two', 3), 409, 'Conflict', 'Apply failed with 1 conflict: conflict with "one": .spec.size');
  equal((await by('two', 3, true)).spec.size, 3);
  const object = { ...gizmo('b', { size: 5 }), metadata: { name: 'b', namespace: c.namespace } };
  const made = await c.objects.patch(object, undefined, undefined, 'me', undefined, PatchStrategy.ServerSideApply);
  equal([made.spec.color, made.metadata.managedFields[0].manager], ['red', 'me']);
}

export const claims = [
  ['custom objects are pruned, defaulted, replaced and scaled', life],
  ['custom objects that break their schema or rules are refused', refusals],
  ['custom objects are applied', applied],
];
