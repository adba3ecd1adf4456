//! Shares and lists: what a person reads of a run.
//!
//! The page in `docs/results` has figures and canon's own words only, since no text of the suite is kept in the repository. The whole
//! list, with each unit and both answers, is a file in the target directory.

use super::decided::Decided;
use super::judge::{Outcome, Ran};
use super::psql::Answer;
use super::statements::Judged;
use super::verdict::{ALL, Verdict};
use crate::Result;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Reasons that the page lists.
const REASONS: usize = 60;

/// Lines of an answer that the whole list shows.
const SHOWN: usize = 30;

/// Units of a run by verdict.
#[derive(Default)]
pub struct Tally(BTreeMap<Verdict, usize>);

impl Tally {
    pub fn of(judged: &[Judged]) -> Tally {
        let mut tally = Tally::default();
        for j in judged {
            *tally.0.entry(j.verdict).or_default() += 1;
        }
        tally
    }

    fn count(&self, v: Verdict) -> usize {
        self.0.get(&v).copied().unwrap_or(0)
    }

    /// What says something: all but what was left out.
    fn all(&self) -> usize {
        self.0.values().sum::<usize>() - self.count(Verdict::LeftOut)
    }

    /// PostgreSQL's result or its error.
    fn right(&self) -> usize {
        self.count(Verdict::Same) + self.count(Verdict::SameError)
    }

    /// The same, and what differs in form only.
    fn near(&self) -> usize {
        use Verdict::{Describe, Notice, Order, Plan};
        let form = [Plan, Notice, Order, Describe];
        self.right() + form.iter().map(|v| self.count(*v)).sum::<usize>()
    }
}

fn share(part: usize, whole: usize) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// One line about a file.
pub fn line(name: &str, judged: &[Judged]) -> String {
    let t = Tally::of(judged);
    format!(
        "{name:<24} {:>5} units, {:>7} as PostgreSQL, {:>4} refused, {:>4} follow, {:>3} different, {:>2} lost",
        t.all(),
        share(t.right(), t.all()),
        t.count(Verdict::Refused),
        t.count(Verdict::Follows),
        t.count(Verdict::Different),
        t.count(Verdict::Lost),
    )
}

/// Errors that only a fault of the program gives.
fn internal(judged: &[Judged]) -> usize {
    let is = |a: &Answer| a.state.as_deref() == Some("XX000");
    let faults = judged.iter().filter(|j| is(&j.ours) && !is(&j.theirs));
    faults.count()
}

/// Where the whole list is.
pub fn whole_list(kept: &Path) -> PathBuf {
    kept.join("statements.txt")
}

/// Adds a file's units to the whole list.
pub fn keep(judged: &[Judged], kept: &Path) -> Result<()> {
    let path = whole_list(kept);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.append(true).create(true).open(&path);
    let file = file
        .as_mut()
        .map_err(|e| format!("{}: {e}", path.display()))?;
    file.write_all(list(judged).as_bytes())
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// The page.
pub fn statements(judged: &[Judged], decided: &Decided) -> String {
    let t = Tally::of(judged);
    let mut page = String::new();
    let _ = writeln!(
        page,
        "**{} of {} units give PostgreSQL's result or its error: {}** (with what differs in form only: {}). XX000: {}. Connections lost: {}.\n",
        t.right(),
        t.all(),
        share(t.right(), t.all()),
        share(t.near(), t.all()),
        internal(judged),
        t.count(Verdict::Lost),
    );
    page += "A unit is a statement or a backslash command of psql. Figures are repaired: a block is kept alive by savepoints, and a relation that a\nrefused statement would have made or changed is put in from PostgreSQL. What is about another refused object counts as what follows.\n\n";
    page += "| verdict | units | share |\n|---|---|---|\n";
    for (v, what) in ALL {
        let n = t.count(*v);
        let _ = writeln!(page, "| {what} | {n} | {} |", share(n, t.all()));
    }
    page += &different(judged, decided);
    page += &reasons(judged, "Refused", &[Verdict::Refused]);
    page += &reasons(
        judged,
        "What follows, by the refused object",
        &[Verdict::Follows],
    );
    let others = [Verdict::OtherError, Verdict::Accepted];
    page += &reasons(
        judged,
        "Other errors, and PostgreSQL's error where canon accepts",
        &others,
    );
    page += &files(judged);
    page
}

/// Why results differ, and the places that are not decided.
fn different(judged: &[Judged], decided: &Decided) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut open: Vec<String> = Vec::new();
    for j in judged.iter().filter(|j| j.verdict == Verdict::Different) {
        match decided.reason(&j.file, j.unit.line) {
            Some(reason) => *counts.entry(reason).or_default() += 1,
            None => open.push(format!("{}:{}", j.file, j.unit.line)),
        }
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(reason, n)| (std::cmp::Reverse(*n), *reason));
    let mut text = format!(
        "\n## Different results\n\n**{} of them are not decided.**",
        open.len()
    );
    if !open.is_empty() {
        let _ = write!(text, " They are {}.", open.join(", "));
    }
    text += "\n\n| units | what is decided |\n|---|---|\n";
    for (reason, n) in counts {
        let _ = writeln!(text, "| {n} | {reason} |");
    }
    text
}

