//! The loads: what is prepared, what each client runs, and the bar that it is held to.

use super::sample::Tool;
use super::{Isolation, constant};
use crate::clients::Clients;
use crate::server::{Server, USER};
use crate::{Result, command};
use std::path::Path;
use std::process::Command;

/// Name of the peer among the servers.
pub const PEER: &str = "PostgreSQL";
/// Name of ours.
pub const OURS: &str = "canon";

/// pgbench's `-s`: 100,000 accounts each.
pub const SCALE: u32 = 10;

/// One row of a table.
pub struct Load {
    pub label: String,
    pub tool: Tool,
    /// Arguments without those that say where to connect.
    args: Vec<String>,
    /// Set by the load itself, over the contestant's.
    pub isolation: Isolation,
    /// Ours over theirs in transactions per second, at least.
    pub bar: Option<f64>,
    /// Ours over theirs in server CPU per transaction, at most.
    pub cpu_bar: Option<f64>,
}

/// One table before it is measured.
pub struct Plan {
    pub title: &'static str,
    pub prepare: fn(&Clients, &Server) -> Result<()>,
    pub contestants: &'static [(&'static str, &'static str, Isolation)],
    pub loads: Vec<Load>,
}

type MakePlan = fn(&Path) -> Result<Plan>;

/// The sections by the name that selects them.
pub const SECTIONS: &[(&str, MakePlan)] = &[
    ("ceiling", ceiling),
    ("pgbench", pgbench),
    ("sysbench", sysbench),
    ("hotrow", hotrow),
];

const RC: Isolation = Some("read committed");
/// The level at which two builds are compared: their defaults may differ.
pub const SERIALIZABLE: Isolation = Some("serializable");

const BOTH_STATES: &[(&str, &str, Isolation)] = &[
    ("PostgreSQL (read committed, its default)", PEER, None),
    ("canon (serializable)", OURS, SERIALIZABLE),
    ("canon (read committed, its default)", OURS, RC),
    ("constants", constant::NAME, None),
];

impl Load {
    fn pgbench(label: String, args: &str, clients: u32) -> Load {
        let threads = clients.min(2);
        let all = format!("{args} --client={clients} --jobs={threads}");
        Load {
            label,
            tool: Tool::Pgbench,
            args: all.split_whitespace().map(String::from).collect(),
            isolation: None,
            bar: None,
            cpu_bar: None,
        }
    }

    fn sysbench(test: &str, threads: u32) -> Load {
        let args = [test.to_string(), format!("--threads={threads}")];
        Load {
            label: format!("sysbench {test}, {threads} threads"),
            tool: Tool::Sysbench,
            args: args.into_iter().chain(SYSBENCH.map(String::from)).collect(),
            isolation: None,
            bar: None,
            cpu_bar: None,
        }
    }

    pub fn command(
        &self,
        clients: &Clients,
        port: u16,
        isolation: Isolation,
        seconds: u32,
    ) -> Command {
        let mut command = match self.tool {
            Tool::Pgbench => {
                let mut pgbench = Command::new(clients.postgres_bin.join("pgbench"));
                pgbench.args(&self.args).arg(format!("--time={seconds}"));
                pgbench.args(connection(port)).arg(USER);
                pgbench
            }
            Tool::Sysbench => {
                let mut sysbench = Command::new(&clients.sysbench);
                sysbench.args(&self.args).args(sysbench_connection(port));
                sysbench.args([&format!("--time={seconds}"), "run"]);
                sysbench
            }
        };
        if let Some(level) = isolation {
            let level = level.replace(' ', "\\ ");
            command.env(
                "PGOPTIONS",
                format!("-c default_transaction_isolation={level}"),
            );
        }
        command
    }

    /// Of the loads that differ in their number of clients only, the one with eight.
    pub fn is_typical(&self) -> bool {
        let eight = ["--client=8", "--threads=8"];
        self.args.iter().any(|a| eight.contains(&a.as_str()))
    }

    /// The command line that the report shows.
    pub fn shown(&self) -> String {
        let program = match self.tool {
            Tool::Pgbench => "pgbench",
            Tool::Sysbench => "sysbench",
        };
        format!("{program} {}", self.args.join(" "))
    }
}

pub fn connection(port: u16) -> Vec<String> {
    vec![
        "--host=127.0.0.1".into(),
        format!("--port={port}"),
        format!("--username={USER}"),
    ]
}

const SYSBENCH: [&str; 4] = [
    "--db-driver=pgsql",
    "--tables=10",
    "--table-size=10000",
    "--report-interval=0",
];

fn sysbench_connection(port: u16) -> Vec<String> {
    vec![
        "--pgsql-host=127.0.0.1".into(),
        format!("--pgsql-port={port}"),
        format!("--pgsql-user={USER}"),
        format!("--pgsql-db={USER}"),
    ]
}

