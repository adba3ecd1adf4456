//! `cargo xtask sanitize`: the tests of `store`, the crate with all our `unsafe`, under what finds wrong memory accesses.
//!
//! | tool | finds | needs |
//! |---|---|---|
//! | AddressSanitizer | use after free, overflow, leaks | a nightly toolchain |
//! | ThreadSanitizer | data races, wrong orderings as far as the machine shows them | nightly and `rust-src`: the standard library is built with it |
//! | valgrind (memcheck) | invalid accesses, leaks | valgrind; only where there is no nightly |
//!
//! It says for each what ran, and why if it did not. ThreadSanitizer does not model fences; crossbeam-epoch replaces
//! them under its own `cfg`. Each tool has a target directory of its own, kept between runs.
//! Left out on purpose: miri (its component is not everywhere), and the other crates, which have no `unsafe`.

use crate::step::{self, Counts};
use crate::{Result, command};
use serde_json::Value;
use std::process::Command;

const CRATE: &str = "store";

pub fn main(args: &[String]) -> Result<()> {
    let known = ["address", "thread", "valgrind"];
    if let Some(other) = args.iter().find(|a| !known.contains(&a.as_str())) {
        return Err(format!("`{other}`? one of: {}", known.join(" ")));
    }
    let asked = |tool: &str| args.iter().any(|a| a == tool);
    let nightly = nightly();
    let mut total = Counts::default();
    for tool in known {
        // All that can run, where nothing is said; valgrind only in place of the others.
        let wanted = asked(tool) || (args.is_empty() && (tool == "valgrind") == nightly.is_err());
        if !wanted {
            continue;
        }
        println!("== {tool}");
        let ran = match tool {
            "valgrind" => valgrind(),
            _ => nightly.clone().and_then(|host| sanitizer(tool, &host)),
        };
        match ran {
            Ok(counts) => {
                println!(
                    "-- {tool}: {} passed, {} failed",
                    counts.passed, counts.failed
                );
                total.add(counts);
            }
            Err(why) => {
                println!("-- {tool}: did not run: {why}");
                total.failed += 1;
            }
        }
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    match total {
        Counts { passed: 0, .. } => Err("nothing ran".into()),
        Counts { failed: 0, .. } => Ok(()),
        _ => Err("failed".into()),
    }
}

/// The host's target triple, if a nightly toolchain is at hand.
pub fn nightly() -> Result<String> {
    let said = command::output(&mut rustup(&["run", "nightly", "rustc", "-vV"]))
        .map_err(|_| "no nightly toolchain")?;
    let host = said.lines().find_map(|l| l.strip_prefix("host: "));
    Ok(host.ok_or("rustc names no host")?.to_string())
}

/// A rustup that is free of the toolchain which runs xtask.
pub fn rustup(args: &[&str]) -> Command {
    let mut command = Command::new("rustup");
    command.args(args).current_dir(command::root());
    command.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    command
}

fn sanitizer(tool: &str, host: &str) -> Result<Counts> {
    let mut test = rustup(&["run", "nightly", "cargo", "test", "--no-fail-fast"]);
    // Documentation tests link the ordinary standard library and do not fit.
    test.args(["--package", CRATE, "--lib", "--tests", "--target", host]);
    let mut flags = format!("-Zsanitizer={tool}");
    if tool == "thread" {
        let sources = rustup(&["component", "add", "rust-src", "--toolchain", "nightly"]);
        step::whole("sanitize-sources", sources)
            .map_err(|e| format!("rust-src is not there and cannot be fetched\n{e}"))?;
        test.arg("-Zbuild-std");
        flags.push_str(" --cfg crossbeam_sanitize --cfg crossbeam_sanitize_thread");
    }
    test.env("RUSTFLAGS", flags);
    test.env(
        "CARGO_TARGET_DIR",
        command::target_dir().join("sanitize").join(tool),
    );
    step::tests(&format!("sanitize-{tool}"), test)
}

/// Memcheck over the ordinary test binaries, one thread at a time as valgrind has it.
fn valgrind() -> Result<Counts> {
    command::output(Command::new("valgrind").arg("--version"))?;
    let mut build = command::cargo(&["test", "--package", CRATE, "--lib", "--tests", "--no-run"]);
    let messages = command::output(build.arg("--message-format=json"))?;
    let mut counts = Counts::default();
    for binary in messages.lines().filter_map(executable) {
        let mut run = Command::new("valgrind");
        run.args(["--quiet", "--error-exitcode=66", "--leak-check=full"]);
        run.args(["--errors-for-leak-kinds=definite", "--fair-sched=yes"]);
        run.arg(binary)
            .current_dir(command::root().join("crates").join(CRATE));
        counts.add(step::tests("sanitize-valgrind", run)?);
    }
    Ok(counts)
}

/// The test binary that one of cargo's messages names.
fn executable(message: &str) -> Option<String> {
    let json: Value = serde_json::from_str(message).ok()?;
    let test = json["profile"]["test"] == true;
    json["executable"]
        .as_str()
        .filter(|_| test)
        .map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_test_binaries_are_run() {
        let message = |test: bool| {
            format!(r#"{{"profile":{{"test":{test}}},"executable":"/target/debug/deps/store-1"}}"#)
        };
        assert_eq!(
            executable(&message(true)).as_deref(),
            Some("/target/debug/deps/store-1")
        );
        assert_eq!(executable(&message(false)), None);
        assert_eq!(executable("   Compiling store"), None);
    }
}
