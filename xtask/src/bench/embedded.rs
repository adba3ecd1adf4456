//! Measurements that need neither a client nor a peer: the house's own programs, `examples/*_bench.rs` of any crate.
//!
//! Each is started without arguments in a new directory on the disk that is measured, writes below `target` there if it
//! writes, and prints what it measured for people; the page keeps that as it stands. So a crate owns its benchmark, and this
//! runs them all in one go under the same conditions (release build, autogroup scheduling off, one at a time). `BENCH_SECONDS` in its
//! environment says how long a single figure may be measured.
//!
//! Where the library spends its time follows: `library_bench` again, for two of its loads, under `perf`, if that is installed.

use super::Run;
use crate::{Result, command, metadata};
use std::process::Command;

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
        for example in package.examples.iter().filter(|e| e.ends_with("_bench")) {
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
            cargo.env("BENCH_SECONDS", run.options.seconds.to_string());
            printed.push(Printed {
                command: shown,
                output: command::output(&mut cargo).unwrap_or_else(|e| format!("failed: {e}")),
            });
        }
    }
    for load in ["ycsb uniform, pipelined, ahead", "tpcc, pipelined, ahead"] {
        printed.push(profile(run, load));
    }
    Ok(printed)
}

/// Functions of a profile.
const FUNCTIONS: usize = 40;

/// Where a load of `library_bench`, which was built just now, spends its time, by thread and function.
fn profile(run: &Run, load: &str) -> Printed {
    let program = command::target_dir().join("release/examples/library_bench");
    let data = run.directory.join("perf.data");
    let shown = format!("perf record -e cpu-clock library_bench /dev/shm N '{load}'");
    println!("   {shown}");
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "-e", "cpu-clock", "-F", "999", "-o"]);
    record.arg(&data).arg("--").arg(program).arg("/dev/shm");
    record.args([&run.options.seconds.to_string(), load]);
    let mut report = Command::new("perf");
    report.args(["report", "--stdio", "--no-children", "-g", "none"]);
    report.args(["--comms", "worker,flusher,housekeeper,checkpointer"]);
    report.args(["--sort", "comm,symbol", "-i"]).arg(&data);
    let output = command::output(&mut record).and_then(|_| command::output(&mut report));
    let lines = |text: String| {
        let entries = text.lines().map(str::trim_end);
        let entries = entries.filter(|l| !l.is_empty() && !l.starts_with('#'));
        entries.take(FUNCTIONS).collect::<Vec<_>>().join("\n")
    };
    Printed {
        command: shown,
        output: output.map_or_else(|e| format!("no profile: {e}"), lines),
    }
}
