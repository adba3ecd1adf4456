// Draws the console. Asks for the data every two seconds, keeps what it has seen for fifteen minutes, and makes rates of counters.
//
//   /console/data ──▶ take (a sample) ──▶ charts (chart.js)
//                                     └─▶ tables and lists, by key, so that focus and open rows stay (elements.js)
//
// Left out on purpose: anything that changes the server.

import { EVERY, Chart, mean, rate, view } from './chart.js';
import { el, fill, mark, meter, say } from './elements.js';
import { bytes, count, lasting, number, seconds, whole, words } from './words.js';

const KEPT = 450;
const STATEMENTS = 12;
const ROWS = 8;

const $ = (id) => document.getElementById(id);
let paused = false;
let failures = 0;

// What the lines show

const counter = (name) => (d) => d.counters && d.counters[name];
const pair = (list, name) => (d) => { const p = d[list].find((p) => p[0] === name); return p && p[1]; };

function lags(d) {
  if (!d.node) return [];
  const own = d.node.primary ? [{ ...d.node.primary, name: 'this node' }] : [];
  return own.concat(d.node.replicas);
}

const CHARTS = [
  { title: 'Transactions', unit: (v) => number(v) + '/s', none: 'No data yet.', series: () => [
    { name: 'committed', of: (a, b) => rate(a, b, counter('committed')) },
    { name: 'rolled back', of: (a, b) => rate(a, b, counter('rolled_back')) },
  ] },
  { title: 'Statements', unit: (v) => number(v) + '/s', none: 'No data yet.', series: () => [
    { name: 'run', of: (a, b) => rate(a, b, counter('statements')) },
    { name: 'run again by the server', of: (a, b) => sum(rate(a, b, counter('retries')), rate(a, b, counter('restarts'))) },
    ...(some(counter('forwarded')) ? [{ name: 'forwarded', of: (a, b) => rate(a, b, counter('forwarded')) }] : []),
  ] },
  { title: 'Lag', unit: seconds, least: 0.01, none: 'No replica follows this node.', series: () => {
    const names = new Set(view.samples.flatMap((s) => lags(s.d).map((l) => l.name)));
    return [...names].slice(0, 6).map((name) => ({ name, of: (a, b) => {
      const l = lags(b.d).find((l) => l.name === name && l.connected);
      return l ? l.seconds : null;
    } }));
  } },
  { title: 'Waits, mean', unit: seconds, least: 1e-3, none: 'No data yet.', series: () => [
    { name: 'commit', of: (a, b) => mean(a, b, counter('commit_wait_micros'), counter('commit_waits'), 1e6) },
    { name: 'flush', of: (a, b) => mean(a, b, counter('flush_nanos'), counter('flushes'), 1e9) },
    { name: 'row lock', of: (a, b) => mean(a, b, counter('lock_wait_micros'), counter('lock_waits'), 1e6) },
  ] },
  { title: 'Aborts', unit: (v) => number(v) + '/s', none: 'No transaction was told to try again.', series: () => {
    const seen = new Map();
    for (const s of [view.samples[0], view.samples[view.samples.length - 1]]) for (const [name, n] of s ? s.d.aborts : []) {
      const [least, most] = seen.get(name) || [n, n];
      seen.set(name, [Math.min(least, n), Math.max(most, n)]);
    }
    const grown = [...seen].filter(([, [least, most]]) => most > least);
    grown.sort((a, b) => (b[1][1] - b[1][0]) - (a[1][1] - a[1][0]));
    return grown.slice(0, 6).map(([name]) => ({ name: words(name), of: (a, b) => rate(a, b, pair('aborts', name)) }));
  } },
  { title: 'Log written', unit: (v) => bytes(v) + '/s', least: 1024, base: 1024, none: 'No data yet.', series: () => [
    { name: 'bytes', of: (a, b) => rate(a, b, counter('log_bytes')) },
  ] },
];

const sum = (a, b) => (a == null || b == null ? null : a + b);
const some = (of) => view.samples.some((s) => of(s.d) > 0);

