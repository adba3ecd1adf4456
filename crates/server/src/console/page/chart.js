// Lines over time: samples, what is between two of them, and the drawing as SVG.
//
//   view.samples: { t: milliseconds of this page, d: what the server said, gap: a line does not go on behind it }
//
// The pointer, and the arrow keys of a chart that has the focus, show the values of a moment in the legend.

import { el, svg } from './elements.js';
import { lasting } from './words.js';

export const view = { samples: [], span: 300 };
// Milliseconds between samples. A pause of several is a gap in the lines.
export const EVERY = 2000;
const GAP = 3.5 * EVERY;
// Pixels of a chart: its height, the line of times below, the column of numbers at the left.
const [HEIGHT, FOOT, LEFT] = [132, 18, 56];

// The number per second between two samples; null where there is none.
export function rate(a, b, of) {
  if (!a || a.gap || b.t - a.t > GAP) return null;
  const time = (b.d.at - a.d.at) / 1e6;
  const [x, y] = [of(a.d), of(b.d)];
  return time > 0 && x != null && y != null && y >= x ? (y - x) / time : null;
}

// The mean of a sum over a count between two samples.
export function mean(a, b, sum, count, unit) {
  const [s, n] = [rate(a, b, sum), rate(a, b, count)];
  return s == null ? null : n > 0 ? s / n / unit : 0;
}

// A round number that is not below this one; of bytes it is round in their units.
function nice(v, base) {
  const unit = base ? base ** Math.floor(Math.log(v) / Math.log(base)) : 1;
  const step = unit * 10 ** Math.floor(Math.log10(v / unit));
  return [1, 2, 3, 4, 5, 6, 8, 10].find((n) => n * step >= v * 0.999) * step;
}

export class Chart {
  constructor(spec, at) {
    this.spec = spec;
    this.legend = el('ul', { class: 'legend' });
    this.svg = svg('svg', { class: 'chart', tabindex: 0, role: 'img' });
    const title = el('h2', { id: 'c' + at }, spec.title);
    this.figure = el('figure', { 'aria-labelledby': 'c' + at }, title, this.legend, this.svg);
    this.pointed = null;
    this.svg.addEventListener('pointermove', (e) => this.point(Math.max(0, Math.min(1, (e.offsetX - LEFT) / (this.svg.clientWidth - LEFT)))));
    this.svg.addEventListener('pointerleave', () => this.point(null));
    this.svg.addEventListener('blur', () => this.point(null));
    this.svg.addEventListener('keydown', (e) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
      if (!step && e.key !== 'Escape') return;
      e.preventDefault();
      this.point(step ? Math.max(0, Math.min(1, (this.pointed == null ? 1 : this.pointed) + step / 60)) : null);
    });
  }

  point(x) {
    this.pointed = x;
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth || 320;
    const last = view.samples[view.samples.length - 1];
    const now = last ? last.t : 0;
    // A page that was just opened shows what there is, a minute at least.
    const age = last ? Math.ceil((now - view.samples[0].t) / 1000) : 0;
    const wide = Math.min(view.span, Math.max(60, age));
    const x = (t) => width - ((now - t) / 1000 / wide) * (width - LEFT);
    const from = view.samples.findIndex((s) => s.t >= now - wide * 1000);
    const shown = this.spec.series().map((one) => ({ ...one, points: this.points(one, Math.max(from, 0)) }));
    const values = shown.flatMap((s) => s.points.map((p) => p.v)).filter((v) => v != null);
    const top = nice(Math.max(this.spec.least || 1, ...values), this.spec.base);
    const y = (v) => HEIGHT - FOOT - (v / top) * (HEIGHT - FOOT - 6);
    const parts = [];
    for (const share of [0, 0.5, 1]) {
      const level = Math.round(y(top * share)) + 0.5;
      parts.push(svg('line', { class: 'grid', x1: LEFT, x2: width, y1: level, y2: level }));
      parts.push(this.text(share ? this.spec.unit(top * share).replace(/\.0(?=\D)/, '') : '0', { x: LEFT - 8, y: level + 4, 'text-anchor': 'end' }));
    }
    parts.push(this.text('−' + lasting(wide), { x: LEFT, y: HEIGHT - 3 }));
    parts.push(this.text('now', { x: width, y: HEIGHT - 3, 'text-anchor': 'end' }));
    shown.forEach((s, i) => this.line(parts, s, i, x, y));
    if (view.samples.length > 1 && !values.length) {
      parts.push(this.text(this.spec.none, { x: (LEFT + width) / 2, y: HEIGHT / 2, 'text-anchor': 'middle', class: 'none' }));
    }
    const at = this.pointed == null ? null : now - (1 - this.pointed) * wide * 1000;
    if (at != null) {
      const place = LEFT + this.pointed * (width - LEFT);
      parts.push(svg('line', { class: 'cross', x1: place, x2: place, y1: 0, y2: HEIGHT - FOOT }));
    }
    this.svg.replaceChildren(...parts);
    this.say(shown, at, now);
  }

  points(one, from) {
    const points = [];
    for (let i = Math.max(from, 1); i < view.samples.length; i++) {
      points.push({ t: view.samples[i].t, v: one.of(view.samples[i - 1], view.samples[i]) });
    }
    return points;
  }

  line(parts, s, i, x, y) {
    let [path, area, open] = ['', '', null];
    const close = (p) => { if (open != null && p) area += `L${x(p.t).toFixed(1)} ${y(0)}Z`; open = null; };
    let before = null;
    for (const p of s.points) {
      if (p.v == null) { close(before); before = null; continue; }
      const at = `${x(p.t).toFixed(1)} ${y(p.v).toFixed(1)}`;
      if (open == null) { path += 'M' + at; area += `M${x(p.t).toFixed(1)} ${y(0)}L${at}`; open = p; } else { path += 'L' + at; area += 'L' + at; }
      before = p;
    }
    close(before);
    if (i === 0 && area) parts.push(svg('path', { class: 'area f0', d: area }));
    if (path) parts.push(svg('path', { class: 'line s' + i, d: path }));
  }

  text(content, attributes) {
    const t = svg('text', attributes);
    t.textContent = content;
    return t;
  }

  say(shown, at, now) {
    const nearest = (points) => points.reduce((best, p) => (p.v != null && (!best || Math.abs(p.t - at) < Math.abs(best.t - at)) ? p : best), null);
    const value = (s) => {
      const p = at == null ? s.points[s.points.length - 1] : nearest(s.points);
      return p && p.v != null ? this.spec.unit(p.v) : '–';
    };
    const entries = shown.map((s, i) => el('li', {}, el('i', { class: 'f' + i }), el('span', {}, s.name), el('b', {}, value(s))));
    if (at != null) entries.push(el('li', {}, el('span', {}, lasting(Math.round((now - at) / 1000)) + ' ago')));
    this.legend.replaceChildren(...entries);
    const told = shown.map((s) => s.name + ' ' + value(s)).join(', ');
    this.svg.setAttribute('aria-label', this.spec.title + ': ' + (told || this.spec.none));
  }
}
