//! The command line.

use crate::config::{COMMENTED, Config, Overrides};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Canon: a main-memory OLTP database that PostgreSQL clients use unchanged
#[derive(Parser)]
#[command(name = "canon", version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a server on a data directory
    Start {
        #[command(flatten)]
        config: Overrides,
    },
    /// Ask a running server how it is
    Status {
        /// Address of the server's HTTP port
        #[arg(
            long,
            value_name = "HOST:PORT",
            env = "CANON_HTTP",
            default_value = "127.0.0.1:8080"
        )]
        http: String,
    },
    /// Print a configuration file with every key and its default
    Config,
    /// Start a server with a small shop in it, run a short load, print what it did, and stay up
    Demo {
        #[command(flatten)]
        options: crate::demo::Options,
    },
    /// Measure the embedded engine: YCSB and TPC-C in this process
    #[cfg(feature = "bench")]
    Bench {
        #[command(flatten)]
        options: Bench,
    },
}

/// What `canon bench` measures.
#[cfg(feature = "bench")]
#[derive(clap::Args)]
struct Bench {
    /// Where temporary data directories are made; tmpfs takes the disk out of the figures
    #[arg(long, value_name = "DIR")]
    directory: Option<std::path::PathBuf>,
    /// Seconds of each run
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Rows of YCSB
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Make only runs whose names contain this
    #[arg(long, default_value = "")]
    only: String,
}

#[cfg(feature = "bench")]
fn bench(b: Bench) -> base::Result<()> {
    let options = crate::bench::BenchOptions {
        directory: b.directory.unwrap_or_else(std::env::temp_dir),
        duration: std::time::Duration::from_secs(b.seconds.max(1)),
        threads: b.threads,
        rows: b.rows,
        only: b.only,
    };
    crate::bench::run(&options, &mut std::io::stdout())
}

/// Runs the program. 0: fine, 1: it failed, 2: it was asked the wrong way.
pub fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Start { config } => Config::load(&config).and_then(crate::server::run),
        Command::Status { http } => return crate::status::run(&http),
        Command::Config => {
            print!("{COMMENTED}");
            Ok(())
        }
        Command::Demo { options } => crate::demo::run(&options),
        #[cfg(feature = "bench")]
        Command::Bench { options } => bench(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("canon: {}", e.fields().message);
            for extra in [&e.fields().detail, &e.fields().hint] {
                if !extra.is_empty() {
                    eprintln!("  {extra}");
                }
            }
            ExitCode::FAILURE
        }
    }
}
