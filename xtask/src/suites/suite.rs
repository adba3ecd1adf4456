//! The suites: where each comes from, and the command that runs it against a server.
//!
//! | suite | tests from | driver |
//! |---|---|---|
//! | `psycopg` | a checkout | the same, in Python over libpq |
//! | `asyncpg`, `sqlalchemy`, `django` | the source distribution | the same version from PyPI |
//! | `pgx` | the module | the same |
//!
//! Each run of a suite has an empty directory and empty servers.

use crate::{Result, command, installed};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const NAMES: [&str; 5] = ["psycopg", "asyncpg", "sqlalchemy", "django", "pgx"];

const PYTEST: &str = "pytest==8.3.4";
/// A test that hangs is one that fails.
const PYTEST_TIMEOUT: &str = "pytest-timeout==2.3.1";
const PSYCOPG2: &str = "psycopg2-binary==2.9.10";
const PGX: &str = "github.com/jackc/pgx/v5";
const PGX_VERSION: &str = "v5.7.1";

pub struct Suite {
    pub name: &'static str,
    /// What was run, with its version or commit.
    pub what: String,
    /// The tests and what belongs to them.
    source: PathBuf,
    /// A virtual environment.
    venv: PathBuf,
}

/// Installs a suite; `None`: it comes from a checkout, and there is none.
pub fn ready(name: &'static str, checkouts: Option<&Path>) -> Result<Option<Suite>> {
    let suite = |what: &str, source, venv| {
        Ok(Some(Suite {
            name,
            what: what.to_owned(),
            source,
            venv,
        }))
    };
    let venv = |packages: &[&str]| {
        let all = [packages, &[PYTEST, PYTEST_TIMEOUT]].concat();
        installed::python(&format!("suite-{name}"), &all)
    };
    match name {
        "psycopg" => {
            let Some(source) = checkouts.map(|c| c.join(name)).filter(|s| s.is_dir()) else {
                return Ok(None);
            };
            let commit = command::git(&source, &["describe", "--tags", "--always"])?;
            let packages = ["anyio==4.6.2", "typing_extensions==4.12.2", "pproxy==2.7.9"];
            let what = format!("psycopg at {}, without its pool", commit.trim());
            suite(&what, source, venv(&packages)?)
        }
        "asyncpg" => {
            let package = "asyncpg==0.30.0";
            let source = installed::source(name, package)?;
            suite("asyncpg 0.30.0", source, venv(&[package, "distro==1.9.0"])?)
        }
        "sqlalchemy" => {
            let package = "SQLAlchemy==2.0.36";
            let source = installed::source(name, package)?;
            let what = "SQLAlchemy 2.0.36, test/dialect/test_suite.py over psycopg2";
            suite(what, source, venv(&[package, PSYCOPG2])?)
        }
        "django" => {
            let package = "Django==5.2";
            let source = installed::source(name, package)?;
            let what = "Django 5.2: backends, migrations, queries, transactions";
            let packages = [package, "psycopg[binary]==3.2.3", "jinja2==3.1.4"];
            suite(what, source, venv(&packages)?)
        }
        "pgx" => suite("pgx 5.7.1", pgx()?, PathBuf::new()),
        other => Err(format!("no suite `{other}`")),
    }
}

/// The module's files, writable. The module proxy has the tests too.
fn pgx() -> Result<PathBuf> {
    let module = format!("{PGX}@{PGX_VERSION}");
    let at = installed::once("source-pgx", &module, |at| {
        let mut go = Command::new("go");
        go.args(["mod", "download", "-json", &module]);
        let said = command::output(go.current_dir(at))?;
        let said: serde_json::Value = serde_json::from_str(&said).map_err(|e| e.to_string())?;
        let directory = said["Dir"].as_str().ok_or("go names no directory")?;
        let mut cp = Command::new("cp");
        cp.args(["-r", "--no-preserve=mode", directory]);
        command::output(cp.arg(at.join("module"))).map(drop)
    })?;
    Ok(at.join("module"))
}

