// Orders to one job, or to all that are chosen in a table. A chosen job stays chosen when the page
// renews itself. An order whose answer got lost is given again under the same key.
// @ts-check

import { element, newKey, send } from './answers.js';

const UNCOUNTED = 20;
/** @type {Set<string>} */
const chosen = new Set();
/** @type {Map<string, string>} */
const unanswered = new Map();

/** @param {string[]} jobs */
function named(jobs) {
  return jobs.length === 1 ? `job ${jobs[0]}` : `${jobs.length} jobs`;
}

/** The number that was typed in; 0: no. @param {string} order @param {string[]} jobs */
function agreed(order, jobs) {
  const line = `dlq ${order} ${jobs.slice(0, UNCOUNTED).join(' ')}${jobs.length > UNCOUNTED ? ' ...' : ''}`;
  if (jobs.length <= UNCOUNTED) return confirm(`${order} ${named(jobs)}?\n${line}`) ? jobs.length : 0;
  return Number(prompt(`${order} ${named(jobs)}? Type their number to go on.\n${line}`) ?? 0);
}

/** @param {string} order @param {string[]} jobs @param {number} count @param {boolean} acceptLoss */
async function give(order, jobs, count, acceptLoss) {
  const same = JSON.stringify([order, jobs, acceptLoss]);
  const key = unanswered.get(same) ?? newKey();
  unanswered.set(same, key);
  const told = await send('/act', { order, jobs, key, count, accept_loss: acceptLoss });
  if (told.sure) unanswered.delete(same);
  return told;
}

/** @param {string} order @param {string[]} jobs */
async function act(order, jobs) {
  const count = agreed(order, jobs);
  if (!count) return;
  const told = await give(order, jobs, count, false);
  if (told.refusal) { say([told.refusal], ''); return; }
  /** @type {{ job: string, told: string, done: boolean, loses: boolean }[]} */
  let outcomes = told.body.jobs;
  const losing = outcomes.filter((one) => one.loses);
  const words = losing.slice(0, UNCOUNTED).map((one) => one.told).join('\n');
  if (losing.length && confirm(`${words}\n${order} ${named(losing.map((one) => one.job))} all the same?`)) {
    const again = losing.map((one) => one.job);
    const second = await give(order, again, again.length, true);
    if (second.refusal) { say([second.refusal], ''); return; }
    outcomes = [...outcomes.filter((one) => !one.loses), ...second.body.jobs];
  }
  for (const one of outcomes) if (one.done) chosen.delete(one.job);
  const failed = outcomes.filter((one) => !one.done);
  const done = outcomes.filter((one) => one.done);
  const head = outcomes.length > 1 ? [`${done.length} of ${outcomes.length} done`] : [];
  say([...head, ...[...failed, ...done].map((one) => line(one))], told.body.command);
  document.dispatchEvent(new Event('dlq:renew'));
}

/** @param {{ job: string, told: string }} one */
function line(one) {
  return one.told.startsWith(`job ${one.job} `) ? one.told : `job ${one.job}: ${one.told}`;
}

/** @param {string[]} lines @param {string} command */
function say(lines, command) {
  const said = document.getElementById('said');
  if (!said) return;
  const all = element('ul', '');
  all.append(...lines.map((text) => element('li', text)));
  said.replaceChildren(all, ...(command ? [element('code', command)] : []));
}

/** The boxes as they were chosen, and how many that are. */
function show() {
  const boxes = [...document.querySelectorAll('input[name="job"]')].map((box) => /** @type {HTMLInputElement} */ (box));
  const there = new Set(boxes.map((box) => box.value));
  for (const job of chosen) if (!there.has(job)) chosen.delete(job);
  for (const box of boxes) box.checked = chosen.has(box.value);
  for (const all of document.querySelectorAll('input[name="all"]')) {
    const box = /** @type {HTMLInputElement} */ (all);
    const own = boxes.filter((one) => one.closest('table') === box.closest('table'));
    box.checked = own.length > 0 && own.every((one) => one.checked);
  }
  const bar = document.getElementById('many');
  if (!bar) return;
  // The answer to an order stays, also when the jobs have left the list.
  bar.hidden = boxes.length === 0 && !document.getElementById('said')?.textContent;
  const count = bar.querySelector('.count');
  if (count) count.textContent = chosen.size ? `${chosen.size} chosen` : 'none chosen';
  for (const button of bar.querySelectorAll('button')) button.disabled = chosen.size === 0;
}

document.addEventListener('change', (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  if (box.name !== 'job' && box.name !== 'all') return;
  const boxes = box.name === 'job' ? [box] : [...(box.closest('table')?.querySelectorAll('input[name="job"]') ?? [])];
  for (const one of boxes) {
    const job = /** @type {HTMLInputElement} */ (one).value;
    if (box.checked) chosen.add(job); else chosen.delete(job);
  }
  show();
});

document.addEventListener('click', (event) => {
  const button = /** @type {HTMLElement} */ (event.target).closest('button');
  const order = button?.dataset.action;
  if (!button || !order) return;
  const job = button.closest('[data-job]')?.getAttribute('data-job');
  const jobs = job ? [job] : [...chosen];
  if (jobs.length) act(order, jobs);
});

document.addEventListener('dlq:renewed', show);
show();
