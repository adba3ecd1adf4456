//! Measurements that need neither a client nor a peer: the house's own programs, `examples/*_bench.rs` of any crate.
//!
//! Each is started without arguments in a new directory on the disk that is measured, writes below `target` there if it
//! writes, and prints what it measured for people; the page keeps that as it stands. So a crate owns its benchmark, and this
//! runs them all in one go under the same conditions (release build, autogroup scheduling off, one at a time).
//!
//! Left out on purpose: the library's (`library_bench`), which has a page of its own (`embedded`).

use super::Run;
use crate::{Result, command, metadata};

/// A program and what it printed.
pub struct Printed {
    pub command: String,
    /// The error if it failed: that belongs on the page too.
    pub output: String,
}

pub fn run(run: &Run) -> Result<Vec<Printed>> {
    println!("== the house's own programs");
    let mut printed = Vec::new();
    for package in metadata::read()? {
        let benches = package.examples.iter();
        for example in benches.filter(|e| e.ends_with("_bench") && *e != "library_bench") {
            let args = [
                "run",
                "--quiet",
                "--release",
                "--package",
                &package.name,
                "--example",
                example,
            ];
            let shown = format!("cargo {}", args.join(" "));
            println!("   {shown}");
            let directory = run.directory.join(example);
            std::fs::create_dir_all(directory.join("target")).map_err(|e| e.to_string())?;
            let mut cargo = command::cargo(&args);
            cargo
                .arg("--manifest-path")
                .arg(command::root().join("Cargo.toml"));
            cargo.current_dir(directory);
            printed.push(Printed {
                command: shown,
                output: command::output(&mut cargo).unwrap_or_else(|e| format!("failed: {e}")),
            });
        }
    }
    Ok(printed)
}
