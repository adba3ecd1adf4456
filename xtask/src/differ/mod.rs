//! `cargo xtask differ`: random queries whose answers are compared.
//!
//! Three comparisons, after the ideas of SQLancer; each query takes part in one of them by its seed:
//!
//! | name | compared |
//! |---|---|
//! | `peer` | the answer at canon with the answer of PostgreSQL 15, started for the run |
//! | `parts` | all rows with those where a condition is true, false and unknown, together |
//! | `index` | the answer over tables with indexes with the answer over twins without |
//!
//! A difference is minimised by making the list of its choices shorter and smaller, and printed with its seed and as a record
//! for `slt/found.slt`. `--seed N` runs one seed again and shows every query of it; `--only NAME` runs one comparison.
//!
//! Left out on purpose: statements that change rows, and comparing error texts (codes are compared).

mod choice;
mod query;

use crate::guard::Guard;
use crate::wire::{Connection, Error, Rows};
use crate::{Result, clients, command, server};
use choice::Choices;
use std::collections::BTreeMap;
use std::path::PathBuf;

const USAGE: &str = "cargo xtask differ [--seeds N] [--from SEED] [--seed SEED] [--only peer|parts|index] [--program CANON] [--found FILE]";

/// Questions asked to make one difference small.
const TRIES: usize = 1500;

/// Differences after which a run has shown enough.
const ENOUGH: usize = 40;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Peer,
    Parts,
    Index,
}

struct Options {
    seeds: u64,
    from: u64,
    one: bool,
    only: Option<Way>,
    program: Option<PathBuf>,
    found: Option<PathBuf>,
}

