//! `cargo xtask regress --source DIR`: PostgreSQL 15's own regression suite and isolation specs against canon.
//!
//! `DIR` is the unpacked source of PostgreSQL 15. Nothing of it is kept here.
//!
//! ```text
//! script    cuts a file into units             spec      reads an isolation spec
//! psql      asks one server                    sessions  connections that may wait
//! repair    keeps the tables alike             tester    runs the permutations
//! verdict   compares two answers               table, judge   the form of results; what they say
//! decided   which different results stay
//!     └──────────────▶ report: shares, what differs, docs/results/DATE-regress.md ◀───────┘
//! ```
//! The share of units that give PostgreSQL's result or its error is *repaired*: a statement that was refused does not spoil those
//! after it, as far as tables go. Where one is about a function or a type that was refused, it counts as what follows, and never as
//! right.
//!
//! Left out on purpose: the suite's C library, and the specs that need prepared transactions.

mod decided;
mod judge;
mod psql;
mod repair;
mod report;
mod script;
mod sessions;
mod spec;
mod statement;
mod statements;
mod table;
mod tester;
mod verdict;

use crate::guard::Guard;
use crate::{Result, bench::page, clients, command, server};
use psql::Place;
use statements::Runner;
use std::path::{Path, PathBuf};

const USAGE: &str =
    "cargo xtask regress --source DIR [--binary CANON] [--only FILE[,FILE…]] [--isolation]";

#[derive(Default)]
struct Options {
    source: Option<PathBuf>,
    binary: Option<PathBuf>,
    only: Vec<String>,
    isolation: bool,
}

fn options(args: &[String]) -> Result<Options> {
    let mut o = Options::default();
    let mut args = args.iter();
    while let Some(name) = args.next() {
        if name == "--isolation" {
            o.isolation = true;
            continue;
        }
        let value = args.next().ok_or(USAGE)?;
        match name.as_str() {
            "--source" => o.source = Some(value.into()),
            "--binary" => o.binary = Some(value.into()),
            "--only" => o.only = value.split(',').map(String::from).collect(),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(o)
}

pub fn main(args: &[String]) -> Result<()> {
    let o = options(args)?;
    let source = o.source.as_deref().ok_or(USAGE)?;
    let source = std::path::absolute(source).map_err(|e| e.to_string())?;
    let tests = source.join("src").join("test");
    if !tests.join("regress").join("parallel_schedule").exists() {
        return Err("--source: there is no src/test/regress/parallel_schedule".into());
    }
    let programs = clients::postgres_bin()?;
    let program = program(&o)?;
    let mut guard = Guard::new()?;
    let directory = server::new_directory(&std::env::temp_dir(), &mut guard)?;
    let kept = command::target_dir().join("regress");
    std::fs::create_dir_all(&kept).map_err(|e| e.to_string())?;
    let peer = server::postgres(&programs, &directory, &mut guard, true)?;
    let page = if o.isolation {
        let specs = tests.join("isolation");
        let ran = tester::all(&specs, &o.only, &program, &peer, &directory, &mut guard)?;
        report::isolation(&ran, &kept)?
    } else {
        let mut canon = server::canon(&program, &directory, &mut guard)?;
        let suite = tests.join("regress");
        let place = |port, name: &str| -> Result<Place> {
            let scratch = directory.join(name);
            psql::open_directory(&scratch)?;
            Ok(Place {
                programs: programs.clone(),
                port,
                suite: suite.clone(),
                scratch,
            })
        };
        // Both write to the same places, so that both show the same names.
        let places = [place(canon.port, "files")?, place(peer.port, "files")?];
        let _ = std::fs::remove_file(report::whole_list(&kept));
        let mut revive = || match canon.ended() {
            Some(_) => canon.crash_and_restart(&mut guard).map(drop),
            None => Ok(()),
        };
        let run = Runner {
            places: &places,
            repair: repair::Repair::new(&directory.join("files")),
            book: verdict::Book::default(),
            revive: &mut revive,
        };
        let judged = statements(&suite, &o.only, run, &kept)?;
        report::statements(&judged, &decided::Decided::read()?)
    };
    if o.only.is_empty() {
        let (name, title) = match o.isolation {
            true => ("regress-isolation", "PostgreSQL 15's isolation specs"),
            false => ("regress", "PostgreSQL 15's regression suite, by statement"),
        };
        let head = page::head(title, "cargo xtask regress", args);
        page::store(name, &format!("{head}\n{page}"), &[])?;
    } else {
        print!("{page}");
    }
    println!("the whole list: {}", kept.display());
    Ok(())
}

/// The program to test: the one that was named, else one that is built for it.
fn program(o: &Options) -> Result<PathBuf> {
    if let Some(binary) = &o.binary {
        return std::path::absolute(binary).map_err(|e| e.to_string());
    }
    let build = ["build", "--release", "--package", "canon", "--bin", "canon"];
    command::output(&mut command::cargo(&build))?;
    Ok(command::target_dir().join("release").join("canon"))
}

fn statements(
    suite: &Path,
    only: &[String],
    mut runner: Runner<'_>,
    kept: &Path,
) -> Result<Vec<statements::Judged>> {
    let schedule = std::fs::read_to_string(suite.join("parallel_schedule"));
    let schedule = schedule.map_err(|e| format!("parallel_schedule: {e}"))?;
    let mut judged = Vec::new();
    for name in spec::in_order(&schedule) {
        let counted = only.is_empty() || only.contains(&name);
        if !counted && name != FIRST {
            continue;
        }
        let begun = std::time::Instant::now();
        let file = runner.file(&name, suite)?;
        let line = report::line(&name, &file);
        println!("{line} {:>5.0} s", begun.elapsed().as_secs_f64());
        if counted {
            report::keep(&file, kept)?;
            judged.extend(file);
        }
    }
    Ok(judged)
}

/// Makes what all others use.
const FIRST: &str = "test_setup";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let args = ["--source", "x", "--isolation", "--only", "a,b"].map(String::from);
        let o = options(&args).unwrap();
        assert!(o.isolation && o.only == ["a", "b"] && o.source.is_some());
        assert!(options(&["--what".into(), "x".into()]).is_err());
    }
}
