//! `cargo xtask bench lag`: how far a replica is behind. Pages and charts in `docs/results/`.
//!
//! Without `--peers` it is our own lag with the load inside the primary's process: `canon bench-lag`, which measures and explains, takes the
//! options and makes the page's body (`own`). With it, our lag beside PostgreSQL's and MariaDB's under the same load over SQL (`beside`).
//!
//! Left out on purpose: machines apart.

mod beside;

use super::{AUTOGROUP, page};
use crate::guard::Guard;
use crate::{Result, command, server};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const USAGE: &str = "\
cargo xtask bench lag [--binary CANON] [--directory DIR] [--no-results] [options of `canon bench-lag`: --seconds 60, --readers 0,100,1000,max …]
cargo xtask bench lag --peers DIR [--rounds 5] [--seconds 3] [--clients 8] [--inserts 1,4,16,64] [--only NAME] [--binary CANON] \
[--directory DIR] [--no-results]";

pub fn main(args: &[String]) -> Result<()> {
    match args.iter().any(|a| a == "--peers") {
        true => beside::main(args),
        false => own(args),
    }
}

fn build() -> Result<PathBuf> {
    println!("building canon, release");
    let build = ["build", "--release", "--package", "canon"];
    command::output(&mut command::cargo(&build))?;
    Ok(command::target_dir().join("release").join("canon"))
}

fn own(args: &[String]) -> Result<()> {
    let (mut binary, mut directory, mut write) = (None, std::env::temp_dir(), true);
    let mut rest = Vec::new();
    let mut it = args.iter();
    while let Some(arg) = it.next() {
        let mut value = || it.next().ok_or(format!("{arg} needs a value\n{USAGE}"));
        match arg.as_str() {
            "--binary" => binary = Some(PathBuf::from(value()?)),
            "--directory" => directory = PathBuf::from(value()?),
            "--no-results" => write = false,
            "--help" | "-h" | "help" => return Err(USAGE.into()),
            _ => rest.push(arg.clone()),
        }
    }
    let program = binary.map_or_else(build, Ok)?;
    let mut guard = Guard::new()?;
    guard.setting(AUTOGROUP, "0")?;
    let directory = server::new_directory(&directory, &mut guard)?;
    let mut text = page::head("Lag of a replica", "cargo xtask bench lag", args) + "\n";
    print!("{text}");
    let chart = directory.join("lag.svg");
    let mut measure = Command::new(&program);
    measure.arg("bench-lag").args(&rest);
    measure.arg("--directory").arg(&directory);
    measure.arg("--plot").arg(&chart).stdout(Stdio::piped());
    let shown = command::show(&measure);
    let mut child = measure.spawn().map_err(|e| format!("{shown}: {e}"))?;
    guard.process(child.id())?;
    let out = child.stdout.take().expect("piped");
    for line in BufReader::new(out).lines() {
        let line = line.map_err(|e| format!("{shown}: {e}"))?;
        println!("{line}");
        text = text + &line + "\n";
    }
    let status = child.wait().map_err(|e| format!("{shown}: {e}"))?;
    if !status.success() {
        return Err(format!("{shown}: {status}"));
    }
    if write {
        let svg = std::fs::read_to_string(&chart).map_err(|e| e.to_string())?;
        page::store("lag", &text, &[("", svg)])?;
    }
    Ok(())
}
