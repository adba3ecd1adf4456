//! Reads in real time under partitions: writers add one to registers, and a reader at each server looks at them. `workload::registers` judges.
//!
//! All of them are threads of this process, whose atomics are the one clock.
//!
//! Left out on purpose: times. A read is old when it lacks what was acknowledged before it began, however little before.

use super::*;
use workload::registers::{Kind, Layout, Tally, Watch};
use workload::rng::Rng;

const LAYOUT: Layout = Layout { tables: 1, rows: 4 };

/// What the readers have found.
#[derive(Default)]
struct Found {
    /// Of each server.
    tallies: Vec<Tally>,
    /// The first reads that were old, or from nowhere.
    wrong: Vec<String>,
}

#[derive(Clone)]
struct Shared {
    stop: Arc<AtomicBool>,
    watch: Arc<Watch>,
    found: Arc<Mutex<Found>>,
    configs: Vec<Config>,
    /// Said first on each connection that reads.
    init: &'static str,
    begin: Instant,
}

pub struct Registers {
    shared: Shared,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// Statements that make the tables.
pub fn setup() -> Vec<String> {
    LAYOUT.setup()
}

impl Registers {
    /// The tables are there.
    pub fn start(net: &Arc<Net>, configs: &[Config], init: &'static str) -> Registers {
        let tallies = vec![Tally::default(); configs.len()];
        let found = Found {
            tallies,
            ..Found::default()
        };
        let shared = Shared {
            stop: Arc::default(),
            watch: Arc::new(Watch::new(&LAYOUT)),
            found: Arc::new(Mutex::new(found)),
            configs: configs.to_vec(),
            init,
            begin: Instant::now(),
        };
        let inside = |port: usize, i: usize, reads: bool| {
            let (net, shared) = (net.clone(), shared.clone());
            std::thread::spawn(move || {
                net.enter(port);
                runtime().block_on(async {
                    match reads {
                        true => shared.read_at(i).await,
                        false => shared.write(i).await,
                    }
                });
            })
        };
        let mut threads: Vec<_> = (0..CLIENTS.len())
            .map(|i| inside(CLIENTS[i], i, false))
            .collect();
        // No shape cuts this client off, so each server is read from all the time.
        threads.extend((0..configs.len()).map(|i| inside(CLIENTS[1], i, true)));
        Registers { shared, threads }
    }

    /// Reads that were old, or showed what was never written.
    pub fn wrong(&self) -> Vec<String> {
        self.shared.found.lock().expect("whole").wrong.clone()
    }

    /// Ends them. What they have read at each server, and what was acknowledged of each register.
    pub fn end(&mut self) -> (Vec<Tally>, Vec<u64>) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for t in self.threads.drain(..) {
            t.join().expect("a client ends");
        }
        let found = self.shared.found.lock().expect("whole");
        let all = (0..LAYOUT.registers()).map(|r| self.shared.watch.expected(r));
        (found.tallies.clone(), all.collect())
    }
}

/// Their network goes with the last of them, also after a panic.
impl Drop for Registers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for t in self.threads.drain(..) {
            // A panic of its own was printed.
            _ = t.join();
        }
    }
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst)
    }

    /// Microseconds.
    fn now(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64
    }

    /// Writes wherever it is answered.
    async fn write(&self, i: usize) {
        let mut rng = Rng::new(i as u64);
        let mut at = i;
        while self.goes_on() {
            at += 1;
            let Some(c) = connect(&self.configs[at % self.configs.len()]).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            while self.goes_on() {
                let register = LAYOUT.draw(&mut rng, 0.5);
                self.watch.begin(register);
                let sql = LAYOUT.add(register);
                let added = tokio::time::timeout(SILENCE, c.simple_query(&sql)).await;
                let Ok(Ok(added)) = added else { break };
                let value = added.iter().find_map(|m| match m {
                    SimpleQueryMessage::Row(r) => r.get(0)?.parse().ok(),
                    _ => None,
                });
                let value = value.expect("a value");
                self.watch.note(register, value, self.now());
                tokio::time::sleep(Duration::from_millis(4)).await;
            }
        }
    }

    async fn read_at(&self, i: usize) {
        let mut rng = Rng::new(100 + i as u64);
        while self.goes_on() {
            let Some(c) = connect(&self.configs[i]).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let begun = tokio::time::timeout(SILENCE, c.batch_execute(self.init)).await;
            let mut answers = matches!(begun, Ok(Ok(())));
            while answers && self.goes_on() {
                let register = LAYOUT.draw(&mut rng, 0.5);
                answers = self.look(&c, i, register, rng.below(3) as usize).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }

    /// One read. False: there was no answer.
    async fn look(&self, c: &Client, i: usize, register: usize, kind: usize) -> bool {
        let read = LAYOUT.read(register, Kind::ALL[kind]);
        let expected = read.registers.iter().map(|r| self.watch.expected(*r));
        let expected: Vec<u64> = expected.collect();
        let asked = self.now();
        let Ok(Ok(rows)) = tokio::time::timeout(SILENCE, ask(c, &read.sql)).await else {
            return false;
        };
        let value = |register: usize| {
            let is = |r: &&(u64, String)| LAYOUT.register(register, r.0 as usize) == register;
            let row = rows.iter().find(is)?;
            row.1.parse::<u64>().ok()
        };
        let seen = read.registers.iter().zip(&expected);
        let seen: Vec<_> = seen.map(|(r, e)| (*r, *e, value(*r))).collect();
        let mut found = self.found.lock().expect("whole");
        let before = found.tallies[i];
        let stale = found.tallies[i].read(&self.watch, seen.iter().copied());
        if stale || found.tallies[i].wrong > before.wrong {
            let (name, came) = (NAMES[i], self.now());
            let old = seen.iter().filter(|s| s.2.is_some_and(|v| v < s.1));
            let missed: Vec<_> = old
                .filter_map(|s| self.watch.missed_at(s.0, s.2?))
                .collect();
            found.wrong.push(format!(
                "at {name}, asked at {asked} us and answered at {came} us: (register, acknowledged, shown) {seen:?}; what is missed was acknowledged at {missed:?} us"
            ));
        }
        true
    }
}
