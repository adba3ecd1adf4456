//! Who had the CPU: the time of each thread, by name, looked at every 20 ms, over all and while the lag was high.
//!
//! Read from `/proc/self/task`; where that is not there, nothing is said. Threads of one name count as one.
//!
//! Left out on purpose: what a thread waited for.

use super::{CAUGHT_UP, failed, now};
use base::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks.
const EVERY: Duration = Duration::from_millis(20);

/// (microseconds since 1970, nanoseconds of CPU by name)
type Look = (u64, BTreeMap<String, u64>);

fn look() -> Look {
    let mut all = BTreeMap::new();
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        let nanos = read("schedstat").and_then(|s| s.split(' ').next()?.parse::<u64>().ok());
        if let (Some(name), Some(nanos)) = (read("comm"), nanos) {
            *all.entry(name.trim().replace(' ', "-")).or_default() += nanos;
        }
    }
    (now(), all)
}

/// Looks until it is over, then writes everything into a file.
pub fn watch(done: &AtomicBool, path: &Path) -> Result<()> {
    let mut text = String::new();
    while !done.load(Ordering::SeqCst) {
        let (time, threads) = look();
        _ = write!(text, "{time}");
        for (name, nanos) in threads {
            _ = write!(text, " {name} {nanos}");
        }
        text.push('\n');
        std::thread::sleep(EVERY);
    }
    fs::write(path, text).map_err(failed)
}

/// What a process has seen; nothing when it did not look.
pub fn read(path: &Path) -> Vec<Look> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let look = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let (time, rest) = words.split_first()?;
        let pairs = rest.chunks_exact(2);
        let threads = pairs.filter_map(|p| Some((p[0].to_owned(), p[1].parse().ok()?)));
        Some((time.parse().ok()?, threads.collect()))
    };
    text.lines().filter_map(look).collect()
}

/// Percent of a CPU by thread: (name, all the time, while the lag was high). `began`: where the seconds of `lags` begin.
pub fn shares(looks: &[Look], lags: &[(f64, f64)], began: u64) -> Vec<(String, f64, f64)> {
    let mut spent: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let (mut whole, mut late) = (0u64, 0u64);
    let mut at = 0;
    for pair in looks.windows(2) {
        let [(from, before), (to, after)] = pair else {
            continue;
        };
        let second = |t: u64| (t as f64 - began as f64) / 1e6;
        let (start, end) = (second(*from), second(*to));
        while at < lags.len() && lags[at].0 < start {
            at += 1;
        }
        let here: Vec<_> = lags[at..].iter().take_while(|l| l.0 < end).collect();
        if here.is_empty() {
            continue;
        }
        let is_late = here.iter().any(|l| l.1 > CAUGHT_UP);
        whole += (to - from) * 1000;
        late += u64::from(is_late) * (to - from) * 1000;
        for (name, nanos) in after {
            let ran = nanos.saturating_sub(before.get(name).copied().unwrap_or(0));
            let s = spent.entry(name).or_default();
            s.0 += ran;
            s.1 += u64::from(is_late) * ran;
        }
    }
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let mut all: Vec<_> = spent
        .into_iter()
        .map(|(name, s)| (name.to_owned(), percent(s.0, whole), percent(s.1, late)))
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_out_and_late_time_apart() {
        let look = |time: u64, a: u64, b: u64| {
            let threads = [("a".to_owned(), a), ("b".to_owned(), b)];
            (time, threads.into_iter().collect())
        };
        // 20 ms each: a has half of the first, b all of the second, in which the lag is high; nothing is known of the third.
        let looks = [
            look(1_000_000, 0, 0),
            look(1_020_000, 10_000_000, 0),
            look(1_040_000, 10_000_000, 20_000_000),
            look(1_060_000, 30_000_000, 20_000_000),
        ];
        let lags = [(0.005, 1.0), (0.025, 90.0)];
        let shares = shares(&looks, &lags, 1_000_000);
        assert_eq!(
            shares,
            [("b".to_owned(), 50.0, 100.0), ("a".to_owned(), 25.0, 0.0)]
        );
    }
}
