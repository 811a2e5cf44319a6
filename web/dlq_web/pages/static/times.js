// Instants in the zone of the reader: the server writes them in UTC.
// @ts-check

const zone = new Intl.DateTimeFormat('en', { timeZoneName: 'short', hour: 'numeric' });

/** As the command line writes one: 2026-11-23 23:30 CET. @param {Date} at @param {boolean} seconds */
export function local(at, seconds) {
  const two = (/** @type {number} */ value) => String(value).padStart(2, '0');
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ''}`;
  const name = zone.formatToParts(at).find((part) => part.type === 'timeZoneName')?.value ?? '';
  return `${day} ${clock} ${name}`.trim();
}

function show() {
  for (const time of document.querySelectorAll('main time')) {
    const stamp = time.getAttribute('datetime') ?? '';
    const at = new Date(stamp);
    if (Number.isNaN(at.getTime()) || time.hasAttribute('title')) continue;
    time.setAttribute('title', time.textContent ?? '');
    time.textContent = local(at, stamp.length > 17);
  }
}

document.addEventListener('dlq:renewed', show);
show();
