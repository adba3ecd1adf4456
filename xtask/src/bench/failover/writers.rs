//! Clients that write all the time, and count what is acknowledged.
//!
//! Left out on purpose: throughput, which `quiet` asks for.

use super::leading::SILENCE;
use super::nodes::PATIENCE;
use crate::Result;
use crate::server::USER;
use crate::wire::Connection;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a round is looked at, at least.
const ROUND: Duration = Duration::from_secs(3);
/// Of commits after the longest time without.
const AFTER: Duration = Duration::from_secs(2);
/// One transaction. With a split value it adds to that one, too: both happen, or neither.
fn write(n: u64, split: bool) -> String {
    match split {
        false => format!("INSERT INTO kept VALUES ({n})"),
        true => format!("INSERT INTO kept VALUES ({n}); UPDATE hot SET n = n + 1 WHERE id = 1"),
    }
}

/// When each number was acknowledged.
pub type Kept = Arc<Mutex<Vec<(Instant, u64)>>>;

/// Clients that write all the time.
pub struct Writers {
    stop: Arc<AtomicBool>,
    kept: Kept,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Writers {
    /// So many of them, at any of these servers. Each transaction has a number from `first` on.
    pub fn start(count: usize, ports: &[u16], first: u64, split: bool) -> Writers {
        let (stop, kept) = (Arc::new(AtomicBool::new(false)), Kept::default());
        let next = Arc::new(AtomicU64::new(first));
        let threads = (0..count).map(|i| {
            let (stop, kept, next, ports) =
                (stop.clone(), kept.clone(), next.clone(), ports.to_vec());
            std::thread::spawn(move || {
                let mut at = i;
                while !stop.load(Ordering::SeqCst) {
                    at += 1;
                    let port = ports[at % ports.len()];
                    let Ok(mut c) = Connection::open_within(port, USER, Some(SILENCE)) else {
                        std::thread::sleep(Duration::from_millis(10));
                        continue;
                    };
                    while !stop.load(Ordering::SeqCst) {
                        let n = next.fetch_add(1, Ordering::SeqCst);
                        if c.query(&write(n, split)).is_err() {
                            break;
                        }
                        let mut kept = kept.lock().expect("whole");
                        // Under the lock, so that times only grow.
                        kept.push((Instant::now(), n));
                        drop(kept);
                        // Latency is asked for here, not throughput.
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            })
        });
        Writers {
            threads: threads.collect(),
            stop,
            kept,
        }
    }

    /// The longest time without an acknowledgement from `begun` on, once commits have gone on for a while.
    pub fn without(&self, begun: Instant) -> Result<Duration> {
        let limit = begun + PATIENCE;
        loop {
            std::thread::sleep(Duration::from_millis(20));
            let kept = self.kept.lock().expect("whole");
            let first = kept.partition_point(|k| k.0 < begun);
            let times: Vec<Instant> = kept[first..].iter().map(|k| k.0).collect();
            drop(kept);
            if Instant::now() > limit {
                return Err("nothing is committed any more".into());
            }
            let from = std::iter::once(begun).chain(times.iter().copied());
            let gaps = from.zip(&times).map(|(a, b)| (*b - a, *b));
            let (Some((longest, end)), Some(last)) = (gaps.max(), times.last()) else {
                continue;
            };
            if *last >= begun + ROUND && *last >= end + AFTER {
                return Ok(longest);
            }
        }
    }

    pub fn end(self) -> BTreeSet<u64> {
        self.stop.store(true, Ordering::SeqCst);
        for t in self.threads {
            t.join().expect("a writer");
        }
        self.kept
            .lock()
            .expect("whole")
            .iter()
            .map(|k| k.1)
            .collect()
    }
}
