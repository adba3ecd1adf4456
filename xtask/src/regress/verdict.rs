//! Compares canon's answer to a unit with PostgreSQL's.
//!
//! | verdict | answers |
//! |---|---|
//! | same | equal, line by line, or errors with the same SQLSTATE |
//! | form | both succeed and only a plan, a NOTICE, the order of rows, or what a `\d` command or `pg_get_viewdef` and its kin show differs |
//! | catalog | both succeed, and what differs was read from a system catalog, whose objects are not the same |
//! | refused | canon gives an error, PostgreSQL does not |
//! | follows | so, or different, because of a statement that was refused before |
//! | different | both succeed with different results |
//! | other error, accepted | PostgreSQL gives an error, canon another one or none |
//! | lost, slow | the connection ended; the time for a statement was over |
//!
//! Left out on purpose: the texts of errors. The SQLSTATE is what a program reacts to.

use super::psql::{Answer, End, is_error};
use super::statement::{defines, made, words};
use std::collections::{HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    Same,
    SameError,
    Plan,
    Notice,
    Order,
    Describe,
    Catalog,
    Refused,
    Follows,
    Different,
    OtherError,
    Accepted,
    Lost,
    Slow,
    /// PostgreSQL itself did not answer as the suite expects, so the unit says nothing here.
    LeftOut,
}

pub const ALL: &[(Verdict, &str)] = &[
    (Verdict::Same, "same result"),
    (Verdict::SameError, "same error"),
    (Verdict::Plan, "only a plan differs"),
    (Verdict::Notice, "only NOTICE or WARNING differs"),
    (Verdict::Order, "only the order of rows differs"),
    (
        Verdict::Describe,
        "only what a backslash command or the text of a definition shows differs",
    ),
    (Verdict::Catalog, "rows of a system catalog differ"),
    (Verdict::Refused, "refused where PostgreSQL succeeds"),
    (Verdict::Follows, "follows from a refused statement"),
    (Verdict::Different, "different result"),
    (Verdict::OtherError, "other error"),
    (
        Verdict::Accepted,
        "accepted where PostgreSQL gives an error",
    ),
    (Verdict::Lost, "connection lost"),
    (Verdict::Slow, "not done in time"),
    (Verdict::LeftOut, "left out"),
];

/// What was refused so far.
#[derive(Debug, Default)]
pub struct Book {
    /// Objects that a refused CREATE would have made, each with the kind of the statement.
    pub missing: HashMap<String, String>,
    /// Relations that a refused statement would have changed in form or behaviour, or that stand in for PostgreSQL's.
    pub altered: HashSet<String>,
}

impl Book {
    /// The kind of the refused statement that this unit follows from. A function is named where it is called or defined, a trigger
    /// and its kin only where it is defined; other objects anywhere.
    fn cause(&self, unit: &str) -> Option<&str> {
        let defines = defines(unit) || unit.starts_with('\\');
        let lower = unit.to_lowercase();
        let is_named = |word: &str, kind: &str| match kind {
            "function" | "procedure" | "aggregate" => {
                let call =
                    |(at, _): (usize, &str)| lower[at + word.len()..].trim_start().starts_with('(');
                defines || lower.match_indices(word).any(call)
            }
            "trigger" | "rule" | "policy" | "index" | "statistics" | "server" => defines,
            _ => true,
        };
        let missing = words(unit).into_iter().find_map(|w| {
            let kind = self.missing.get(&w)?;
            is_named(&w, kind).then_some(kind)
        });
        missing.map(String::as_str)
    }

    /// Notes what a refused statement of PostgreSQL's made.
    pub fn refused(&mut self, unit: &str) {
        // These have no name, or are repaired; and these words stand in the place of a name.
        const UNNAMED: &[&str] = &["table", "view", "operator", "cast", "transform"];
        const NO_NAMES: &[&str] = &["authorization", "mapping", "on", "as", "using", "for"];
        match made(unit) {
            Some((kind, _)) if UNNAMED.contains(&kind.as_str()) => {}
            Some((_, name)) if NO_NAMES.contains(&name.as_str()) => {}
            Some((kind, name)) => {
                self.missing.insert(name, kind);
            }
            None => {}
        }
    }

    /// Notes what both have made or dropped.
    pub fn agreed(&mut self, unit: &str) {
        let words = words(unit);
        let first = words.first().cloned().unwrap_or_default();
        let names = match first.as_str() {
            "create" => made(unit).into_iter().map(|m| m.1).collect(),
            "drop" => words,
            _ => Vec::new(),
        };
        for name in names {
            self.missing.remove(&name);
            self.altered.remove(&name);
        }
    }

