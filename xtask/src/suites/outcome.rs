//! What tests did at one server, and what a list says of those that fail.
//!
//! A list names tests of one suite that PostgreSQL 15 passes and canon does not, each below its reason:
//!
//! ```text
//! == later: ranges
//! tests/types/test_range.py::*
//! == differs: there is one database
//! tests/test_connection.py::test_other_database
//! ```
//! `later` is an object that a later issue builds: such tests are left out of the share. `differs` and `fails` are in it, as failures.
//! `unsteady` fails now and then, and may pass. `*` is any text. Any other line that no failing test matches has to go, so the list only shrinks.
//!
//! Left out on purpose: tests that PostgreSQL 15 does not pass either.

use crate::Result;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Skipped,
    /// With a line of the error.
    Failed(String),
}

pub type Outcomes = BTreeMap<String, Outcome>;

/// Lines `{"test": …, "outcome": "passed" | "skipped" | "failed", "why": …}`. A test that stands there twice has its worse outcome.
pub fn reported(text: &str) -> Outcomes {
    let mut all = Outcomes::new();
    for line in text.lines() {
        let Ok(v) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let Some(test) = v["test"].as_str() else {
            continue;
        };
        let outcome = match v["outcome"].as_str() {
            Some("passed") => Outcome::Passed,
            Some("skipped") => Outcome::Skipped,
            _ => Outcome::Failed(v["why"].as_str().unwrap_or_default().to_owned()),
        };
        worse(&mut all, test.to_owned(), outcome);
    }
    all
}

fn worse(all: &mut Outcomes, test: String, outcome: Outcome) {
    let old = all.entry(test).or_insert(outcome.clone());
    if *old == Outcome::Passed || matches!(outcome, Outcome::Failed(_)) {
        *old = outcome;
    }
}

/// The output of `go test -json`: tests without their subtests, which they fail with.
pub fn reported_by_go(text: &str, module: &str) -> Outcomes {
    let mut all = Outcomes::new();
    let mut said: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in text.lines() {
        let Ok(v) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        let (Some(package), Some(test)) = (v["Package"].as_str(), v["Test"].as_str()) else {
            continue;
        };
        let package = package.strip_prefix(module).unwrap_or(package);
        let top = test.split('/').next().unwrap_or(test);
        let name = format!("{}/{top}", package.trim_start_matches('/'));
        let whole = top == test;
        match v["Action"].as_str() {
            Some("output") => {
                let line = v["Output"].as_str().unwrap_or_default().trim();
                said.entry(name).or_default().push(line.to_owned());
            }
            Some("pass") if whole => worse(&mut all, name, Outcome::Passed),
            Some("skip") if whole => worse(&mut all, name, Outcome::Skipped),
            Some("fail") if whole => {
                let why = why(said.get(&name).map_or(&[], Vec::as_slice));
                worse(&mut all, name, Outcome::Failed(why));
            }
            _ => {}
        }
    }
    all
}

/// The line that says most.
fn why(lines: &[String]) -> String {
    let with = |words: &str| lines.iter().find(|l| l.contains(words));
    let last = || {
        lines
            .iter()
            .rfind(|l| !l.is_empty() && !l.starts_with("---"))
    };
    let line = with("ERROR: ").or_else(|| with("Error:")).or_else(last);
    line.cloned().unwrap_or_default()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Later,
    Differs,
    Fails,
    Unsteady,
}

#[derive(Debug)]
struct Line {
    test: String,
    kind: Kind,
    reason: String,
}

#[derive(Debug, Default)]
pub struct List(Vec<Line>);

impl List {
    pub fn parse(text: &str) -> Result<List> {
        let mut under = None;
        let mut lines = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with("# ") {
                continue;
            }
            if let Some(head) = line.strip_prefix("== ") {
                let (kind, reason) = head.split_once(": ").ok_or("`== KIND: reason`")?;
                let kind = match kind {
                    "later" => Kind::Later,
                    "differs" => Kind::Differs,
                    "fails" => Kind::Fails,
                    "unsteady" => Kind::Unsteady,
                    other => return Err(format!("no kind `{other}`")),
                };
                under = Some((kind, reason.to_owned()));
                continue;
            }
            let (kind, reason) = under.clone().ok_or(format!("{line} has no reason"))?;
            let test = line.to_owned();
            lines.push(Line { test, kind, reason });
        }
        Ok(List(lines))
    }

    fn find(&self, test: &str) -> Option<&Line> {
        self.0.iter().find(|l| matches(&l.test, test))
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => {
            let Some(left) = text.strip_prefix(head) else {
                return false;
            };
            (0..=left.len())
                .filter(|&i| left.is_char_boundary(i))
                .any(|i| matches(rest, &left[i..]))
        }
    }
}

