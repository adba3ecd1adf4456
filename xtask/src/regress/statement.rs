//! What the runner has to know of a statement: its words, what it does to the transaction block, and what it is about.
//!
//! Words are enough, because a wrong guess costs a needless look at a table and never a wrong verdict. Text in quotes counts too:
//! a name may stand in it.
//!
//! Left out on purpose: a parser. Half of the statements are ones that no parser of ours knows.

/// The names and key words of the text in lower case, in order, each as often as it stands there.
pub fn words(text: &str) -> Vec<String> {
    let part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    text.split(|c| !part(c))
        .filter(|w| {
            w.chars()
                .next()
                .is_some_and(|c| !c.is_numeric() && c != '$')
        })
        .map(str::to_lowercase)
        .collect()
}

/// What a statement does to the block that it runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    Begins,
    Ends,
    /// No savepoint may be set around it: it is about savepoints, or has to be the first of its transaction.
    Bare,
    Inside,
}

/// The effect of a unit, which may hold several statements.
pub fn block(text: &str) -> Block {
    let mut effect = Block::Inside;
    for statement in text.split("\\;") {
        let words = words(&without_comments(statement));
        let words: Vec<&str> = words.iter().map(String::as_str).take(4).collect();
        let one = match words[..] {
            ["begin", ..] | ["start", "transaction", ..] => Block::Begins,
            ["commit", "prepared", ..] | ["rollback", "prepared", ..] => Block::Inside,
            ["rollback" | "abort", "to", ..]
            | ["rollback" | "abort", "work" | "transaction", "to", ..]
            | ["savepoint" | "release", ..]
            | ["set", "transaction" | "session" | "constraints", ..] => Block::Bare,
            ["commit" | "end" | "rollback" | "abort", ..] if words.contains(&"chain") => {
                match words.contains(&"no") {
                    true => Block::Ends,
                    false => Block::Begins,
                }
            }
            ["commit" | "end" | "rollback" | "abort", ..] | ["prepare", "transaction", ..] => {
                Block::Ends
            }
            _ => continue,
        };
        effect = one;
    }
    effect
}

/// The text without its comments; those between `/*` and `*/` only where the text begins with one.
fn without_comments(text: &str) -> String {
    let mut text = text.trim_start();
    while let Some((_, rest)) = text.strip_prefix("/*").and_then(|t| t.split_once("*/")) {
        text = rest.trim_start();
    }
    let line = |l: &str| l.split("--").next().unwrap_or_default().to_owned();
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Whether the statement only looks, so that a repair has nothing to do after it.
pub fn only_reads(text: &str) -> bool {
    let words = words(&without_comments(text));
    let first = words.first().map_or("", String::as_str);
    let looks = matches!(
        first,
        "select" | "values" | "table" | "show" | "explain" | "fetch" | "move" | "d" | "set"
    );
    let makes = words
        .iter()
        .any(|w| w == "into" || w == "nextval" || w == "setval");
    text.starts_with('\\') || (looks && !makes)
}

/// Whether the statement changes what objects there are or how they behave.
pub fn defines(text: &str) -> bool {
    let words = words(&without_comments(text));
    matches!(
        words.first().map_or("", String::as_str),
        "create" | "alter" | "drop" | "import" | "cluster" | "grant" | "revoke" | "do"
    )
}

/// What a CREATE makes, as (kind, name without its schema): `("function", "f")`.
pub fn made(text: &str) -> Option<(String, String)> {
    let words = words(&without_comments(text));
    let mut rest = words.iter().map(String::as_str).peekable();
    if rest.next()? != "create" {
        return None;
    }
    const BEFORE: &[&str] = &[
        "or",
        "replace",
        "temp",
        "temporary",
        "global",
        "local",
        "unlogged",
        "unique",
        "recursive",
        "materialized",
        "foreign",
        "constraint",
        "trusted",
        "procedural",
        "default",
        "event",
        "text",
        "search",
        "access",
    ];
    let mut kind = rest.next()?;
    while BEFORE.contains(&kind) {
        kind = rest.next()?;
    }
    for skipped in [
        "concurrently",
        "class",
        "family",
        "if",
        "not",
        "exists",
        "for",
    ] {
        rest.next_if_eq(&skipped);
    }
    let name = rest.next()?;
    // `schema.name`: the words do not show the point, the text does.
    let lower = text.to_lowercase();
    let name = match rest.peek() {
        Some(next) if lower.contains(&format!("{name}.{next}")) => next,
        _ => name,
    };
    Some((kind.into(), name.into()))
}

/// `COPY … FROM STDIN` as psql's own `\copy` from a file.
pub fn copy_from_file(text: &str, file: &str) -> String {
    let text = without_comments(text).replace('\n', " ");
    let text = text.trim().trim_end_matches(';');
    let lower = text.to_lowercase();
    let word = ["stdin", "stdout"].into_iter().find(|w| lower.contains(w));
    let word = word.unwrap_or_default();
    let at = lower.rfind(word).unwrap_or(text.len());
    let after = text.get(at + word.len()..).unwrap_or_default();
    format!("\\{} '{file}'{after}", text[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_move_the_block() {
        for (text, effect) in [
            ("BEGIN ISOLATION LEVEL SERIALIZABLE;", Block::Begins),
            ("-- so\ncommit;", Block::Ends),
            ("COMMIT AND CHAIN;", Block::Begins),
            ("ROLLBACK AND NO CHAIN;", Block::Ends),
            ("ROLLBACK TO SAVEPOINT x;", Block::Bare),
            ("COMMIT PREPARED 'x';", Block::Inside),
            ("select 1\\; begin\\; select 2;", Block::Begins),
            ("insert into begin values (1);", Block::Inside),
        ] {
            assert_eq!(block(text), effect, "{text}");
        }
    }

    #[test]
    fn what_is_made_has_a_kind_and_a_name() {
        for (text, kind, name) in [
            (
                "create or replace function s.f(int) returns int",
                "function",
                "f",
            ),
            ("CREATE TEMP TABLE IF NOT EXISTS t (a int)", "table", "t"),
            ("CREATE MATERIALIZED VIEW mv AS SELECT 1", "view", "mv"),
            ("create type \"Mood\" as enum ()", "type", "mood"),
            ("CREATE UNIQUE INDEX i ON t (a)", "index", "i"),
            (
                "/* CREATE INDEX x */\n/* * */ CREATE TABLE t ()",
                "table",
                "t",
            ),
        ] {
            assert_eq!(made(text), Some((kind.into(), name.into())), "{text}");
        }
        assert_eq!(made("select 1"), None);
    }

    #[test]
    fn a_copy_reads_a_file_instead() {
        assert_eq!(
            copy_from_file("COPY t (a,\n b) FROM stdin WITH (header); -- x", "/f"),
            "\\COPY t (a,  b) FROM '/f' WITH (header)"
        );
        assert_eq!(
            copy_from_file("copy t from stdout;", "/f"),
            "\\copy t from '/f'"
        );
    }

    #[test]
    fn looking_is_not_writing() {
        assert!(only_reads("SELECT * FROM t"));
        assert!(only_reads("\\d t"));
        assert!(!only_reads("SELECT * INTO u FROM t"));
        assert!(!only_reads("WITH x AS (DELETE FROM t) SELECT 1"));
    }
}
