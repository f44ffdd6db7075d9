// Numbers as people read them.

/** A probability: never "100 %" or "0 %" for what is neither. */
export function percent(p) {
  if (p <= 0) return "0 %";
  if (p >= 1) return "100 %";
  if (p < 0.001) return "< 0.1 %";
  if (p > 0.999) return "> 99.9 %";
  return `${(100 * p).toFixed(1)} %`;
}

/** A duration. */
export function duration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 100) return `${plain(s, s < 10 ? 2 : 1)} s`;
  return s < 7200 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`;
}

/** A number with as few digits as it has. */
export function plain(value, digits = 3) {
  return Number(Number(value).toFixed(digits)).toLocaleString("en", { maximumFractionDigits: digits });
}

/** How long ago a time (seconds since the epoch) is. */
export function ago(at) {
  const s = Math.max(0, Date.now() / 1000 - at);
  if (s < 5) return "now";
  if (s < 90) return `${Math.round(s)} s ago`;
  if (s < 5400) return `${Math.round(s / 60)} min ago`;
  return s < 129600 ? `${Math.round(s / 3600)} h ago` : new Date(at * 1000).toLocaleDateString();
}

/** Bytes. */
export function bytes(count) {
  const units = ["B", "KB", "MB", "GB"];
  let i = 0;
  let value = count;
  while (value >= 1000 && i < units.length - 1) {
    value /= 1000;
    i += 1;
  }
  return `${i && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[i]}`;
}
