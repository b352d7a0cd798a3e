// The parts of a report's page that move: the tree of layers, the graph, weights, and layers of two models by name.
// Text from the model goes into the page as text alone (textContent, canvas), never as HTML.
'use strict';

// Of a layer's array.
const NODE = 0, OP = 1, KIND = 2, KERNEL = 3, INPUTS = 4, OUTPUTS = 5, PARAMETERS = 6, WEIGHTS = 7, MACS = 8, FLOPS = 9,
  ACTIVATIONS = 10, LIVE = 11, MOVED = 12, SECONDS = 13, BOUND = 14;

const MANY_ROWS = 250;

const models = JSON.parse(document.getElementById('data').textContent);
const graphs = [];

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function scaled(value, unit) {
  for (const [prefix, scale] of [['T', 1e12], ['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (value >= 0.9995 * scale) return `${(value / scale).toPrecision(3)} ${prefix}${unit}`;
  }
  return unit ? `${value} ${unit}` : String(value);
}
const count = value => value.toLocaleString('en-US');
const bytes = value => scaled(value, 'B');
const time = value => value >= 1 ? `${value.toPrecision(3)} s` :
  value >= 1e-3 ? `${(1e3 * value).toPrecision(3)} ms` : `${(1e6 * value).toFixed(2)} us`;
const intensity = (flops, moved) => moved > 0 ? flops / moved : 0;

function dot(kind) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
  svg.setAttribute('class', 'dot');
  svg.setAttribute('aria-hidden', 'true');
  rect.setAttribute('class', kind);
  rect.setAttribute('width', 9);
  rect.setAttribute('height', 9);
  svg.append(rect);
  return svg;
}

// A table with headers that sort. `columns`: {name, number}; `onSort(index, descending)`, index -1: as it was.
function sortableTable(columns, className, onSort) {
  const table = element('table', `list ${className}`), head = element('thead'), row = element('tr');
  const cells = columns.map((column, index) => {
    const cell = element('th', column.number ? 'number' : ''), button = element('button', '', column.name);
    button.type = 'button';
    button.addEventListener('click', () => {
      const now = cell.getAttribute('aria-sort');
      const first = column.number ? 'descending' : 'ascending', second = column.number ? 'ascending' : 'descending';
      const next = now === null ? first : now === first ? second : null;
      for (const other of cells) other.removeAttribute('aria-sort');
      if (next) cell.setAttribute('aria-sort', next);
      onSort(next ? index : -1, next === 'descending');
    });
    cell.append(button);
    row.append(cell);
    return cell;
  });
  const body = element('tbody');
  head.append(row);
  table.append(head, body);
  const scroll = element('div', 'scroll');
  scroll.append(table);
  return { scroll, table, body };
}

function compareKeys(a, b) {
  return typeof a === 'string' ? a.localeCompare(b) : a - b;
}

function searchBar(label, onInput) {
  const bar = element('div', 'bar'), input = element('input'), status = element('span');
  input.type = 'search';
  input.placeholder = label;
  input.setAttribute('aria-label', label);
  status.setAttribute('aria-live', 'polite');
  input.addEventListener('input', () => onInput(input.value.trim().toLowerCase()));
  bar.append(input, status);
  return { bar, input, status };
}

// Indices of labels (a few texts each) that have `text` in them: those that are it come first.
function matchesOf(labels, text) {
  const found = [], exact = [];
  labels.forEach((label, index) => {
    const parts = label.map(part => part.toLowerCase());
    if (parts.includes(text)) exact.push(index);
    else if (parts.some(part => part.includes(text))) found.push(index);
  });
  return [...exact, ...found];
}

// ---- the tree of layers ----

class Tree {
  constructor(model, index, place) {
    this.model = model;
    this.index = index;
    this.sorted = -1;
    this.wanted = '';
    this.read();
    this.columns = this.columnList();
    const { bar, status } = searchBar('Search names and operators', text => this.search(text));
    this.status = status;
    for (const [name, open] of [['Expand all', true], ['Collapse all', false]]) {
      const button = element('button', '', name);
      button.type = 'button';
      button.addEventListener('click', () => this.openAll(open));
      if (this.scopes > 0) bar.append(button);
    }
    bar.append(this.hint());
    const { scroll, table, body } = sortableTable(this.columns, 'tree', (column, down) => this.sort(column, down));
    table.setAttribute('role', 'treegrid');
    table.setAttribute('aria-label', `layers of ${model.name}`);
    this.body = body;
    body.addEventListener('keydown', event => this.key(event));
    body.addEventListener('click', event => this.click(event));
    body.addEventListener('dblclick', event => this.show(this.rowOf(event.target)));
    place.append(bar, scroll);
    this.draw();
  }

  hint() {
    const hint = element('span');
    const parts = [['\u2191 \u2193', 'rows'], ['\u2190 \u2192', 'collapse, expand'], ['Enter', 'show in graph']];
    for (const [keys, text] of parts) hint.append(element('kbd', '', keys), ` ${text}  `);
    return hint;
  }

  // Rows with their parts and sums; scopes are open while few rows show.
  read() {
    this.roots = [];
    this.rows = [];
    this.scopes = 0;
    const open = [];
    for (const [depth, name, layer] of this.model.tree) {
      const row = { name, depth, layer, parts: [], sums: null, open: true, up: null, order: this.rows.length };
      while (open.length && open[open.length - 1].depth >= depth) open.pop();
      if (open.length) {
        row.up = open[open.length - 1];
        row.up.parts.push(row);
      } else {
        this.roots.push(row);
      }
      open.push(row);
      this.rows.push(row);
      if (layer < 0) ++this.scopes;
    }
    for (let i = this.rows.length - 1; i >= 0; --i) {
      const row = this.rows[i];
      if (row.layer >= 0) {
        const layer = this.model.layers[row.layer];
        row.sums = layer.slice(PARAMETERS, SECONDS + 1);
        row.layers = 1;
        continue;
      }
      row.sums = [0, 0, 0, 0, 0, 0, 0, 0];
      row.layers = 0;
      for (const part of row.parts) {
        row.layers += part.layers;
        part.sums.forEach((value, at) => {
          row.sums[at] = at === LIVE - PARAMETERS ? Math.max(row.sums[at], value) : row.sums[at] + value;
        });
      }
    }
    if (this.rows.length > MANY_ROWS) this.openLevels();
  }

  // As many levels as give at most MANY_ROWS rows.
  openLevels() {
    let rows = this.roots, shown = rows.length;
    for (const row of this.rows) row.open = false;
    while (rows.length) {
      const next = rows.flatMap(row => row.parts);
      shown += next.length;
      if (shown > MANY_ROWS) break;
      for (const row of rows) row.open = true;
      rows = next;
    }
  }

  columnList() {
    const layer = row => row.layer < 0 ? null : this.model.layers[row.layer];
    const text = (name, at) => ({ name, number: false, key: row => layer(row) ? layer(row)[at] : '', text: value => value });
    const sum = (name, at, show) => ({ name, number: true, key: row => row.sums[at - PARAMETERS], text: show });
    const all = Math.max(1, this.model.layers.reduce((total, each) => total + each[MACS], 0));
    const columns = [{ name: 'layer', number: false, key: row => row.name, text: value => value }, text('op', OP),
      text('kernel', KERNEL), text('output', OUTPUTS), sum('parameters', PARAMETERS, count),
      sum('weights', WEIGHTS, bytes), sum('MACs', MACS, count),
      { name: 'share', number: true, share: true, key: row => row.sums[MACS - PARAMETERS] / all,
        text: value => `${(100 * value).toFixed(1)} %` },
      sum('flops', FLOPS, count), sum('activations', ACTIVATIONS, bytes), sum('live', LIVE, bytes),
      sum('moved', MOVED, bytes),
      { name: 'flops/byte', number: true,
        key: row => intensity(row.sums[FLOPS - PARAMETERS], row.sums[MOVED - PARAMETERS]), text: value => value.toFixed(2) }];
    if (this.model.predicted) columns.push(sum('predicted', SECONDS, time), text('bound', BOUND));
    return columns;
  }

  sort(column, down) {
    this.sorted = column;
    this.down = down;
    this.draw();
  }

  search(text) {
    this.wanted = text;
    this.draw();
  }

  openAll(open) {
    for (const row of this.rows) row.open = open;
    this.draw();
  }

  inOrder(rows) {
    if (this.sorted < 0) return rows;
    const key = this.columns[this.sorted].key, sign = this.down ? -1 : 1;
    return [...rows].sort((a, b) => sign * compareKeys(key(a), key(b)) || a.order - b.order);
  }

  // Whether it or what is below it has what is searched for.
  mark() {
    for (let i = this.rows.length - 1; i >= 0; --i) {
      const row = this.rows[i], layer = row.layer < 0 ? null : this.model.layers[row.layer];
      row.found = row.name.toLowerCase().includes(this.wanted) ||
        (layer !== null && (layer[NODE].toLowerCase().includes(this.wanted) || layer[OP].toLowerCase().includes(this.wanted)));
      row.shown = row.found || row.parts.some(part => part.shown);
    }
  }

  visible() {
    const list = [];
    const add = rows => {
      for (const row of this.inOrder(rows)) {
        if (this.wanted && !row.shown) continue;
        list.push(row);
        if (this.wanted ? row.parts.some(part => part.shown) : row.open) add(row.parts);
      }
    };
    add(this.roots);
    return list;
  }

  draw() {
    if (this.wanted) this.mark();
    const rows = this.visible(), fragment = document.createDocumentFragment();
    for (const row of rows) fragment.append(this.element(row));
    this.body.replaceChildren(fragment);
    if (rows.length) rows[0].element.tabIndex = 0;
    const found = this.wanted ? this.rows.filter(row => row.found && row.layer >= 0).length : this.model.layers.length;
    this.status.textContent = `${count(found)} of ${count(this.model.layers.length)} layers`;
  }

  element(row) {
    if (!row.element) {
      row.element = element('tr', row.layer < 0 ? 'scope' : '');
      row.element.row = row;
      row.element.setAttribute('aria-level', row.depth);
      this.columns.forEach((column, at) => row.element.append(this.cell(row, column, at)));
    }
    row.element.tabIndex = -1;
    if (row.parts.length) {
      const open = this.wanted ? row.parts.some(part => part.shown) : row.open;
      row.element.setAttribute('aria-expanded', open);
      row.twist.textContent = open ? '\u25BE' : '\u25B8';
    }
    return row.element;
  }

  cell(row, column, at) {
    const value = column.key(row);
    const cell = element('td', at === 0 ? 'name' : column.number ? 'number' : 'text');
    if (column.share) {
      const bar = element('span', 'share');
      bar.style.width = `${Math.round(60 * value)}px`;
      cell.append(bar);
    }
    if (at === 0) {
      cell.style.paddingLeft = `${10 + 16 * Math.min(row.depth - 1, 12)}px`;
      row.twist = element('span', 'twist');
      row.twist.setAttribute('aria-hidden', 'true');
      cell.append(row.twist);
      if (row.layer >= 0) cell.append(dot(this.model.layers[row.layer][KIND]));
      cell.title = row.layer >= 0 ? this.model.layers[row.layer][NODE] : `${row.name}: ${row.layers} layers`;
    } else if (!column.number) {
      cell.title = value;
    }
    cell.append(column.text(value));
    return cell;
  }

  rowOf(target) {
    const found = target.closest('tr');
    return found ? found.row : null;
  }

  toggle(row, open) {
    if (!row || !row.parts.length || row.open === open) return;
    row.open = open;
    this.draw();
    this.focus(row.element);
  }

  focus(target) {
    if (!target) return;
    for (const row of this.body.children) row.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  click(event) {
    const row = this.rowOf(event.target);
    if (!row) return;
    this.focus(row.element);
    if (row.parts.length && !this.wanted) this.toggle(row, !row.open);
  }

  show(row) {
    if (row && row.layer >= 0) graphs[this.index].showLayer(row.layer);
  }

  key(event) {
    const row = this.rowOf(event.target);
    if (!row || event.altKey || event.ctrlKey || event.metaKey) return;
    const rows = this.body.children, keys = {
      ArrowDown: () => this.focus(row.element.nextElementSibling),
      ArrowUp: () => this.focus(row.element.previousElementSibling),
      Home: () => this.focus(rows[0]),
      End: () => this.focus(rows[rows.length - 1]),
      ArrowRight: () => row.parts.length && row.open ? this.focus(row.element.nextElementSibling) : this.toggle(row, true),
      ArrowLeft: () => row.parts.length && row.open ? this.toggle(row, false) : row.up && this.focus(row.up.element),
      Enter: () => row.layer >= 0 ? this.show(row) : this.toggle(row, !row.open),
    };
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }
}

// ---- the graph ----

class Graph {
  constructor(model, index, place) {
    this.model = model;
    this.graph = model.graph;
    this.first = this.graph.inputs.length;
    this.chosen = -1;
    this.found = [];
    this.typed = false;
    this.marked = new Set();
    this.edgesOf();
    const { bar, input, status } = searchBar('Search the graph', text => this.search(text));
    this.status = status;
    input.addEventListener('keydown', event => {
      if (event.key === 'Enter') this.enter(event.shiftKey ? -1 : 1);
    });
    for (const [name, act] of [['+', () => this.zoom(1.4)], ['\u2212', () => this.zoom(1 / 1.4)],
      ['Fit', () => this.fit()], ['Begin', () => this.begin()]]) {
      const button = element('button', '', name);
      button.type = 'button';
      button.addEventListener('click', act);
      bar.append(button);
    }
    const hint = element('span');
    for (const [keys, text] of [['drag', 'move'], ['wheel', 'zoom'], ['\u2190 \u2191 \u2192 \u2193', 'move'], ['+ \u2212 0', 'zoom, fit'],
      ['J K', 'next layer, previous'], ['Enter', 'next match']]) hint.append(element('kbd', '', keys), ` ${text}  `);
    const parts = element('div', 'graph');
    this.canvas = element('canvas');
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', `graph of ${model.name}: ${model.layers.length} layers; J and K go through them`);
    this.details = element('div', 'details');
    this.details.setAttribute('aria-live', 'polite');
    parts.append(this.canvas, this.details);
    place.append(bar, parts);
    bar.append(hint);
    this.listen();
    this.colours();
    this.view = null;
    this.describe();
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.colours();
      this.draw();
    });
  }

  edgesOf() {
    const boxes = this.graph.boxes.length / 2;
    this.reads = Array.from({ length: boxes }, () => []);
    this.readers = Array.from({ length: boxes }, () => []);
    for (const [from, to] of this.graph.edges) {
      this.reads[to].push(from);
      this.readers[from].push(to);
    }
  }

  // Title and second line of a box.
  label(box) {
    if (box < this.first) return this.graph.inputs[box];
    const layer = this.model.layers[box - this.first];
    if (layer) return [layer[NODE], layer[OP]];
    return this.graph.outputs[box - this.first - this.model.layers.length];
  }

  kind(box) {
    const layer = box < this.first ? null : this.model.layers[box - this.first];
    return layer ? layer[KIND] : 'end';
  }

  colours() {
    const style = getComputedStyle(document.documentElement);
    this.colour = {};
    for (const name of ['ink', 'quiet', 'grid', 'surface', 'bar', 'worst']) this.colour[name] = style.getPropertyValue(`--${name}`).trim();
    this.fill = { end: this.colour.ink };
    const probe = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
    probe.setAttribute('width', 0);
    probe.setAttribute('height', 0);
    document.body.append(probe);
    for (const layer of this.model.layers) {
      if (this.fill[layer[KIND]]) continue;
      const rect = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
      rect.setAttribute('class', layer[KIND]);
      probe.append(rect);
      this.fill[layer[KIND]] = getComputedStyle(rect).fill;
    }
    probe.remove();
  }

  resize() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.ratio = ratio;
    if (!this.view) this.begin();
    this.draw();
  }

  fitted() {
    return Math.min(this.width / (this.graph.width + 40), this.height / (this.graph.height + 40), 1.2);
  }

  fit() {
    const scale = this.fitted();
    this.view = { scale, x: this.graph.width / 2 - this.width / 2 / scale, y: this.graph.height / 2 - this.height / 2 / scale };
    this.draw();
  }

  // All of it where that can be read, else its upper end.
  begin() {
    const scale = Math.max(this.fitted(), 0.55);
    const x = this.graph.boxes.length ? this.graph.boxes[0] : 0;
    const whole = this.graph.width * scale <= this.width;
    this.view = { scale, x: (whole ? this.graph.width / 2 : x) - this.width / 2 / scale, y: -20 };
    this.draw();
  }

  zoom(factor, at = { x: this.width / 2, y: this.height / 2 }) {
    const least = Math.min(this.fitted() / 2, 0.5), before = this.view.scale;
    const scale = Math.min(4, Math.max(least, before * factor));
    this.view.x += at.x / before - at.x / scale;
    this.view.y += at.y / before - at.y / scale;
    this.view.scale = scale;
    this.draw();
  }

  move(dx, dy) {
    this.view.x += dx / this.view.scale;
    this.view.y += dy / this.view.scale;
    this.draw();
  }

  listen() {
    let drag = null;
    const canvas = this.canvas;
    canvas.addEventListener('pointerdown', event => {
      drag = { x: event.clientX, y: event.clientY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', event => {
      if (!drag) return;
      const dx = drag.x - event.clientX, dy = drag.y - event.clientY;
      if (!drag.moved && Math.hypot(dx, dy) < 4) return;
      drag = { x: event.clientX, y: event.clientY, moved: true };
      canvas.classList.add('dragged');
      this.move(dx, dy);
    });
    canvas.addEventListener('pointerup', event => {
      if (drag && !drag.moved) this.choose(this.boxAt(event.offsetX, event.offsetY));
      drag = null;
      canvas.classList.remove('dragged');
    });
    canvas.addEventListener('pointercancel', () => { drag = null; });
    canvas.addEventListener('wheel', event => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.0015)), { x: event.offsetX, y: event.offsetY });
    }, { passive: false });
    canvas.addEventListener('keydown', event => this.key(event));
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const keys = {
      ArrowLeft: () => this.move(-60, 0), ArrowRight: () => this.move(60, 0), ArrowUp: () => this.move(0, -60),
      ArrowDown: () => this.move(0, 60), PageUp: () => this.move(0, -0.8 * this.height), PageDown: () => this.move(0, 0.8 * this.height),
      '+': () => this.zoom(1.4), '=': () => this.zoom(1.4), '-': () => this.zoom(1 / 1.4), 0: () => this.fit(), Home: () => this.begin(),
      j: () => this.step(1), k: () => this.step(-1), Enter: () => this.next(event.shiftKey ? -1 : 1), Escape: () => this.choose(-1),
    };
    const act = keys[event.key] || keys[event.key.toLowerCase()];
    if (!act) return;
    event.preventDefault();
    act();
  }

  step(by) {
    const boxes = this.graph.boxes.length / 2;
    if (boxes) this.go(Math.min(boxes - 1, Math.max(0, this.chosen < 0 ? 0 : this.chosen + by)));
  }

  boxAt(x, y) {
    const { box_width: w, box_height: h, boxes } = this.graph;
    const at = { x: this.view.x + x / this.view.scale, y: this.view.y + y / this.view.scale };
    for (let i = 0; i < boxes.length; i += 2) {
      if (Math.abs(at.x - boxes[i]) <= w / 2 && Math.abs(at.y - boxes[i + 1]) <= h / 2) return i / 2;
    }
    return -1;
  }

  choose(box) {
    this.chosen = box;
    this.describe();
    this.draw();
  }

  // Chooses the box, in the middle of what is seen.
  go(box) {
    const scale = Math.max(this.view.scale, 0.55);
    this.view = { scale, x: this.graph.boxes[2 * box] - this.width / 2 / scale, y: this.graph.boxes[2 * box + 1] - this.height / 2 / scale };
    this.choose(box);
  }

  showLayer(layer) {
    this.canvas.scrollIntoView({ block: 'center' });
    this.canvas.focus({ preventScroll: true });
    this.go(this.first + layer);
  }

  search(text) {
    const boxes = Array.from({ length: this.graph.boxes.length / 2 }, (_, box) => this.label(box));
    this.found = text ? matchesOf(boxes, text) : [];
    this.typed = true;
    this.marked = new Set(this.found);
    this.match = -1;
    this.status.textContent = text ? `${count(this.found.length)} found` : '';
    if (this.found.length) this.next(1); else this.draw();
  }

  // The first after typing goes to the first match, which is shown already.
  enter(by) {
    if (!this.typed) return this.next(by);
    this.typed = false;
    if (this.found.length) this.go(this.found[this.match]);
  }

  next(by) {
    if (!this.found.length) return;
    this.match = (this.match + by + this.found.length) % this.found.length;
    this.status.textContent = `${count(this.match + 1)} of ${count(this.found.length)}`;
    this.go(this.found[this.match]);
  }

  describe() {
    this.details.replaceChildren();
    if (this.chosen < 0) {
      this.details.append(element('p', '', 'Choose a layer to see what it is, what it reads, and what reads it.'));
      return;
    }
    const list = element('dl');
    const add = (name, text) => {
      if (text !== '') list.append(element('dt', '', name), element('dd', '', text));
    };
    const layer = this.chosen < this.first ? null : this.model.layers[this.chosen - this.first];
    const [title, second] = this.label(this.chosen);
    add(layer ? 'layer' : this.chosen < this.first ? 'input of the model' : 'output of the model', title);
    add(layer ? 'operator' : 'type', layer && layer[KERNEL] ? `${second} ${layer[KERNEL]}` : second);
    if (layer) {
      add('inputs', layer[INPUTS]);
      add('outputs', layer[OUTPUTS]);
      add('parameters', `${count(layer[PARAMETERS])} in ${bytes(layer[WEIGHTS])}`);
      add('MACs, flops', `${count(layer[MACS])}, ${count(layer[FLOPS])}`);
      add('moved, flops per byte', `${bytes(layer[MOVED])}, ${intensity(layer[FLOPS], layer[MOVED]).toFixed(2)}`);
      add('live', bytes(layer[LIVE]));
      if (this.model.predicted) add('predicted', layer[BOUND] ? `${time(layer[SECONDS])}, bound by ${layer[BOUND]}` : 'nothing');
    }
    this.details.append(list);
    for (const [name, boxes] of [['reads', this.reads[this.chosen]], ['is read by', this.readers[this.chosen]]]) {
      if (!boxes.length) continue;
      this.details.append(element('p', '', `${name}${boxes.length > 40 ? ` ${count(boxes.length)}, the first of them` : ''}`));
      for (const box of boxes.slice(0, 40)) {
        const button = element('button', '', this.label(box)[0]);
        button.type = 'button';
        button.addEventListener('click', () => this.go(box));
        this.details.append(button);
      }
    }
  }

  draw() {
    if (!this.view || this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.paint();
    });
  }

  paint() {
    const g = this.canvas.getContext('2d'), { scale, x, y } = this.view;
    g.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    g.clearRect(0, 0, this.width, this.height);
    g.setTransform(this.ratio * scale, 0, 0, this.ratio * scale, -x * scale * this.ratio, -y * scale * this.ratio);
    const seen = { left: x - 80, top: y - 40, right: x + this.width / scale + 80, bottom: y + this.height / scale + 40 };
    this.paintEdges(g, seen, scale);
    this.paintBoxes(g, seen, scale);
  }

  // Edges of the chosen box last, so that they lie above the others.
  paintEdges(g, seen, scale) {
    const near = [];
    g.lineWidth = Math.max(1, 0.7 / scale);
    g.strokeStyle = this.colour.quiet;
    g.globalAlpha = 0.55;
    g.beginPath();
    for (const edge of this.graph.edges) {
      const last = edge.length - 1;
      if (edge[last] < seen.top || edge[3] > seen.bottom) continue;
      if (edge[0] === this.chosen || edge[1] === this.chosen) near.push(edge); else this.trace(g, edge);
    }
    g.stroke();
    g.globalAlpha = 1;
    g.lineWidth = Math.max(2, 1.6 / scale);
    g.strokeStyle = this.colour.worst;
    g.beginPath();
    for (const edge of near) this.trace(g, edge);
    g.stroke();
  }

  trace(g, edge) {
    g.moveTo(edge[2], edge[3]);
    const long = edge.length === 6 && edge[5] - edge[3] > 2 * this.graph.rank_height;
    if (long) {
      // Without bends: in an arc beside the boxes between its ends.
      const out = Math.max(edge[2], edge[4]) + 0.75 * this.graph.box_width, down = this.graph.rank_height;
      g.bezierCurveTo(edge[2], edge[3] + down, out, edge[3], out, edge[3] + 2 * down);
      g.lineTo(out, edge[5] - 2 * down);
      g.bezierCurveTo(out, edge[5], edge[4], edge[5] - down, edge[4], edge[5]);
      return;
    }
    for (let i = 4; i < edge.length; i += 2) {
      const middle = (edge[i - 1] + edge[i + 1]) / 2;
      g.bezierCurveTo(edge[i - 2], middle, edge[i], middle, edge[i], edge[i + 1]);
    }
  }

  paintBoxes(g, seen, scale) {
    const { box_width: w, box_height: h, boxes } = this.graph;
    const dim = this.marked.size > 0;
    g.textAlign = 'left';
    g.textBaseline = 'middle';
    for (let i = 0; i < boxes.length; i += 2) {
      const cx = boxes[i], cy = boxes[i + 1], box = i / 2;
      if (cx < seen.left - w || cx > seen.right + w || cy < seen.top || cy > seen.bottom) continue;
      const marked = this.marked.has(box), left = cx - w / 2, top = cy - h / 2;
      g.globalAlpha = dim && !marked && box !== this.chosen ? 0.3 : 1;
      if (scale < 0.3) {
        g.fillStyle = this.fill[this.kind(box)];
        g.fillRect(left, top, w, h);
      } else {
        g.fillStyle = this.colour.surface;
        g.strokeStyle = this.colour.grid;
        g.lineWidth = 1;
        g.beginPath();
        g.roundRect(left, top, w, h, 5);
        g.fill();
        g.stroke();
        g.fillStyle = this.fill[this.kind(box)];
        g.beginPath();
        g.roundRect(left, top, 6, h, [5, 0, 0, 5]);
        g.fill();
        this.paintLabel(g, box, left, top);
      }
      if (box === this.chosen || marked) {
        g.strokeStyle = box === this.chosen ? this.colour.worst : this.colour.bar;
        g.lineWidth = Math.max(2, 1.5 / scale);
        g.strokeRect(left, top, w, h);
      }
    }
    g.globalAlpha = 1;
  }

  // Operators are what one looks for in a graph; names are cut in front, where they are alike.
  paintLabel(g, box, left, top) {
    const layer = box >= this.first && box < this.first + this.model.layers.length;
    const [title, second] = this.label(box);
    const strong = layer ? second : title, weak = layer ? title : second;
    g.fillStyle = this.colour.ink;
    g.font = '600 11px system-ui, sans-serif';
    g.fillText(strong.length > 19 ? `${strong.slice(0, 18)}\u2026` : strong, left + 12, top + 11);
    g.fillStyle = this.colour.quiet;
    g.font = '9.5px system-ui, sans-serif';
    g.fillText(weak.length > 24 ? `\u2026${weak.slice(weak.length - 23)}` : weak, left + 12, top + 24);
  }
}

