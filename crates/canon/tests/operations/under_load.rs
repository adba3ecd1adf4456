//! A server at work while its directory is read: rows and checkpoints all the time, and what a copy of it has to show.

use super::common::Server;
use super::helpers::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Rows that come and go, and checkpoints one after the other, so that segments go and are recycled all the time.
pub struct Filler {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Filler {
    pub async fn start(s: &Server) -> Filler {
        let stop = Arc::new(AtomicBool::new(false));
        let (rows_in, checkpoints) = (s.connect().await, s.connect().await);
        rows(
            &rows_in,
            "CREATE TABLE filler (id serial PRIMARY KEY, x text)",
        )
        .await;
        let asked = stop.clone();
        let filling = tokio::spawn(async move {
            while !asked.load(Ordering::SeqCst) {
                let sql =
                    "INSERT INTO filler (x) SELECT repeat('x', 3000) FROM generate_series(1, 40)";
                rows(&rows_in, sql).await;
                let sql = "DELETE FROM filler WHERE id < (SELECT max(id) - 500 FROM filler)";
                rows(&rows_in, sql).await;
            }
        });
        let asked = stop.clone();
        let checkpointing = tokio::spawn(async move {
            while !asked.load(Ordering::SeqCst) {
                rows(&checkpoints, "CHECKPOINT").await;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Filler {
            stop,
            tasks: vec![filling, checkpointing],
        }
    }

    pub async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for task in self.tasks {
            task.await.expect("it fills");
        }
    }
}

/// A server of its own in this directory has all that was acknowledged, and its books are in order.
pub async fn starts_whole(server: &mut Server, acknowledged: u64) {
    server.launch();
    server.ready().await;
    let c = server.connect().await;
    let sum = one(&c, "SELECT sum(balance) FROM accounts").await;
    assert_eq!(sum, TOTAL.to_string());
    let moves: u64 = one(&c, "SELECT count(*) FROM moves")
        .await
        .parse()
        .expect("a number");
    assert!(moves >= acknowledged, "{moves} of {acknowledged}");
    rows(&c, "INSERT INTO moves (sum) VALUES (1)").await;
}
