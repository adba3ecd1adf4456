//! `cargo xtask fuzz`: the targets of `crates/fuzz` under libFuzzer, guided by coverage, with AddressSanitizer.
//!
//! Needs a nightly toolchain and a C++ compiler, and no `cargo-fuzz`: the compiler flags are those that it would pass. The
//! corpus grows in the target directory and is kept between runs. An input that fails is left there too, and its path is shown:
//! `cargo run -p fuzz -- TARGET FILE` runs it again.
//! Left out on purpose: minimising a corpus.

use crate::step;
use crate::{Result, command, sanitize};

const USAGE: &str = "cargo xtask fuzz [TARGET…] [--seconds 60]   (no TARGET: all of them)";

const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Cdebug-assertions";

/// The largest piece of memory that a target may ask for. libFuzzer's inputs have some kilobytes.
const MOST_MIB: u32 = 64;

pub fn main(args: &[String]) -> Result<()> {
    let (mut wanted, mut seconds) = (Vec::new(), 60u32);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let value = args.next().and_then(|v| v.parse().ok());
                seconds = value.ok_or(USAGE)?;
            }
            name if !name.starts_with('-') => wanted.push(name.to_string()),
            _ => return Err(USAGE.into()),
        }
    }
    let known = targets()?;
    if wanted.is_empty() {
        wanted = known.clone();
    }
    if let Some(other) = wanted.iter().find(|w| !known.contains(w)) {
        return Err(format!(
            "no target `{other}` of {}\n{USAGE}",
            known.join(", ")
        ));
    }
    let host = sanitize::nightly()?;
    let directory = command::target_dir().join("fuzz");
    println!("building");
    let mut build = sanitize::rustup(&["run", "nightly", "cargo", "build", "--release"]);
    build.args([
        "--package",
        "fuzz",
        "--features",
        "libfuzzer",
        "--target",
        &host,
    ]);
    build
        .env("RUSTFLAGS", FLAGS)
        .env("CARGO_TARGET_DIR", &directory);
    step::whole("fuzz-build", build)?;
    let program = directory.join(&host).join("release").join("fuzz");
    for target in wanted {
        println!("== {target}, {seconds} s");
        let corpus = directory.join("corpus").join(&target);
        let mut seeds = command::cargo(&["run", "--quiet", "--package", "fuzz", "--", &target]);
        command::output(seeds.arg("--seeds").arg(&corpus))?;
        let mut fuzz = std::process::Command::new(&program);
        fuzz.env("CANON_FUZZ_TARGET", &target);
        fuzz.arg(format!("-max_total_time={seconds}"));
        // A small input asks for no large memory.
        fuzz.arg(format!("-malloc_limit_mb={MOST_MIB}"));
        fuzz.arg(format!(
            "-artifact_prefix={}/{target}-",
            directory.display()
        ));
        fuzz.arg(&corpus);
        let said = step::whole_with_output(&format!("fuzz-{target}"), fuzz)?;
        let done = said.iter().rev().find(|l| l.starts_with("Done "));
        println!(
            "   {}",
            done.map_or("ended without a summary", String::as_str)
        );
    }
    Ok(())
}

/// What the program without libFuzzer lists.
fn targets() -> Result<Vec<String>> {
    let listed = command::output(&mut command::cargo(&[
        "run",
        "--quiet",
        "--package",
        "fuzz",
    ]));
    let usage = listed
        .err()
        .ok_or("fuzz without arguments lists its targets")?;
    let (_, names) = usage.rsplit_once("one of ").ok_or(usage.clone())?;
    Ok(names.split_whitespace().map(String::from).collect())
}
