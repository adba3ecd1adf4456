//! What writers see while a replica with a read lease stands still.
//!
//! ```text
//! SIGSTOP of the replica ---> writers wait ---> its lease is over: they go on ---> SIGCONT ---> it holds a lease again
//! ```
//! One writer commits at the primary as fast as it goes. A stall is a time between two acknowledgements of more than 20 ms. No commit waits for replicas here
//! (`synchronous_replicas = 0`), so that only the lease holds a writer up.
//!
//! Left out on purpose: replicas that are slow and do not stand still; those lose their lease by `lease.max_commit_wait`.

use super::cluster::{Cluster, Node};
use crate::Result;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A shorter time between two acknowledgements is no stall.
const STALL: Duration = Duration::from_millis(20);
/// How long the replica stands still.
const STOPPED: Duration = Duration::from_secs(2);
/// A replica that holds no lease by then will get none.
const PATIENCE: Duration = Duration::from_secs(30);

/// Of one time that the replica stood still.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stopped {
    pub stalls: usize,
    pub longest_ms: f64,
}

/// Stops the first replica so many times, once it holds a lease, beside a writer at the primary.
pub fn stop_holder(cluster: &Cluster, times: usize) -> Result<Vec<Stopped>> {
    let replica = &cluster.replicas()[0];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| acknowledged(cluster.primary(), &done));
        let stops = (0..times).map(|_| stop_once(replica));
        let stops: Result<Vec<(Instant, Instant)>> = stops.collect();
        done.store(true, Ordering::SeqCst);
        let acknowledged = writer.join().map_err(|_| "the writer panicked")??;
        let seen = stops?.into_iter().map(|s| stalls(&acknowledged, s));
        Ok(seen.collect())
    })
}

/// When each commit of one writer was acknowledged.
fn acknowledged(primary: &Node, done: &AtomicBool) -> Result<Vec<Instant>> {
    let mut client = primary.server.connect().map_err(|e| e.to_string())?;
    let mut at = Vec::new();
    while !done.load(Ordering::SeqCst) {
        let update = "UPDATE sbtest1 SET k = k + 1 WHERE id = 1";
        client.query(update).map_err(|e| e.to_string())?;
        at.push(Instant::now());
    }
    Ok(at)
}

/// When the replica was stopped, and when it went on.
fn stop_once(replica: &Node) -> Result<(Instant, Instant)> {
    let begun = Instant::now();
    while replica.metric("canon_read_lease_held") != Some(1.0) {
        if begun.elapsed() > PATIENCE {
            return Err("the replica gets no read lease".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    let from = Instant::now();
    signal(replica, "-STOP")?;
    std::thread::sleep(STOPPED);
    signal(replica, "-CONT")?;
    Ok((from, Instant::now()))
}

fn signal(node: &Node, signal: &str) -> Result<()> {
    let pid = node.server.pid().to_string();
    crate::command::output(Command::new("kill").args([signal, &pid])).map(drop)
}

fn stalls(acknowledged: &[Instant], (from, to): (Instant, Instant)) -> Stopped {
    let mut seen = Stopped::default();
    for pair in acknowledged.windows(2) {
        let between = pair[1] - pair[0];
        if pair[1] > from && pair[0] < to && between > STALL {
            seen.stalls += 1;
            seen.longest_ms = seen.longest_ms.max(between.as_secs_f64() * 1e3);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_counted_while_the_replica_stands_still() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let acknowledged = [0, 300, 301, 500, 775, 780, 801, 900].map(at);
        let seen = stalls(&acknowledged, (at(500), at(790)));
        assert_eq!(seen.stalls, 2);
        assert!((275.0..276.0).contains(&seen.longest_ms), "{seen:?}");
    }
}
