//! What an operator does: `canon set-aside`, `canon verify`, `canon copy`, and the bad days of docs/operations.md. Each server is a process of its
//! own.

#[path = "operations/backups.rs"]
mod backups;
#[path = "operations/bad_days.rs"]
mod bad_days;
#[path = "operations/buckets.rs"]
mod buckets;
mod common;
#[path = "operations/copies.rs"]
mod copies;
#[path = "replication/helpers.rs"]
#[allow(dead_code)]
mod helpers;
#[path = "operations/schedule.rs"]
mod schedule;
#[path = "operations/set_aside.rs"]
mod set_aside;
#[path = "operations/under_load.rs"]
mod under_load;
#[path = "operations/verify.rs"]
mod verify;

use std::path::Path;
use std::process::Output;

/// `canon` with these words: whether it said that all is well, and what it said.
pub fn canon(words: &[&str]) -> (bool, String) {
    canon_with(words, &[])
}

/// The same with variables.
pub fn canon_with(words: &[&str], env: &[(&str, &str)]) -> (bool, String) {
    let output: Output = std::process::Command::new(env!("CARGO_BIN_EXE_canon"))
        .args(words)
        .envs(env.iter().copied())
        .output()
        .expect("canon runs");
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), out + &errors)
}

pub fn text(p: &Path) -> &str {
    p.to_str().expect("a path in UTF-8")
}