impl Suite {
    /// What its documentation says is to be there before.
    pub fn prepare(&self) -> Result<String> {
        match self.name {
            "sqlalchemy" => Ok("CREATE SCHEMA test_schema;\nCREATE SCHEMA test_schema_2;\n".into()),
            "pgx" => {
                let file = self.source.join("testsetup").join("postgresql_setup.sql");
                std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))
            }
            _ => Ok(String::new()),
        }
    }

    /// Django's tests use two databases.
    pub fn servers(&self) -> usize {
        if self.name == "django" { 2 } else { 1 }
    }

    /// Runs it. What tests did is written to `outcomes`; but Go says it on standard output.
    pub fn command(&self, ports: &[u16], outcomes: &Path, home: &Path) -> Result<Command> {
        let plugins = command::root().join("xtask").join("clients").join("suites");
        let port = ports[0].to_string();
        let python = || {
            let mut python = Command::new(self.venv.join("bin").join("python"));
            python.env("OUTCOMES", outcomes).env("PYTHONPATH", &plugins);
            python.env("PYTHONDONTWRITEBYTECODE", "1");
            python
        };
        let pytest = || {
            let mut pytest = python();
            pytest.args([
                "-m",
                "pytest",
                "-p",
                "outcomes",
                "--timeout=60",
                "-q",
                "--continue-on-collection-errors",
            ]);
            pytest
                .arg("-o")
                .arg(format!("cache_dir={}", home.join("cache").display()));
            pytest
        };
        let place = format!("host=127.0.0.1 port={port} user=canon dbname=canon");
        Ok(match self.name {
            "psycopg" => {
                let mut c = pytest();
                let mut path = plugins.clone().into_os_string();
                for part in ["psycopg", "psycopg_pool"] {
                    path.push(":");
                    path.push(self.source.join(part));
                }
                c.env("PYTHONPATH", path).env("PSYCOPG_IMPL", "python");
                c.args([
                    "-m",
                    "not slow and not timing and not subprocess and not dns",
                ]);
                c.args(["--ignore=tests/pool", "--ignore=tests/crdb", "tests"]);
                c.arg("--test-dsn").arg(place).current_dir(&self.source);
                c
            }
            "asyncpg" => {
                // Without the sources beside it, which have no compiled part.
                let mut cp = Command::new("cp");
                command::output(cp.arg("-r").arg(self.source.join("tests")).arg(home))?;
                let mut c = pytest();
                c.args(["-p", "asyncpg_before", "--capture=no", "--tb=native"]);
                c.arg("--import-mode=importlib");
                c.arg("tests").current_dir(home);
                c.env("PGHOST", "127.0.0.1").env("PGPORT", port);
                c.env("PGUSER", "canon").env("PGDATABASE", "canon");
                c
            }
            "sqlalchemy" => {
                let mut c = pytest();
                c.args(["-p", "sqlalchemy_before", "--maxfail=1000000", "--dburi"]);
                c.arg(format!(
                    "postgresql+psycopg2://canon@127.0.0.1:{port}/canon"
                ));
                c.arg("test/dialect/test_suite.py")
                    .current_dir(&self.source);
                c
            }
            "django" => {
                let mut c = python();
                c.args(["runtests.py", "--settings=django_settings", "--keepdb"]);
                c.args(["--parallel=1", "--noinput"]);
                c.args(["backends", "migrations", "queries", "transactions"]);
                c.env("PORT", port)
                    .env("PORT_OF_OTHER", ports[1].to_string());
                c.current_dir(self.source.join("tests"));
                c
            }
            _ => {
                let mut c = Command::new("go");
                c.args(["test", "-json", "-vet=off", "-p=1", "-timeout=15m", "./..."]);
                c.env("PGX_TEST_DATABASE", place).current_dir(&self.source);
                c
            }
        })
    }

    pub fn module(&self) -> Option<&'static str> {
        (self.name == "pgx").then_some(PGX)
    }
}
