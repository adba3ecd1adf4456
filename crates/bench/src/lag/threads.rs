//! Who had the CPU, and who was ready to run and had to wait for it: the time of each thread, by name, looked at every 20 ms, over all and
//! while the lag was high.
//!
//! Read from `/proc/self/task/*/schedstat`; where that is not there, nothing is said. Threads of one name count as one. What the machine's
//! own host took from the process's CPU (*steal* in `/proc/stat`) counts as a thread of its own, [`HOST`]: no thread of ours ran or slept then.
//!
//! Left out on purpose: what a thread slept for.

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

/// The name under which the host's time stands.
pub const HOST: &str = "(host)";

/// Nanoseconds that one of `/proc/stat`'s ticks has: Linux counts a hundred in a second there, whatever its own pace is.
const TICK: u64 = 10_000_000;

/// Nanoseconds that a thread ran, and that it waited for a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    pub ran: u64,
    pub waited: u64,
}

impl Spent {
    fn add(&mut self, more: Spent) {
        self.ran += more.ran;
        self.waited += more.waited;
    }

    fn since(self, before: Spent) -> Spent {
        Spent {
            ran: self.ran.saturating_sub(before.ran),
            waited: self.waited.saturating_sub(before.waited),
        }
    }
}

/// (microseconds since 1970, by name)
pub type Look = (u64, BTreeMap<String, Spent>);

fn look(cpu: usize) -> Look {
    let mut all: BTreeMap<String, Spent> = BTreeMap::new();
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten();
    for task in tasks.flatten() {
        let read = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        let spent = read("schedstat").and_then(|s| {
            let mut numbers = s.split(' ').map_while(|n| n.parse().ok());
            let (ran, waited) = (numbers.next()?, numbers.next()?);
            Some(Spent { ran, waited })
        });
        if let (Some(name), Some(spent)) = (read("comm"), spent) {
            all.entry(name.trim().replace(' ', "-"))
                .or_default()
                .add(spent);
        }
    }
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    if let Some(ticks) = stolen(&stat, cpu) {
        let (ran, waited) = (ticks * TICK, 0);
        all.insert(HOST.into(), Spent { ran, waited });
    }
    (now(), all)
}

/// Ticks that the host has taken from this CPU: the eighth number of its line.
fn stolen(stat: &str, cpu: usize) -> Option<u64> {
    let name = format!("cpu{cpu}");
    let mut lines = stat.lines().map(str::split_whitespace);
    let mut line = lines.find_map(|mut l| (l.next() == Some(&name)).then_some(l))?;
    line.nth(7)?.parse().ok()
}

/// Looks until it is over, then writes everything into a file. `cpu`: the one that the process runs on.
pub fn watch(cpu: usize, done: &AtomicBool, path: &Path) -> Result<()> {
    let mut text = String::new();
    while !done.load(Ordering::SeqCst) {
        let (time, threads) = look(cpu);
        _ = write!(text, "{time}");
        for (name, s) in threads {
            _ = write!(text, " {name} {} {}", s.ran, s.waited);
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
        let threads = rest.chunks_exact(3).filter_map(|p| {
            let (ran, waited) = (p[1].parse().ok()?, p[2].parse().ok()?);
            Some((p[0].to_owned(), Spent { ran, waited }))
        });
        Some((time.parse().ok()?, threads.collect()))
    };
    text.lines().filter_map(look).collect()
}

/// What one thread did, in percent of the time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Share {
    pub name: String,
    pub ran: f64,
    pub waited: f64,
    /// The same while the lag was high.
    pub ran_late: f64,
    pub waited_late: f64,
}

/// What each thread did, who ran longest first. `began`: where the seconds of `lags` begin.
pub fn shares(looks: &[Look], lags: &[(f64, f64)], began: u64) -> Vec<Share> {
    let mut spent: BTreeMap<&str, (Spent, Spent)> = BTreeMap::new();
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
        for (name, s) in after {
            let more = s.since(before.get(name).copied().unwrap_or_default());
            let sums = spent.entry(name).or_default();
            sums.0.add(more);
            if is_late {
                sums.1.add(more);
            }
        }
    }
    let percent = |part: u64, of: u64| 100.0 * part as f64 / of.max(1) as f64;
    let mut all: Vec<_> = spent
        .into_iter()
        .map(|(name, (all, then))| Share {
            name: name.to_owned(),
            ran: percent(all.ran, whole),
            waited: percent(all.waited, whole),
            ran_late: percent(then.ran, late),
            waited_late: percent(then.waited, late),
        })
        .collect();
    all.sort_by(|a, b| b.ran.total_cmp(&a.ran));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_out_and_late_time_apart() {
        let spent = |ran, waited| Spent { ran, waited };
        let look = |time: u64, a: Spent, b: Spent| {
            let threads = [("a".to_owned(), a), ("b".to_owned(), b)];
            (time, threads.into_iter().collect())
        };
        // 20 ms each: a has half of the first, b all of the second, in which the lag is high and a waits; nothing is known of the third.
        let looks = [
            look(1_000_000, spent(0, 0), spent(0, 0)),
            look(1_020_000, spent(10_000_000, 0), spent(0, 5_000_000)),
            look(
                1_040_000,
                spent(10_000_000, 15_000_000),
                spent(20_000_000, 5_000_000),
            ),
            look(
                1_060_000,
                spent(30_000_000, 15_000_000),
                spent(20_000_000, 5_000_000),
            ),
        ];
        let lags = [(0.005, 1.0), (0.025, 90.0)];
        let shares = shares(&looks, &lags, 1_000_000);
        let share = |name: &str, [ran, waited, ran_late, waited_late]: [f64; 4]| Share {
            name: name.into(),
            ran,
            waited,
            ran_late,
            waited_late,
        };
        assert_eq!(
            shares,
            [
                share("b", [50.0, 12.5, 100.0, 0.0]),
                share("a", [25.0, 37.5, 0.0, 75.0])
            ]
        );
    }

    #[test]
    fn the_host_is_asked_for_the_right_cpu() {
        let stat =
            "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 80 9 10\ncpu1 1 2 3 4 5 6 7 81 9 10\n";
        assert_eq!((stolen(stat, 0), stolen(stat, 1)), (Some(80), Some(81)));
        assert_eq!(stolen(stat, 2), None);
    }
}
