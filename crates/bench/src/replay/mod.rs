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

use base::{Error, Result};
use replica::{Policy, ReplayOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use loads::Load;

/// What to measure.
pub struct Options {
    /// Where data directories are made; in memory, the disk is not what is measured.
    pub directory: PathBuf,
    /// How long the primary runs each load.
    pub duration: Duration,
    pub rounds: usize,
    /// Client threads of the primary, and workers of the replica.
    pub threads: usize,
    /// Each row write waits this long besides, at the primary and at the replica.
    pub row_cost: Option<Duration>,
    /// Only loads whose names contain this.
    pub only: String,
    pub policies: Vec<Policy>,
    /// Few loads.
    pub quick: bool,
    /// The discrete-event model, and the parts alone.
    pub extras: bool,
}

impl Options {
    /// From the command line; see [`USAGE`].
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Options> {
        let mut o = Options {
            directory: "/dev/shm".into(),
            duration: Duration::from_secs(2),
            rounds: 5,
            threads: 2,
            row_cost: None,
            only: String::new(),
            policies: Policy::ALL.to_vec(),
            quick: false,
            extras: true,
        };
        let wrong = |what: &str| Error::internal(format!("{what}\n{USAGE}"));
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || {
                args.next()
                    .ok_or_else(|| wrong(&format!("{arg} needs a value")))
            };
            match arg.as_str() {
                "--directory" => o.directory = value()?.into(),
                "--seconds" => {
                    let s: f64 = value()?.parse().map_err(|_| wrong("--seconds?"))?;
                    o.duration = Duration::from_secs_f64(s);
                }
                "--rounds" => o.rounds = value()?.parse().map_err(|_| wrong("--rounds?"))?,
                "--threads" => o.threads = value()?.parse().map_err(|_| wrong("--threads?"))?,
                "--only" => o.only = value()?,
                "--policies" => {
                    let names = value()?;
                    o.policies = names.split(',').map(str::parse).collect::<Result<_>>()?;
                }
                "--row-cost" => {
                    let text = value()?;
                    let micros = text.strip_suffix("us").and_then(|n| n.parse().ok());
                    let micros = micros.ok_or_else(|| wrong("--row-cost 50us?"))?;
                    o.row_cost = Some(Duration::from_micros(micros));
                }
                "--quick" => {
                    o.quick = true;
                    o.rounds = 1;
                    o.duration = Duration::from_millis(500);
                }
                "--no-extras" => o.extras = false,
                other => return Err(wrong(&format!("`{other}`?"))),
            }
        }
        Ok(o)
    }

    fn replay(&self, policy: Policy) -> ReplayOptions {
        let defaults = ReplayOptions::default();
        ReplayOptions {
            policy,
            workers: self.threads,
            row_cost: self.row_cost,
            // A row that costs a wait is worth handing out in small pieces.
            segment_rows: if self.row_cost.is_some() {
                16
            } else {
                defaults.segment_rows
            },
            slice: if self.row_cost.is_some() {
                4
            } else {
                defaults.slice
            },
            ..defaults
        }
    }
}

/// The options.
pub const USAGE: &str = "[--directory DIR] [--seconds S] [--rounds N] [--threads N] [--row-cost 50us] [--only LOAD] \
                         [--policies a,b] [--quick] [--no-extras]";

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
