//! A cluster under full load to which nothing is done: it must have one primary all the time.
//!
//! Each client adds to a row of its own, as fast as it is answered, at any server. So the memory stays as it is however long that takes, and the row says whether an
//! acknowledged commit is lost.
//!
//! | figure | what it is |
//! |---|---|
//! | fail-overs | how often the primary or its term was another one at a look, once a second |
//! | without commits | the longest time between two acknowledgements |
//! | lost | acknowledged commits that the rows do not have |

use super::leading::SILENCE;
use super::nodes::{Node, whole};
use crate::Result;
use crate::server::USER;
use crate::wire::Connection;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Clients at least: two cores have enough to do with them.
const CLIENTS: usize = 8;
/// Between two looks at who leads.
const LOOK: Duration = Duration::from_secs(1);

/// What it has shown.
pub struct Quiet {
    time: Duration,
    commits: u64,
    without: Duration,
    failovers: usize,
    lost: u64,
}

/// When something was acknowledged last, and the longest time between two.
struct Gap {
    last: Instant,
    longest: Duration,
}

/// One client: how many commits were acknowledged, and how many may have happened beside.
fn load(i: usize, ports: &[u16], stop: &AtomicBool, gap: &Mutex<Gap>) -> (u64, u64) {
    let (mut done, mut doubt, mut at) = (0, 0, i);
    while !stop.load(Ordering::SeqCst) {
        at += 1;
        let Ok(mut c) = Connection::open_within(ports[at % ports.len()], USER, Some(SILENCE))
        else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        while !stop.load(Ordering::SeqCst) {
            let sql = format!("UPDATE busy SET n = n + 1 WHERE id = {i}");
            if c.query(&sql).is_err() {
                doubt += 1;
                break;
            }
            done += 1;
            let mut gap = gap.lock().expect("whole");
            let now = Instant::now();
            gap.longest = gap.longest.max(now - gap.last);
            gap.last = now;
        }
    }
    (done, doubt)
}

/// Loads the cluster for this time.
pub fn run(nodes: &[Node], writers: usize, time: Duration) -> Result<Quiet> {
    let mut leads = whole(nodes)?;
    let count = writers.max(CLIENTS);
    let table = "CREATE TABLE busy (id int PRIMARY KEY, n bigint NOT NULL)";
    let rows = format!(
        "INSERT INTO busy SELECT g, 0 FROM generate_series(0, {}) g",
        count - 1
    );
    nodes[leads].server.sql(table)?;
    nodes[leads].server.sql(&rows)?;
    let ports: Vec<u16> = nodes.iter().map(|n| n.server.port).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    let gap = Arc::new(Mutex::new(Gap {
        last: begun,
        longest: Duration::ZERO,
    }));
    let clients = (0..count).map(|i| {
        let (ports, stop, gap) = (ports.clone(), stop.clone(), gap.clone());
        std::thread::spawn(move || load(i, &ports, &stop, &gap))
    });
    let clients: Vec<_> = clients.collect();
    let (mut term, mut failovers) = (nodes[leads].term(), 0);
    while begun.elapsed() < time {
        std::thread::sleep(LOOK.min(time.saturating_sub(begun.elapsed())));
        // A busy server may not answer in time; the next look sees it.
        let now = (0..nodes.len()).find_map(|i| {
            let n = &nodes[i];
            n.leads().then(|| n.term()).flatten().map(|term| (i, term))
        });
        if let Some((now, of)) = now
            && (now != leads || Some(of) != term)
        {
            println!("under load: server {now} leads term {of}");
            (leads, term, failovers) = (now, Some(of), failovers + 1);
        }
    }
    let time = begun.elapsed();
    stop.store(true, Ordering::SeqCst);
    let counts: Vec<(u64, u64)> = clients
        .into_iter()
        .map(|c| c.join().expect("a client"))
        .collect();
    let without = gap.lock().expect("whole").longest;
    let leads = whole(nodes)?;
    let there = nodes[leads].server.sql("SELECT n FROM busy ORDER BY id")?;
    let there = there
        .rows
        .iter()
        .map(|r| r[0].as_ref()?.parse::<u64>().ok());
    let (mut lost, mut commits) = (0, 0);
    for ((done, doubt), n) in counts.into_iter().zip(there) {
        let n = n.ok_or("a row without a number")?;
        if n > done + doubt {
            return Err(format!(
                "a row says {n}, of {done} commits and {doubt} in doubt"
            ));
        }
        lost += done.saturating_sub(n);
        commits += done;
    }
    Ok(Quiet {
        time,
        commits,
        without,
        failovers,
        lost,
    })
}

impl Quiet {
    pub fn page(&self) -> String {
        let seconds = self.time.as_secs_f64();
        format!(
            "| full load, nothing done to it | commits per second | without commits, at most | fail-overs | lost |\n|---|---|---|---|---|\n| {seconds:.0} s | {:.0} | {:.0} ms | {} | {} |\n",
            self.commits as f64 / seconds,
            self.without.as_secs_f64() * 1e3,
            self.failovers,
            self.lost
        )
    }

    /// What must not have happened. `curve`: fail-overs are what is measured.
    pub fn faults(&self, curve: bool) -> Vec<String> {
        let mut faults = Vec::new();
        if self.failovers > 0 && !curve {
            faults.push(format!("under load: {} fail-overs", self.failovers));
        }
        if self.lost > 0 {
            faults.push(format!("under load: {} commits are lost", self.lost));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fail_over_under_load_is_a_fault_but_for_a_curve() {
        let mut quiet = Quiet {
            time: Duration::from_secs(2),
            commits: 300,
            without: Duration::from_millis(40),
            failovers: 1,
            lost: 0,
        };
        assert_eq!(quiet.faults(false).len(), 1);
        assert!(quiet.faults(true).is_empty());
        quiet.lost = 2;
        assert_eq!(quiet.faults(true).len(), 1);
        assert!(quiet.page().contains("| 2 s | 150 | 40 ms | 1 | 2 |"));
    }
}
