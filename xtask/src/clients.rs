//! The clients that the tests and the bench are run with, found or installed.
//!
//! psql, pgbench and the PostgreSQL 15 server come from Debian's `postgresql-15` and `postgresql-client-15`, sysbench
//! from `sysbench`, a headless Chromium from `chromium-headless-shell`. From the Python package index come psycopg 3 and moto, a server of S3's protocol, each
//! into a virtual environment in the target directory.
//! tokio-postgres is a development dependency and comes with the build. What is present is left alone and nothing is
//! fetched; what is still absent after the attempt is an error. Other code asks `Clients::find`. What only a comparison needs it asks for
//! with `packages`.
//!
//! Installing must not start Debian's default cluster on port 5432: for the duration `policy-rc.d` forbids starts.
//! Left out on purpose: other package managers; there the error says what to put on the `PATH`.

use crate::{Result, command};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where Debian puts the server's programs.
const DEBIAN_BIN: &str = "/usr/lib/postgresql/15/bin";
/// The program, and Debian's package.
const CHROMIUM: &str = "chromium-headless-shell";
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// Paths of everything that is needed.
pub struct Clients {
    /// Directory of `initdb`, `pg_ctl`, `postgres`, `psql`, `pgbench`, all of version 15.
    pub postgres_bin: PathBuf,
    pub sysbench: PathBuf,
    /// A Python that imports psycopg 3.
    pub python: PathBuf,
    /// A Python that imports moto's server.
    pub moto: PathBuf,
    /// A Chromium without a window.
    pub chromium: PathBuf,
}

pub fn main(args: &[String]) -> Result<()> {
    crate::no_arguments(args)?;
    ensure()?;
    Ok(())
}

impl Clients {
    /// Finds everything without touching the network; the error lists all that is absent.
    pub fn find() -> Result<Clients> {
        let mut absent = Vec::new();
        let mut found = |path: Result<PathBuf>| {
            path.unwrap_or_else(|what| {
                absent.push(what);
                PathBuf::new()
            })
        };
        let clients = Clients {
            postgres_bin: found(postgres_bin()),
            sysbench: found(on_path("sysbench")),
            python: found(python()),
            moto: found(moto()),
            chromium: found(on_path(CHROMIUM)),
        };
        match absent.is_empty() {
            true => Ok(clients),
            false => Err(absent.join("\n")),
        }
    }

    /// For tests: where the clients lie, in the variables that `docs/testing.md` names.
    pub fn environment(&self) -> [(&'static str, &Path); 5] {
        [
            ("CANON_PG_BIN", &self.postgres_bin),
            ("CANON_SYSBENCH", &self.sysbench),
            ("CANON_PYTHON", &self.python),
            ("CANON_MOTO", &self.moto),
            ("CANON_CHROMIUM", &self.chromium),
        ]
    }
}

/// Finds or installs everything and prints what is there.
pub fn ensure() -> Result<Clients> {
    if postgres_bin().is_err() {
        apt(&["postgresql-15", "postgresql-client-15"])?;
    }
    if on_path("sysbench").is_err() {
        apt(&["sysbench"])?;
    }
    if python().is_err() {
        make_venv(&venv("venv"), &["psycopg[binary]>=3.1"])?;
    }
    if moto().is_err() {
        make_venv(&venv("moto"), &["moto[s3]>=5.1,<6", "flask", "flask-cors"])?;
    }
    if on_path(CHROMIUM).is_err() {
        apt(&[CHROMIUM])?;
    }
    let clients = Clients::find()?;
    for program in ["psql", "pgbench", "postgres"] {
        let path = clients.postgres_bin.join(program);
        println!("  {:<9} {} ({})", program, version(&path)?, path.display());
    }
    let sysbench = &clients.sysbench;
    println!(
        "  sysbench  {} ({})",
        version(sysbench)?,
        sysbench.display()
    );
    let psycopg = psycopg_version(&clients.python)?;
    println!("  psycopg   {psycopg} ({})", clients.python.display());
    let moto = moto_version(&clients.moto)?;
    println!("  moto      {moto} ({})", clients.moto.display());
    println!("  chromium  {}", clients.chromium.display());
    println!("  tokio-postgres comes with the build");
    Ok(clients)
}

/// Where the programs of PostgreSQL 15 are.
pub fn postgres_bin() -> Result<PathBuf> {
    let mut places = vec![PathBuf::from(DEBIAN_BIN)];
    places.extend(path_directories());
    let complete = |dir: &PathBuf| {
        ["initdb", "pg_ctl", "postgres", "psql", "pgbench"]
            .iter()
            .all(|p| version(&dir.join(p)).is_ok_and(|v| v.contains(" 15.")))
    };
    places.into_iter().find(complete).ok_or(
        "absent: PostgreSQL 15 (initdb, pg_ctl, postgres, psql, pgbench in one directory)".into(),
    )
}

fn path_directories() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}

