//! Bytes of memory per row of `pgbench_accounts`.
//!
//! For canon the growth of the server's resident memory while pgbench fills its tables, in a server that has done nothing
//! else; for PostgreSQL the size of the table with its index (`pg_total_relation_size`), because its memory is a cache of it.
//! The other tables of pgbench have a hundred rows and do not show.

use super::{Run, loads};
use crate::{Result, process, server};
use std::time::Duration;

/// What pgbench stores in a row: three int4 and 84 characters.
pub const PAYLOAD: f64 = 96.0;

pub struct Memory {
    pub rows: f64,
    /// Bytes per row, each if that server took part.
    pub peer: Option<f64>,
    pub ours: Option<f64>,
}

pub fn run(run: &mut Run) -> Result<Memory> {
    println!("== memory per row");
    let rows = f64::from(loads::SCALE) * 100_000.0;
    let mut memory = Memory {
        rows,
        peer: None,
        ours: None,
    };
    let only = run.options.only.clone();
    let parent = run.directory.join("memory");
    std::fs::create_dir_all(&parent).map_err(|e| e.to_string())?;
    if only.as_deref() != Some("canon") {
        let peer = server::postgres(&run.clients.postgres_bin, &parent, &mut run.guard, false)?;
        loads::prepare_pgbench(&run.clients, &peer)?;
        let size = peer.sql("SELECT pg_total_relation_size('pgbench_accounts')")?;
        let size = size
            .rows
            .first()
            .and_then(|r| r[0].as_ref()?.parse::<f64>().ok());
        memory.peer = size.map(|bytes| bytes / rows);
    }
    if only.as_deref() != Some("postgres") {
        let ours = server::canon(&run.binary(), &parent, &mut run.guard)?;
        let before = settled(ours.pid())?;
        loads::prepare_pgbench(&run.clients, &ours)?;
        memory.ours = Some((settled(ours.pid())? - before) / rows);
    }
    Ok(memory)
}

/// Resident bytes once they stand still for two seconds, or after a minute.
fn settled(pid: u32) -> Result<f64> {
    let read = || process::resident(pid).ok_or("the server is gone".to_string());
    let mut last = read()?;
    for _ in 0..30 {
        std::thread::sleep(Duration::from_secs(2));
        let now = read()?;
        if now.abs_diff(last) < 1 << 20 {
            return Ok(now as f64);
        }
        last = now;
    }
    Ok(last as f64)
}