// The rest of the page

function vitals(d, before) {
  const g = d.gauges;
  const all = [];
  const add = (name, value, more) => all.push([name, value, more || '']);
  if (g) {
    add('Connections', whole(g.connections), 'of ' + whole(g.connections_max));
    add('Rows in memory', bytes(g.rows_bytes), 'of ' + bytes(g.rows_limit));
    add('Other memory', bytes(g.rest_bytes), 'of ' + bytes(g.rest_limit));
  }
  if (d.node) {
    add('Term', String(d.node.term));
    add('Published', d.node.published);
  }
  const states = d.states.filter((s) => s[0] !== 'idle');
  if (g) add('Sessions at work', whole(states.reduce((n, s) => n + s[1], 0)), states.map((s) => s[1] + ' ' + s[0].replace('idle in', 'in')).join(', '));
  add('Up for', lasting(d.uptime));
  const list = $('vitals');
  if (list.children.length !== all.length) {
    list.replaceChildren(...all.map(() => el('div', {}, el('dt'), el('dd', {}, el('span'), ' ', el('small')))));
  }
  all.forEach(([name, value, more], i) => {
    const [dt, dd] = list.children[i].children;
    say(dt, name);
    say(dd.children[0], value);
    say(dd.children[1], more);
    dd.title = value + ' ' + more;
  });
}

function head(d) {
  const name = d.node ? d.node.name : 'Canon';
  say($('name'), name);
  document.title = name + ' · Canon';
  const role = $('role');
  const is = d.node ? (d.site && d.node.role === 'replica' ? 'site' : d.node.role) : d.cluster ? 'witness' : '';
  role.hidden = !is;
  say(role, is);
  mark(role, is === 'primary' ? 'badge lead' : 'badge');
  const full = d.gauges && d.gauges.disk_full;
  state(d.obstacle ? (full ? 'bad' : 'warn') : 'good', d.obstacle || 'serving');
}

function state(kind, text) {
  mark($('state'), 'state ' + kind);
  say($('state'), text);
}

function nodes(d) {
  const all = new Map();
  const add = (name, more) => all.set(name, { ...(all.get(name) || { name }), ...more });
  for (const m of d.cluster ? d.cluster.members : []) add(m.name, { role: m.role, votes: m.votes, decides: m.decides });
  if (d.node) {
    const own = d.node.primary;
    if (own && !d.cluster) add(own.name, { role: 'primary', state: own.connected ? 'connected' : 'not connected', bad: !own.connected });
    add(d.node.name, { role: d.site ? 'site' : d.node.role, here: true, ...(own ? { lag: own.seconds, epochs: own.epochs, state: own.state, bad: !own.connected } : {}) });
    for (const r of d.node.replicas) {
      const known = all.get(r.name);
      add(r.name, { role: (known && known.role) || 'replica', address: r.address, state: r.state, lag: r.connected ? r.seconds : null, epochs: r.connected ? r.epochs : null, bad: !r.connected });
    }
  }
  fill($('nodes'), [...all.values()], (n) => n.name, (n) => {
    const kind = n.lag == null ? '' : n.lag > 2 ? 'bad' : n.lag > 0.5 ? 'warn' : '';
    // One tenth of the bar for each doubling above a millisecond.
    const share = n.lag > 0 ? Math.log2(1 + n.lag * 1e3) / 10 : 0;
    return [
      ['', n.name, ...(n.here ? [el('span', { class: 'key' }, ' (this node)')] : n.address ? [el('span', { class: 'key' }, ' ' + n.address)] : [])],
      n.role || '',
      ['wide ' + (n.bad ? 'bad' : 'mute'), n.state || (n.role === 'primary' ? 'leads' : '')],
      ['mute', n.votes == null ? '–' : n.decides ? 'votes, leads' : n.votes ? 'votes' : 'no'],
      ['num ' + kind, n.lag == null ? '–' : seconds(n.lag)],
      ['num wide', n.epochs == null ? '–' : whole(n.epochs)],
      ['meter wide', n.lag == null ? '' : meter(share, kind)],
    ];
  }, 'This server has no database yet.');
  facts(d);
}

