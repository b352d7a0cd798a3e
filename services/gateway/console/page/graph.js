// A workflow's steps as a picture: in columns by what they wait for, each a link with its state in words.
import {svg} from './dom.js';
import {stateOf} from './format.js';

const WIDTH = 190, HEIGHT = 44, ACROSS = 250, DOWN = 58, EDGE = 12;
export const MOST_NODES = 400;

// The column of each step: one more than the last of those it waits for.
function columnsOf(steps) {
  const byName = new Map(steps.map(step => [step.name, step])), column = new Map();
  const of = step => {
    if (column.has(step.name)) return column.get(step.name);
    column.set(step.name, 0);
    let most = 0;
    for (const name of step.dependsOn ?? []) if (byName.has(name)) most = Math.max(most, 1 + of(byName.get(name)));
    column.set(step.name, most);
    return most;
  };
  steps.forEach(of);
  return column;
}

// Places of steps; within a column in the order of the middle of those they wait for, so that edges cross less.
function placesOf(steps) {
  const column = columnsOf(steps), columns = [], places = new Map();
  for (const step of steps) (columns[column.get(step.name)] ??= []).push(step);
  const down = Math.max(...columns.map(members => members.length));
  for (const [index, members] of columns.entries()) {
    const middle = step => {
      const above = (step.dependsOn ?? []).map(name => places.get(name)?.row).filter(row => row !== undefined);
      return above.length ? above.reduce((sum, row) => sum + row, 0) / above.length : Infinity;
    };
    const ranked = members.map((step, order) => ({step, order, rank: middle(step)}));
    ranked.sort((a, b) => (a.rank === b.rank ? a.order - b.order : a.rank - b.rank));
    // Shorter columns are spread over the height of the longest.
    ranked.forEach(({step}, order) => places.set(step.name, {column: index, row: (order + 0.5) * down / members.length - 0.5}));
  }
  return {places, across: columns.length, down};
}

// The steps that each waits for, without those that another of them waits for already.
function nearestOf(steps) {
  const byName = new Map(steps.map(step => [step.name, step])), behind = new Map(), nearest = new Map();
  const allOf = name => {
    if (behind.has(name)) return behind.get(name);
    const all = new Set();
    behind.set(name, all);
    for (const each of byName.get(name)?.dependsOn ?? []) {
      all.add(each);
      for (const further of allOf(each)) all.add(further);
    }
    return all;
  };
  for (const step of steps) {
    const near = step.dependsOn ?? [];
    nearest.set(step.name, near.filter(name => !near.some(other => other !== name && allOf(other).has(name))));
  }
  return nearest;
}

// The end says more of a long name than its beginning.
const shortened = (text, most) => (text.length <= most ? text : `…${text.slice(1 - most)}`);

function describe(step) {
  const state = stateOf(step.state);
  const progress = state === 'running' && Number(step.progress?.total ?? 0) > 0 ?
    ` ${Math.floor(100 * Number(step.progress.done ?? 0) / Number(step.progress.total))} %` : '';
  return `${step.method ?? ''} ${state}${progress}${step.cacheHit ? ', cached' : ''}`.trim();
}

// `addressOf(step)`: where a step's link leads. Returns {root, update(steps, chosen)}.
export function graphOf(steps, addressOf) {
  const {places, across, down} = placesOf(steps);
  const width = EDGE * 2 + (across - 1) * ACROSS + WIDTH, height = EDGE * 2 + (down - 1) * DOWN + HEIGHT;
  const x = place => EDGE + place.column * ACROSS, y = place => EDGE + place.row * DOWN;
  const edges = [], nodes = new Map(), nearest = nearestOf(steps);
  for (const step of steps) {
    const to = places.get(step.name);
    for (const name of nearest.get(step.name)) {
      const from = places.get(name);
      if (!from) continue;
      const x1 = x(from) + WIDTH, y1 = y(from) + HEIGHT / 2, x2 = x(to), y2 = y(to) + HEIGHT / 2, bend = (x1 + x2) / 2;
      edges.push(svg('path', {class: 'edge', d: `M${x1} ${y1} C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}`}));
    }
    const state = svg('text', {class: 'small', x: x(to) + 10, y: y(to) + 35});
    const link = svg('a', {href: addressOf(step)},
      svg('title', {}, step.name),
      svg('rect', {x: x(to), y: y(to), width: WIDTH, height: HEIGHT, rx: 7}),
      svg('text', {x: x(to) + 10, y: y(to) + 18}, shortened(step.name, 25)), state);
    nodes.set(step.name, {link, state});
  }
  const root = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'group', 'aria-label': 'Graph of the steps'},
    svg('g', {'aria-hidden': 'true'}, edges), [...nodes.values()].map(node => node.link));
  const update = (now, chosen) => {
    for (const step of now) {
      const node = nodes.get(step.name);
      if (!node) continue;
      const text = describe(step);
      if (node.state.textContent !== text) node.state.textContent = text;
      node.link.setAttribute('class', stateOf(step.state));
      node.link.setAttribute('aria-label', `${step.name}: ${text}`);
      if (step.name === chosen) node.link.setAttribute('aria-current', 'true');
      else node.link.removeAttribute('aria-current');
    }
  };
  update(steps, null);
  return {root, update};
}
