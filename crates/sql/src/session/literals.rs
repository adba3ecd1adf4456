//! Texts that differ in their numbers only share a plan: the simple protocol's `WHERE id = 17` is planned as `WHERE id = $1`.
//!
//! ```text
//! UPDATE t SET n = n + -3 WHERE id = 17     ──▶   UPDATE t SET n = n + -$1 WHERE id = $2     int4 3, int4 17
//! ```
//! The text is read once, without a parser. Integers become parameters of the type that they have as literals (int4, or int8), so
//! names, operators and casts are found as before. They do so only where a plan does not depend on their value and nothing compares
//! expressions by how they look: behind WHERE, SET, VALUES and ON, up to GROUP, ORDER, LIMIT and their kin, per level of parentheses.
//!
//! A text that does not plan in this form is planned as it is, and its error, if it has one, is that of the text as it is.
//!
//! Left out on purpose: strings (their type comes from where they stand, and LIKE plans by the pattern), fractions, lists of
//! statements, texts with casts, comments, dollars: all planned as they are.

use base::{Oid, Type, Value};

/// A text without its integers.
#[derive(Debug)]
pub struct Normal {
    pub text: String,
    pub types: Vec<Oid>,
    pub values: Vec<Value>,
}

/// More than this and a plan per text costs nothing beside the rows.
const MAX_VALUES: usize = 100;
const MAX_TEXT: usize = 4 << 10;

/// The text with parameters for its integers; none when there is nothing to gain, or doubt.
pub fn normal(sql: &str) -> Option<Normal> {
    let b = sql.as_bytes();
    if b.len() > MAX_TEXT {
        return None;
    }
    let mut out = Normal {
        text: String::new(),
        types: Vec::new(),
        values: Vec::new(),
    };
    // Whether integers become parameters, per level of parentheses.
    let mut levels = vec![false];
    let (mut copied, mut i, mut words) = (0, 0, 0);
    while i < b.len() {
        let from = i;
        match b[i] {
            c if word_start(c) => {
                while i < b.len() && (word_start(b[i]) || b[i].is_ascii_digit() || b[i] == b'$') {
                    i += 1;
                }
                words += 1;
                let word = &b[from..i];
                if words == 1 && !is(word, &["SELECT", "INSERT", "UPDATE", "DELETE"]) {
                    return None;
                }
                // E'…', B'…', date '…': a string of another kind.
                let next = b[i..].iter().find(|c| !c.is_ascii_whitespace());
                if next == Some(&b'\'') && !is(word, &STRINGS_FOLLOW) {
                    return None;
                }
                let level = levels.last_mut().expect("never empty");
                if is(word, &["WHERE", "SET", "VALUES", "ON"]) {
                    *level = true;
                } else if is(word, &LOOKS_COUNT) {
                    *level = false;
                } else if is(word, &["CAST", "INTERVAL"]) {
                    return None;
                }
            }
            b'0'..=b'9' => {
                while i < b.len() && (word_start(b[i]) || b[i].is_ascii_digit() || b[i] == b'.') {
                    i += 1;
                }
                if !levels.last().expect("never empty") {
                    continue;
                }
                let digits = &sql[from..i];
                let (ty, value) = match (digits.parse::<i32>(), digits.parse::<i64>()) {
                    (Ok(n), _) => (Type::Int4, Value::Int4(n)),
                    (_, Ok(n)) => (Type::Int8, Value::Int8(n)),
                    _ => continue,
                };
                if out.values.len() == MAX_VALUES {
                    return None;
                }
                out.types.push(ty.oid());
                out.values.push(value);
                out.text.push_str(&sql[copied..from]);
                out.text.push('$');
                out.text
                    .push_str(itoa::Buffer::new().format(out.values.len()));
                copied = i;
            }
            quote @ (b'\'' | b'"') => {
                i += 1;
                while i < b.len() && b[i] != quote {
                    i += 1;
                }
                // Unterminated: the parser says so. A doubled quote is the end of one and the start of the next.
                if i == b.len() {
                    return None;
                }
                i += 1;
            }
            b'(' => {
                levels.push(*levels.last().expect("never empty"));
                i += 1;
            }
            b'[' => {
                levels.push(false);
                i += 1;
            }
            b')' | b']' => {
                levels.pop();
                if levels.is_empty() {
                    return None;
                }
                i += 1;
            }
            b';' => {
                if !b[i..].iter().all(|c| c.is_ascii_whitespace() || *c == b';') {
                    return None;
                }
                i += 1;
            }
            b'$' => return None,
            b':' | b'-' | b'/' | b'.' => {
                let pair = b.get(i + 1);
                let doubt = match b[i] {
                    b':' => true,
                    b'-' => pair == Some(&b'-'),
                    b'/' => pair == Some(&b'*'),
                    _ => pair.is_some_and(u8::is_ascii_digit),
                };
                if doubt {
                    return None;
                }
                i += 1;
            }
            _ => i += 1,
        }
    }
    if out.values.is_empty() {
        return None;
    }
    out.text.push_str(&sql[copied..]);
    Some(out)
}

