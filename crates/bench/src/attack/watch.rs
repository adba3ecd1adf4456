//! What the others feel: point reads on connections that stay, logins, and the server's resident memory.

use crate::figures::Histogram;
use base::Result;
use protocol::client::Client;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rows of the table that is read.
pub const ROWS: i64 = 10_000;
/// Connections that read points, each a read every few milliseconds.
const READERS: u64 = 4;
const BETWEEN_READS: Duration = Duration::from_millis(5);
const BETWEEN_LOGINS: Duration = Duration::from_millis(100);
const BETWEEN_SAMPLES: Duration = Duration::from_millis(100);
/// Samples of memory that are printed.
const SHOWN: usize = 20;

/// What they have felt.
#[derive(Default)]
pub struct Watch {
    pub reads: Histogram,
    pub read_errors: u64,
    pub logins: Histogram,
    pub login_errors: u64,
    /// Resident bytes: the most, and some over the time.
    pub most: u64,
    pub over_time: Vec<u64>,
}

struct Common {
    pid: u32,
    address: SocketAddr,
    stop: AtomicBool,
    seen: Mutex<Watch>,
}

/// Threads that watch until this is dropped.
pub struct Watchers {
    common: Arc<Common>,
    threads: Vec<JoinHandle<()>>,
}

/// Resident bytes of a process. A figure that cannot be read is above every bar.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kb = status
        .lines()
        .find_map(|l| l.strip_prefix("VmRSS:"))
        .and_then(|l| l.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kb.map_or(u64::MAX, |kb| kb << 10)
}

impl Common {
    fn seen(&self, f: impl FnOnce(&mut Watch)) {
        f(&mut self.seen.lock().expect("no thread panics with it"));
    }

    /// Does it again and again, and counts how long it took, or that it failed.
    fn again(
        &self,
        pause: Duration,
        mut one: impl FnMut() -> bool,
        count: fn(&mut Watch, Option<u64>),
    ) {
        while !self.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            let took = one().then(|| began.elapsed().as_nanos() as u64);
            self.seen(|w| count(w, took));
            std::thread::sleep(pause);
        }
    }

    fn read(&self, seed: u64) {
        let mut id = seed;
        let mut client: Option<Client> = None;
        let prepared = || -> io::Result<Client> {
            let mut c = Client::connect_as(self.address, "watcher")?;
            c.socket().set_read_timeout(Some(Duration::from_secs(30)))?;
            let refused = |r: protocol::client::Refused| io::Error::other(r.message);
            c.prepare("point", "SELECT v FROM points WHERE id = $1")?
                .map_err(refused)?;
            Ok(c)
        };
        let one = || {
            if client.is_none() {
                client = prepared().ok();
            }
            let Some(c) = &mut client else { return false };
            id = id * 7919 % ROWS as u64 + 1;
            let r = c.run("point", &[id as i64]);
            if r.is_err() {
                client = None;
            }
            matches!(r, Ok(Ok(rows)) if rows.len() == 1)
        };
        self.again(BETWEEN_READS, one, |w, took| match took {
            Some(t) => w.reads.add(t),
            None => w.read_errors += 1,
        });
    }

    fn log_in(&self) {
        let one = || Client::connect_as(self.address, "watcher").is_ok();
        self.again(BETWEEN_LOGINS, one, |w, took| match took {
            Some(t) => w.logins.add(t),
            None => w.login_errors += 1,
        });
    }

    fn sample(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            let now = resident(self.pid);
            self.seen(|w| {
                w.most = w.most.max(now);
                w.over_time.push(now);
            });
            std::thread::sleep(BETWEEN_SAMPLES);
        }
    }
}

impl Watchers {
    pub fn start(address: SocketAddr, pid: u32) -> Result<Watchers> {
        let common = Arc::new(Common {
            pid,
            address,
            stop: AtomicBool::new(false),
            seen: Mutex::default(),
        });
        let mut threads = Vec::new();
        for i in 0..READERS {
            let c = common.clone();
            threads.push(std::thread::spawn(move || c.read(i + 1)));
        }
        let c = common.clone();
        threads.push(std::thread::spawn(move || c.log_in()));
        let c = common.clone();
        threads.push(std::thread::spawn(move || c.sample()));
        Ok(Watchers { common, threads })
    }

    /// Forgets what was seen so far.
    pub fn begin(&self) {
        self.common.seen(|w| *w = Watch::default());
    }

    /// What was seen since.
    pub fn end(&self) -> Watch {
        let mut seen = std::mem::take(&mut *self.common.seen.lock().expect("no thread panics"));
        let step = seen.over_time.len().div_ceil(SHOWN).max(1);
        seen.over_time = seen.over_time.into_iter().step_by(step).collect();
        seen
    }

    /// Resident bytes after a while in which nothing but the watching is done.
    pub fn rest(&self, time: Duration) -> u64 {
        std::thread::sleep(time);
        resident(self.common.pid)
    }

    /// Waits until no more than this is resident, or for so long. What is resident then, and how long it took.
    pub fn settle(&self, most: u64, limit: Duration) -> (u64, Duration) {
        let began = Instant::now();
        loop {
            let now = resident(self.common.pid);
            if now <= most || began.elapsed() > limit {
                return (now, began.elapsed());
            }
            std::thread::sleep(BETWEEN_SAMPLES);
        }
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.common.stop.store(true, Ordering::Relaxed);
        for t in self.threads.drain(..) {
            _ = t.join();
        }
    }
}
