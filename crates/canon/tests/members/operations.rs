//! Random changes of a cluster, one after the other, under writers that keep count.
//!
//! ```text
//! CANON_OPERATIONS=500 CANON_OPERATIONS_SEED=7 cargo test -p canon --test members operations -- --nocapture
//! ```
//! The seed says which operations come, and is printed; what they meet depends on the machine's timing. Half of the operations wait until the cluster is whole
//! before, the others come while it changes still.
//!
//! A restore makes a cluster of its own of a backup of the primary, which must have all that was acknowledged before the backup began.
//!
//! Left out on purpose: links that are cut (`partitions`).

use super::*;
use env::{Random, SeededRandom};

/// Fewer copies cannot lose one, and more say nothing new.
const COPIES: std::ops::RangeInclusive<usize> = 3..=5;

/// What this variable says, or otherwise.
pub fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |n| n.parse().expect("a number"))
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Join,
    Leave,
    /// It is killed first.
    LeaveDead,
    Kill,
    Stop,
    Promote,
    /// All are killed, and started again.
    PowerCut,
    /// The primary is backed up while it works, and the backup is restored beside.
    Restore,
}

struct Cluster {
    dice: SeededRandom,
    nodes: Vec<(String, Node)>,
    /// Members there ever were.
    drawn: usize,
    writers: Option<Writers>,
    acknowledged: BTreeSet<i64>,
}

fn leads(node: &Node) -> bool {
    let (status, metrics) = get(node.http, "/metrics");
    status == 200 && metrics.contains("canon_role{role=\"primary\"} 1")
}

impl Cluster {
    fn below(&self, n: usize) -> usize {
        (self.dice.next_u64() % n as u64) as usize
    }

    async fn join(&mut self) {
        let name = format!("n{}", self.drawn);
        self.drawn += 1;
        let at = match self.nodes.is_empty() {
            true => None,
            false => Some(&self.nodes[self.below(self.nodes.len())].1.server),
        };
        let node = node(&name, at, &[]).await;
        self.nodes.push((name, node));
    }

    /// Waits until one leads, all others follow, and the loss of any is survived.
    async fn whole(&self) {
        for (_, n) in &self.nodes {
            can_fail_over(n).await;
            says(n, "it leads or follows", |m| {
                m.contains("canon_role{role=\"primary\"} 1")
                    || m.contains("canon_primary_connected 1")
            })
            .await;
        }
    }

    /// The writers know the nodes of their start: a change of the members ends them.
    async fn rewrite(&mut self) {
        if let Some(writers) = self.writers.take() {
            self.acknowledged.extend(writers.end().await);
        }
        let from = self.acknowledged.last().copied().unwrap_or(0) + 1_000_000;
        let nodes = self.nodes.iter().map(|n| n.1.server.config()).collect();
        self.writers = Some(Writers::start_at(nodes, 3, from));
    }

