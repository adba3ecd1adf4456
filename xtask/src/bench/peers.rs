//! PostgreSQL, MariaDB and Galera, each with a replica, from the scripts that `--peers` names (their README says what is there).
//!
//! ```text
//! find: packages, PyMySQL ─▶ up: PEER/up.sh in a directory of ours ─▶ mode: PEER/mode.sh ─▶ down: PEER/down.sh, nothing is left
//! ```
//! The scripts put all data under `PEERS_TMP`, which is a directory of this run, so a run does not meet what another one left, and the
//! guard finds servers by the directory that they work in. Their ports are fixed: two runs at once are not possible.
//!
//! Left out on purpose: pgpool, crashes of the primary, delays on the link; the scripts can do them.

use crate::clients::{self, Clients};
use crate::guard::Guard;
use crate::{Result, command, process};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the scripts and loads need beside what `clients` finds: (what must be there, in which package Debian has it).
const NEEDED: &[(&str, &str)] = &[
    ("/usr/sbin/mariadbd", "mariadb-server"),
    ("/usr/lib/galera/libgalera_smm.so", "galera-4"),
    ("/usr/bin/mariadb_config", "libmariadb-dev"),
    ("/usr/include/postgresql/libpq-fe.h", "libpq-dev"),
    ("/usr/bin/rsync", "rsync"),
    ("/usr/bin/lsof", "lsof"),
    ("/usr/bin/make", "make"),
    ("/usr/bin/cc", "gcc"),
    ("/usr/sbin/runuser", "util-linux"),
];

/// Seconds that a script may take.
const PATIENCE: u32 = 180;

/// Where the scripts put PostgreSQL and MariaDB: (primary, replica).
pub const POSTGRES: (u16, u16) = (15432, 15433);
pub const MARIA: (u16, u16) = (13306, 13307);
pub const GALERA: (u16, u16) = (14306, 14307);

/// The scripts, and what they run with.
pub struct Peers {
    scripts: PathBuf,
    /// `PEERS_TMP`.
    home: PathBuf,
    postgres_bin: PathBuf,
    /// A Python with psycopg and PyMySQL.
    pub python: PathBuf,
}

impl Peers {
    /// Installs what is absent. Data will lie below `directory`.
    pub fn find(scripts: &Path, clients: &Clients, directory: &Path) -> Result<Peers> {
        let scripts = std::path::absolute(scripts).map_err(|e| e.to_string())?;
        if !scripts.join("load/lag.py").exists() {
            let there = scripts.display();
            return Err(format!("--peers: there is no load/lag.py in {there}"));
        }
        clients::packages(NEEDED)?;
        let python = clients.python.clone();
        let imports = || command::output(Command::new(&python).args(["-c", "import pymysql"]));
        if imports().is_err() {
            println!("  installing PyMySQL");
            let mut pip = Command::new(&python);
            command::output(pip.args(["-m", "pip", "install", "--quiet", "pymysql"]))?;
            imports()?;
        }
        let home = directory.join("peers");
        std::fs::create_dir_all(&home).map_err(|e| format!("{}: {e}", home.display()))?;
        Ok(Peers {
            scripts,
            home,
            postgres_bin: clients.postgres_bin.clone(),
            python,
        })
    }

    /// A file of the loads.
    pub fn load(&self, name: &str) -> PathBuf {
        self.scripts.join("load").join(name)
    }

    /// Builds `load/stale`; where it is.
    pub fn build_probe(&self) -> Result<PathBuf> {
        let bin = self.home.join("bin");
        std::fs::create_dir_all(&bin).map_err(|e| e.to_string())?;
        let mut make = Command::new("make");
        make.arg("-C").arg(self.scripts.join("load"));
        make.arg(format!("BIN={}", bin.display()));
        command::output(&mut make)?;
        Ok(bin.join("stale"))
    }

    /// Starts a peer from nothing. One that does not start is taken down again.
    pub fn up(&self, peer: &str, args: &[&str], guard: &mut Guard) -> Result<()> {
        println!("starting {peer} {}", args.join(" "));
        let up = self.script(peer, "up.sh", args, guard);
        // Its directory has the log.
        up.map(drop).map_err(|e| match self.down(peer, guard) {
            Ok(()) => e,
            Err(also) => format!("{e}\n{also}"),
        })
    }

    /// Switches a running peer; what the script says of its new mode.
    pub fn mode(&self, peer: &str, mode: &str, guard: &mut Guard) -> Result<String> {
        self.script(peer, "mode.sh", &[mode], guard)
    }

    /// Stops a peer and removes what it wrote. An error: a process had to be killed.
    pub fn down(&self, peer: &str, guard: &mut Guard) -> Result<()> {
        let asked = self.script(peer, "down.sh", &[], guard);
        let home = self.home.join(match peer {
            "postgres" => "pg",
            other => other,
        });
        let left = process::working_in(&home);
        left.iter().for_each(|pid| process::kill_tree(*pid));
        for _ in 0..100 {
            if process::working_in(&home).is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let removed = match std::fs::remove_dir_all(&home) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {e}", home.display()))
            }
            _ => Ok(()),
        };
        asked?;
        removed?;
        match left.len() {
            0 => Ok(()),
            n => Err(format!("{peer}: {n} processes outlived down.sh")),
        }
    }

    fn script(&self, peer: &str, name: &str, args: &[&str], guard: &mut Guard) -> Result<String> {
        let mut c = Command::new(self.scripts.join(peer).join(name));
        c.args(args).env("PEERS_TMP", &self.home);
        c.env("PGBIN", &self.postgres_bin);
        // psql without a path is to be the one of the same version.
        let path = std::env::var("PATH").unwrap_or_default();
        c.env("PATH", format!("{}:{path}", self.postgres_bin.display()));
        output(&c, PATIENCE, guard)
    }
}

/// `command::output` for what takes long: it ends at the latest after so many seconds, and with this program.
pub fn output(command: &Command, seconds: u32, guard: &mut Guard) -> Result<String> {
    let mut c = Command::new("timeout");
    c.args(["--kill-after=5", &seconds.to_string()]);
    c.arg(command.get_program()).args(command.get_args());
    for (key, value) in command.get_envs() {
        value.map(|v| c.env(key, v));
    }
    command.get_current_dir().map(|d| c.current_dir(d));
    c.stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let shown = command::show(command);
    let child = c.spawn().map_err(|e| format!("{shown}: {e}"))?;
    guard.process(child.id())?;
    let out = child.wait_with_output();
    let out = out.map_err(|e| format!("{shown}: {e}"))?;
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    match out.status.code() {
        Some(0) => Ok(said),
        Some(124 | 137) => Err(format!("{shown}: not done after {seconds} s")),
        _ => {
            let why = String::from_utf8_lossy(&out.stderr);
            Err(format!("{shown}: {}\n{said}{why}", out.status))
        }
    }
}
