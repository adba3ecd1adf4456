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
