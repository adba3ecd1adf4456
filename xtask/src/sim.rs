//! `cargo xtask sim`: the simulation of whole clusters (crate `sim`), built as the tests are, planted faults included.

use crate::{Result, command, metadata};
use std::process::Command;

/// A run of the simulation with these arguments.
pub fn command(features: &[String], args: &[&str]) -> Command {
    let mut cargo = command::cargo(&["run", "--quiet", "--package", "sim", "--bin", "sim"]);
    // Only its own: others would build other crates, too.
    let own = features.chunks(2).filter(|f| f[1] == "sim/faults");
    cargo.args(own.flatten()).arg("--").args(args);
    cargo
}

pub fn main(args: &[String]) -> Result<()> {
    let features = crate::ci::features(&metadata::read()?);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let status = command(&features, &args).status();
    match status.map_err(|e| format!("sim: {e}"))? {
        status if status.success() => Ok(()),
        _ => Err("a seed failed; `cargo xtask sim --seed N` shows it, a line per event".into()),
    }
}