// ---- lists ----

// Rows that sort and can be searched. `columns`: {name, number, key(item), text(value), draw(cell, item)}.
function list(items, columns, label, search, place, className) {
  let shown = items, sorted = null;
  const draw = () => {
    const fragment = document.createDocumentFragment();
    for (const item of sorted || shown) {
      const row = element('tr', className ? className(item) : '');
      for (const column of columns) {
        const cell = element('td', column.number ? 'number' : 'text');
        if (column.draw) column.draw(cell, item); else cell.textContent = column.text(column.key(item));
        if (!column.number) cell.title = cell.textContent;
        row.append(cell);
      }
      fragment.append(row);
    }
    body.replaceChildren(fragment);
    status.textContent = `${count(shown.length)} of ${count(items.length)}`;
  };
  let order = [-1, false];
  const sort = () => {
    const [column, down] = order, key = column < 0 ? null : columns[column].key;
    sorted = key ? [...shown].sort((a, b) => (down ? -1 : 1) * compareKeys(key(a), key(b))) : null;
    draw();
  };
  const { bar, status } = searchBar(label, text => {
    shown = items.filter(item => search(item).toLowerCase().includes(text));
    sort();
  });
  const { scroll, body } = sortableTable(columns, 'tree', (column, down) => {
    order = [column, down];
    sort();
  });
  place.append(bar, scroll);
  draw();
}