    async fn more(&self, n: usize) {
        let writers = self.writers.as_ref().expect("they write");
        let wanted = writers.count() + n;
        let deadline = Instant::now() + HANG;
        while writers.count() < wanted {
            if Instant::now() > deadline {
                for (name, n) in &self.nodes {
                    eprintln!("{name}\n{}", n.server.log_tail());
                }
                panic!("nothing is acknowledged any more");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// While something is away: commits where the cluster was whole before, else a moment.
    async fn meanwhile(&self, whole: bool) {
        match whole {
            true => self.more(20).await,
            false => {
                let ms = self.below(2000) as u64;
                tokio::time::sleep(Duration::from_millis(ms)).await;
            }
        }
    }

    /// A member that does not lead.
    fn replica(&self) -> usize {
        let first = self.below(self.nodes.len());
        let all = (0..self.nodes.len()).map(|i| (first + i) % self.nodes.len());
        let mut replicas = all.filter(|i| !leads(&self.nodes[*i].1));
        replicas.next().unwrap_or(first)
    }

    /// Takes this member out by another one's word. False: it was refused, as the cluster changes just now.
    async fn leave(&mut self, i: usize, dead: bool) -> bool {
        let (name, _) = &self.nodes[i];
        let asked = (i + 1) % self.nodes.len();
        let server = at(&self.nodes[asked].1);
        let (done, said) = canon(&["leave", "--server", &server, "--member", name]);
        println!("  {name}: {}", said.trim());
        if !done {
            return false;
        }
        let (_, mut node) = self.nodes.remove(i);
        if !dead {
            let ended = node.server.exited(HANG).await;
            assert!(ended.is_some(), "{}", node.server.log_tail());
        }
        self.rewrite().await;
        true
    }

    /// What was acknowledged until now.
    fn acknowledged(&self) -> BTreeSet<i64> {
        let writers = self.writers.as_ref().expect("they write");
        let now = writers.acknowledged.lock().expect("whole").clone();
        self.acknowledged.union(&now).copied().collect()
    }

    async fn restore(&self) {
        let Some((name, primary)) = self.nodes.iter().find(|(_, n)| leads(n)) else {
            return println!("  nothing to back up: none leads just now");
        };
        let acknowledged = self.acknowledged();
        let mut server = Server::canon(&[("CANON_NODE_NAME", "restored")]);
        let archive = format!("file://{}/archive", server.scratch().display());
        let (from, to) = (primary.server.data_dir(), server.data_dir());
        let (from, to) = (from.display().to_string(), to.display().to_string());
        let (done, said) = canon(&["backup", "--data", &from, "--to", &archive]);
        assert!(done, "{name}: {said}");
        let (done, said) = canon(&["restore", "--from", &archive, "--to", &to]);
        assert!(done, "{name}: {said}");
        server.launch();
        server.ready().await;
        println!("  {name}: {} rows at least", acknowledged.len());
        let http = 0;
        has_all(&Node { server, http }, &acknowledged).await;
    }

    async fn again(&mut self, i: usize) {
        self.nodes[i].1.server.launch();
        self.nodes[i].1.server.ready().await;
    }

    async fn does(&mut self, operation: Operation, whole: bool) {
        let any = self.below(self.nodes.len());
        match operation {
            Operation::Join => {
                self.join().await;
                self.rewrite().await;
            }
            Operation::Leave => {
                let i = self.replica();
                self.leave(i, false).await;
            }
            Operation::LeaveDead => {
                let i = self.replica();
                self.nodes[i].1.server.kill();
                if !self.leave(i, true).await {
                    self.again(i).await;
                }
            }
            Operation::Kill => {
                self.nodes[any].1.server.kill();
                self.meanwhile(whole).await;
                self.again(any).await;
            }
            Operation::Stop => {
                signal(&self.nodes[any].1, "-STOP");
                self.meanwhile(whole).await;
                signal(&self.nodes[any].1, "-CONT");
            }
            Operation::Promote => {
                let i = self.replica();
                let (_, said) = canon(&["promote", "--server", &at(&self.nodes[i].1)]);
                println!("  {}: {}", self.nodes[i].0, said.trim());
            }
            Operation::PowerCut => {
                for (_, n) in &mut self.nodes {
                    n.server.kill();
                }
                for (_, n) in &mut self.nodes {
                    n.server.launch();
                }
                for (_, n) in &mut self.nodes {
                    n.server.ready().await;
                }
            }
            Operation::Restore => self.restore().await,
        }
    }

    fn draw(&self) -> Operation {
        let (least, most) = (*COPIES.start(), *COPIES.end());
        loop {
            let operation = match self.below(13) {
                0..=1 => Operation::Join,
                2 => Operation::Leave,
                3 => Operation::LeaveDead,
                4..=6 => Operation::Kill,
                7..=8 => Operation::Stop,
                9..=10 => Operation::Promote,
                11 => Operation::Restore,
                _ => Operation::PowerCut,
            };
            let fits = match operation {
                Operation::Join => self.nodes.len() < most,
                Operation::Leave | Operation::LeaveDead => self.nodes.len() > least,
                _ => true,
            };
            if fits {
                return operation;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_operations_lose_nothing() {
    if skip() {
        return;
    }
    let operations = number("CANON_OPERATIONS", 8);
    let seed = number("CANON_OPERATIONS_SEED", 1);
    println!("CANON_OPERATIONS={operations} CANON_OPERATIONS_SEED={seed}");
    let mut cluster = Cluster {
        dice: SeededRandom::new(seed),
        nodes: vec![],
        drawn: 0,
        writers: None,
        acknowledged: BTreeSet::new(),
    };
    for _ in 0..*COPIES.start() {
        cluster.join().await;
    }
    cluster.whole().await;
    let c = cluster.nodes[0].1.server.connect().await;
    c.batch_execute("CREATE TABLE kept (n bigint PRIMARY KEY)")
        .await
        .expect("a table");
    cluster.rewrite().await;
    for n in 0..operations {
        let operation = cluster.draw();
        // One that leaves may be needed by a change that goes on, and a primary that is about to be replaced lacks what the next one acknowledges.
        use Operation::{Leave, LeaveDead, Restore};
        let settled = matches!(operation, Leave | LeaveDead | Restore);
        let whole = cluster.below(2) == 0 || settled;
        println!(
            "{n}: {operation:?} of {}, whole: {whole}",
            cluster.nodes.len()
        );
        if whole {
            cluster.whole().await;
            cluster.more(10).await;
        }
        cluster.does(operation, whole).await;
    }
    cluster.whole().await;
    cluster.more(20).await;
    cluster.rewrite().await;
    for (_, node) in &cluster.nodes {
        has_all(node, &cluster.acknowledged).await;
    }
    println!("{} acknowledged", cluster.acknowledged.len());
}
