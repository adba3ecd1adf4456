//! What the output of a spec says.
//!
//! | outcome | the output |
//! |---|---|
//! | identical | is one of those that PostgreSQL expects |
//! | waits | each step gives PostgreSQL's answer, plans aside; only which of them wait, or the order in which they end, differs |
//! | serial | other transactions end by 40001 or 40P01. The answers of those that commit, and the rows at the end, are those of an order one after the other |
//! | differs | none of these |
//! | refused | the setup or a step is something that canon does not have |
//!
//! For *serial* the sessions that had no error run one after the other at PostgreSQL, in each order, until one gives the same answers.
//! A spec has the worst outcome of its permutations.
//!
//! Left out on purpose: sessions with several transactions. Theirs is *differs*, unless the order of sessions explains them.

use super::spec::{Spec, Turn};
use crate::Result;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Identical,
    Waits,
    Serial,
    Differs,
    Refused,
}

/// A spec with what came of it.
pub struct Ran {
    pub name: String,
    pub outcome: Outcome,
    pub note: String,
    pub output: String,
}

/// An error of a step.
pub struct Failed {
    pub code: String,
    pub message: String,
}

/// What canon gave.
pub struct Ours<'a> {
    pub output: &'a str,
    pub errors: Vec<Failed>,
    /// The rows at the end of each permutation.
    pub states: Vec<Vec<String>>,
}

/// Runs turns at PostgreSQL; the output, and the rows at the end.
pub trait OneByOne<'a> {
    fn run(&mut self, spec: &'a Spec, turns: &[Turn]) -> Result<(String, Vec<String>)>;
}

/// The outcome, and where the worst of it is.
pub fn judge<'a>(
    spec: &'a Spec,
    ours: &Ours<'_>,
    expected: &[String],
    serial: &mut impl OneByOne<'a>,
) -> (Outcome, String) {
    if expected.iter().any(|e| e == ours.output) {
        return (Outcome::Identical, String::new());
    }
    let known = |f: &&Failed| expected.iter().any(|e| e.contains(&f.message));
    let lacks = |f: &&Failed| f.code == "0A000" || f.code.starts_with("42");
    if let Some(f) = ours.errors.iter().find(|f| lacks(f) && !known(f)) {
        return (Outcome::Refused, format!("{} {}", f.code, f.message));
    }
    let parts: Vec<Vec<&str>> = expected.iter().map(|e| permutations(e)).collect();
    let own = permutations(ours.output);
    let all = spec.permutations();
    let mut worst = (Outcome::Identical, String::new());
    let mut count = 0;
    for (i, (mine, turns)) in own.iter().zip(&all).enumerate() {
        let theirs: Vec<&str> = parts.iter().filter_map(|p| p.get(i).copied()).collect();
        if theirs.iter().any(|t| t.trim_end() == mine.trim_end()) {
            continue;
        }
        count += 1;
        let steps = answers(spec, mine);
        let outcome = match theirs.iter().any(|t| answers(spec, t) == steps) {
            true => Outcome::Waits,
            false if has_order(spec, turns, &steps, &ours.states[i], serial) => Outcome::Serial,
            false => Outcome::Differs,
        };
        if outcome > worst.0 {
            worst = (outcome, mine.lines().next().unwrap_or_default().into());
        }
    }
    let note = format!("{count} of {} permutations; first: {}", own.len(), worst.1);
    (worst.0, note)
}

fn permutations(output: &str) -> Vec<&str> {
    output.split("\nstarting permutation: ").skip(1).collect()
}

/// What each step printed, by its name. A step that runs several times has all of its answers.
fn answers(spec: &Spec, permutation: &str) -> BTreeMap<String, Vec<String>> {
    let mut text = permutation.to_owned();
    for step in spec.sessions.iter().flat_map(|s| &s.steps) {
        let shown = format!("step {}: {}", step.name, step.sql);
        text = text.replace(&format!("{shown} <waiting ...>\n"), "");
        let ended = format!("step {}: <... completed>\n", step.name);
        text = text.replace(&format!("{shown}\n"), &ended);
    }
    let mut answers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in text.split("\nstep ").skip(1) {
        if let Some((name, answer)) = part.split_once(": <... completed>") {
            // A plan is not compared.
            let answer = match answer.trim() {
                plan if plan.starts_with("QUERY PLAN") => "QUERY PLAN",
                answer => answer,
            };
            let answer = answer.to_owned();
            answers.entry(name.to_owned()).or_default().push(answer);
        }
    }
    answers
}