    fn is_altered(&self, unit: &str) -> bool {
        words(unit).iter().any(|w| self.altered.contains(w))
    }
}

/// The verdict, and for what is refused, follows or is another error, the reason in words that group.
pub fn judge(unit: &str, ours: &Answer, theirs: &Answer, book: &Book) -> (Verdict, String) {
    let plain = |v| (v, String::new());
    match (ours.end, theirs.end) {
        (_, End::Silent | End::Lost) => return plain(Verdict::LeftOut),
        (End::Lost, _) => return plain(Verdict::Lost),
        (End::Silent, _) => return plain(Verdict::Slow),
        _ => {}
    }
    let code = |a: &Answer| a.state.clone().unwrap_or_default();
    match (&ours.state, &theirs.state) {
        (Some(a), Some(b)) if a == b => plain(Verdict::SameError),
        (Some(a), _) if a == "57014" => plain(Verdict::Slow),
        (Some(a), theirs_state) => {
            let reason = reason(&code(ours), &ours.lines);
            if let Some(kind) = book.cause(unit) {
                return (Verdict::Follows, kind.to_owned());
            }
            if a == "25P02" || (book.is_altered(unit) && is_undefined(a)) {
                return (Verdict::Follows, "another table".into());
            }
            match theirs_state {
                None => (Verdict::Refused, reason),
                Some(b) => (Verdict::OtherError, format!("{b} is due; {reason}")),
            }
        }
        (None, Some(b)) => match book.cause(unit) {
            Some(kind) => (Verdict::Follows, kind.to_owned()),
            None if book.is_altered(unit) => (Verdict::Follows, "another table".into()),
            None => (Verdict::Accepted, reason(b, &theirs.lines)),
        },
        (None, None) => succeed(unit, ours, theirs, book),
    }
}

/// Codes for a thing that is not there.
fn is_undefined(code: &str) -> bool {
    [
        "42P01", "42703", "42883", "42704", "3F000", "26000", "34000", "42809",
    ]
    .contains(&code)
}

fn succeed(unit: &str, ours: &Answer, theirs: &Answer, book: &Book) -> (Verdict, String) {
    let plain = |v| (v, String::new());
    if ours.lines == theirs.lines {
        return plain(Verdict::Same);
    }
    let words = words(unit);
    let shows = |w: &String| w.starts_with("pg_get_") && w.ends_with("def");
    if unit.starts_with('\\') || words.iter().any(shows) {
        return plain(Verdict::Describe);
    }
    if words.first().is_some_and(|w| w == "explain") {
        return plain(Verdict::Plan);
    }
    let (a, b) = (without_notices(&ours.lines), without_notices(&theirs.lines));
    if a == b {
        return plain(Verdict::Notice);
    }
    let sorted = |mut v: Vec<String>| {
        v.sort();
        v
    };
    if sorted(a) == sorted(b) {
        return plain(Verdict::Order);
    }
    match book.cause(unit) {
        Some(kind) => (Verdict::Follows, kind.to_owned()),
        None if book.is_altered(unit) => (Verdict::Follows, "another table".into()),
        None if words.iter().any(|w| is_catalog(w)) => plain(Verdict::Catalog),
        None => plain(Verdict::Different),
    }
}

/// Whether the word names a relation of the system's schemas.
fn is_catalog(word: &str) -> bool {
    const HEADS: &[&str] = &[
        "pg_am",
        "pg_attr",
        "pg_class",
        "pg_co",
        "pg_database",
        "pg_default",
        "pg_depend",
        "pg_enum",
        "pg_index",
        "pg_inherits",
        "pg_lang",
        "pg_locks",
        "pg_matviews",
        "pg_namespace",
        "pg_op",
        "pg_policies",
        "pg_proc",
        "pg_publication",
        "pg_range",
        "pg_rewrite",
        "pg_rules",
        "pg_sequences",
        "pg_settings",
        "pg_shdepend",
        "pg_stat",
        "pg_tables",
        "pg_trigger",
        "pg_ts",
        "pg_type",
        "pg_views",
    ];
    let is_function = word.starts_with("pg_typeof") || word.starts_with("pg_column");
    word == "information_schema" || (!is_function && HEADS.iter().any(|h| word.starts_with(h)))
}

