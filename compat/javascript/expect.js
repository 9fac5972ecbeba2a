// What claims say about answers: equality with a useful complaint, refusals as the client shows them, and waiting for a state.
import { isDeepStrictEqual, inspect } from 'node:util';
import { setTimeout as pause } from 'node:timers/promises';
import { PatchStrategy, setHeaderOptions } from '@kubernetes/client-node';

const PATIENCE_MILLISECONDS = 30_000;

// How a patch says of which type it is.
export const merge = setHeaderOptions('Content-Type', PatchStrategy.MergePatch);
export const strategic = setHeaderOptions('Content-Type', PatchStrategy.StrategicMergePatch);
export const jsonPatch = setHeaderOptions('Content-Type', PatchStrategy.JsonPatch);
export const apply = setHeaderOptions('Content-Type', PatchStrategy.ServerSideApply);

export function equal(got, want, what = 'it') {
  if (!isDeepStrictEqual(got, want)) {
    throw new Error(`${what} is ${inspect(got, { depth: 9 })} and should be ${inspect(want, { depth: 9 })}`);
  }
}

// The Status that a call is refused with.
export async function refused(call, code, reason, message = '') {
  let answer;
  try {
    answer = await call();
  } catch (error) {
    if (error.code === undefined || error.body === undefined) throw error;
    const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
    equal([error.code, status.kind, status.code, status.reason], [code, 'Status', code, reason], 'the refusal');
    if (!status.message.includes(message)) throw new Error(`the message is ${inspect(status.message)} and should say ${inspect(message)}`);
    return status;
  }
  throw new Error(`it was not refused: ${inspect(answer)}`);
}

// Waits for a state and returns it.
export async function eventually(holds) {
  const deadline = Date.now() + PATIENCE_MILLISECONDS;
  for (;;) {
    const state = await holds();
    if (state) return state;
    if (Date.now() > deadline) throw new Error('waited in vain');
    await pause(20);
  }
}