fn options(args: &[String]) -> Result<Options> {
    let mut o = Options {
        seeds: 10_000,
        from: 1,
        one: false,
        only: None,
        program: None,
        found: None,
    };
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        let number = || value.parse::<u64>().map_err(|_| USAGE.to_owned());
        match name.as_str() {
            "--seeds" => o.seeds = number()?,
            "--from" => o.from = number()?,
            "--seed" => (o.from, o.seeds, o.one) = (number()?, 1, true),
            "--only" => {
                o.only = Some(match value.as_str() {
                    "peer" => Way::Peer,
                    "parts" => Way::Parts,
                    "index" => Way::Index,
                    _ => return Err(USAGE.into()),
                });
            }
            "--program" => o.program = Some(value.into()),
            "--found" => o.found = Some(value.into()),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(o)
}

/// A connection that is made again when the server ended it.
struct Side {
    server: server::Server,
    connection: Connection,
}

impl Side {
    fn new(server: server::Server) -> Result<Side> {
        let connection = server.connect().map_err(|e| e.to_string())?;
        Ok(Side { server, connection })
    }

    fn ask(&mut self, sql: &str) -> std::result::Result<Rows, Error> {
        let answer = self.connection.query(sql);
        if let Err(e) = &answer
            && (e.code.is_empty() || e.code.starts_with("57P"))
            && let Ok(c) = self.server.connect()
        {
            self.connection = c;
            let _ = self.connection.query("SET statement_timeout = '10s'");
        }
        answer
    }
}

/// What a comparison came to.
enum Outcome {
    Same,
    /// It says nothing: an error that depends on when an expression is evaluated, or a statement that canon does not have.
    Silent(String),
    Differs(Difference),
}

struct Difference {
    sql: String,
    what: String,
}

struct Bench {
    canon: Side,
    peer: Side,
}

/// Rows as lines, sorted.
fn lines(r: &Rows) -> Vec<String> {
    let mut all: Vec<String> = r
        .rows
        .iter()
        .map(|row| {
            let cells: Vec<String> = row.iter().map(|c| cell(c.as_deref())).collect();
            cells.join("|")
        })
        .collect();
    all.sort();
    all
}

/// A value as `slt` files show it.
fn cell(v: Option<&str>) -> String {
    match v {
        None => "NULL".into(),
        Some("") => "(empty)".into(),
        Some(t) if t.trim().is_empty() => format!("(blank {})", t.len()),
        Some(t) => t.replace('\\', "\\\\").replace('\n', "\\n"),
    }
}

/// Without zeros at the end of decimal fractions: of equal numbers any may be shown for a group.
fn without_zeros(lines: &[String]) -> Vec<String> {
    let trim = |cell: &str| match cell.split_once('.') {
        Some((_, after)) if after.bytes().all(|b| b.is_ascii_digit()) => {
            cell.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => cell.to_owned(),
    };
    let mut out: Vec<String> = lines
        .iter()
        .map(|l| l.split('|').map(trim).collect::<Vec<_>>().join("|"))
        .collect();
    out.sort();
    out
}

/// Codes of errors whose first depends on the order of evaluation. An error beside an answer is a difference in any case: no
/// expression of the generator fails for some rows and not for others.
fn depends_on_order(code: &str) -> bool {
    code.starts_with("22") || code == "21000"
}

impl Bench {
    fn compare(&mut self, way: Way, choices: &mut Choices) -> Outcome {
        let mut g = query::Gen::new(choices);
        match way {
            Way::Peer => {
                let sql = g.statement().sql;
                let (ours, theirs) = (self.canon.ask(&sql), self.peer.ask(&sql));
                judge(sql, ours, theirs)
            }
            Way::Index => {
                let sql = g.statement().sql;
                let mut other = sql.clone();
                for t in ["t1", "t2", "t3", "t4", "t5"] {
                    other = other.replace(&format!("{t} AS"), &format!("n{t} AS"));
                    other = other.replace(&format!("FROM {t},"), &format!("FROM n{t} AS {t},"));
                }
                let (ours, theirs) = (self.canon.ask(&sql), self.canon.ask(&other));
                judge(sql, ours, theirs)
            }
            Way::Parts => {
                let (select, p) = g.with_condition();
                let whole = self.canon.ask(&select);
                let parts = format!(
                    "{select} WHERE {p} UNION ALL {select} WHERE NOT ({p}) UNION ALL {select} WHERE ({p}) IS NULL"
                );
                let together = self.canon.ask(&parts);
                // A column's name may mean another one inside of the condition: then the peer says whether it may.
                let whole = match &together {
                    Err(e) if e.code.starts_with("42") => self.peer.ask(&parts),
                    _ => whole,
                };
                judge(parts, together, whole)
            }
        }
    }
}

fn judge(
    sql: String,
    ours: std::result::Result<Rows, Error>,
    theirs: std::result::Result<Rows, Error>,
) -> Outcome {
    let differs = |what: String| {
        Outcome::Differs(Difference {
            sql: sql.clone(),
            what,
        })
    };
    match (ours, theirs) {
        (Ok(a), Ok(b)) => {
            let (a, b) = (lines(&a), lines(&b));
            if a == b || without_zeros(&a) == without_zeros(&b) {
                return Outcome::Same;
            }
            differs(format!("got      {a:?}\nexpected {b:?}"))
        }
        (Err(a), Err(b)) if a.code == b.code => Outcome::Same,
        (Err(a), _) if a.code == "0A000" => Outcome::Silent(format!("{} {}", a.code, a.message)),
        (Err(a), _) if a.code == "57014" => differs(format!("got      {a} (too slow)")),
        (_, Err(b)) if b.code == "57014" => Outcome::Silent("slow at the peer".into()),
        (Err(a), Err(b)) if depends_on_order(&a.code) && depends_on_order(&b.code) => {
            Outcome::Silent("order of evaluation".into())
        }
        (Err(a), Err(b)) => differs(format!("got      {a}\nexpected {b}")),
        (Err(a), Ok(b)) => differs(format!("got      {a}\nexpected {:?}", lines(&b))),
        (Ok(a), Err(b)) => differs(format!("got      {:?}\nexpected {b}", lines(&a))),
    }
}

pub fn main(args: &[String]) -> Result<()> {
    let o = options(args)?;
    let programs = clients::postgres_bin()?;
    let program = match &o.program {
        Some(p) => p.clone(),
        None => {
            command::output(&mut command::cargo(&[
                "build",
                "--package",
                "canon",
                "--bin",
                "canon",
            ]))?;
            command::target_dir().join("debug").join("canon")
        }
    };
    let mut guard = Guard::new()?;
    let directory = server::new_directory(&std::env::temp_dir(), &mut guard)?;
    let peer = Side::new(server::postgres(&programs, &directory, &mut guard, true)?)?;
    let canon = Side::new(server::canon(&program, &directory, &mut guard)?)?;
    let mut bench = Bench { canon, peer };
    for side in [&mut bench.canon, &mut bench.peer] {
        let made = [
            query::WORLD,
            &query::twins(),
            "SET statement_timeout = '10s'",
        ];
        for sql in made {
            side.ask(sql)
                .map_err(|e| format!("{}: {e}", side.server.name))?;
        }
    }
    let mut silent: BTreeMap<String, usize> = BTreeMap::new();
    let mut known: Vec<String> = vec![];
    let (mut same, mut differences) = (0u64, 0);
    for seed in o.from..o.from + o.seeds {
        let way = o.only.unwrap_or(match seed % 4 {
            0 => Way::Parts,
            1 => Way::Index,
            _ => Way::Peer,
        });
        let mut choices = Choices::of_seed(seed);
        match bench.compare(way, &mut choices) {
            Outcome::Same => same += 1,
            Outcome::Silent(why) => *silent.entry(why).or_default() += 1,
            Outcome::Differs(first) => {
                differences += 1;
                if o.one {
                    println!("{}\n{}\n", first.sql, first.what);
                }
                let small = minimise(&mut bench, way, choices.made());
                report(&mut bench, &o, seed, way, &small, &mut known)?;
                if known.len() >= ENOUGH {
                    println!("enough differences");
                    break;
                }
            }
        }
        if let Some(why) = bench.canon.server.ended() {
            return Err(format!("seed {seed}: {why}"));
        }
        if (seed - o.from + 1).is_multiple_of(5_000) {
            println!(
                "seed {seed}: {same} same, {differences} differ ({} kinds)",
                known.len()
            );
        }
    }
    for (why, n) in &silent {
        println!("{n:>7} say nothing: {why}");
    }
    println!("{same} same, {differences} differ ({} kinds)", known.len());
    match differences {
        0 => Ok(()),
        _ => Err("answers differ".into()),
    }
}

fn minimise(bench: &mut Bench, way: Way, list: Vec<u32>) -> Difference {
    let list = choice::shrink(list, TRIES, &mut |list| {
        let outcome = bench.compare(way, &mut Choices::replay(list.to_vec()));
        matches!(outcome, Outcome::Differs(_))
    });
    match bench.compare(way, &mut Choices::replay(list)) {
        Outcome::Differs(d) => d,
        _ => Difference {
            sql: "the difference comes and goes".into(),
            what: String::new(),
        },
    }
}

/// Prints a difference that is new, and adds its record to the file.
fn report(
    bench: &mut Bench,
    o: &Options,
    seed: u64,
    way: Way,
    d: &Difference,
    known: &mut Vec<String>,
) -> Result<()> {
    // The same query with other names is the same difference, and so is the same error.
    let refused = d.what.lines().next().filter(|l| !l.contains('['));
    let plain = refused.unwrap_or(&d.sql).chars();
    let plain: String = plain.filter(|c| !c.is_ascii_digit()).collect();
    if known.contains(&plain) {
        return Ok(());
    }
    known.push(plain);
    println!(
        "seed {seed} ({way:?}): cargo xtask differ --seed {seed}\n{}\n{}\n",
        d.sql, d.what
    );
    let Some(file) = &o.found else { return Ok(()) };
    let expect = match bench.peer.ask(&d.sql) {
        Ok(rows) => {
            let rows: String = lines(&rows).iter().map(|l| format!("{l}\n")).collect();
            format!("query rowsort\n{}\n----\n{rows}\n", d.sql)
        }
        Err(e) => format!("statement error {}\n{}\n\n", e.code, d.sql),
    };
    let mut text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(_) => {
            let made = query::WORLD.lines();
            made.map(|l| format!("statement ok\n{}\n\n", l.trim_end_matches(';')))
                .collect()
        }
    };
    if !text.contains(&format!("\n{}\n", d.sql)) {
        text.push_str(&expect);
        std::fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    Ok(())
}
