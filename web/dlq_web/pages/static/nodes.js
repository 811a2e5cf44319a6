// Drains nodes and takes that back, by the call of the command line. A lost answer is asked for under
// the same key, so it happens once. A page on which something is chosen does not renew itself.
// @ts-check

import { newKey, send, tell } from './answers.js';

const SET_FLAGS = '/api/dlq.v1.AdminService/SetNodeFlags';
let key = newKey();

/** @param {Record<string, unknown>} request @param {string} next */
async function setFlags(request, next) {
  tell('said', 'asking the master');
  const { refusal, sure } = await send(SET_FLAGS, request, { key });
  if (!refusal) { location.assign(next); return; }
  if (sure) key = newKey();  // it has not happened
  tell('said', refusal);
}

/** As a shell takes it. @param {string} text */
function quoted(text) { return `'${text.replaceAll("'", "'\\''")}'`; }

document.addEventListener('submit', (event) => {
  const form = /** @type {HTMLFormElement} */ (event.target);
  if (form.id !== 'drain') return;
  event.preventDefault();
  const given = new FormData(form);
  const nodes = (form.dataset.nodes ?? '').split(' ');
  const wanted = form.dataset.count ?? '';
  if (wanted && String(given.get('count')).trim() !== wanted) { tell('said', `type ${wanted} to go on`); return; }
  setFlags({ nodeId: nodes[0], moreNodeIds: nodes.slice(1), setFlags: ['draining'],
    reason: String(given.get('reason')), acceptLoss: true },
  nodes.length === 1 ? `/nodes/${encodeURIComponent(nodes[0])}` : '/nodes?show=hindered');
});

document.addEventListener('click', (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button');
  const node = button?.dataset.undrain;
  if (!node || !confirm(`Let work start on ${node} again?`)) return;
  setFlags({ nodeId: node, clearFlags: ['draining'] }, `/nodes/${encodeURIComponent(node)}`);
});

document.addEventListener('input', (event) => {
  const field = /** @type {HTMLInputElement} */ (event.target);
  const command = document.getElementById('command');
  if (field.name === 'reason' && command) command.textContent = `${command.dataset.command} ${quoted(field.value)} -y`;
});

document.addEventListener('change', (event) => {
  const form = /** @type {HTMLElement} */ (event.target).closest('#choice');
  if (form instanceof HTMLElement) form.toggleAttribute('data-still', form.querySelector(':checked') !== null);
});
