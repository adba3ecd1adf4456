//! Runs the files of the suite at canon and at PostgreSQL, one unit after the other, and judges each.
//!
//! ```text
//! cut ─▶ for each unit: repair before ─▶ canon ─▶ repair, again ─▶ PostgreSQL ─▶ judge ─▶ repair after
//! ```
//! PostgreSQL's answer is a live one, since the suite's expected results have no SQLSTATEs and a repair needs PostgreSQL's tables. They
//! have a say all the same: where PostgreSQL gives an error that they do not have, something is missing on this machine, such as the
//! suite's library of C functions, and the unit is left out.
//!
//! A block is kept alive at canon by a savepoint before each statement. A statement that PostgreSQL refuses ends canon's block, too.
//!
//! Left out on purpose: units with rows inside of several statements at once, and `\watch`.

use super::psql::{self, Answer, End, Place, Psql};
use super::repair::{Repair, TRIES};
use super::script::{self, Unit};
use super::statement::{self, Block};
use super::verdict::{self, Book, Verdict};
use crate::Result;
use std::path::Path;

/// A unit with its verdict.
pub struct Judged {
    pub file: String,
    pub unit: Unit,
    pub verdict: Verdict,
    pub reason: String,
    pub ours: Answer,
    pub theirs: Answer,
}

/// Both ends of a file's run.
struct Pair<'a> {
    places: &'a [Place; 2],
    ours: Psql,
    theirs: Psql,
}

pub struct Runner<'a> {
    /// Canon's and PostgreSQL's.
    pub places: &'a [Place; 2],
    pub repair: Repair,
    pub book: Book,
    /// Starts canon again if it has ended.
    pub revive: &'a mut dyn FnMut() -> Result<()>,
}

impl Runner<'_> {
    /// Runs one file in new sessions.
    pub fn file(&mut self, name: &str, suite: &Path) -> Result<Vec<Judged>> {
        let path = suite.join("sql").join(format!("{name}.sql"));
        let bytes = std::fs::read(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let expected = expected(suite, name);
        let mut pair = Pair {
            places: self.places,
            ours: Psql::start(&self.places[0])?,
            theirs: Psql::start(&self.places[1])?,
        };
        self.repair.block_ended();
        let mut judged = Vec::new();
        for unit in script::cut(&String::from_utf8_lossy(&bytes)) {
            let one = self.unit(unit, &mut pair, &expected)?;
            let left = one.theirs.end == End::Left;
            judged.push(Judged {
                file: name.to_owned(),
                ..one
            });
            if left {
                break;
            }
        }
        Ok(judged)
    }

    fn unit(&mut self, unit: Unit, pair: &mut Pair, expected: &str) -> Result<Judged> {
        if !is_simple(&unit) {
            return Ok(left_out(unit, "rows inside of several statements"));
        }
        let text = match &unit.rows {
            Some(rows) => {
                let file = self.places[0].scratch.join("stdin");
                std::fs::write(&file, rows).map_err(|e| e.to_string())?;
                statement::copy_from_file(&unit.text, &file.display().to_string())
            }
            None => unit.text.clone(),
        };
        let block = statement::block(&unit.text);
        let guarded = self.repair.in_block && block == Block::Inside;
        let Pair { ours, theirs, .. } = &mut *pair;
        self.repair.before(&unit.text, ours, theirs, &mut self.book);
        if guarded {
            ours.ask("SAVEPOINT canon_regress;");
        }
        let mut answer = ours.ask(&text);
        for _ in 0..TRIES {
            if answer.state.as_deref() != Some("42P01") {
                break;
            }
            if guarded {
                ours.ask("ROLLBACK TO canon_regress;");
            }
            if !self.repair.missing(&answer, ours, theirs, &mut self.book) {
                break;
            }
            answer = ours.ask(&text);
        }
        let their_answer = theirs.ask(&text);
        let (verdict, reason) = match is_foreign(&their_answer, expected) {
            true => (Verdict::LeftOut, "PostgreSQL lacks something here".into()),
            false => verdict::judge(&unit.text, &answer, &their_answer, &self.book),
        };
        let judged = Judged {
            file: String::new(),
            unit,
            verdict,
            reason,
            ours: answer,
            theirs: their_answer,
        };
        self.settle(&judged, guarded, block, pair)?;
        Ok(judged)
    }

    /// Brings both sessions to the same point again.
    fn settle(&mut self, j: &Judged, guarded: bool, block: Block, pair: &mut Pair) -> Result<()> {
        let ok = |a: &Answer| a.state.is_none() && a.end == End::Answered;
        let (ours_ok, theirs_ok) = (ok(&j.ours), ok(&j.theirs));
        if pair.is_gone(j) {
            (self.revive)()?;
            pair.again()?;
            self.repair.block_ended();
            return Ok(());
        }
        let Pair { ours, theirs, .. } = pair;
        if guarded {
            match (ours_ok, theirs_ok) {
                (true, true) => ours.ask("RELEASE canon_regress;"),
                (false, true) => ours.ask("ROLLBACK TO canon_regress;"),
                // PostgreSQL's block has failed. Canon's may have been kept alive.
                (_, false) => ours.ask("SELECT 1/0;"),
            };
        }
        match block {
            Block::Begins if theirs_ok => self.repair.in_block = true,
            Block::Ends => self.repair.block_ended(),
            _ => {}
        }
        let text = &j.unit.text;
        if ours_ok != theirs_ok {
            self.repair
                .apart(text, theirs_ok, ours, theirs, &mut self.book);
        }
        if theirs_ok {
            self.repair.wrote(text);
            let drops = statement::words(text).first().is_some_and(|w| w == "drop");
            if ours_ok || drops {
                self.book.agreed(text);
            }
        }
        Ok(())
    }
}

