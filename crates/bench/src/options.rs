//! What is measured, and how transactions are run.
//!
//! Left out on purpose: the command line, which `library_bench` reads.

use base::Result;
use embedded::{Database, DatabaseOptions};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    /// Where temporary data directories are made; tmpfs takes the disk out of the figures.
    pub directory: PathBuf,
    /// Length of each measured run.
    pub duration: Duration,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Rows of YCSB.
    pub rows: u64,
    /// Names of the runs to make contain this: "tpcc", "ycsb uniform, pipelined, ahead".
    pub only: String,
    /// A line with tabs for each figure, for programs.
    pub tabs: bool,
    /// Split values beside plain ones, and nothing else (`split`).
    pub split: bool,
}

impl Default for BenchOptions {
    fn default() -> Self {
        BenchOptions {
            directory: std::env::temp_dir(),
            duration: Duration::from_secs(5),
            threads: vec![1, 2],
            rows: 1_000_000,
            only: String::new(),
            tabs: false,
            split: false,
        }
    }
}

impl BenchOptions {
    /// How the load of this name is to be run.
    pub(crate) fn modes(&self, load: &str) -> impl Iterator<Item = Mode> {
        let wanted = move |m: &Mode| format!("{load}, {m}").contains(&self.only);
        Mode::ALL.into_iter().filter(wanted)
    }
}

/// How transactions are run.
#[derive(Clone, Copy)]
pub struct Mode {
    /// The next one runs while the log flushes the last ones.
    pub pipelined: bool,
    /// A transaction names keys at its beginning, and the rows of these keys are fetched at once.
    pub ahead: bool,
}

impl Mode {
    pub const ALL: [Mode; 4] = [
        Mode {
            pipelined: true,
            ahead: true,
        },
        Mode {
            pipelined: true,
            ahead: false,
        },
        Mode {
            pipelined: false,
            ahead: true,
        },
        Mode {
            pipelined: false,
            ahead: false,
        },
    ];
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.pipelined {
            "pipelined"
        } else {
            "waiting"
        })?;
        f.write_str(if self.ahead { ", ahead" } else { "" })
    }
}

pub(crate) fn open(options: &BenchOptions) -> Result<Database> {
    Database::temporary_in(&options.directory, DatabaseOptions::default())
}
