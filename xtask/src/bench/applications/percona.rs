//! sysbench-tpcc: TPC-C as a Lua program for sysbench.
//!
//! ```text
//! sysbench tpcc.lua --tables=1 --scale=2 … prepare        sysbench tpcc.lua … --time=N --percentile=99 run ──▶ `figures` ──▶ Figures
//! ```
//! The program counts a transaction that TPC-C itself rolls back (one New-Order of a hundred) and one that ended with 40001, 40P01 or 23505 as the same
//! *ignored error*, so the page has one number for both. Its own default level is REPEATABLE READ.
//!
//! Left out on purpose: `--enable_purge`, which deletes old orders; further sets of tables.

use super::driver::{Driver, Figures, LOAD_LIMIT, Place, READ_COMMITTED};
use crate::Result;
use crate::bench::peers::output;
use crate::bench::sample::after;
use crate::guard::Guard;
use crate::server::USER;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const NAME: &str = "sysbench-tpcc";

/// The program's default.
const OWN_LEVEL: &str = "repeatable read";
const WAREHOUSES: u32 = 2;

pub struct Tpcc {
    checkout: PathBuf,
    sysbench: PathBuf,
}

impl Tpcc {
    pub fn new(checkout: &Path, sysbench: &Path) -> Result<Tpcc> {
        if !checkout.join("tpcc.lua").is_file() {
            return Err(format!("{}: there is no tpcc.lua", checkout.display()));
        }
        Ok(Tpcc {
            checkout: checkout.to_path_buf(),
            sysbench: sysbench.to_path_buf(),
        })
    }

    fn command(&self, at: &Place, level: &str, what: &str) -> Command {
        let mut sysbench = Command::new(&self.sysbench);
        // Its parts find each other in the working directory.
        sysbench.current_dir(&self.checkout).arg("tpcc.lua");
        sysbench.args(["--db-driver=pgsql", "--pgsql-host=127.0.0.1"]);
        sysbench.arg(format!("--pgsql-port={}", at.port));
        sysbench.args([format!("--pgsql-user={USER}"), format!("--pgsql-db={USER}")]);
        sysbench.args(["--tables=1".to_owned(), format!("--scale={WAREHOUSES}")]);
        sysbench.arg(match level {
            READ_COMMITTED => "--trx_level=RC",
            _ => "--trx_level=RR",
        });
        sysbench.arg(what);
        sysbench
    }
}

impl Driver for Tpcc {
    fn name(&self) -> String {
        NAME.into()
    }

    fn scale(&self) -> String {
        format!("{WAREHOUSES} warehouses")
    }

    fn levels(&self) -> Vec<String> {
        [READ_COMMITTED, OWN_LEVEL].map(String::from).into()
    }

    fn load(&self, at: &Place, guard: &mut Guard) -> Result<()> {
        let mut prepare = self.command(at, READ_COMMITTED, "prepare");
        prepare.arg("--threads=2");
        output(&prepare, LOAD_LIMIT, guard).map(drop)
    }

    fn execute(&self, at: &Place, level: &str, guard: &mut Guard) -> Result<Figures> {
        let mut run = self.command(at, level, "run");
        run.arg(format!("--threads={}", at.terminals));
        run.arg(format!("--time={}", at.seconds));
        run.args(["--percentile=99", "--report-interval=0"]);
        figures(&output(&run, at.seconds * 3 + 60, guard)?)
    }
}

fn figures(said: &str) -> Result<Figures> {
    let number =
        |label: &str| after(said, label).ok_or(format!("sysbench said no {label}\n{said}"));
    let (committed, seconds) = (number("transactions")?, number("total time")?);
    if committed == 0.0 {
        return Err(format!("no transaction committed\n{said}"));
    }
    Ok(Figures {
        committed,
        tps: committed / seconds,
        p99_ms: number("99th percentile")?,
        cpu_us: 0.0,
        rolled_back: None,
        retried: number("ignored errors")? / committed,
        errors: 0.0,
        states: BTreeMap::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysbench_says_is_read() {
        let said = "SQL statistics:\n    transactions:                        900    (89.98 per sec.)\n    queries:  1000 (10 per sec.)\n\
                    \x20   ignored errors:                      9      (0.90 per sec.)\n\
                    General statistics:\n    total time:                          10.0000s\n\
                    Latency (ms):\n         avg:                                   88.71\n         99th percentile:                      204.11\n";
        let found = figures(said).unwrap();
        assert_eq!((found.committed, found.tps), (900.0, 90.0));
        assert_eq!((found.p99_ms, found.retried), (204.11, 0.01));
        assert_eq!(found.rolled_back, None);
        assert!(figures("FATAL: unable to connect").is_err());
    }
}