/// The most frequent reasons of some verdicts.
fn reasons(judged: &[Judged], title: &str, of: &[Verdict]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for j in judged.iter().filter(|j| of.contains(&j.verdict)) {
        *counts.entry(&j.reason).or_default() += 1;
    }
    let mut counts: Vec<(&str, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(reason, n)| (std::cmp::Reverse(*n), *reason));
    let mut text = format!("\n## {title}\n\n| units | reason |\n|---|---|\n");
    for (reason, n) in counts.iter().take(REASONS) {
        let _ = writeln!(text, "| {n} | {} |", reason.replace('|', "\\|"));
    }
    if counts.len() > REASONS {
        let rest: usize = counts[REASONS..].iter().map(|c| c.1).sum();
        let _ = writeln!(text, "| {rest} | {} others |", counts.len() - REASONS);
    }
    text
}

fn files(judged: &[Judged]) -> String {
    let mut text = "\n## Files\n\n| file | units | as PostgreSQL | refused | follow | different | other error, accepted |\n|---|---|---|---|---|---|---|\n".to_owned();
    for file in judged.chunk_by(|a, b| a.file == b.file) {
        let t = Tally::of(file);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            file[0].file,
            t.all(),
            share(t.right(), t.all()),
            t.count(Verdict::Refused),
            t.count(Verdict::Follows),
            t.count(Verdict::Different),
            t.count(Verdict::OtherError) + t.count(Verdict::Accepted),
        );
    }
    text
}

/// Every unit that is not the same, with both answers.
fn list(judged: &[Judged]) -> String {
    let mut text = String::new();
    for (v, what) in ALL {
        if matches!(v, Verdict::Same | Verdict::SameError) {
            continue;
        }
        for j in judged.iter().filter(|j| j.verdict == *v) {
            let _ = writeln!(
                text,
                "=== {what} | {}:{} | {}\n{}\n--- canon {}\n{}\n--- PostgreSQL {}\n{}\n",
                j.file,
                j.unit.line,
                j.reason,
                j.unit.text,
                j.ours.state.as_deref().unwrap_or(""),
                shown(&j.ours),
                j.theirs.state.as_deref().unwrap_or(""),
                shown(&j.theirs),
            );
        }
    }
    text
}

fn shown(a: &Answer) -> String {
    let lines: Vec<&str> = a.lines.iter().take(SHOWN).map(String::as_str).collect();
    lines.join("\n")
}

/// The page of the isolation specs; the outputs go to `kept`.
pub fn isolation(ran: &[Ran], kept: &Path) -> Result<String> {
    let count = |o: &[Outcome]| ran.iter().filter(|r| o.contains(&r.outcome)).count();
    let runs = [
        Outcome::Identical,
        Outcome::Waits,
        Outcome::Serial,
        Outcome::Differs,
    ];
    let mut page = format!(
        "**{} specs: {} run, {} of them with identical output. In {} only waits differ, in {} other transactions end by 40001 or 40P01, {} differ otherwise.** {} cannot run.\n\nA spec runs if its setup and all of its steps are taken. Where other transactions are aborted, the answers of those that commit, and the\nrows at the end, were found in an order one after the other at PostgreSQL.\n\n| spec | outcome | |\n|---|---|---|\n",
        ran.len(),
        count(&runs),
        count(&[Outcome::Identical]),
        count(&[Outcome::Waits]),
        count(&[Outcome::Serial]),
        count(&[Outcome::Differs]),
        count(&[Outcome::Refused]),
    );
    for r in ran {
        let what = match r.outcome {
            Outcome::Identical => "identical",
            Outcome::Waits => "other waits",
            Outcome::Serial => "other aborts",
            Outcome::Differs => "differs",
            Outcome::Refused => "cannot run",
        };
        let note = r.note.replace('|', "\\|");
        let _ = writeln!(page, "| {} | {what} | {note} |", r.name);
        let file = kept.join(format!("{}.out", r.name));
        std::fs::write(file, &r.output).map_err(|e| e.to_string())?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::super::script::cut;
    use super::*;

    fn judged(verdict: Verdict, state: Option<&str>) -> Judged {
        let answer = Answer {
            state: state.map(String::from),
            ..Answer::default()
        };
        Judged {
            file: "f".into(),
            unit: cut("select 1;").remove(0),
            verdict,
            reason: "0A000 no".into(),
            ours: answer,
            theirs: Answer::default(),
        }
    }

    #[test]
    fn what_is_left_out_is_in_no_share() {
        let all = [
            judged(Verdict::Same, None),
            judged(Verdict::SameError, Some("42601")),
            judged(Verdict::Order, None),
            judged(Verdict::Refused, Some("XX000")),
            judged(Verdict::LeftOut, None),
        ];
        let t = Tally::of(&all);
        assert_eq!((t.all(), t.right(), t.near()), (4, 2, 3));
        assert_eq!(internal(&all), 1);
        assert!(reasons(&all, "x", &[Verdict::Refused]).contains("| 1 | 0A000 no |"));
        let page = different(
            &[judged(Verdict::Different, None)],
            &Decided::read().unwrap(),
        );
        assert!(page.contains("**1 of them are not decided.** They are f:1."));
    }
}
