//! Where the programs are that tests run as clients, and running them.
#![allow(dead_code)] // Each test program uses its part.

use super::common;
use std::path::PathBuf;
use std::process::{Command, Output};

pub fn pg_program(name: &str) -> PathBuf {
    std::env::var_os("CANON_PG_BIN").map_or(name.into(), |dir| PathBuf::from(dir).join(name))
}

pub fn python() -> PathBuf {
    if let Some(python) = std::env::var_os("CANON_PYTHON") {
        return python.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(
        || common::tests_dir().join("../../../target"),
        PathBuf::from,
    );
    target.join("clients/venv/bin/python")
}

/// Runs it to its end on a thread of its own; panics, with what it said, if it failed.
pub async fn run(mut command: Command) -> String {
    let shown = format!("{command:?}");
    let output: Output = tokio::task::spawn_blocking(move || {
        command
            .env("LC_ALL", "C.UTF-8")
            .env_remove("PGOPTIONS")
            .output()
    })
    .await
    .expect("the task ends")
    .unwrap_or_else(|e| panic!("{shown}: {e}"));
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(
        output.status.success(),
        "{shown}: {}\n{out}\n{err}",
        output.status
    );
    for line in err.lines() {
        let bad = line.contains("ERROR") || line.contains("FATAL") || line.contains("error:");
        assert!(!bad, "{shown}:\n{out}\n{err}");
    }
    out
}
