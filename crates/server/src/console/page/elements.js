// Elements of the document, made and changed in place.
//
// All text goes in by textContent, whatever it holds: names and statements are written by strangers.

export function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  e.append(...children);
  return e;
}

export function svg(name, attributes) {
  const e = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [k, v] of Object.entries(attributes || {})) e.setAttribute(k, v);
  return e;
}

export function say(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

export function mark(e, name) {
  if (e.className !== name) e.className = name;
}

export function meter(share, kind) {
  const track = el('span', { class: kind ? 'track ' + kind : 'track' }, el('span'));
  track.firstChild.style.width = Math.max(0, Math.min(1, share || 0)) * 100 + '%';
  return track;
}

// Puts items into a body, one row for each key: rows that are there already are changed in place.
export function fill(body, items, key, cells, empty) {
  const old = new Map(Array.from(body.children, (tr) => [tr.dataset.key, tr]));
  const rows = items.map((item) => {
    const name = String(key(item));
    const wanted = cells(item);
    let tr = old.get(name);
    if (!tr || tr.children.length !== wanted.length) {
      tr = el('tr', {}, ...wanted.map(() => el('td')));
      tr.dataset.key = name;
    }
    mark(tr, item.over ? 'over' : '');
    wanted.forEach((cell, i) => put(tr.children[i], cell));
    return tr;
  });
  if (!rows.length) {
    const columns = body.parentElement.querySelectorAll('th').length;
    rows.push(el('tr', {}, el('td', { class: 'empty', colspan: columns }, empty)));
  }
  const same = rows.length === body.children.length && rows.every((r, i) => r === body.children[i]);
  if (!same) body.replaceChildren(...rows);
}

// A cell is a text, or [class, text or elements].
export function put(td, cell) {
  const [kind, ...content] = Array.isArray(cell) ? cell : ['', cell];
  mark(td, kind);
  if (content.length === 1 && content[0] instanceof Function) return content[0](td);
  const plain = content.every((c) => typeof c === 'string') && !td.firstElementChild;
  if (plain) say(td, content.join('')); else td.replaceChildren(...content);
}
