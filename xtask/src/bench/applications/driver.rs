//! What a benchmark is to the rounds: it fills its tables at a server, and runs there at an isolation level.
//!
//! Left out on purpose: servers and their CPU time, which the caller has.

use crate::Result;
use crate::guard::Guard;
use std::collections::BTreeMap;
use std::path::Path;

/// Seconds that the tables of one benchmark may take to be filled.
pub const LOAD_LIMIT: u32 = 1200;

/// The level that both servers have by default.
pub const READ_COMMITTED: &str = "read committed";

/// One run of a benchmark at one server.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Figures {
    /// Transactions that committed, in all; the CPU time is theirs.
    pub committed: f64,
    /// Committed transactions per second.
    pub tps: f64,
    pub p99_ms: f64,
    /// CPU time of the server per committed transaction, in microseconds.
    pub cpu_us: f64,
    /// Rolled back as the benchmark wants it, per committed transaction; `None`: not told apart from `retried`.
    pub rolled_back: Option<f64>,
    /// Tries that ended with 40001, or what the program counts as such, per committed transaction.
    pub retried: f64,
    /// Errors that the benchmark does not expect, per committed transaction.
    pub errors: f64,
    /// How often each SQLSTATE was one of these errors.
    pub states: BTreeMap<String, usize>,
}

/// Where a benchmark runs.
pub struct Place<'a> {
    pub port: u16,
    /// For files of this run.
    pub directory: &'a Path,
    pub terminals: u32,
    pub seconds: u32,
}

/// A program with one benchmark.
pub trait Driver {
    fn name(&self) -> String;
    /// How large its tables are, in its own terms.
    fn scale(&self) -> String;
    /// Its isolation levels by the names of SQL; the first is READ COMMITTED.
    fn levels(&self) -> Vec<String>;
    /// Makes and fills its tables.
    fn load(&self, at: &Place, guard: &mut Guard) -> Result<()>;
    /// One run; `cpu_us` is left to the caller.
    fn execute(&self, at: &Place, level: &str, guard: &mut Guard) -> Result<Figures>;
}
