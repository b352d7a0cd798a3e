// The lists of a report's page, and what begins it all: goes on where report_graph.js ends.

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
  // A bar of any count but 0 is at least half a pixel high.
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