function facts(d) {
  const all = [];
  const c = d.cluster;
  if (c) {
    if (c.lease != null) all.push([c.lease > 0 ? 'good' : 'bad', `This primary holds its lease for ${seconds(c.lease)}.`]);
    all.push(c.obstacle ? ['warn', `If the primary is lost, none is named by itself: ${c.obstacle}.`] : ['good', 'If the primary is lost, another one is named by itself.']);
    if (c.settings.length) all.push(['', `Set for the cluster: ${c.settings.join(', ')}.`]);
    all.push([c.degraded ? 'warn' : '', `A commit waits for ${count(c.wanted, 'replica')}. Each one that was acknowledged is at ${count(c.promised, 'replica')}.`]);
  } else if (d.node) {
    all.push(['', `A durable commit waits for ${count(d.node.synchronous, 'replica')}.`]);
    all.push(['', 'This server is no member of a cluster that runs itself: a person promotes.']);
  }
  if (d.node && d.node.set_aside) all.push(['bad', `${count(d.node.set_aside, 'commit')} set aside: the cluster's history does not have them.`]);
  if (d.gauges && d.gauges.disk_full) all.push(['bad', 'The disk is full: commits wait for room.']);
  $('facts').replaceChildren(...all.map(([kind, text]) => el('li', { class: kind }, text)));
}

// A sample of about half a minute ago, so that a table does not flicker.
function earlier() {
  const last = view.samples[view.samples.length - 1];
  return view.samples.find((s, i) => i < view.samples.length - 1 && !s.gap && last.t - s.t < 30000 && !view.samples.slice(i, -1).some((t) => t.gap));
}

function per(a, b, of) {
  if (!a) return null;
  const time = (b.d.at - a.d.at) / 1e6;
  const [x, y] = [of(a.d), of(b.d)];
  return time > 0 && y != null ? Math.max(0, y - (x || 0)) / time : null;
}

function aborts(b, a) {
  const all = b.d.aborts.filter((x) => x[1] > 0).map(([name, n]) => ({ name, n, rate: per(a, b, pair('aborts', name)) }));
  all.sort((x, y) => (y.rate || 0) - (x.rate || 0) || y.n - x.n);
  const most = Math.max(...all.map((x) => x.rate || 0), 1e-9);
  fill($('aborts'), all, (x) => x.name, (x) => [
    words(x.name), ['num', number(x.rate)], ['num wide', whole(x.n)], ['meter', meter((x.rate || 0) / most)],
  ], 'No transaction was told to try again since the start.');
}

function row(r) {
  return [el('span', {}, r.table), ' ', el('span', { class: 'key' }, r.key == null ? '' : r.key)];
}

function hot(b, a) {
  const same = (r) => (x) => x.table === r.table && x.key === r.key;
  const all = b.d.rows.map((r) => ({
    ...r,
    w: per(a, b, (d) => { const f = d.rows.find(same(r)); return f ? f.waits : null; }),
    l: per(a, b, (d) => { const f = d.rows.find(same(r)); return f ? f.lost : null; }),
  }));
  all.sort((x, y) => (y.w + y.l) - (x.w + x.l) || (y.waits + y.lost) - (x.waits + x.lost));
  const top = all.slice(0, ROWS);
  const most = Math.max(...top.map((r) => r.w + r.l), 1e-9);
  const names = new Map();
  fill($('rows'), top, (r) => {
    const name = r.table + '\u0000' + r.key;
    names.set(name, (names.get(name) || 0) + 1);
    return name + names.get(name);
  }, (r) => [
    ['text', ...row(r)], ['num', number(r.w)], ['num', number(r.l)], ['num wide mute', whole(r.waits)], ['num wide mute', whole(r.lost)], ['meter wide', meter((r.w + r.l) / most)],
  ], 'No transaction has waited for another one.');
}

const seenRaces = new Map();