function histogram(cell, counts) {
  const most = Math.max(1, ...counts), svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  const path = document.createElementNS('http://www.w3.org/2000/svg', 'path');
  svg.setAttribute('class', 'histogram');
  svg.setAttribute('viewBox', `0 0 ${counts.length} 20`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('role', 'img');
  svg.setAttribute('aria-label', `histogram: ${counts.join(', ')}`);
  // What is there at all is at least half a pixel high.
  path.setAttribute('d', counts.map((each, at) => {
    const high = each ? Math.max(0.6, 20 * each / most) : 0;
    return `M${at} 20V${(20 - high).toFixed(2)}H${at + 0.9}V20Z`;
  }).join(''));
  svg.append(path);
  cell.append(svg);
}

// Weights, or values of one run: {name, type, layer, elements, zeros, not finite, min, max, mean, std, histogram}.
function tensors(items, what, place) {
  if (!items.length) {
    place.append(element('p', '', 'The report has none of this model.'));
    return;
  }
  const number = at => ({ key: item => Number(item[at]), text: value => Number.isFinite(value) ? value.toPrecision(4) : String(value), number: true });
  list(items, [
    { name: what, key: item => item[0], text: value => value },
    { name: 'type', key: item => item[1], text: value => value },
    { name: 'layer', key: item => item[2], text: value => value },
    { name: 'elements', key: item => item[3], text: count, number: true },
    { name: 'zeros', key: item => item[4] / Math.max(1, item[3]), text: value => `${(100 * value).toFixed(2)} %`, number: true },
    { name: 'not finite', key: item => item[5], text: count, number: true },
    { name: 'min', ...number(6) }, { name: 'max', ...number(7) }, { name: 'mean', ...number(8) }, { name: 'std', ...number(9) },
    { name: 'histogram, min to max', key: item => item[3], draw: (cell, item) => histogram(cell, item[10]) },
  ], `Search ${what}s`, item => `${item[0]} ${item[2]}`, place);
}

function differences(place) {
  const byName = new Map();
  models.forEach((model, index) => {
    for (const layer of model.layers) {
      if (!byName.has(layer[NODE])) byName.set(layer[NODE], [null, null]);
      const both = byName.get(layer[NODE]);
      if (!both[index]) both[index] = layer;
    }
  });
  const items = [...byName.entries()].map(([name, both]) => ({ name, both }));
  const names = models.map((model, index) => ['first', 'second'][index]);
  const pair = (title, at, show) => [0, 1].map(index => ({
    name: `${title}, ${names[index]}`, number: true, key: item => item.both[index] ? item.both[index][at] : -1,
    text: value => value < 0 ? '\u2013' : show(value),
  }));
  const texts = (title, at) => ({
    name: title, key: item => item.both.map(layer => layer ? layer[at] : '\u2013').filter((text, i, all) => i === 0 || text !== all[0]).join(' \u2192 '),
    text: value => value,
  });
  const columns = [{ name: 'layer', key: item => item.name, text: value => value }, texts('op', OP), texts('output', OUTPUTS),
    ...pair('weights', WEIGHTS, bytes), ...pair('activations', ACTIVATIONS, bytes), ...pair('MACs', MACS, count)];
  if (models.every(model => model.predicted)) columns.push(...pair('predicted', SECONDS, time));
  const bothCount = items.filter(item => item.both[0] && item.both[1]).length;
  place.append(element('p', '', `${count(bothCount)} layers are in both, ${count(items.length - bothCount)} in one alone (coloured).`));
  list(items, columns, 'Search layers of both', item => item.name, place, item => item.both[0] && item.both[1] ? '' : 'only');
}

for (const place of document.querySelectorAll('[data-graph]')) {
  const index = Number(place.dataset.graph);
  graphs[index] = new Graph(models[index], index, place);
}
for (const place of document.querySelectorAll('[data-layers]')) {
  const index = Number(place.dataset.layers);
  new Tree(models[index], index, place);
}
for (const place of document.querySelectorAll('[data-weights]')) tensors(models[Number(place.dataset.weights)].weights, 'weight', place);
for (const place of document.querySelectorAll('[data-activations]')) {
  tensors(models[Number(place.dataset.activations)].activations, 'value', place);
}
for (const place of document.querySelectorAll('[data-differences]')) differences(place);
