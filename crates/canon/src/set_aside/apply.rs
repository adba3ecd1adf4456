//! Putting commits back at the primary.
//!
//! ```text
//! dry run   BEGIN · per commit: SAVEPOINT, rows judged, written ─ conflict? back to the savepoint · … · ROLLBACK
//! --yes     the dry run first; then per commit: BEGIN, rows judged, written, COMMIT
//! ```
//! The dry run does all that is done later, so rights, constraints and conflicts between the commits are found by the server itself.
//! Every transaction is SERIALIZABLE: a row cannot change between the look at it and the write. One that loses a race runs again.
//!
//! **A commit is put back whole or not at all.** Its rows are judged by `node::aside::judge` against what stands at the primary. Rows that
//! are there already are left alone. If one conflicts, or a statement is refused, all of the commit conflicts; and so do later ones that
//! follow its rows.
//!
//! **Order.** A commit in the log is the sum of its statements, so no order is given. What a constraint refuses is tried again after the rest, as
//! long as that helps: children before parents, and values of a unique column that change places by way of a free one.
//!
//! **Nothing cascades.** A row that others refer to with CASCADE, SET NULL or SET DEFAULT is deleted, or its key changed, only when none is left that
//! does. In the lost history they went with it, and are written by the commit itself; others are the cluster's, and a conflict.
//!
//! Left out on purpose: unique values that change places without a free one between (each statement is checked alone): a conflict.

use super::text::{TextRow, Texts, changes, ident, list, literal, overrides};
use super::wrong;
use base::schema::{FkAction, Table};
use base::{Error, Result, SqlState};
use node::aside::{Aside, AsideCommit, Stood, Verdict, Why, Write, judge};
use protocol::message::Rows;
use protocol::{Conninfo, Link};
use std::sync::Arc;

/// Runs of a transaction that loses races.
const RUNS: u32 = 20;

/// How conflicts are met.
pub struct How {
    pub yes: bool,
    pub skip_conflicts: bool,
    /// Tables, with or without their schema.
    pub take: Vec<String>,
}

/// What became of a commit.
enum Outcome {
    /// Rows written, and rows that were there already.
    Fits {
        written: usize,
        there: usize,
    },
    Conflict(Vec<String>),
}

#[derive(Default)]
struct Sum {
    commits: usize,
    rows: usize,
    there: usize,
    conflicts: usize,
}

/// Puts them back, or tries to. False: there were conflicts, and nothing said what to do with them.
pub async fn run(aside: &Aside, server: &Conninfo, how: &How) -> Result<bool> {
    if aside.schema.is_none() {
        let what = "what was set aside has no base: it is not known how its rows stood before";
        let hint = "An older version set it aside. 'canon set-aside show' prints what it can.";
        return Err(wrong(what).hint(hint));
    }
    let taken = taken(aside, &how.take)?;
    let parameters = [
        ("application_name", "canon set-aside"),
        ("DateStyle", "ISO, MDY"),
        ("TimeZone", "UTC"),
        ("IntervalStyle", "postgres"),
        ("extra_float_digits", "1"),
        ("bytea_output", "hex"),
    ];
    let link = Link::connect(server, &parameters).await?;
    let texts = Texts::new(aside);
    let mut work = Applier { link, texts, taken };
    let tried = work.dry_run(aside).await?;
    let refused = tried.conflicts > 0 && !how.skip_conflicts;
    if !how.yes || refused {
        println!("{}", in_words("would be put back", &tried));
        not_put_back(aside);
        match (refused, how.yes) {
            (true, true) => println!(
                "Nothing was changed. --skip-conflicts leaves out commits that conflict; --take TABLE takes the rows that were set aside."
            ),
            _ => println!("Nothing was changed: this was a dry run. --yes puts them back."),
        }
        return Ok(!refused);
    }
    let done = work.put_back(aside, how).await?;
    println!("{}", in_words("were put back", &done));
    not_put_back(aside);
    Ok(done.conflicts == 0 || how.skip_conflicts)
}

fn in_words(what: &str, s: &Sum) -> String {
    format!(
        "{} commits of {} rows {what}; {} are there already; {} conflict.",
        s.commits, s.rows, s.there, s.conflicts
    )
}

/// What was shown and is left to a person.
fn not_put_back(aside: &Aside) {
    let schema: usize = aside.commits.iter().map(|c| c.schema.len()).sum();
    if schema > 0 {
        println!("{schema} changes of the schema are never put back: see 'canon set-aside show'.");
    }
    let mut sequences: Vec<(&str, i64)> = Vec::new();
    for (name, upto) in aside.commits.iter().flat_map(|c| &c.sequences) {
        sequences.retain(|s| s.0 != name);
        sequences.push((name, *upto));
    }
    for (name, upto) in sequences {
        println!(
            "Sequence {name} was drawn up to {upto} there; it stands as it does here. If rows with its numbers were put back, look at setval()."
        );
    }
}

