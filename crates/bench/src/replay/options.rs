//! What to measure of replay, as the command line says it.

use base::{Error, Result};
use replica::{Policy, ReplayOptions};
use std::path::PathBuf;
use std::time::Duration;

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
    /// A load runs if its name contains this text.
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

    pub(super) fn replay(&self, policy: Policy) -> ReplayOptions {
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
