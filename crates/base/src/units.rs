//! Sizes and times as operators write them.

use std::time::Duration;

/// `8GB`, `512MB`, `100kB`, `4096`; powers of 1024.
pub fn size(v: &str) -> Option<u64> {
    let v = v.trim();
    let end = v
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(v.len());
    let n: f64 = v[..end].parse().ok()?;
    let shift = match v[end..]
        .trim()
        .to_ascii_lowercase()
        .trim_end_matches("ib")
        .trim_end_matches('b')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    Some((n * (1u64 << shift) as f64) as u64)
}

/// `500ms`, `30s`, `5min`, `1h`, `2d`.
pub fn duration(v: &str) -> Option<Duration> {
    let v = v.trim();
    let end = v
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(v.len());
    let n: f64 = v[..end].parse().ok()?;
    let seconds = match v[end..].trim() {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" | "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        "" if n == 0.0 => 0.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(n * seconds).ok()
}