/// The tables of `--take`, as the lost commits name them.
fn taken(aside: &Aside, wanted: &[String]) -> Result<Vec<(String, String)>> {
    let mut all: Vec<(String, String)> = Vec::new();
    for w in aside.commits.iter().flat_map(|c| &c.writes) {
        if let Some(t) = aside.table(*w) {
            let name = aside.qualified(t);
            if !all.contains(&name) {
                all.push(name);
            }
        }
    }
    let mut taken = Vec::new();
    for want in wanted {
        let is = |n: &&(String, String)| *want == n.1 || *want == format!("{}.{}", n.0, n.1);
        let found: Vec<_> = all.iter().filter(is).cloned().collect();
        match &found[..] {
            [one] => taken.push(one.clone()),
            [] => {
                return Err(wrong(format!(
                    "--take {want}: no row of such a table was set aside"
                )));
            }
            _ => {
                return Err(wrong(format!(
                    "--take {want}: there are several, name the schema"
                )));
            }
        }
    }
    Ok(taken)
}

/// A statement to run.
struct Step {
    write: Write,
    sql: String,
    /// Questions that must find nothing: a row that would be changed by a cascade.
    guards: Vec<String>,
}

struct Applier<'a> {
    link: Link,
    texts: Texts<'a>,
    taken: Vec<(String, String)>,
}

fn lost_race(e: &Error) -> bool {
    matches!(&e.code().0, b"40001" | b"40P01")
}

/// Whether the connection, or the server, is what failed.
fn fatal(e: &Error) -> bool {
    matches!(&e.code().0[..2], b"08" | b"57" | b"XX")
        || e.code() == SqlState::READ_ONLY_SQL_TRANSACTION
}

