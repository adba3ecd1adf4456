//! Pgpool beside the client, as PostgreSQL's way to have a copy near: reads go to a standby, all else to the primary.
//!
//! ```text
//! client ── pgpool ──┬── standby                              reads before the block's first change
//!                    └────────── delay ── PostgreSQL          BEGIN, COMMIT, changes, and all statements behind the first change
//! ```
//! Pgpool 4.3 cannot be told which replica a client reads, so each place has a pgpool of its own, with one standby.
//!
//! The settings are those of the peers' scripts; `orders` is the load. Its one statement before the first change reads a table that nothing changes,
//! so that a block is not told two states: at pgpool, what a block reads of the standby is not the snapshot that it changes.
//!
//! Left out on purpose: pgpool's watchdog, its cache and its fail-over.

use crate::bench::delay::link;
use crate::guard::Guard;
use crate::server::{self, Server, USER};
use crate::{Result, clients, command};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The file that must be there, and Debian's package.
const PGPOOL: (&str, &str) = ("/usr/sbin/pgpool", "pgpool2");

/// One place's; pgpool ends first.
pub struct Pool {
    pub pgpool: Server,
    _standby: Server,
}

/// Installs what is absent.
pub fn find() -> Result<()> {
    clients::packages(&[PGPOOL])
}

/// A place so far from the primary that listens at this port. What an earlier start has copied is there still.
pub fn start(home: &Path, primary: u16, rtt: u64, guard: &mut Guard) -> Result<Pool> {
    let programs = clients::postgres_bin()?;
    let far = link(primary, Duration::from_micros(rtt * 500))?;
    let fail = |e: std::io::Error| format!("{}: {e}", home.display());
    fs::create_dir_all(home).map_err(fail)?;
    server::give_to_postgres(home)?;
    let data = home.join("data");
    if !data.exists() {
        let mut copy = server::as_postgres(programs.join("pg_basebackup"), home)?;
        // Not over the link: this copy does not read its first connection before its second one is answered, and a link waits for an end that does not read.
        let port = primary.to_string();
        copy.args(["-h", "127.0.0.1", "-p", &port, "-U", USER]);
        copy.args(["--checkpoint=fast", "--wal-method=stream"]);
        command::output(copy.arg("-D").arg(&data))?;
        fs::write(data.join("standby.signal"), "").map_err(fail)?;
        server::give_to_postgres(&data.join("standby.signal"))?;
    }
    let port = server::free_port()?;
    let mut standby = server::as_postgres(programs.join("postgres"), home)?;
    standby.arg("-D").arg(&data).args(["-p", &port.to_string()]);
    let primary = format!("primary_conninfo=host=127.0.0.1 port={far} user={USER}");
    standby.args(["-c", &primary]);
    let log = home.join("standby.log");
    let mut standby = server::start("standby", standby, port, "-INT", &log, guard)?;
    standby.ready()?;
    let mut pgpool = server::start(
        "pgpool",
        program(home, far, port)?,
        listening(home)?,
        "-INT",
        &home.join("pgpool.log"),
        guard,
    )?;
    pgpool.ready()?;
    Ok(Pool {
        pgpool,
        _standby: standby,
    })
}

/// The port in the settings that [`program`] has written.
fn listening(home: &Path) -> Result<u16> {
    let text = fs::read_to_string(home.join("pgpool.conf")).map_err(|e| e.to_string())?;
    let port = text.lines().find_map(|l| l.strip_prefix("port="));
    port.and_then(|p| p.parse().ok())
        .ok_or("pgpool has no port".into())
}

fn program(home: &Path, primary: u16, standby: u16) -> Result<Command> {
    let (port, pcp) = (server::free_port()?, server::free_port()?);
    let at = home.display();
    let settings = format!(
        "backend_clustering_mode='streaming_replication'
listen_addresses='127.0.0.1'
port={port}
unix_socket_directories='{at}'
pcp_listen_addresses='127.0.0.1'
pcp_port={pcp}
pcp_socket_dir='{at}'
pid_file_name='{at}/pgpool.pid'
logdir='{at}'
work_dir='{at}'
backend_hostname0='127.0.0.1'
backend_port0={primary}
backend_weight0=0
backend_flag0='ALWAYS_PRIMARY'
backend_hostname1='127.0.0.1'
backend_port1={standby}
backend_weight1=1
backend_flag1='DISALLOW_TO_FAILOVER'
load_balance_mode=on
disable_load_balance_on_write='transaction'
sr_check_period=1
sr_check_user='{USER}'
sr_check_database='{USER}'
health_check_period=0
num_init_children=32
max_pool=1
enable_pool_hba=off
use_watchdog=off
memory_cache_enabled=off
log_min_messages=warning
"
    );
    let files = [
        ("pgpool.conf", settings.as_str()),
        ("pcp.conf", ""),
        ("pool_hba.conf", ""),
    ];
    for (name, text) in files {
        let file = home.join(name);
        fs::write(&file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        server::give_to_postgres(&file)?;
    }
    let mut pgpool = server::as_postgres(PGPOOL.0.into(), home)?;
    pgpool.args(["-n", "-f", "pgpool.conf", "-F", "pcp.conf"]);
    pgpool.args(["-a", "pool_hba.conf"]);
    Ok(pgpool)
}
