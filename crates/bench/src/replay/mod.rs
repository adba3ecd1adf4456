//! How replay compares with the primary: C5's experiment (§7.3) with the library as the primary.
//!
//! ```text
//! round:  primary runs a load for a while, its log is kept ─▶ each policy replays that log into a fresh store, one after the other
//! ```
//! The primary is measured first, in the same run and on the same CPUs: as many client threads as replay has workers, beside them its
//! flusher, as the thread that feeds replay and writes the replica's log is beside the workers. Indexes and log are on in both; both
//! logs are in the same directory. Replay is timed from the first group to the last position installed, the replica's log synced.
//!
//! Prints a line per figure, tab-separated, for `cargo xtask bench replay` to put in a page:
//! ```text
//! primary  load  round  transactions/s  rows/s  CPU us/transaction
//! replay   load  round  policy  transactions/s  ratio to the primary of the round  rows/s  deferred  CPU us/transaction
//! alone    what  rows/s
//! model    load  cores  policy  ratio to the primary  (transactions/s of the primary)
//! ```
//! Left out on purpose: the network, and reads beside replay; the lag of a live replica is measured elsewhere.

mod follow;
mod loads;
mod model;
mod options;

use base::{Error, Result};
use replica::{Policy, ReplayOptions};
use std::io::Write;

use loads::Load;
pub(crate) use loads::spread;
pub use options::Options;

/// Measures, and writes a line per figure.
pub fn run(o: &Options, out: &mut dyn Write) -> Result<()> {
    let mut line = |text: String| {
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|e| Error::internal(e.to_string()))
    };
    for round in 0..o.rounds {
        for load in Load::all(o.quick, o.row_cost.is_some()) {
            let name = load.name();
            if !name.contains(&o.only) {
                continue;
            }
            let recorded = loads::record(&load, o)?;
            let p = &recorded.primary;
            line(format!(
                "primary\t{name}\t{round}\t{:.0}\t{:.0}\t{:.2}",
                p.transactions_per_second(),
                p.rows_per_second(),
                p.micros_of_cpu()
            ))?;
            for &policy in &o.policies {
                let r = follow::replay(&recorded, o.replay(policy), o)?;
                line(format!(
                    "replay\t{name}\t{round}\t{policy}\t{:.0}\t{:.3}\t{:.0}\t{}\t{:.2}",
                    r.transactions_per_second(),
                    r.transactions_per_second() / p.transactions_per_second(),
                    r.rows_per_second(),
                    r.deferred,
                    r.micros_of_cpu()
                ))?;
            }
            if o.extras && round == 0 && matches!(load, Load::Insert { index: false }) {
                let rate = follow::scheduler_alone(&recorded, &o.replay(Policy::Row))?;
                line(format!(
                    "alone\tscheduler, insert-only, per second that it had a CPU\t{rate:.0}"
                ))?;
                let one = ReplayOptions {
                    workers: 1,
                    ..o.replay(Policy::Row)
                };
                let r = follow::replay(&recorded, one, o)?;
                line(format!(
                    "alone\tone worker, insert-only\t{:.0}",
                    r.rows_per_second()
                ))?;
                line(format!(
                    "alone\tone worker, insert-only, per second that it had a CPU\t{:.0}",
                    r.rows_per_worker_second()
                ))?;
            }
        }
    }
    if o.extras && o.row_cost.is_none() && o.only.is_empty() {
        let costs = model::calibrate(o)?;
        line(format!("costs\t{costs}"))?;
        for m in model::figures(&costs, o.quick) {
            line(format!(
                "model\t{}\t{}\t{}\t{:.3}\t{:.0}",
                m.load, m.cores, m.policy, m.ratio, m.primary
            ))?;
        }
    }
    Ok(())
}