fn on_path(program: &str) -> Result<PathBuf> {
    path_directories()
        .into_iter()
        .map(|dir| dir.join(program))
        .find(|p| p.is_file())
        .ok_or(format!("absent: {program}"))
}

fn venv(name: &str) -> PathBuf {
    command::target_dir().join("clients").join(name)
}

fn python() -> Result<PathBuf> {
    let python = venv("venv").join("bin").join("python");
    psycopg_version(&python).map_err(|_| "absent: psycopg 3 (a Python to make it with?)")?;
    Ok(python)
}

fn moto() -> Result<PathBuf> {
    let python = venv("moto").join("bin").join("python");
    moto_version(&python).map_err(|_| "absent: moto's server (a Python to make it with?)")?;
    Ok(python)
}

fn moto_version(python: &Path) -> Result<String> {
    let code = "import moto; from moto.server import ThreadedMotoServer; print(moto.__version__)";
    let out = command::output(Command::new(python).args(["-c", code]))?;
    Ok(out.trim().to_string())
}

fn psycopg_version(python: &Path) -> Result<String> {
    let code = "import psycopg; assert psycopg.pq.__impl__; print(psycopg.__version__)";
    let out = command::output(Command::new(python).args(["-c", code]))?;
    Ok(out.trim().to_string())
}

fn version(program: &Path) -> Result<String> {
    let out = command::output(Command::new(program).arg("--version"))?;
    Ok(out.lines().next().unwrap_or_default().trim().to_string())
}

/// A virtual environment with these packages.
fn make_venv(dir: &Path, packages: &[&str]) -> Result<()> {
    println!("  making a Python environment with {}", packages.join(", "));
    let make = || {
        let mut python = Command::new("python3");
        command::output(python.args(["-m", "venv", "--clear"]).arg(dir))
    };
    if let Err(first) = make() {
        apt(&["python3", "python3-venv"]).map_err(|apt| format!("{first}{apt}"))?;
        make()?;
    }
    let pip = dir.join("bin").join("pip");
    command::output(
        Command::new(pip)
            .args(["install", "--quiet"])
            .args(packages),
    )?;
    Ok(())
}

/// Installs the packages whose file is absent: (file, Debian's package).
pub fn packages(needed: &[(&str, &'static str)]) -> Result<()> {
    let absent = |needed: &[(&str, &'static str)]| -> Vec<&'static str> {
        let absent = needed.iter().filter(|(file, _)| !Path::new(file).exists());
        absent.map(|(_, package)| *package).collect()
    };
    if !absent(needed).is_empty() {
        apt(&absent(needed))?;
    }
    match &absent(needed)[..] {
        [] => Ok(()),
        still => Err(format!("absent: {}", still.join(", "))),
    }
}

/// Installs Debian packages, with a fresh package list only if the present one does not do.
fn apt(packages: &[&str]) -> Result<()> {
    println!("  installing {}", packages.join(" "));
    let forbidden = ForbidStarts::new()?;
    let install = || {
        let mut install = as_root("apt-get");
        install.env("DEBIAN_FRONTEND", "noninteractive");
        install.args(["install", "--yes", "--quiet", "--no-install-recommends"]);
        command::output(install.args(packages))
    };
    let done = install().or_else(|_| {
        command::output(as_root("apt-get").args(["update", "--quiet"]))?;
        install()
    });
    forbidden.lift()?;
    done.map(drop)
}

fn as_root(program: &str) -> Command {
    let root = command::output(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0");
    if root {
        return Command::new(program);
    }
    let mut sudo = Command::new("sudo");
    sudo.args([
        "--non-interactive",
        "--preserve-env=DEBIAN_FRONTEND",
        program,
    ]);
    sudo
}

/// While this stands, packages do not start services. A policy that was there before stays.
struct ForbidStarts {
    ours: bool,
}

impl ForbidStarts {
    fn new() -> Result<ForbidStarts> {
        let ours = !Path::new(POLICY).exists();
        if ours {
            let script =
                format!("printf '#!/bin/sh\\nexit 101\\n' >{POLICY} && chmod 755 {POLICY}");
            command::output(as_root("sh").args(["-c", &script]))?;
        }
        Ok(ForbidStarts { ours })
    }

    fn lift(self) -> Result<()> {
        if self.ours {
            command::output(as_root("rm").args(["-f", POLICY]))?;
        }
        Ok(())
    }
}
