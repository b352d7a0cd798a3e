// The graph of a report's page: goes on where report.js ends.

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