/// Fills pgbench's tables.
pub fn prepare_pgbench(clients: &Clients, server: &Server) -> Result<()> {
    let mut init = Command::new(clients.postgres_bin.join("pgbench"));
    init.args(["--initialize", "--quiet", &format!("--scale={SCALE}")]);
    init.args(connection(server.port)).arg(USER);
    command::output(&mut init)?;
    settle(server)
}

/// What is dirty is written before the first round, not during it.
fn settle(server: &Server) -> Result<()> {
    if server.name == PEER {
        server.sql("CHECKPOINT")?;
    }
    Ok(())
}

fn point_reads(counts: &[u32]) -> Vec<Load> {
    let mut loads = Vec::new();
    for &clients in counts {
        let label = format!("pgbench -S -M prepared, {clients} clients");
        let mut load = Load::pgbench(label, "--select-only --protocol=prepared", clients);
        load.bar = Some(if clients == 1 { 1.3 } else { 2.0 });
        load.cpu_bar = Some(1.0 / 3.0);
        loads.push(load);
    }
    loads
}

fn pgbench(_: &Path) -> Result<Plan> {
    let mut loads = point_reads(&[1, 8, 32]);
    for clients in [8, 32] {
        let label = format!("pgbench TPC-B-like, prepared, {clients} clients");
        let mut load = Load::pgbench(label, "--protocol=prepared --max-tries=1000", clients);
        load.bar = Some(2.0);
        loads.push(load);
    }
    Ok(Plan {
        title: "pgbench, scale 10",
        prepare: prepare_pgbench,
        contestants: BOTH_STATES,
        loads,
    })
}

/// The client's ceiling alone, to see what a machine can show at all.
fn ceiling(_: &Path) -> Result<Plan> {
    Ok(Plan {
        title: "the client's ceiling",
        prepare: |_, _| Ok(()),
        contestants: &[("constants", constant::NAME, None)],
        loads: point_reads(&[1, 8, 32]),
    })
}

fn sysbench(_: &Path) -> Result<Plan> {
    let mut loads = Vec::new();
    for threads in [8, 32] {
        let mut load = Load::sysbench("oltp_read_write", threads);
        load.bar = Some(1.5);
        loads.push(load);
    }
    for threads in [8, 32] {
        loads.push(Load::sysbench("oltp_point_select", threads));
    }
    Ok(Plan {
        title: "sysbench, 10 tables of 10,000 rows",
        prepare: |clients, server| {
            let run = |what: &str| {
                let mut sysbench = Command::new(&clients.sysbench);
                sysbench.arg("oltp_read_write").args(SYSBENCH);
                sysbench.args(sysbench_connection(server.port)).arg(what);
                command::output(&mut sysbench)
            };
            run("prepare")?;
            settle(server)
        },
        contestants: BOTH_STATES,
        loads,
    })
}

/// One row that everybody decrements.
const HOT_ROW: &str = "UPDATE stock SET qty = qty - 1 WHERE id = 1 AND qty > 0;\n";

fn hotrow(directory: &Path) -> Result<Plan> {
    let script = directory.join("hotrow.sql");
    std::fs::write(&script, HOT_ROW).map_err(|e| format!("{}: {e}", script.display()))?;
    let mut loads = Vec::new();
    for level in ["read committed", "repeatable read", "serializable"] {
        for clients in [1, 8, 32, 64] {
            let label = format!("hot row, {level}, {clients} clients");
            let args = "--no-vacuum --protocol=prepared --max-tries=0";
            let mut load = Load::pgbench(label, args, clients);
            load.args.push(format!("--file={}", script.display()));
            load.isolation = Some(level);
            loads.push(load);
        }
    }
    Ok(Plan {
        title: "hot row: `UPDATE stock SET qty = qty - 1 WHERE id = 1 AND qty > 0`",
        prepare: |_, server| {
            for sql in [
                "DROP TABLE IF EXISTS stock",
                "CREATE TABLE stock (id int PRIMARY KEY, qty bigint NOT NULL)",
                "INSERT INTO stock VALUES (1, 1000000000000)",
            ] {
                server.sql(sql)?;
            }
            settle(server)
        },
        contestants: &[("PostgreSQL", PEER, None), ("canon", OURS, None)],
        loads,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_a_load_reaches_the_client() {
        let clients = Clients {
            postgres_bin: "/bin".into(),
            sysbench: "/bin/sysbench".into(),
            python: "/bin/python".into(),
            chromium: "/bin/chromium".into(),
            moto: "/bin/moto".into(),
        };
        let load = &point_reads(&[8])[0];
        let command = load.command(&clients, 5432, RC, 3);
        let options = command.get_envs().find(|(name, _)| *name == "PGOPTIONS");
        let value = options.unwrap().1.unwrap();
        assert_eq!(value, "-c default_transaction_isolation=read\\ committed");
        let line = command::show(&command);
        assert!(line.contains("--client=8 --jobs=2 --time=3"), "{line}");
    }
}
