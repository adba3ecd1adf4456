//! One attack: its line in the table, what it sees of the server, and where it says what came of it.

use crate::figures::Histogram;
use protocol::client::{Client, Refused};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// One line of the table.
pub struct Attack {
    pub name: &'static str,
    /// What it does, in a few words.
    pub what: &'static str,
    pub run: fn(&Stage) -> io::Result<()>,
}

/// What an attack sees, and where it says what came of it.
pub struct Stage {
    pub address: SocketAddr,
    pub clients: usize,
    until: Instant,
    ends: Mutex<BTreeMap<String, u64>>,
    stops: Mutex<Histogram>,
}

impl Stage {
    /// For so many connections, where an attack takes many; it is over after this time.
    pub fn new(address: SocketAddr, clients: usize, time: Duration) -> Stage {
        Stage {
            address,
            clients,
            until: Instant::now() + time,
            ends: Mutex::default(),
            stops: Mutex::default(),
        }
    }

    /// How often something ended how, and how long statements took to stop.
    pub fn came(self) -> (BTreeMap<String, u64>, Histogram) {
        let ends = self.ends.into_inner().expect("no thread panics with it");
        let stops = self.stops.into_inner().expect("no thread panics with it");
        (ends, stops)
    }

    /// A connection of the attacker.
    pub fn client(&self) -> io::Result<Client> {
        let client = Client::connect_as(self.address, "attacker")?;
        // An attack ends though the server should not answer.
        client
            .socket()
            .set_read_timeout(Some(Duration::from_secs(30)))?;
        client
            .socket()
            .set_write_timeout(Some(Duration::from_secs(5)))?;
        Ok(client)
    }

    /// Whether the attack has had its time.
    pub fn over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Counts how something ended.
    pub fn count(&self, how: &str) {
        let mut ends = self.ends.lock().expect("no thread panics with it");
        *ends.entry(how.to_owned()).or_default() += 1;
    }

    /// Counts how a statement ended: `done`, a SQLSTATE, or `cut off`.
    pub fn ended<T>(&self, r: &io::Result<std::result::Result<T, Refused>>) {
        match r {
            Ok(Ok(_)) => self.count("done"),
            Ok(Err(r)) => self.count(&r.code),
            Err(_) => self.count("cut off"),
        }
    }

    /// A statement was told to stop, and took this long to do so.
    pub fn stopped_after(&self, time: Duration) {
        let mut stops = self.stops.lock().expect("no thread panics with it");
        stops.add(time.as_nanos() as u64);
    }

    /// Does it on so many threads, each until the time is over or it fails.
    pub fn each(&self, threads: usize, one: impl Fn(usize) -> io::Result<()> + Sync) {
        std::thread::scope(|s| {
            for i in 0..threads {
                let one = &one;
                s.spawn(move || {
                    yield_to_watchers();
                    if one(i).is_err() {
                        self.count("cut off");
                    }
                });
            }
        });
    }

    /// Runs the statement again and again on so many connections; each is made anew when it is cut off.
    pub fn again(&self, threads: usize, sql: &str) {
        self.each(threads, |_| {
            while !self.over() {
                let mut client = match self.client() {
                    Ok(c) => c,
                    Err(e) => {
                        self.count(&format!("no login: {e}"));
                        std::thread::sleep(Duration::from_millis(100));
                        continue;
                    }
                };
                while !self.over() {
                    let r = client.query(sql);
                    self.ended(&r);
                    if r.is_err() {
                        break;
                    }
                }
            }
            Ok(())
        });
    }
}

/// The thread that runs this has less of the processors than the watchers' threads. Two hundred attackers on the server's machine would otherwise be
/// measured, and not the server.
fn yield_to_watchers() {
    // On Linux this is about the thread.
    _ = rustix::process::setpriority_process(None, 10);
}
