//! `cargo xtask`: everything that is done to the house rather than in it. CI calls nothing else.
//!
//! Each subcommand is one module; `command` starts processes and finds the target directory, `metadata` reads
//! `cargo metadata`. Left out on purpose: an argument parser and an async runtime, so that `cargo xtask` on a
//! cold checkout compiles in seconds.

#![forbid(unsafe_code)]

mod bench;
mod ci;
mod clients;
mod command;
mod differ;
mod error;
mod fuzz;
mod guard;
mod installed;
mod library;
mod matrix;
mod metadata;
mod process;
mod regress;
mod sanitize;
mod server;
mod sim;
mod slt;
mod step;
mod suites;
mod tidy;
mod wire;

use std::process::ExitCode;

pub use error::{Result, no_arguments};

const USAGE: &str = "\
cargo xtask COMMAND

  ci        everything: format, clippy, tidy, all tests; ends with `N passed, N failed`
  tidy      the house check: crate arrows, unsafe, headers, file length, links, paths, plain words;
            `--arrows`, `--long` and `--prose` print what the lists hold
  clients   find psql, pgbench, sysbench, PostgreSQL 15, psycopg and Chromium; install what is missing;
            `clients matrix [--quick | NAME…]`: programs from the package registries against a canon server;
            `clients suites [--only NAME,…] [--source DIR]`: drivers' own test suites, at canon and at PostgreSQL 15
  sanitize  the tests of `store` under AddressSanitizer and ThreadSanitizer, else valgrind
  fuzz      the decoders under libFuzzer, `--seconds N` each
  sim       whole clusters under seeds, `--seeds N [--from M]`; `--seed N` shows one, a line per event;
            `--sites`: replicas are sites; `--histories N`, `--history N`: small histories of sites against an ideal;
            `--control`: clusters that name their primary by themselves, with openraft under virtual time
  differ    random queries, answers beside PostgreSQL 15's and beside themselves, `--seeds N [--from M]`; `--seed N` shows one
  regress   PostgreSQL 15's regression suite by statement, `--source DIR` (its unpacked source); `--isolation`: its isolation specs
  slt       the SQL logic tests; `--regenerate` takes the expected results from PostgreSQL 15
  bench     canon beside PostgreSQL 15: pgbench, sysbench, hotrow, ceiling, memory, recovery, programs, all;
            `bench replay`: replay's policies against the primary, and a model for more cores;
            `bench reads [--peers DIR] [--only SECTION]`: strong reads at replicas, stale reads there and at PostgreSQL and Galera;
            `bench embedded`: the library in one process, YCSB and TPC-C per core;
            `bench applications --benchbase DIR --sysbench-tpcc DIR`: TPC-C, SmallBank, TATP and nine more, as their authors wrote them;
            `bench lag`: how far a replica is behind; `bench lag --peers DIR`: the same beside PostgreSQL and MariaDB;
            `bench WHAT --help` lists the options
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let rest = args.get(1..).unwrap_or_default();
    let done = match args.first().map(String::as_str) {
        Some("ci") => ci::main(rest),
        Some("tidy") => tidy::main(rest),
        Some("clients") => match rest {
            [what, rest @ ..] if what == "matrix" => matrix::main(rest),
            [what, rest @ ..] if what == "suites" => suites::main(rest),
            _ => clients::main(rest),
        },
        Some("sanitize") => sanitize::main(rest),
        Some("fuzz") => fuzz::main(rest),
        Some("sim") => sim::main(rest),
        Some("differ") => differ::main(rest),
        Some("regress") => regress::main(rest),
        Some("slt") => slt::main(rest),
        Some("bench") => bench::main(rest),
        Some(guard::SUBCOMMAND) => guard::main(),
        Some(bench::constant::SUBCOMMAND) => bench::constant::main(rest),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(format!(
            "{}\n{USAGE}",
            other.map_or("no command".into(), |o| format!("unknown command `{o}`"))
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