function races(d, t) {
  for (const r of d.races) if (!seenRaces.has(r.number)) seenRaces.set(r.number, view.samples.length > 1 ? t : null);
  for (const number of seenRaces.keys()) if (!d.races.some((r) => r.number === number)) seenRaces.delete(number);
  fill($('races'), d.races.slice(0, ROWS), (r) => r.number, (r) => {
    const seen = seenRaces.get(r.number);
    const ago = seen == null ? 'before' : t - seen < EVERY ? 'now' : lasting(Math.round((t - seen) / 1000)) + ' ago';
    return [['text', ...row(r)], ['num wide mute', String(r.loser)], ['', r.winner], ['num mute', ago]];
  }, 'No transaction has lost a race.');
}

const slow = new Map();
const opened = new Set();

function statements(d) {
  for (const s of slow.values()) s.over = true;
  for (const s of d.sessions) {
    // A transaction that is open and runs no statement is listed with its last one, while it is open.
    const open = s.statement == null;
    const key = [open ? s.pid : s.role, s.state, s.query].join('\u0000');
    const micros = (open ? s.transaction : s.statement) || 0;
    const known = slow.get(key) || { micros: 0, runs: new Set() };
    const runs = known.runs.add(s.pid + ' ' + s.began);
    const longest = micros >= known.micros || known.over ? { ...s, micros: Math.max(micros, known.micros) } : known;
    slow.set(key, { ...longest, key, open, runs, over: false });
  }
  const all = [...slow.values()].filter((s) => !(s.over && s.open)).sort((x, y) => y.micros - x.micros);
  const top = all.slice(0, STATEMENTS);
  for (const key of slow.keys()) if (!top.some((s) => s.key === key)) slow.delete(key);
  fill($('statements'), top, (s) => s.key, (s) => [
    ['num', seconds(s.micros / 1e6)],
    ['num wide mute', s.runs.size > 1 ? whole(s.runs.size) + '×' : 'once'],
    s.role,
    ['wide mute clip', s.application || '–'],
    [s.waits && !s.over ? 'warn' : 'mute', s.over ? 'over' : s.waits || s.state],
    ['text', (td) => text(td, s)],
  ], 'No statement is running.');
}

// The statement: a button that shows all of it.
function text(td, s) {
  let button = td.firstElementChild;
  if (!button) {
    button = el('button', { type: 'button' });
    button.addEventListener('click', () => {
      const key = button.dataset.key;
      if (!opened.delete(key)) opened.add(key);
      button.setAttribute('aria-expanded', String(opened.has(key)));
    });
    td.replaceChildren(button);
  }
  button.dataset.key = s.key;
  button.setAttribute('aria-expanded', String(opened.has(s.key)));
  say(button, s.query);
}

function splits(d) {
  say($('watched'), d.watched ? whole(d.watched) + ' watched' : '');
  fill($('splits'), d.splits, (v) => [v.table, v.column, v.key].join('\u0000'), (v) => [
    ['text', el('span', {}, v.table + '.' + v.column), ' ', el('span', { class: 'key' }, v.key == null ? '' : v.key)],
    ['num', v.total == null ? '–' : v.total], ['num', whole(v.records)], ['wide mute', v.mode],
    ['num', (v.heat * 100).toFixed(v.heat > 0 && v.heat < 0.1 ? 1 : 0) + ' %'], ['meter wide', meter(v.heat, v.heat > 0.5 ? 'warn' : '')],
  ], 'No split value is watched.');
}

