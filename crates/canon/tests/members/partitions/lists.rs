//! Clients that append to lists and read them at any server that answers, in transactions. `workload::list_append` judges what they saw.
//!
//! It finds an acknowledged append that is lost, one that two primaries took, and a read that is older than an acknowledgement before it.
//!
//! Left out on purpose: many clients. The history has to be long enough for the checker, not for the servers.

use super::*;
use workload::list_append::{Generator, Op, Outcome, Plan, Shape, Txn};

pub const TABLE: &str = "CREATE TABLE IF NOT EXISTS lists (k int PRIMARY KEY, v text NOT NULL)";
pub const ALL: &str = "SELECT k, v FROM lists ORDER BY k";

fn list(rows: &[(u64, String)], key: u64) -> Vec<u64> {
    let found = rows.iter().find(|r| r.0 == key);
    let numbers = found.map(|r| r.1.split(',').map(|n| n.parse().expect("a number")));
    numbers.map_or(vec![], Iterator::collect)
}

/// Executes the operations, and adds to `ops` what was done and seen.
async fn execute(c: &Client, plans: &[Plan], ops: &mut Vec<Op>) -> Result<(), Error> {
    for plan in plans {
        match *plan {
            Plan::Append(key, value) => {
                // Noted first: whether it happened may stay unknown.
                ops.push(Op::Append(key, value));
                let sql = format!(
                    "INSERT INTO lists VALUES ({key}, '{value}') \
                     ON CONFLICT (k) DO UPDATE SET v = lists.v || ',' || excluded.v"
                );
                c.batch_execute(&sql).await?;
            }
            Plan::Read(key) => {
                let rows = ask(c, &format!("SELECT k, v FROM lists WHERE k = {key}")).await?;
                ops.push(Op::Read(key, list(&rows, key)));
            }
            Plan::ReadRange(low, high) => {
                let sql = format!("SELECT k, v FROM lists WHERE k BETWEEN {low} AND {high}");
                let rows = ask(c, &sql).await?;
                ops.extend((low..=high).map(|key| Op::Read(key, list(&rows, key))));
            }
        }
    }
    Ok(())
}

/// Runs one transaction: how it ended, and whether the session may go on.
async fn transaction(c: &Client, plans: &[Plan], ops: &mut Vec<Op>) -> (Outcome, bool) {
    let in_time = async |sql: &str| tokio::time::timeout(SILENCE, c.batch_execute(sql)).await;
    let ended = |done| match done {
        Ok(Ok(())) => (Outcome::Ok, true),
        Ok(Err(e)) if ["40001", "40P01"].contains(&common::sqlstate(&e).as_str()) => {
            (Outcome::Fail, true)
        }
        Ok(Err(_)) | Err(_) => (Outcome::Unknown, false),
    };
    if plans.len() == 1 {
        return ended(tokio::time::timeout(SILENCE, execute(c, plans, ops)).await);
    }
    if !matches!(in_time("BEGIN").await, Ok(Ok(()))) {
        return (Outcome::Fail, false);
    }
    // COMMIT was not sent, so it cannot have committed.
    match tokio::time::timeout(SILENCE, execute(c, plans, ops)).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => {
            let goes_on = matches!(in_time("ROLLBACK").await, Ok(Ok(())));
            return (Outcome::Fail, goes_on);
        }
        Err(_) => return (Outcome::Fail, false),
    }
    ended(in_time("COMMIT").await)
}

/// What all clients share.
#[derive(Clone)]
struct Shared {
    stop: Arc<AtomicBool>,
    committed: Arc<AtomicUsize>,
    generator: Arc<Mutex<Generator>>,
    configs: Vec<Config>,
    /// Said first on every other connection.
    init: &'static str,
    begin: Instant,
}

pub struct Lists {
    shared: Shared,
    threads: Vec<std::thread::JoinHandle<Vec<Txn>>>,
}

impl Lists {
    /// The table is there.
    pub fn start(net: &Arc<Net>, configs: &[Config], init: &'static str) -> Lists {
        let shared = Shared {
            stop: Arc::default(),
            committed: Arc::default(),
            generator: Arc::new(Mutex::new(Generator::new(7, Shape::default()))),
            configs: configs.to_vec(),
            init,
            begin: Instant::now(),
        };
        let one = |i: usize| {
            let (net, shared) = (net.clone(), shared.clone());
            std::thread::spawn(move || {
                net.enter(CLIENTS[i % 2]);
                runtime().block_on(shared.run(i))
            })
        };
        let threads = (0..4).map(one).collect();
        Lists { shared, threads }
    }

    pub fn committed(&self) -> usize {
        self.shared.committed.load(Ordering::SeqCst)
    }

    /// Ends them: what they saw.
    pub fn end(&mut self) -> Vec<Txn> {
        self.shared.stop.store(true, Ordering::SeqCst);
        let all = self.threads.drain(..);
        all.flat_map(|t| t.join().expect("a client ends")).collect()
    }

    /// What is there at the end, so that no append stays unseen.
    pub fn last(&self, history: &[Txn], rows: &[(u64, String)]) -> Txn {
        let last = history.iter().map(|t| t.complete).max().unwrap_or(0);
        let keys = 0..self.shared.generator.lock().expect("whole").keys();
        Txn {
            site: 0,
            invoke: last + 1,
            complete: last + 2,
            outcome: Outcome::Ok,
            ops: keys.map(|k| Op::Read(k, list(rows, k))).collect(),
        }
    }
}

/// Their network goes with the last of them, also after a panic.
impl Drop for Lists {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for t in self.threads.drain(..) {
            // A panic of its own was printed.
            _ = t.join();
        }
    }
}

impl Shared {
    async fn run(&self, i: usize) -> Vec<Txn> {
        let mut history = Vec::new();
        let now = || self.begin.elapsed().as_nanos() as u64;
        let goes_on = || !self.stop.load(Ordering::SeqCst);
        let mut at = i;
        while goes_on() {
            at += 1;
            let site = at % self.configs.len();
            let Some(c) = connect(&self.configs[site]).await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let init = [self.init, ""][at / self.configs.len() % 2];
            let said = tokio::time::timeout(SILENCE, c.batch_execute(init)).await;
            let mut answers = matches!(said, Ok(Ok(())));
            while answers && goes_on() {
                let plans = self.generator.lock().expect("whole").next_txn();
                let mut ops = Vec::new();
                let invoke = now();
                let outcome;
                (outcome, answers) = transaction(&c, &plans, &mut ops).await;
                let writes = ops.iter().any(|o| matches!(o, Op::Append(..)));
                let done = outcome == Outcome::Ok && writes;
                self.committed
                    .fetch_add(usize::from(done), Ordering::SeqCst);
                let complete = now();
                history.push(Txn {
                    site,
                    invoke,
                    complete,
                    outcome,
                    ops,
                });
                // What is checked is long enough.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        history
    }
}