/// A suite's tests that PostgreSQL passes, as canon does.
#[derive(Debug, Default)]
pub struct Judged {
    /// That PostgreSQL passes.
    pub all: usize,
    pub passed: usize,
    /// Failing tests that are listed, by kind and reason.
    pub listed: BTreeMap<(Kind, String), usize>,
    /// Failing tests that are not: the test, and why.
    pub unlisted: Vec<(String, String)>,
    /// A line for each test: `passed`, `listed` or `unlisted`, its name, why.
    pub tests: Vec<String>,
    /// Lines of the list that no failing test matches.
    pub stale: Vec<String>,
}

impl Judged {
    pub fn later(&self) -> usize {
        let later = self.listed.iter().filter(|((k, _), _)| *k == Kind::Later);
        later.map(|(_, n)| n).sum()
    }

    /// Of what needs no object of a later issue.
    pub fn share(&self) -> f64 {
        percent(self.passed, self.all - self.later())
    }

    pub fn share_of_all(&self) -> f64 {
        percent(self.passed, self.all)
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

pub fn judge(postgres: &Outcomes, canon: &Outcomes, list: &List) -> Judged {
    let mut judged = Judged::default();
    let mut used = vec![false; list.0.len()];
    for (test, _) in postgres.iter().filter(|(_, o)| **o == Outcome::Passed) {
        judged.all += 1;
        let why = match canon.get(test) {
            Some(Outcome::Passed) => {
                judged.passed += 1;
                judged.tests.push(format!("passed\t{test}"));
                continue;
            }
            Some(Outcome::Failed(why)) => why.clone(),
            Some(Outcome::Skipped) => "skipped".into(),
            None => "did not run".into(),
        };
        for (line, used) in list.0.iter().zip(&mut used) {
            *used |= matches(&line.test, test);
        }
        let as_listed = match list.find(test) {
            Some(line) => {
                let at = (line.kind, line.reason.clone());
                *judged.listed.entry(at).or_default() += 1;
                "listed"
            }
            None => {
                judged.unlisted.push((test.clone(), why.clone()));
                "unlisted"
            }
        };
        judged.tests.push(format!("{as_listed}\t{test}\t{why}"));
    }
    let needed = |l: &Line| l.kind != Kind::Unsteady;
    let stale = list
        .0
        .iter()
        .zip(used)
        .filter(|(l, used)| !used && needed(l));
    judged.stale = stale.map(|(l, _)| l.test.clone()).collect();
    judged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_leaves_out_names_and_shrinks() {
        let at = |text: &str| reported(text);
        let line = |test: &str, outcome: &str| {
            format!("{{\"test\": \"{test}\", \"outcome\": \"{outcome}\", \"why\": \"w\"}}\n")
        };
        let names = ["range[a]", "range[b]", "one", "two", "three"];
        let postgres: String = names.iter().map(|n| line(n, "passed")).collect();
        let postgres = postgres + &line("never", "failed");
        let canon = line("range[a]", "failed") + &line("range[b]", "skipped");
        let canon = canon + &line("one", "passed") + &line("two", "failed");
        let list = "== later: ranges\nrange[*]\n== fails: why\ntwo\ngone\n";
        let j = judge(&at(&postgres), &at(&canon), &List::parse(list).unwrap());
        assert_eq!((j.all, j.passed, j.later()), (5, 1, 2));
        assert_eq!(j.unlisted, [("three".into(), "did not run".into())]);
        assert_eq!(j.stale, ["gone"]);
        assert!((j.share() - 100.0 / 3.0).abs() < 1e-9 && j.share_of_all() == 20.0);
        assert!(List::parse("no reason").is_err());
    }

    #[test]
    fn a_test_that_is_reported_twice_has_its_worse_outcome() {
        let text = "{\"test\":\"a\",\"outcome\":\"failed\",\"why\":\"x\"}\n{\"test\":\"a\",\"outcome\":\"passed\"}";
        assert_eq!(reported(text)["a"], Outcome::Failed("x".into()));
    }

    #[test]
    fn subtests_of_go_belong_to_their_test() {
        let line = |action: &str, test: &str, output: &str| {
            format!(
                "{{\"Action\":\"{action}\",\"Package\":\"m/v5/pgconn\",\"Test\":\"{test}\",\"Output\":\"{output}\"}}\n"
            )
        };
        let text = line("output", "TestA/sub", "ERROR: no (SQLSTATE 0A000)")
            + &line("fail", "TestA/sub", "")
            + &line("fail", "TestA", "")
            + &line("pass", "TestB", "");
        let all = reported_by_go(&text, "m/v5");
        let failed = Outcome::Failed("ERROR: no (SQLSTATE 0A000)".into());
        assert_eq!(all["pgconn/TestA"], failed);
        assert_eq!((all.len(), &all["pgconn/TestB"]), (2, &Outcome::Passed));
    }
}
