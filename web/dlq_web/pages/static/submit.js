// The form for a job: what its text means, and the submission. All words are the server's.
// @ts-check

import { element, send } from './answers.js';

const form = /** @type {HTMLFormElement} */ (document.getElementById('submit'));
const answer = /** @type {HTMLElement} */ (document.getElementById('answer'));
const kind = /** @type {HTMLSelectElement} */ (form.elements.namedItem('name'));
const content = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem('content'));
const file = /** @type {HTMLInputElement} */ (document.getElementById('file'));
const LARGEST = 900 * 1024;

/** @param {string[]} lines @param {string} heading */
function list(lines, heading) {
  if (!lines.length) return [];
  const all = element('ul', '');
  all.append(...lines.map((line) => element('li', line)));
  return [element('h2', heading), all];
}

/** @param {{ body: any, refusal: string }} told */
function refused(told) {
  /** @type {{ message: string, hint: string }[]} */
  const problems = told.body.problems ?? [{ message: told.refusal, hint: '' }];
  const lines = problems.map((one) => [one.message, one.hint].filter(Boolean).join('; '));
  return list(lines, 'Not possible');
}

/** @param {any} told */
function checked(told) {
  return [
    element('h2', 'The master would accept this job'), element('pre', told.understood),
    element('pre', told.estimate), ...list(told.notes, 'Notes'), ...list(told.reasons, 'It would wait'),
  ];
}

/** @param {any} told */
function submitted(told) {
  const line = element('p', `${told.told}. `);
  const link = /** @type {HTMLAnchorElement} */ (element('a', 'Its page'));
  link.href = told.page;
  line.append(link);
  return [line, ...list(told.reasons, 'It waits')];
}

form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const pressed = /** @type {HTMLButtonElement | null} */ (event.submitter);
  const check = pressed?.value === 'check';
  const given = Object.fromEntries(['words', 'directory', 'name', 'content'].map((name) => [
    name, /** @type {HTMLInputElement} */ (form.elements.namedItem(name)).value]));
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone ?? '';
  answer.replaceChildren(element('p', 'asking the master'));
  const told = await send(check ? '/submit/check' : '/submit', { ...given, zone, key: form.dataset.key });
  const shown = told.refusal ? refused(told) : check ? checked(told.body) : submitted(told.body);
  answer.replaceChildren(...shown);
});

file.addEventListener('change', async () => {
  const chosen = file.files?.[0];
  if (!chosen) return;
  if (chosen.size > LARGEST) {
    answer.replaceChildren(element('p', `${chosen.name} is larger than ${LARGEST / 1024} KiB: dlq submit takes it`));
    return;
  }
  content.value = await chosen.text();
  const ending = chosen.name.toLowerCase().split('.').pop() ?? '';
  kind.value = ending === 'toml' ? 'job.toml' : ['yaml', 'yml'].includes(ending) ? 'job.yaml' : 'script';
});
