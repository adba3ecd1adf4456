//! `cargo xtask ci`: every check, in the order that fails cheapest first, ending with one line `N passed, N failed`.
//!
//! Everything is built once: one profile (`dev`, dependencies optimised), one target directory, and always the whole
//! workspace with the same features, because cargo builds a crate again for another set. Which tests run in which step is
//! decided by the name of the test target, from `cargo metadata`, so that a new file cannot be forgotten:
//!
//! | step | runs |
//! |---|---|
//! | `unit` | unit tests of every crate, and integration tests that no later step claims |
//! | `shuttle` | the tests of crates with the feature `shuttle`, under the model checker |
//! | `e2e` | the other integration tests of `canon`: real sockets, real clients |
//! | `crash` | targets named `crash…` |
//! | `slt` | targets named `slt…` |
//! | `sim` | whole clusters under 500 seeds (`cargo xtask sim`) |
//! | `doc` | documentation tests |
//! | `matrix` | programs from PyPI against a server (`cargo xtask clients matrix --quick`) |
//! | `demo` | `canon demo --exit`, from an empty directory to the end of its load; the same with `--replicas 2` |
//!
//! A test that fails beside others and passes three times by itself is listed as `unsteady` (`step`).
//! A step that is no test (format, clippy, tidy, clients) counts as one. Ignored tests count as failed, and so does
//! a run in which no test ran. `cargo xtask ci STEP…` runs some steps only.

use crate::metadata::{self, Package};
use crate::step::{self, Counts};
use crate::{Result, clients, command, library, tidy};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const STEPS: &[&str] = &[
    "fmt", "tidy", "clients", "clippy", "build", "unit", "shuttle", "e2e", "crash", "slt", "sim",
    "doc", "demo", "matrix",
];

/// What came of a step.
enum Outcome {
    /// It passed as a whole.
    Whole,
    Tests(Counts),
}

pub fn main(args: &[String]) -> Result<()> {
    if let Some(other) = args.iter().find(|a| !STEPS.contains(&a.as_str())) {
        return Err(format!("no step `{other}`; steps: {}", STEPS.join(" ")));
    }
    let wanted = |step: &str| args.is_empty() || args.iter().any(|a| a == step);
    let started = Instant::now();
    println!("target directory: {}", command::target_dir().display());
    let packages = metadata::read()?;
    let (mut total, mut tests) = (Counts::default(), Counts::default());
    for step in STEPS.iter().filter(|s| wanted(s)) {
        println!("== {step}");
        let begun = Instant::now();
        let counts = match run(step, &packages) {
            Ok(Outcome::Tests(counts)) => {
                tests.add(counts);
                counts
            }
            Ok(Outcome::Whole) => Counts {
                passed: 1,
                failed: 0,
            },
            Err(message) => {
                println!("{message}");
                Counts {
                    passed: 0,
                    failed: 1,
                }
            }
        };
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "-- {step}: {} passed, {} failed, {seconds:.1} s",
            counts.passed, counts.failed
        );
        total.add(counts);
    }
    println!("{:.0} s in all", started.elapsed().as_secs_f64());
    let no_tests = args.is_empty() && tests == Counts::default();
    if no_tests {
        println!("no test ran");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed > 0 || no_tests {
        std::process::exit(1);
    }
    Ok(())
}

fn run(step: &str, packages: &[Package]) -> Result<Outcome> {
    let features = features(packages);
    match step {
        "fmt" => {
            step::whole(step, command::cargo(&["fmt", "--all", "--check"]))?;
            library::format()?;
        }
        "clippy" => {
            let mut clippy = command::cargo(&["clippy", "--quiet", "--workspace", "--all-targets"]);
            clippy.args(&features).args(["--", "-D", "warnings"]);
            step::whole(step, clippy)?;
        }
        "tidy" => tidy::main(&[])?,
        "clients" => drop(clients::ensure()?),
        "matrix" => crate::matrix::quick()?,
        "build" => {
            step::whole(step, whole_build(&features))?;
            // The library as an application has it, with SQL and without.
            library::check()?;
        }
        "shuttle" => return explored(step, packages),
        "demo" => {
            let canon = built("canon", &features)?;
            for shown in [
                &["--exit"][..],
                &["--replicas", "2", "--seconds", "6", "--exit"],
            ] {
                let mut demo = Command::new(&canon);
                demo.arg("demo").args(shown);
                step::whole(step, demo)?;
            }
        }
        "sim" => {
            let sim = built("sim", &features)?;
            for seeds in [
                &["--seeds", "500"][..],
                &["--sites", "--seeds", "300"],
                &["--leases", "--seeds", "100"],
                &["--histories", "1000"],
                &["--control", "--seeds", "100"],
            ] {
                let mut run = Command::new(&sim);
                run.args(seeds);
                step::whole(step, run)?;
            }
        }
        "doc" => return tests(step, &features, &["--doc".into()]),
        _ => {
            let mut targets = targets_of(step, packages)?;
            if step == "unit" {
                targets.extend(["--lib".into(), "--bins".into()]);
            }
            if targets.is_empty() {
                println!("   no test target belongs to this step");
                return Ok(Outcome::Tests(Counts::default()));
            }
            return tests(step, &features, &targets);
        }
    }
    Ok(Outcome::Whole)
}

