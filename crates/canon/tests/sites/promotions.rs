//! Another node becomes the primary under sites that write: what their clients were told of transfers holds afterwards.

use super::common::Server;
use super::helpers::{promote, replica_with, skip};
use super::kills::{Told, accounts, assert_told, begin, transfers};
use super::{ready, site};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::task::JoinHandle;

/// Transfers at several nodes.
struct Load {
    numbers: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<Vec<(u64, Told)>>>,
}

impl Load {
    /// The transfers have numbers from this one on.
    fn at(servers: &[&Server], first: u64) -> Load {
        let (numbers, stop) = (
            Arc::new(AtomicU64::new(first)),
            Arc::<AtomicBool>::default(),
        );
        let mut clients = Vec::new();
        for server in servers {
            for level in ["SERIALIZABLE", "REPEATABLE READ"] {
                let (numbers, stop) = (numbers.clone(), stop.clone());
                clients.push(tokio::spawn(transfers(
                    server.config(),
                    level,
                    numbers,
                    stop,
                )));
            }
        }
        Load {
            numbers,
            stop,
            clients,
        }
    }

    async fn some(&self, more: u64) {
        begin(&self.numbers, more).await;
    }

    async fn end(self) -> Vec<(u64, Told)> {
        self.stop.store(true, Ordering::SeqCst);
        let mut told = Vec::new();
        for c in self.clients {
            told.extend(c.await.expect("a client ends"));
        }
        told
    }
}

/// The site is started again as a site of another primary.
pub async fn follow(node: &mut Server, name: &str, primary: &Server) {
    node.kill();
    let of = format!("{}:{}", primary.host, primary.port);
    node.set_env(&[
        ("CANON_REPLICA_OF", &of),
        ("CANON_NODE_NAME", name),
        ("CANON_SITE", "true"),
    ]);
    node.launch();
    node.ready().await;
}

/// Under transfers at two sites and the primary its replica is promoted, with the primary's consent or after its end. Nothing that was
/// acknowledged is lost: each follower has what is.
async fn promoted(planned: bool) {
    let all = [("CANON_SYNCHRONOUS_REPLICAS", "3")];
    let mut old = Server::start_with(&all).await;
    let mut a = site(&old, "a").await;
    let mut b = site(&old, "b").await;
    let heir = replica_with(&old, "heir", &[("CANON_SYNCHRONOUS_REPLICAS", "0")]).await;
    let p = old.connect().await;
    accounts(&p).await;
    ready(&p, &[&a, &b, &heir]).await;
    let load = Load::at(&[&a, &b, &old], 0);
    load.some(100).await;
    match planned {
        true => {
            let report = promote(&heir, &[]);
            assert!(report.contains("nothing is lost"), "{report}");
        }
        false => {
            old.kill_now();
            old.kill();
            promote(&heir, &["--force", "--old-primary-is-down"]);
        }
    }
    follow(&mut a, "a", &heir).await;
    follow(&mut b, "b", &heir).await;
    load.some(100).await;
    let mut told = load.end().await;
    let next = told.iter().map(|t| t.0 + 1).max();
    let load = Load::at(&[&a, &b, &heir], next.unwrap_or(0));
    load.some(60).await;
    told.extend(load.end().await);
    let w = heir.connect().await;
    ready(&w, &[&a, &b]).await;
    for s in [&heir, &a, &b] {
        assert_told(&s.connect().await, &told).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_promotion_under_sites_keeps_what_they_were_told() {
    if !skip() {
        promoted(true).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_promotion_under_sites_keeps_what_they_were_told() {
    if !skip() {
        promoted(false).await;
    }
}

/// A site becomes the primary itself. What it had sent has committed where its history says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_site_that_is_promoted_keeps_what_it_told() {
    if skip() {
        return;
    }
    let old = Server::start().await;
    let p = old.connect().await;
    accounts(&p).await;
    let a = site(&old, "a").await;
    let mut b = site(&old, "b").await;
    ready(&p, &[&a, &b]).await;
    let load = Load::at(&[&a, &b], 0);
    load.some(100).await;
    let report = promote(&a, &[]);
    assert!(report.contains("nothing is lost"), "{report}");
    follow(&mut b, "b", &a).await;
    load.some(60).await;
    let told = load.end().await;
    let w = a.connect().await;
    ready(&w, &[&b]).await;
    for s in [&a, &b] {
        assert_told(&s.connect().await, &told).await;
    }
}
