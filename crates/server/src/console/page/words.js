// Numbers, times and sizes as people read them.

export function number(v) {
  if (v == null || !isFinite(v)) return '–';
  if (v === 0) return '0';
  if (v < 0.995) return v.toFixed(2);
  if (v < 9.95) return v.toFixed(1);
  if (v < 10000) return String(Math.round(v)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
  if (v < 1e6) return (v / 1e3).toFixed(v < 1e5 ? 1 : 0) + ' k';
  if (v < 1e9) return (v / 1e6).toFixed(v < 1e7 ? 2 : 1) + ' M';
  return (v / 1e9).toFixed(2) + ' G';
}

export function whole(v) {
  return String(Math.round(v)).replace(/\B(?=(\d{3})+$)/g, '\u202f');
}

export function count(n, name) {
  return n === 0 ? `no ${name}` : `${whole(n)} ${name}${n === 1 ? '' : 's'}`;
}

export function seconds(s) {
  if (s == null || !isFinite(s)) return '–';
  if (s === 0) return '0 ms';
  if (s < 1e-3) return whole(s * 1e6) + ' µs';
  if (s < 0.1) return (s * 1e3).toFixed(1) + ' ms';
  if (s < 1) return whole(s * 1e3) + ' ms';
  if (s < 60) return s.toFixed(1) + ' s';
  return lasting(s);
}

export function lasting(s) {
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const at = parts.findIndex(([n]) => s >= n);
  if (at < 0) return '0 s';
  const [big, name] = parts[at];
  const first = Math.floor(s / big) + ' ' + name;
  const next = parts[at + 1];
  const rest = next && Math.floor((s % big) / next[0]);
  return rest ? first + ' ' + rest + ' ' + next[1] : first;
}

export function bytes(b) {
  if (b == null || !isFinite(b)) return '–';
  const names = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
  let i = 0;
  while (b >= 999.5 && i < names.length - 1) { b /= 1024; i++; }
  return (i === 0 || b >= 100 ? String(Math.round(b)) : b.toFixed(1)) + ' ' + names[i];
}

export const words = (name) => name.replace(/_/g, ' ');