/// Without NOTICE and its kin, and the lines that belong to them.
fn without_notices(lines: &[String]) -> Vec<String> {
    const HEADS: &[&str] = &["NOTICE:  ", "WARNING:  ", "INFO:  ", "LOG:  "];
    const PARTS: &[&str] = &[
        "DETAIL:  ",
        "HINT:  ",
        "CONTEXT:  ",
        "LINE ",
        "drop cascades to ",
        "and ",
    ];
    let mut inside = false;
    let mut kept = Vec::new();
    for line in lines {
        let head = HEADS.iter().any(|h| line.starts_with(h));
        let part = PARTS.iter().any(|h| line.starts_with(h));
        inside = head || (inside && part);
        if !inside {
            kept.push(line.clone());
        }
    }
    kept
}

/// The error's code and text, without what differs from case to case.
pub fn reason(code: &str, lines: &[String]) -> String {
    let text = lines.iter().find(|l| is_error(l)).map_or("", |l| &l[8..]);
    let mut plain = String::new();
    let mut quoted = false;
    for c in text.trim().chars() {
        match c {
            '"' => {
                quoted = !quoted;
                if !quoted {
                    plain.push('…');
                }
            }
            _ if quoted => {}
            c if c.is_ascii_digit() => {
                if !plain.ends_with('0') {
                    plain.push('0');
                }
            }
            c => plain.push(c),
        }
    }
    format!("{code} {}", plain.chars().take(110).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str, state: Option<&str>) -> Answer {
        Answer {
            lines: text.lines().map(String::from).collect(),
            state: state.map(String::from),
            end: End::Answered,
        }
    }

    fn verdict(unit: &str, ours: &Answer, theirs: &Answer) -> Verdict {
        judge(unit, ours, theirs, &Book::default()).0
    }

    #[test]
    fn equal_answers_and_equal_codes_are_the_same() {
        let a = answer(" x \n---\n 1", None);
        assert_eq!(verdict("select 1", &a, &a), Verdict::Same);
        let (e, f) = (
            answer("ERROR:  this", Some("42P01")),
            answer("ERROR:  that", Some("42P01")),
        );
        assert_eq!(verdict("select 1", &e, &f), Verdict::SameError);
        assert_eq!(verdict("select 1", &a, &f), Verdict::Accepted);
        assert_eq!(verdict("select 1", &e, &a), Verdict::Refused);
        let g = answer("ERROR:  that", Some("42703"));
        assert_eq!(verdict("select 1", &e, &g), Verdict::OtherError);
    }

    #[test]
    fn what_differs_in_form_is_no_different_result() {
        let v = |unit, a, b| verdict(unit, &answer(a, None), &answer(b, None));
        assert_eq!(v("select x", "1\n2", "2\n1"), Verdict::Order);
        assert_eq!(v("select x", "1\n2", "2\n2"), Verdict::Different);
        assert_eq!(v("explain select x", "a", "b"), Verdict::Plan);
        assert_eq!(v("\\d t", "a", "b"), Verdict::Describe);
        let catalog = "select relname from pg_class";
        assert_eq!(v(catalog, "1\n2", "2\n2"), Verdict::Catalog);
        assert_eq!(v("select pg_typeof(x)", "1", "2"), Verdict::Different);
        let noticed = "NOTICE:  so\nDETAIL:  it is\n1";
        assert_eq!(v("select x", noticed, "1"), Verdict::Notice);
        assert_eq!(v("select x", "DETAIL:  it is\n1", "1"), Verdict::Different);
    }

    #[test]
    fn what_names_a_refused_object_follows() {
        let mut book = Book::default();
        book.missing.insert("f".into(), "create function".into());
        book.altered.insert("t".into());
        let e = answer("ERROR:  no", Some("42883"));
        let ok = answer("1", None);
        let other = answer("2", None);
        let all = |unit, a: &Answer, b: &Answer| judge(unit, a, b, &book);
        assert_eq!(
            all("select f(1)", &e, &ok),
            (Verdict::Follows, "create function".into())
        );
        assert_eq!(all("select g(1)", &e, &ok).0, Verdict::Refused);
        assert_eq!(all("select * from t", &other, &ok).0, Verdict::Follows);
        assert_eq!(all("select * from u", &other, &ok).0, Verdict::Different);
    }

    #[test]
    fn an_end_is_not_hidden() {
        let ok = answer("1", None);
        let lost = Answer {
            end: End::Lost,
            ..Answer::default()
        };
        assert_eq!(verdict("select 1", &lost, &ok), Verdict::Lost);
        assert_eq!(verdict("select 1", &ok, &lost), Verdict::LeftOut);
    }

    #[test]
    fn reasons_group() {
        let lines = vec!["ERROR:  relation \"a b\" at 12 is not there".to_owned()];
        assert_eq!(
            reason("42P01", &lines),
            "42P01 relation … at 0 is not there"
        );
    }
}
