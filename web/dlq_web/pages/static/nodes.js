// Drains nodes and takes that back, by the call of the command line. A lost answer is asked for under
// the same key, so it happens once. A page on which something is chosen does not renew itself.
// @ts-check

import { newKey } from './answers.js';

const SET_FLAGS = '/api/dlq.v1.AdminService/SetNodeFlags';
const csrf = document.querySelector('meta[name="csrf"]')?.getAttribute('content') ?? '';
let key = newKey();

/** @param {string} text */
function say(text) {
  const said = document.getElementById('said');
  if (said) said.textContent = text;
}

/** @param {Record<string, unknown>} request @param {string} next */
async function setFlags(request, next) {
  say('asking the master');
  try {
    const answer = await fetch(SET_FLAGS, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-dlq-csrf': csrf, 'idempotency-key': key },
      body: JSON.stringify(request),
    });
    const told = await answer.json();
    if (answer.ok) { location.assign(next); return; }
    if (answer.status < 500) key = newKey();  // it has not happened
    say([told.message, told.hint].filter(Boolean).join('; '));
  } catch { say('no line to the server; do it again: it happens once'); }
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
  if (wanted && String(given.get('count')).trim() !== wanted) { say(`type ${wanted} to go on`); return; }
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