/// Whether the sessions without an error, one after the other, give the same answers and leave the same rows.
fn has_order<'a>(
    spec: &'a Spec,
    turns: &[Turn],
    steps: &BTreeMap<String, Vec<String>>,
    state: &[String],
    serial: &mut impl OneByOne<'a>,
) -> bool {
    let name = |t: &Turn| spec.step(t).name.clone();
    let failed = |session: usize| {
        let own = turns.iter().filter(|t| t.session == session);
        own.filter_map(|t| steps.get(&name(t)))
            .flatten()
            .any(|a| a.contains("ERROR: "))
    };
    let committed: Vec<usize> = (0..spec.sessions.len()).filter(|s| !failed(*s)).collect();
    for order in orders(&committed) {
        let turns: Vec<Turn> = order
            .iter()
            .flat_map(|s| turns.iter().filter(move |t| t.session == *s).cloned())
            .collect();
        let Ok((output, rows)) = serial.run(spec, &turns) else {
            return false;
        };
        let theirs = answers(spec, &output);
        let same = |t: &Turn| theirs.get(&name(t)) == steps.get(&name(t));
        if rows == state && turns.iter().all(same) {
            return true;
        }
    }
    false
}

/// All orders of a few things.
fn orders(of: &[usize]) -> Vec<Vec<usize>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (i, first) in of.iter().enumerate() {
        let rest: Vec<usize> = [&of[..i], &of[i + 1..]].concat();
        for mut order in orders(&rest) {
            order.insert(0, *first);
            all.push(order);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::spec;
    use super::*;

    /// Answers as if step `b` had seen what stands here, and as if no row were left.
    struct Peer(&'static str);

    impl<'a> OneByOne<'a> for Peer {
        fn run(&mut self, spec: &'a Spec, turns: &[Turn]) -> Result<(String, Vec<String>)> {
            let mut out = String::from("\nstarting permutation: x\n");
            for t in turns {
                let step = spec.step(t);
                let seen = if step.name == "b" { self.0 } else { "" };
                out += &format!("step {}: {}\n{seen}", step.name, step.sql);
            }
            Ok((out, Vec::new()))
        }
    }

    fn outcome(ours: &str, theirs: &str, peer: &'static str) -> Outcome {
        let text = "session s1 step a { UPDATE x; } step c { COMMIT; } session s2 step b { SELECT; } permutation a b c";
        let spec = spec::read(text).unwrap();
        let whole = |t: &str| format!("Parsed\n\nstarting permutation: a b c\n{t}");
        let output = whole(ours);
        let ours = Ours {
            output: &output,
            errors: Vec::new(),
            states: vec![Vec::new()],
        };
        judge(&spec, &ours, &[whole(theirs)], &mut Peer(peer)).0
    }

    const PLAIN: &str = "step a: UPDATE x;\nstep b: SELECT;\n1\nstep c: COMMIT;\n";
    const WAITS: &str = "step a: UPDATE x;\nstep b: SELECT; <waiting ...>\nstep c: COMMIT;\nstep b: <... completed>\n1\n";

    #[test]
    fn a_wait_is_not_an_answer() {
        assert_eq!(outcome(PLAIN, PLAIN, ""), Outcome::Identical);
        assert_eq!(outcome(PLAIN, WAITS, ""), Outcome::Waits);
        let other = PLAIN.replace("\n1\n", "\n2\n");
        assert_eq!(outcome(&other, WAITS, "1\n"), Outcome::Differs);
    }

    #[test]
    fn an_abort_is_allowed_where_the_rest_has_an_order() {
        let aborted = PLAIN.to_owned() + "ERROR:  could not serialize access\n";
        assert_eq!(outcome(&aborted, PLAIN, "1\n"), Outcome::Serial);
        assert_eq!(outcome(&aborted, PLAIN, "2\n"), Outcome::Differs);
    }

    #[test]
    fn what_canon_lacks_is_no_difference() {
        let spec = spec::read("session s step a { x }").unwrap();
        let judged = |code: &str| {
            let failed = Failed {
                code: code.into(),
                message: "no".into(),
            };
            let ours = Ours {
                output: "x",
                errors: vec![failed],
                states: Vec::new(),
            };
            judge(&spec, &ours, &["y".into()], &mut Peer("")).0
        };
        assert_eq!(judged("0A000"), Outcome::Refused);
        assert_ne!(judged("40001"), Outcome::Refused);
    }

    #[test]
    fn all_orders_are_tried() {
        assert_eq!(orders(&[1, 2]), [[1, 2], [2, 1]]);
        assert_eq!(orders(&[1, 2, 3]).len(), 6);
    }
}
