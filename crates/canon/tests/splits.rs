//! Split values over the wire.
//!
//! | module | shows |
//! |---|---|
//! | `splits/hot.rs` | a stock that 64 clients sell through kill -9 and a promotion: what is sold is what was acknowledged |
//!
//! Beside them: `tests/isolation/split_*.iso` (two sessions), `tests/slt/split.slt` (what can be split), `txn/tests/splits.rs` (random histories).

mod common;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[path = "splits/hot.rs"]
mod hot;
