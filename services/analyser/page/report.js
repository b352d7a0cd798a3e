// The parts of a report's page that move: the tree of layers, the graph, weights, and layers of two models by name.
// Text from the model goes into the page as text alone (textContent, canvas), never as HTML.
'use strict';

// Indices into a layer's array.
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