/// Options that select the integration tests of `step`. Cargo selects by name over the whole workspace, so one name
/// may not belong to two steps.
fn targets_of(step: &str, packages: &[Package]) -> Result<Vec<String>> {
    let mut selected: Vec<&str> = names(packages)
        .filter(|(package, test)| step_of(package, test) == step)
        .map(|(_, test)| test)
        .collect();
    selected.sort_unstable();
    selected.dedup();
    let elsewhere = |&(package, test): &(&str, &str)| {
        selected.contains(&test) && step_of(package, test) != step
    };
    if let Some((package, test)) = names(packages).find(elsewhere) {
        return Err(format!(
            "the test target `{test}` of {package} shares its name with one of step {step}: rename it"
        ));
    }
    Ok(selected
        .into_iter()
        .flat_map(|t| ["--test".to_string(), t.to_string()])
        .collect())
}

fn names(packages: &[Package]) -> impl Iterator<Item = (&str, &str)> {
    packages
        .iter()
        .flat_map(|p| p.tests.iter().map(|t| (p.name.as_str(), t.as_str())))
}

/// The step that runs the integration test `test` of `package`.
fn step_of(package: &str, test: &str) -> &'static str {
    match package {
        _ if test.starts_with("crash") => "crash",
        _ if test.starts_with("slt") => "slt",
        "canon" => "e2e",
        _ => "unit",
    }
}

/// The planted faults are on in tests: one feature, named alike in every crate that has it.
pub fn features(packages: &[Package]) -> Vec<String> {
    packages
        .iter()
        .filter(|p| p.features.iter().any(|f| f == "faults"))
        .flat_map(|p| ["--features".to_string(), format!("{}/faults", p.name)])
        .collect()
}

/// All tests, and the programs that they start.
fn whole_build(features: &[String]) -> Command {
    let mut build = command::cargo(&["test", "--workspace", "--no-run"]);
    build.args(features).args(["--lib", "--bins", "--tests"]);
    build
}

/// The program of this name as the tests have it. A build of its own would have other features, and compile its crates once more.
pub fn built(program: &str, features: &[String]) -> Result<PathBuf> {
    command::output(&mut whole_build(features))?;
    Ok(command::target_dir().join("debug").join(program))
}

/// The tests that `targets` select, out of the whole workspace.
fn tests(step: &str, features: &[String], targets: &[String]) -> Result<Outcome> {
    let found = clients::Clients::find().ok();
    let cargo = || {
        let mut cargo = command::cargo(&["test", "--workspace", "--no-fail-fast"]);
        cargo.args(features).args(targets);
        // What a test lacks on this machine is a failure.
        cargo.env("CANON_CI", "1");
        // The same cases in every run, so that a red case is red on every machine. Fuzzing looks for new ones.
        cargo.env("PROPTEST_RNG_SEED", "20261121");
        if step == "e2e" {
            // These tests wait for servers much of their time.
            let cores = std::thread::available_parallelism().map_or(2, |n| n.get());
            cargo.env("RUST_TEST_THREADS", (cores + 1).to_string());
        }
        if let Some(found) = &found {
            cargo.envs(found.environment());
        }
        cargo
    };
    step::steady_tests(step, cargo).map(Outcome::Tests)
}

/// The concurrent code over the model checker's locks and atomics: other artifacts, so a build of its own.
fn explored(step: &str, packages: &[Package]) -> Result<Outcome> {
    let mut counts = Counts::default();
    // `env` only hands the shim on.
    let with_shim = packages
        .iter()
        .filter(|p| p.name != "env" && p.features.iter().any(|f| f == "shuttle"));
    for package in with_shim {
        let mut cargo = command::cargo(&["test", "--features", "shuttle", "--lib", "--tests"]);
        cargo.args(["--no-fail-fast", "--package", &package.name]);
        counts.add(step::tests(&format!("{step}-{}", package.name), cargo)?);
    }
    Ok(Outcome::Tests(counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_target_has_a_step() {
        for (package, test, step) in [
            ("canon", "psql", "e2e"),
            ("canon", "crash_loop", "crash"),
            ("wal", "crash_points", "crash"),
            ("canon", "slt", "slt"),
            ("txn", "golden", "unit"),
        ] {
            assert_eq!(step_of(package, test), step);
            assert!(STEPS.contains(&step));
        }
    }

    #[test]
    fn one_name_in_two_steps_is_refused() {
        let package = |name: &str, test: &str| Package {
            name: name.into(),
            tests: vec![test.into()],
            ..Package::default()
        };
        let both = [package("wal", "log"), package("canon", "log")];
        assert!(targets_of("e2e", &both).is_err());
        let apart = [package("wal", "log"), package("canon", "psql")];
        assert_eq!(targets_of("e2e", &apart).unwrap(), ["--test", "psql"]);
    }
}