/// Clauses in which an integer is a place in a list, a number that plans depend on, or part of an expression found by its look.
const LOOKS_COUNT: [&str; 14] = [
    "SELECT",
    "FROM",
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "FOR",
    "WINDOW",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "RETURNING",
];

/// Words that a plain string may follow.
const STRINGS_FOLLOW: [&str; 16] = [
    "SELECT", "WHERE", "AND", "OR", "NOT", "BETWEEN", "LIKE", "ILIKE", "IN", "THEN", "ELSE",
    "WHEN", "VALUES", "BY", "SIMILAR", "TO",
];

fn word_start(c: u8) -> bool {
    c.is_ascii_alphabetic() || c == b'_' || c >= 0x80
}

fn is(word: &[u8], any: &[&str]) -> bool {
    any.iter().any(|w| word.eq_ignore_ascii_case(w.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sql: &str) -> Option<String> {
        normal(sql).map(|n| format!("{} {:?}", n.text, n.values))
    }

    #[test]
    fn integers_become_parameters_where_their_value_does_not_matter() {
        for (sql, want) in [
            (
                "UPDATE t1 SET n = n + -3 WHERE id = 17;",
                "UPDATE t1 SET n = n + -$1 WHERE id = $2; [Int4(3), Int4(17)]",
            ),
            (
                "SELECT 1, c FROM t WHERE id BETWEEN 5000000000 AND 7 AND x = 1.5 ORDER BY 1 LIMIT 3",
                "SELECT 1, c FROM t WHERE id BETWEEN $1 AND $2 AND x = 1.5 ORDER BY 1 LIMIT 3 [Int8(5000000000), Int4(7)]",
            ),
            (
                "insert into \"t 5\" values (1, 'it''s 2', a[3]), (4, 5)",
                "insert into \"t 5\" values ($1, 'it''s 2', a[3]), ($2, $3) [Int4(1), Int4(4), Int4(5)]",
            ),
            (
                "DELETE FROM t WHERE a IN (1, 2) AND b = (SELECT max(c) + 3 FROM u WHERE d = 4 LIMIT 5) AND e = 6",
                "DELETE FROM t WHERE a IN ($1, $2) AND b = (SELECT max(c) + 3 FROM u WHERE d = $3 LIMIT 5) AND e = $4 [Int4(1), Int4(2), Int4(4), Int4(6)]",
            ),
        ] {
            assert_eq!(shown(sql).as_deref(), Some(want));
        }
        for sql in [
            "SELECT 1",
            "SELECT * FROM t WHERE id = $1 AND n = 2",
            "SELECT * FROM t WHERE id = 2::int",
            "SELECT * FROM t WHERE id = CAST(2 AS int)",
            "SELECT * FROM t WHERE id = 2 -- one",
            "SELECT * FROM t WHERE d = date '2020-01-01' AND id = 2",
            "SELECT * FROM t WHERE s = E'\\'' AND id = 2",
            "SELECT * FROM t WHERE s = 'x AND id = 2",
            "CREATE TABLE t (v varchar(20))",
            "SELECT * FROM t WHERE id = 1; SELECT 2",
            "EXPLAIN SELECT * FROM t WHERE id = 1",
        ] {
            assert_eq!(shown(sql), None, "{sql}");
        }
    }
}
