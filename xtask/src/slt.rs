//! `cargo xtask slt`: the SQL logic tests against canon, or against the peer that their expected results come from.
//!
//! The runner is the test target `slt` of `canon`. Here is only what a test cannot have: a PostgreSQL 15 with collation C
//! and time zone UTC, started for the run and gone after it. `--postgres` runs the files against it; `--regenerate` writes
//! its answers into them. Other test targets that understand the same two variables can be named instead.

use crate::guard::Guard;
use crate::step;
use crate::{Result, clients::Clients, command, server};

const USAGE: &str = "cargo xtask slt [--postgres | --regenerate] [TEST TARGET…]";

pub fn main(args: &[String]) -> Result<()> {
    let (options, mut targets): (Vec<&str>, Vec<&str>) = args
        .iter()
        .map(String::as_str)
        .partition(|a| a.starts_with('-'));
    let (postgres, regenerate) = match options[..] {
        [] => (false, false),
        ["--postgres"] => (true, false),
        ["--regenerate"] => (true, true),
        _ => return Err(USAGE.into()),
    };
    if targets.is_empty() {
        targets.push("slt");
    }
    let clients = Clients::find().map_err(|e| format!("{e}\ntry `cargo xtask clients`"))?;
    let mut test = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
    for target in targets {
        test.args(["--test", target]);
    }
    test.envs(clients.environment());
    let mut guard = Guard::new()?;
    let mut peer = None;
    if postgres {
        let directory = server::new_directory(&std::env::temp_dir(), &mut guard)?;
        let one = server::postgres(&clients.postgres_bin, &directory, &mut guard, true)?;
        let (port, user) = (one.port, server::USER);
        let url = format!("host=127.0.0.1 port={port} user={user} dbname=postgres");
        test.env("CANON_TEST_URL", url);
        peer = Some(one);
    }
    if regenerate {
        test.env("UPDATE_GOLDEN", "1");
    }
    let counts = step::tests("slt", test)?;
    drop(peer);
    println!("{} passed, {} failed", counts.passed, counts.failed);
    match counts.failed {
        0 if counts.passed > 0 => Ok(()),
        _ => Err("failed, or nothing ran".into()),
    }
}
