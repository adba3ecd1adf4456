//! What PostgreSQL's grammar has and neither of those here: its statements answer 0A000 with their name, and not 42601, which
//! would say that PostgreSQL could not read them either.
//!
//! Only statements that could not be read are looked at, by their words. One that is wrong in PostgreSQL, too, and has such words, gets
//! 0A000 for 42601.
//!
//! Left out on purpose: forms that the parser reads and the binder refuses, with a message that is better than words.

use sqlparser::tokenizer::{Token, TokenWithSpan};

/// A statement's first words, words further on (none: the first are enough), and a name where the words are none. `*` is any token.
const REFUSED: &[(&str, &str, &str)] = &[
    ("alter aggregate", "", ""),
    ("alter collation", "", ""),
    ("alter conversion", "", ""),
    ("alter index", "", "this form of ALTER INDEX"),
    ("alter operator", "", ""),
    ("alter table all in tablespace", "", ""),
    ("alter table", "* of", "ALTER TABLE OF"),
    ("alter table", "alter constraint", ""),
    ("alter table", "attach partition", ""),
    ("alter table", "detach partition", ""),
    ("alter table", "drop expression", ""),
    ("alter table", "inherit", ""),
    ("alter table", "reset (", "options of a column"),
    ("alter table", "set (", "options of a column"),
    ("alter table", "set access method", ""),
    (
        "alter table",
        "set generated",
        "SET GENERATED beside other changes",
    ),
    ("alter table", "set tablespace", ""),
    ("alter text search", "", ""),
    ("alter user mapping", "", ""),
    ("comment on", "", "COMMENT ON this kind of object"),
    ("create operator", "", ""),
    ("create or replace procedure", "", "CREATE PROCEDURE"),
    (
        "create or replace recursive view",
        "",
        "CREATE RECURSIVE VIEW",
    ),
    ("create procedure", "", ""),
    ("create recursive view", "", ""),
    ("create schema", "* create", "CREATE SCHEMA with elements"),
    ("create server", "", ""),
    (
        "create table",
        ") as select",
        "CREATE TABLE AS with names of columns",
    ),
    ("create table", ") using", "CREATE TABLE USING"),
    ("create table", "as execute", ""),
    ("create table", "compression", ""),
    ("create table * of", "", "CREATE TABLE OF"),
    ("create user mapping", "", ""),
    ("create view * with (", "", "options of a view"),
    ("create", "nulls not distinct", ""),
    ("create", "tablespace", ""),
    ("drop group", "", ""),
    ("drop routine", "", ""),
    ("drop user mapping", "", ""),
    ("grant", "on domain", ""),
    ("grant", "on foreign", ""),
    ("grant", "on language", ""),
    ("grant", "on large object", ""),
    ("grant", "on parameter", ""),
    ("grant", "on tablespace", ""),
    ("grant", "on type", ""),
    ("insert", "into * table", "INSERT … TABLE"),
    ("insert", "on conflict ( * ) where", ""),
    ("revoke", "on domain", ""),
    ("revoke", "on foreign", ""),
    ("revoke", "on language", ""),
    ("revoke", "on large object", ""),
    ("revoke", "on parameter", ""),
    ("revoke", "on tablespace", ""),
    ("revoke", "on type", ""),
    ("set xml option", "", ""),
    ("update", "set * [", "assignment to an element of an array"),
    ("with", ") cycle", "CYCLE"),
    ("with", ") search breadth", "SEARCH"),
    ("with", ") search depth", "SEARCH"),
    ("", "group by distinct", ""),
    ("", "rows from (", ""),
    ("", "using ( * ) as", "JOIN USING … AS"),
    ("", "where current of", ""),
    ("", "xmlelement (", "xml"),
    ("", "xmlforest (", "xml"),
    ("", "xmlparse (", "xml"),
    ("", "xmlserialize (", "xml"),
];

/// What of PostgreSQL a statement is or has, if it is known that it cannot be read here.
pub(super) fn named(tokens: &[TokenWithSpan]) -> Option<String> {
    let words = tokens.iter().filter_map(|t| match &t.token {
        Token::Whitespace(_) | Token::EOF => None,
        // A quoted name, or a string, is not a word of the grammar.
        Token::Word(w) if w.quote_style.is_some() => Some("\"".to_owned()),
        Token::Word(w) => Some(w.value.to_lowercase()),
        Token::SingleQuotedString(_) => Some("'".to_owned()),
        t => Some(t.to_string()),
    });
    let words: Vec<String> = words.collect();
    for (first, further, name) in REFUSED {
        let Some(after) = begins(&words, first) else {
            continue;
        };
        let rest = &words[after..];
        let there =
            further.is_empty() || (0..rest.len()).any(|i| begins(&rest[i..], further).is_some());
        if there {
            return Some(match (*name, *further) {
                ("", "") => first.to_uppercase(),
                ("", further) if matches!(*first, "grant" | "revoke") => {
                    format!("{first} {further}").to_uppercase()
                }
                ("", further) => further.replace(" (", "").to_uppercase(),
                (name, _) => name.into(),
            });
        }
    }
    None
}

/// How many words the pattern takes of the beginning.
fn begins(words: &[String], pattern: &str) -> Option<usize> {
    let mut n = 0;
    for p in pattern.split_whitespace() {
        if *words.get(n)? != p && p != "*" {
            return None;
        }
        n += 1;
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use base::SqlState;

    #[test]
    fn what_postgresql_can_read_is_named() {
        for (sql, name) in [
            (
                "CREATE PROCEDURE p() LANGUAGE sql AS 'select 1'",
                "CREATE PROCEDURE",
            ),
            (
                "CREATE OR REPLACE PROCEDURE p() LANGUAGE sql AS 'select 1'",
                "CREATE PROCEDURE",
            ),
            ("UPDATE t SET v = 1 WHERE CURRENT OF c", "WHERE CURRENT OF"),
            ("DELETE FROM t WHERE CURRENT OF c", "WHERE CURRENT OF"),
            (
                "UPDATE t SET a[1:2] = b",
                "assignment to an element of an array",
            ),
            ("ALTER TABLE t INHERIT u", "INHERIT"),
        ] {
            let e = parse(sql).unwrap_err();
            assert_eq!(e.code(), SqlState::FEATURE_NOT_SUPPORTED, "{sql}: {e}");
            assert_eq!(
                e.fields().message,
                format!("{name} is not supported"),
                "{sql}"
            );
        }
    }

    #[test]
    fn mistakes_stay_mistakes() {
        for sql in [
            "GRANT SELECT t",
            "SELECT 'where current of' x y",
            "SELECT \"isnull\" 1",
            "CREATE TABLE t (a int",
            "SELECT 1 FROM (SELECT 2) AS x x x",
        ] {
            let e = parse(sql).unwrap_err();
            assert_eq!(e.code(), SqlState::SYNTAX_ERROR, "{sql}: {e}");
        }
    }
}