impl Pair<'_> {
    /// Whether one of the two psqls answers no more: also where a script leaves at canon alone, for something that is not there.
    fn is_gone(&self, j: &Judged) -> bool {
        let gone = |a: &Answer| matches!(a.end, End::Lost | End::Silent);
        gone(&j.ours) || gone(&j.theirs) || j.ours.end != j.theirs.end
    }

    /// Starts psql anew at both, so that their sessions are alike.
    fn again(&mut self) -> Result<()> {
        self.ours = Psql::start(&self.places[0])?;
        self.theirs = Psql::start(&self.places[1])?;
        Ok(())
    }
}

fn is_simple(unit: &Unit) -> bool {
    let words = statement::words(&unit.text);
    let several = unit.text.contains("\\;") && words.iter().any(|w| w == "stdin");
    !several && !unit.text.contains("\\watch")
}

fn left_out(unit: Unit, reason: &str) -> Judged {
    Judged {
        file: String::new(),
        unit,
        verdict: Verdict::LeftOut,
        reason: reason.into(),
        ours: Answer::default(),
        theirs: Answer::default(),
    }
}

/// All variants of what the suite expects of a file.
fn expected(suite: &Path, name: &str) -> String {
    let mut text = String::new();
    let names = std::iter::once(name.to_owned()).chain((1..=9).map(|n| format!("{name}_{n}")));
    for name in names {
        let path = suite.join("expected").join(format!("{name}.out"));
        if let Ok(bytes) = std::fs::read(path) {
            text.push_str(&String::from_utf8_lossy(&bytes));
            text.push('\n');
        }
    }
    text
}

/// Whether PostgreSQL gives an error that the suite does not expect.
fn is_foreign(theirs: &Answer, expected: &str) -> bool {
    let mut errors = theirs.lines.iter().filter(|l| psql::is_error(l));
    theirs.state.is_some() && errors.any(|l| !expected.contains(l.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_not_expected_leaves_the_unit_out() {
        let answer = Answer {
            lines: vec!["ERROR:  no such file".into()],
            state: Some("58P01".into()),
            end: End::Answered,
        };
        assert!(is_foreign(&answer, "ERROR:  other\n"));
        assert!(!is_foreign(&answer, "x\nERROR:  no such file\n"));
    }

    #[test]
    fn rows_inside_of_several_statements_are_left_out() {
        let unit = |text: &str| script::cut(text).remove(0);
        assert!(!is_simple(&unit("select 0\\; copy t from stdin;")));
        assert!(is_simple(&unit("select 0\\; select 1;")));
    }
}
