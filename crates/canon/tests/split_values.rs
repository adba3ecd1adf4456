//! Split values over the wire.
//!
//! | module | shows |
//! |---|---|
//! | `split_values/hot.rs` | a stock that 64 clients sell through kill -9 and a promotion: what is sold is what was acknowledged |
//! | `split_values/view.rs` | `canon_split_values`: what it shows of a value, and to which roles |
//! | `split_values/replica.rs` | values with further records at a replica: strong reads, reads of a session, tokens |
//! | `split_values/upgrade.rs` | a running table is made split and plain again, while its writers keep count |
//!
//! Beside them: `tests/isolation/split_*.iso` (two sessions), `tests/slt/split.slt` (what can be split), `tests/crash.rs` (kills in the middle of the
//! worker's steps), `txn/tests/splits.rs` (random histories).

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[path = "split_values/hot.rs"]
mod hot;
#[path = "split_values/replica.rs"]
mod replica;
#[path = "split_values/upgrade.rs"]
mod upgrade;
#[path = "split_values/view.rs"]
mod view;

use helpers::one;
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// Has the worker give the stock's value 1 that many further records, which it does for a value with deltas.
async fn spread(c: &Client, records: u16) {
    let set = format!("ALTER TABLE stock ALTER COLUMN qty SET (split = on, split_min = {records})");
    c.batch_execute(&set).await.expect("a setting");
    let there = "SELECT coalesce(max(records), 1)::text FROM canon_split_values
        WHERE column_name = 'qty' AND key LIKE '%(1)'";
    let deadline = Instant::now() + common::PATIENCE;
    // The row is one of them.
    while one(c, there).await != (records + 1).to_string() {
        let deltas = "UPDATE stock SET qty = qty + 1 WHERE id = 1; UPDATE stock SET qty = qty - 1 WHERE id = 1";
        c.batch_execute(deltas).await.expect("two deltas");
        assert!(Instant::now() < deadline, "the worker gives no records");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
