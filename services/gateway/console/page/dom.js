// Elements. Text that comes from the gateway goes in as text alone, never as HTML.

// `properties`: attributes; `on...` are listeners, and those that are null or false are left out.
function fill(made, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return made;
}

export const element = (tag, properties = {}, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties = {}, ...children) =>
  fill(document.createElementNS('http://www.w3.org/2000/svg', tag), properties, children);

export const field = (name, input) => element('label', {}, name, input);

// A table in a box that scrolls. `columns`: {name, className}.
export function table(caption, columns) {
  const body = element('tbody');
  const head = columns.map(each => element('th', {scope: 'col', class: each.className}, each.name));
  const box = element('div', {class: 'scroll'},
    element('table', {}, element('caption', {}, caption), element('thead', {}, element('tr', {}, head)), body));
  return {box, body, caption: box.querySelector('caption')};
}

export const row = (properties, columns, cells) =>
  element('tr', properties, cells.map((cell, index) => element('td', {class: columns[index].className}, cell)));

// Says it to readers of the screen, once.
export function announce(text) {
  const live = document.getElementById('live');
  if (live.textContent !== text) live.textContent = text;
}

// Buttons that change something: errors of what one does stand in `trouble`, beside it; what has changed is seen at once.
export function guardBy(trouble, refresh) {
  return async act => {
    trouble.hidden = true;
    try {
      await act();
      await refresh();
    } catch (error) {
      trouble.textContent = error.message;
      trouble.hidden = false;
    }
  };
}

// Replaces the content where it differs, so that what is selected or being read stays; keeps the focus where it was, by
// the data-key of its element.
export function replaceContent(place, ...children) {
  const made = [...fill(place.cloneNode(false), {}, children).childNodes], before = [...place.childNodes];
  const active = document.activeElement;
  const key = place.contains(active) ? active.getAttribute('data-key') : null;
  made.forEach((node, index) => {
    if (index >= before.length) place.append(node);
    else if (!before[index].isEqualNode(node)) before[index].replaceWith(node);
  });
  for (const node of before.slice(made.length)) node.remove();
  if (place.contains(document.activeElement)) return;
  if (key !== null) place.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({preventScroll: true});
}

// Buttons between the pages of a list that the gateway gives by tokens. A second click before the answer would skip a page:
// it does nothing. A button is not disabled meanwhile, because it would lose the focus.
export function pager(refresh) {
  let tokens = [''], next = '', turning = false;
  const turn = async change => {
    if (turning) return;
    turning = true;
    change();
    try {
      await refresh();
    } finally {
      turning = false;
    }
  };
  const before = element('button', {type: 'button', disabled: true, onclick: () => turn(() => tokens.pop())}, 'Previous page');
  const after = element('button', {type: 'button', disabled: true, onclick: () => turn(() => tokens.push(next))}, 'Next page');
  return {
    buttons: [before, after],
    page: () => tokens.length,
    token: () => tokens[tokens.length - 1],
    reset() { tokens = ['']; },
    // The page is shown, and so does the one after it begin.
    show(following) {
      next = following;
      const active = document.activeElement;
      before.disabled = tokens.length === 1;
      after.disabled = !next;
      if (active === after && after.disabled) before.focus();
      if (active === before && before.disabled) after.focus();
    },
  };
}
