// Draws a chart above each table that has one, from the cells of the table. Without it the table is all.
// @ts-check

/** @typedef {{ title: string, values: number[] }} Column */
const HIGH = 220;
/** @type {Map<HTMLElement, any>} */
const charts = new Map();  // uPlot keeps each chart in mind until it is destroyed
const COLOURS = ['--used', '--withheld', '--held', '--closed'];

/** The numbers of the chosen columns, and the words of the first. @param {HTMLElement} figure */
function read(figure) {
  const table = figure.nextElementSibling?.querySelector('table');
  const heads = [...(table?.querySelectorAll('thead th') ?? [])].map((one) => one.textContent ?? '');
  const rows = [...(table?.querySelectorAll('tbody tr') ?? [])].map((row) =>
    [...row.children].map((cell) => cell.textContent ?? ''));
  const places = (figure.dataset.columns ?? '').split(',').map(Number).filter((place) => place < heads.length);
  const columns = places.map((place) => ({
    title: heads[place], values: rows.map((row) => Number(row[place]) || 0) }));
  return { words: rows.map((row) => row[0]), columns };
}

/** Each on top of those before it. @param {Column[]} columns @returns {Column[]} */
function stacked(columns) {
  const sums = columns.map(({ title, values }) => ({ title, values: [...values] }));
  for (let i = 1; i < sums.length; i += 1) {
    sums[i].values = sums[i].values.map((value, row) => value + sums[i - 1].values[row]);
  }
  return sums;
}

/** @param {HTMLElement} figure @param {Column[]} columns @param {(place: number) => string} colour */
function legend(figure, columns, colour) {
  const list = document.createElement('ul');
  list.className = 'legend';
  columns.forEach(({ title }, place) => {
    const item = document.createElement('li');
    const square = document.createElement('span');
    square.className = 'square';
    square.style.background = colour(place);
    item.append(square, ` ${title}`);
    list.append(item);
  });
  figure.append(list);
}

/** @param {HTMLElement} figure */
function draw(figure) {
  const uPlot = /** @type {any} */ (globalThis).uPlot;
  const { words, columns } = read(figure);
  if (!uPlot || !words.length || !columns.length) return;
  for (const old of figure.querySelectorAll('.plot, .legend')) old.remove();
  charts.get(figure)?.destroy();
  const style = getComputedStyle(figure);
  const colour = (/** @type {number} */ place) => style.getPropertyValue(COLOURS[place % COLOURS.length]).trim();
  const ink = style.getPropertyValue('--dim').trim();
  const line = style.getPropertyValue('--line').trim();
  const drawn = 'stacked' in figure.dataset ? stacked(columns) : columns;
  const order = drawn.map((_, place) => place).reverse();  // the tallest lies behind
  const plot = document.createElement('div');
  plot.className = 'plot';
  plot.setAttribute('aria-hidden', 'true');
  figure.append(plot);
  legend(figure, columns, colour);
  const every = Math.ceil(words.length / Math.max(1, Math.floor(figure.clientWidth / 90)));
  const grid = { stroke: line, width: 1 };
  const chart = new uPlot({
    width: Math.max(200, figure.clientWidth), height: HIGH, legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, range: [-0.6, words.length - 0.4] },
      y: { range: (/** @type {unknown} */ _, /** @type {number} */ _least, /** @type {number} */ most) => [0, most * 1.05 || 1] } },
    axes: [
      { stroke: ink, grid: { show: false }, ticks: grid,
        splits: () => words.map((_, place) => place).filter((place) => place % every === 0),
        values: (/** @type {unknown} */ _, /** @type {number[]} */ at) => at.map((place) => words[place] ?? '') },
      { stroke: ink, grid, ticks: grid, size: 60 },
    ],
    series: [{}, ...order.map((place) => ({ label: drawn[place].title, fill: colour(place), stroke: colour(place),
      width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.7, 60] }) }))],
  }, [words.map((_, place) => place), ...order.map((place) => drawn[place].values)], plot);
  charts.set(figure, chart);
  figure.dataset.drawn = String(chart.series.length - 1);
}

function all() {
  for (const [figure, chart] of charts) {
    if (figure.isConnected) continue;
    chart.destroy();
    charts.delete(figure);
  }
  for (const figure of document.querySelectorAll('figure.chart')) {
    if (figure instanceof HTMLElement) draw(figure);
  }
}

let waiting = 0;
addEventListener('resize', () => { clearTimeout(waiting); waiting = setTimeout(all, 200); });
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', all);
document.addEventListener('dlq:renewed', all);
all();

export {};