function archive(d) {
  const all = [];
  const add = (name, value, kind) => all.push(el('dt', {}, name), el('dd', { class: kind || '' }, value));
  if (d.archive) {
    add('Finished log that is not in the archive', bytes(d.archive.waiting_bytes));
    add('Segments copied since the start', whole(d.archive.segments));
    add('Failures', whole(d.archive.failures), d.archive.failures ? 'bad' : '');
    const b = d.archive.backups;
    if (b) {
      const at = (t) => (t == null ? 'none yet' : new Date(t * 1000).toISOString().replace('.000', ''));
      add('Backups in the archive that were read whole', whole(b.bases));
      add('The newest', at(b.newest));
      add('A restore goes back to', at(b.since));
      if (b.under_way != null) add('Copied and read by the backup under way', bytes(b.under_way));
      if (b.failures) add('Backups that failed', whole(b.failures), b.failed == null ? '' : 'bad');
      if (b.failed != null) add('Why the last one failed', b.failed, 'bad');
    }
  } else {
    all.push(el('p', {}, 'No archive is configured. Backups made by canon backup are not known to the server.'));
  }
  if (d.counters) add('Checkpoints since the start', whole(d.counters.checkpoints));
  if (d.site) {
    const s = d.site;
    const decided = s.committed + s.refused;
    add('Transactions of this site that committed', whole(s.committed));
    add('Refused by the primary', whole(s.refused));
    add('Without a verdict', whole(s.pending));
    add('Sent again', whole(s.repeated));
    add('Mean time to a verdict', seconds(decided ? s.waited_nanos / 1e9 / decided : null));
  }
  const [refused, exact] = [pair('deltas', 'refused')(d), pair('deltas', 'exact')(d)];
  if (refused || exact || pair('deltas', 'done')(d)) {
    add('Deltas of split values', whole(pair('deltas', 'done')(d)));
    add('Refused by a guard, or written exactly', whole(refused) + ', ' + whole(exact));
  }
  $('archive').replaceChildren(...all);
}

let charts = [];

function draw() {
  const last = view.samples[view.samples.length - 1];
  if (!last) return;
  const [d, before] = [last.d, earlier()];
  head(d);
  vitals(d);
  charts.forEach((c) => c.draw());
  nodes(d);
  aborts(last, before);
  statements(d);
  hot(last, before);
  races(d, last.t);
  splits(d);
  archive(d);
  const keys = d.keys || !d.node ? '' : ' Keys and totals are shown to superusers.';
  say($('foot'), `Canon ${d.version}. This page only reads, and keeps what it has seen while it is open.${keys}`);
}

// Asking

function take(d) {
  const before = view.samples[view.samples.length - 1];
  // The server has started anew: its counters begin at zero.
  if (before && d.at < before.d.at) before.gap = true;
  view.samples.push({ t: performance.now(), d });
  if (view.samples.length > KEPT) view.samples.shift();
  // Of older samples only what charts and rates need is kept.
  const old = view.samples[view.samples.length - 20];
  if (old && old.d.sessions.length + old.d.races.length + old.d.rows.length) {
    old.d = { ...old.d, sessions: [], races: [], rows: [], splits: [] };
  }
  draw();
}

async function ask() {
  try {
    const reply = await fetch('console/data', { cache: 'no-store', signal: AbortSignal.timeout(9000) });
    if (!reply.ok) throw new Error((await reply.text()).trim() || reply.statusText);
    take(await reply.json());
    failures = 0;
    $('notice').hidden = true;
  } catch (e) {
    failures++;
    state('bad', 'no answer');
    say($('notice'), failures < 2 ? '' : `The server does not answer: ${e.message}. Trying again.`);
    $('notice').hidden = failures < 2;
  }
}

async function run() {
  for (;;) {
    if (!paused && !document.hidden) await ask();
    await new Promise((done) => setTimeout(done, EVERY * Math.min(5, 1 + failures / 2)));
  }
}

function start() {
  charts = CHARTS.map((spec, i) => new Chart(spec, i));
  $('charts').replaceChildren(...charts.map((c) => c.figure));
  for (const input of document.querySelectorAll('input[name=span]')) {
    input.addEventListener('change', () => { view.span = Number(input.value); charts.forEach((c) => c.draw()); });
  }
  $('pause').addEventListener('click', () => {
    paused = !paused;
    $('pause').setAttribute('aria-pressed', String(paused));
    say($('pause'), paused ? 'Go on' : 'Pause');
    if (paused) state('', 'paused');
  });
  new ResizeObserver(() => charts.forEach((c) => c.draw())).observe($('charts'));
  run();
}

start();
