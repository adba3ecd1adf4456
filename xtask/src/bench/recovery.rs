//! Recovery: `kill -9` after a load and a second of updates, and the time until the next start answers.
//!
//! For canon that is the time to bring every row back into memory. PostgreSQL stands beside it for orientation only: it
//! replays what was written since its last checkpoint and leaves the rest on disk. A server that comes back with
//! another number of rows is an error, not a result.

use super::{Run, loads};
use crate::clients::Clients;
use crate::guard::Guard;
use crate::server::{self, Server, USER};
use crate::{Result, command, process};
use std::process::Command;

pub struct Recovered {
    pub name: &'static str,
    pub rows: f64,
    pub seconds: f64,
    /// CPU time of the server until it answered: near `seconds` times cores, and the processor is the bound.
    pub cpu_seconds: f64,
}

pub fn run(run: &mut Run) -> Result<Vec<Recovered>> {
    println!("== recovery");
    let parent = run.directory.join("recovery");
    std::fs::create_dir_all(&parent).map_err(|e| e.to_string())?;
    let only = run.options.only.clone();
    let mut recovered = Vec::new();
    if only.as_deref() != Some("canon") {
        let peer = server::postgres(&run.clients.postgres_bin, &parent, &mut run.guard, false)?;
        recovered.push(one(peer, &run.clients, &mut run.guard)?);
    }
    if only.as_deref() != Some("postgres") {
        let ours = server::canon(&run.binary(), &parent, &mut run.guard)?;
        recovered.push(one(ours, &run.clients, &mut run.guard)?);
    }
    Ok(recovered)
}

fn one(mut server: Server, clients: &Clients, guard: &mut Guard) -> Result<Recovered> {
    loads::prepare_pgbench(clients, &server)?;
    let mut updates = Command::new(clients.postgres_bin.join("pgbench"));
    updates.args([
        "--protocol=prepared",
        "--client=8",
        "--jobs=2",
        "--time=1",
        "--max-tries=1000",
    ]);
    updates.args(loads::connection(server.port)).arg(USER);
    command::output(&mut updates)?;
    let before = count(&server)?;
    let seconds = server.crash_and_restart(guard)?.as_secs_f64();
    let cpu_seconds = process::cpu_seconds(server.pid());
    let after = count(&server)?;
    if before != after {
        return Err(format!(
            "{}: {before} rows before the crash, {after} after it",
            server.name
        ));
    }
    println!("   {}: {seconds:.2} s", server.name);
    Ok(Recovered {
        name: server.name,
        rows: after,
        seconds,
        cpu_seconds,
    })
}

/// Rows of the tables that pgbench fills.
fn count(server: &Server) -> Result<f64> {
    let mut rows = 0.0;
    for table in ["accounts", "branches", "tellers", "history"] {
        let said = server.sql(&format!("SELECT count(*) FROM pgbench_{table}"))?;
        let number = said
            .rows
            .first()
            .and_then(|r| r[0].as_ref()?.parse::<f64>().ok());
        rows += number.ok_or(format!("{}: count(*) gave no number", server.name))?;
    }
    Ok(rows)
}