impl Applier<'_> {
    /// All commits in one transaction that is rolled back.
    async fn dry_run(&mut self, aside: &Aside) -> Result<Sum> {
        for run in 1.. {
            self.link
                .query("BEGIN ISOLATION LEVEL SERIALIZABLE")
                .await?;
            let tried = self.try_all(aside).await;
            self.link.query("ROLLBACK").await?;
            match tried {
                Err(e) if lost_race(&e) && run < RUNS => {}
                Err(e) => return Err(e),
                Ok((sum, report)) => {
                    print!("{report}");
                    return Ok(sum);
                }
            }
        }
        unreachable!("the last run returns")
    }

    async fn try_all(&mut self, aside: &Aside) -> Result<(Sum, String)> {
        let (mut sum, mut report) = (Sum::default(), String::new());
        for c in aside.commits.iter().filter(|c| !c.writes.is_empty()) {
            self.link.query("SAVEPOINT one_commit").await?;
            let outcome = self.one(c).await?;
            let end = match outcome {
                Outcome::Conflict(_) => "ROLLBACK TO SAVEPOINT one_commit",
                Outcome::Fits { .. } => "RELEASE SAVEPOINT one_commit",
            };
            self.link.query(end).await?;
            report += &self.tell(c, outcome, &mut sum);
        }
        Ok((sum, report))
    }

    /// Each commit in a transaction of its own.
    async fn put_back(&mut self, aside: &Aside, how: &How) -> Result<Sum> {
        let mut sum = Sum::default();
        for c in aside.commits.iter().filter(|c| !c.writes.is_empty()) {
            let outcome = self.commit(c).await?;
            let conflicts = matches!(outcome, Outcome::Conflict(_));
            print!("{}", self.tell(c, outcome, &mut sum));
            if conflicts && !how.skip_conflicts {
                println!("Stopped: it did not conflict in the dry run. Run it again to go on.");
                return Ok(sum);
            }
        }
        Ok(sum)
    }

    async fn commit(&mut self, c: &AsideCommit) -> Result<Outcome> {
        for run in 1.. {
            self.link
                .query("BEGIN ISOLATION LEVEL SERIALIZABLE")
                .await?;
            let outcome = match self.one(c).await {
                Ok(Outcome::Fits { written, there }) if written > 0 => {
                    let committed = self.link.query("COMMIT").await;
                    committed.map(|_| Outcome::Fits { written, there })
                }
                Ok(o) => self.link.query("ROLLBACK").await.map(|_| o),
                Err(e) => {
                    _ = self.link.query("ROLLBACK").await;
                    Err(e)
                }
            };
            match outcome {
                Err(e) if lost_race(&e) && run < RUNS => {}
                Err(e) if fatal(&e) || lost_race(&e) => {
                    let hint = "Run it again: what was put back is not put back twice.";
                    return Err(e.hint(hint));
                }
                Err(e) => return Ok(Outcome::Conflict(vec![refusal(&e)])),
                done => return done,
            }
        }
        unreachable!("the last run returns")
    }

    fn tell(&self, c: &AsideCommit, outcome: Outcome, sum: &mut Sum) -> String {
        match outcome {
            Outcome::Fits { written: 0, .. } => {
                sum.there += 1;
                format!("commit {}: there already\n", c.position)
            }
            Outcome::Fits { written, there } => {
                sum.commits += 1;
                sum.rows += written;
                let also = match there {
                    0 => String::new(),
                    n => format!(", {n} are there already"),
                };
                format!("commit {}: {written} rows{also}\n", c.position)
            }
            Outcome::Conflict(why) => {
                sum.conflicts += 1;
                let lines: String = why.iter().map(|w| format!("    {w}\n")).collect();
                format!("commit {}: conflict\n{lines}", c.position)
            }
        }
    }

    /// Judges and writes the rows of a commit in the open transaction. An error is a lost race, or the connection's.
    async fn one(&mut self, c: &AsideCommit) -> Result<Outcome> {
        let (mut steps, mut there, mut conflicts) = (Vec::new(), 0, Vec::new());
        for w in &c.writes {
            match self.row(*w).await? {
                Ok(Some(step)) => steps.push(step),
                Ok(None) => there += 1,
                Err(why) => conflicts.push(why),
            }
        }
        if !conflicts.is_empty() {
            return Ok(Outcome::Conflict(conflicts));
        }
        let written = steps.len();
        let mut left = steps;
        while !left.is_empty() {
            let (mut again, mut why) = (Vec::new(), Vec::new());
            let before = left.len();
            for s in left {
                match self.step(&s).await? {
                    Ok(()) => {}
                    Err(refused) => {
                        let what = self.texts.describe(s.write);
                        why.push(format!("{what}: {refused}"));
                        again.push(s);
                    }
                }
            }
            if again.len() == before {
                return Ok(Outcome::Conflict(why));
            }
            left = again;
        }
        Ok(Outcome::Fits { written, there })
    }

    /// Runs a statement that may be refused; the transaction goes on.
    async fn guarded(&mut self, sql: &str) -> Result<std::result::Result<Rows, Error>> {
        let text = format!("SAVEPOINT one_step; {sql}; RELEASE SAVEPOINT one_step");
        match self.link.query(&text).await {
            Ok(rows) => Ok(Ok(rows)),
            Err(e) if fatal(&e) || lost_race(&e) => Err(e),
            Err(e) => {
                self.link.query("ROLLBACK TO SAVEPOINT one_step").await?;
                Ok(Err(e))
            }
        }
    }

    async fn step(&mut self, s: &Step) -> Result<std::result::Result<(), String>> {
        for guard in &s.guards {
            match self.guarded(guard).await? {
                Ok(found) if found.is_empty() => {}
                Ok(_) => return Ok(Err("rows that refer to it would be changed with it".into())),
                Err(e) => return Ok(Err(refusal(&e))),
            }
        }
        Ok(match self.guarded(&s.sql).await? {
            Ok(rows) if rows.len() == 1 => Ok(()),
            Ok(rows) => Err(format!("{} rows were written, not one", rows.len())),
            Err(e) => Err(refusal(&e)),
        })
    }

    /// What is to be done for a row: a statement, nothing, or why it conflicts.
    async fn row(&mut self, w: Write) -> Result<std::result::Result<Option<Step>, String>> {
        let aside = self.texts.aside;
        let line = &aside.lines[w.line];
        let described = self.texts.describe(w);
        let what = |why: &str| format!("{described}: {why}");
        let Some(table) = aside.table(w).cloned() else {
            return Ok(Err(what("the table is not known")));
        };
        if table.primary().is_none() {
            let why = "the table has no primary key, so nothing names the row";
            return Ok(Err(what(why)));
        }
        let Some(key) = self.texts.key(line) else {
            return Ok(Err(what(Why::Unknown.words())));
        };
        let versions = self.texts.versions(line);
        let mut names: Vec<String> = Vec::new();
        for v in &versions {
            if let Stood::Row(r) = v {
                let new = r.iter().filter(|c| !names.contains(&c.0));
                let new: Vec<String> = new.map(|c| c.0.clone()).collect();
                names.extend(new);
            }
        }
        let (schema, name) = aside.qualified(&table);
        let target = format!("{}.{}", ident(&schema), ident(&name));
        let columns: Vec<String> = names.iter().map(|n| ident(n)).collect();
        let place = condition(&key);
        let select = format!("SELECT {} FROM {target} WHERE {place}", columns.join(", "));
        let present: Option<TextRow> = match self.guarded(&select).await? {
            Ok(mut rows) => rows.pop().map(|r| names.iter().cloned().zip(r).collect()),
            Err(e) => return Ok(Err(what(&refusal(&e)))),
        };
        let same = |v: &TextRow, p: &TextRow| v.iter().all(|c| p.contains(c));
        let take = self.taken.contains(&(schema, name));
        match judge(&versions, w.step, present.as_ref(), same) {
            Verdict::Done => return Ok(Ok(None)),
            Verdict::Conflict(why) if !take => {
                let now = match &present {
                    Some(p) => format!("it is now {}", list(p)),
                    None => "it is not there now".into(),
                };
                return Ok(Err(what(&format!("{}: {now}", why.words()))));
            }
            _ => {}
        }
        let (sql, guards) = match (&versions[w.step], &present) {
            (Stood::Row(new), None) => (insert(&target, &table, new), vec![]),
            (Stood::Row(new), Some(old)) => {
                let set = changes(old, new);
                if set.is_empty() {
                    return Ok(Ok(None));
                }
                let moved = |c: &str| set.iter().any(|s| s.0 == c);
                let guards = self.guards(&table, old, Some(&moved));
                let set: Vec<String> = set
                    .iter()
                    .map(|(n, v)| format!("{} = {}", ident(n), literal(v.as_deref())))
                    .collect();
                let sql = format!(
                    "UPDATE {target} SET {} WHERE {place} RETURNING 1",
                    set.join(", ")
                );
                (sql, guards)
            }
            (Stood::Absent, Some(old)) => {
                let sql = format!("DELETE FROM {target} WHERE {place} RETURNING 1");
                (sql, self.guards(&table, old, None))
            }
            (Stood::Absent, None) => return Ok(Ok(None)),
            (Stood::Unknown, _) => return Ok(Err(what("the row is not readable"))),
        };
        Ok(Ok(Some(Step {
            write: w,
            sql,
            guards,
        })))
    }

    /// Questions for rows that a change of this row would change with it: a delete, or an update that moves these columns.
    fn guards(
        &self,
        table: &Arc<Table>,
        row: &TextRow,
        moved: Option<&dyn Fn(&str) -> bool>,
    ) -> Vec<String> {
        let Some(schema) = &self.texts.aside.schema else {
            return vec![];
        };
        let mut guards = Vec::new();
        let Some(table) = schema.table(table.def.id) else {
            return guards;
        };
        for (child, place) in &table.referenced_by {
            let Some(child) = schema.table(*child) else {
                continue;
            };
            let key = &child.def.foreign_keys[*place];
            let action = if moved.is_some() {
                key.on_update
            } else {
                key.on_delete
            };
            if matches!(action, FkAction::NoAction | FkAction::Restrict) {
                continue;
            }
            let name = |t: &Table, c: u16| t.def.columns[c as usize].name.clone();
            let referenced: Vec<String> = key.ref_columns.iter().map(|c| name(table, *c)).collect();
            if moved.is_some_and(|m| !referenced.iter().any(|c| m(c))) {
                continue;
            }
            let columns = key.columns.iter().zip(&referenced);
            let wanted: TextRow = columns
                .map(|(c, r)| {
                    let value = row.iter().find(|v| v.0 == *r).and_then(|v| v.1.clone());
                    (name(child, *c), value)
                })
                .collect();
            let (namespace, child) = self.texts.aside.qualified(child);
            guards.push(format!(
                "SELECT 1 FROM {}.{} WHERE {} LIMIT 1",
                ident(&namespace),
                ident(&child),
                condition(&wanted)
            ));
        }
        guards
    }
}

fn condition(key: &TextRow) -> String {
    let all: Vec<String> = key
        .iter()
        .map(|(n, v)| format!("{} = {}", ident(n), literal(v.as_deref())))
        .collect();
    all.join(" AND ")
}

fn insert(target: &str, table: &Table, row: &TextRow) -> String {
    let names: Vec<String> = row.iter().map(|c| ident(&c.0)).collect();
    let values: Vec<String> = row.iter().map(|c| literal(c.1.as_deref())).collect();
    let over = match overrides(table) {
        true => " OVERRIDING SYSTEM VALUE",
        false => "",
    };
    format!(
        "INSERT INTO {target} ({}){over} VALUES ({}) RETURNING 1",
        names.join(", "),
        values.join(", ")
    )
}

fn refusal(e: &Error) -> String {
    let f = e.fields();
    match f.detail.is_empty() {
        true => format!("{} ({})", f.message, e.code()),
        false => format!("{} ({}): {}", f.message, e.code(), f.detail),
    }
}
