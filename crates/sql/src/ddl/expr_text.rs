//! Expressions kept as text: parsing them again, and changing names inside them word by word.

use super::work::Work;
use crate::catalog::{self, Resolved};
use base::schema::{Column, Relation};
use base::{Error, Result, SqlState};
use sqlparser::ast::{Expr, ObjectNamePart};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, Tokenizer};

pub(super) use crate::printed::expr_text as print;
pub use crate::types::ident::{quote_ident, quote_literal};

/// The expression that this text is.
pub fn parse(text: &str) -> Result<Expr> {
    let broken = |e: String| Error::new(SqlState::SYNTAX_ERROR, e);
    Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(crate::printed::DEPTH)
        .try_with_sql(text)
        .and_then(|mut p| p.parse_expr())
        .map_err(|e| broken(e.to_string()))
}

/// What a column of a key is called: an expression by its function.
pub fn key_name(c: &Column) -> String {
    if !c.is_hidden() {
        return c.name.clone();
    }
    match parse(&c.name) {
        Ok(Expr::Function(f)) => match f.name.0.last() {
            Some(ObjectNamePart::Identifier(i)) => catalog::fold(i),
            _ => "expr".into(),
        },
        _ => "expr".into(),
    }
}

/// The tokens of a text that has been parsed before; blanks are tokens too.
pub fn tokens(text: &str) -> Vec<Token> {
    Tokenizer::new(&PostgreSqlDialect {}, text)
        .with_unescape(false)
        .tokenize()
        .unwrap_or_default()
        .into_iter()
        .map(escaped)
        .collect()
}

/// The tokenizer takes the escapes out of these two strings, whatever it is told, and a token prints what it holds.
fn escaped(t: Token) -> Token {
    let again = |s: String| s.replace('\\', r"\\").replace('\'', "''");
    match t {
        Token::EscapedStringLiteral(s) => Token::EscapedStringLiteral(again(s)),
        Token::UnicodeStringLiteral(s) => Token::UnicodeStringLiteral(again(s)),
        t => t,
    }
}

pub(super) fn word(t: &Token) -> Option<String> {
    match t {
        Token::Word(w) if w.quote_style.is_some() => Some(w.value.clone()),
        Token::Word(w) => Some(w.value.to_lowercase()),
        _ => None,
    }
}

/// Whether a word cannot be a column's name as it stands: END of a CASE, say. Behind a dot any word can.
fn is_keyword(t: &Token) -> bool {
    matches!(t, Token::Word(w) if w.quote_style.is_none() && crate::types::ident::is_keyword(&w.value.to_lowercase()))
}

/// The places of the words that may name columns: not before `(`, not after `::`, no keyword.
fn column_words(tokens: &[Token]) -> Vec<(usize, String)> {
    let solid = |i: usize| !matches!(tokens[i], Token::Whitespace(_));
    let mut found = vec![];
    for i in 0..tokens.len() {
        let Some(w) = word(&tokens[i]) else { continue };
        let next = (i + 1..tokens.len()).find(|&j| solid(j));
        let last = (0..i).rev().find(|&j| solid(j));
        let call = next.is_some_and(|j| matches!(tokens[j], Token::LParen));
        let cast = last.is_some_and(|j| matches!(tokens[j], Token::DoubleColon));
        let qualified = last.is_some_and(|j| matches!(tokens[j], Token::Period));
        if !call && !cast && (qualified || !is_keyword(&tokens[i])) {
            found.push((i, w));
        }
    }
    found
}

/// The text with columns of this table named without it. Such a text means the same once the table has another name, under an alias, and in
/// a copy of the table.
pub fn unqualified(text: &str, table: &str) -> String {
    let tokens = tokens(text);
    let is = |t: Option<&Token>, w: &str| t.and_then(word).is_some_and(|x| x == w);
    let dot = |t: Option<&Token>| matches!(t, Some(Token::Period));
    let mut kept: Vec<Token> = vec![];
    let mut at = 0;
    while at < tokens.len() {
        let name = tokens.get(at + 2);
        let column = is(tokens.get(at), table)
            && dot(tokens.get(at + 1))
            && name.is_some_and(|t| word(t).is_some())
            && !matches!(tokens.get(at + 3), Some(Token::LParen | Token::Period));
        let free = !matches!(kept.last(), Some(Token::DoubleColon));
        if !column || !free {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        // A schema before it.
        if dot(kept.last()) {
            kept.truncate(kept.len().saturating_sub(2));
        }
        let name = name.and_then(word).unwrap_or_default();
        kept.push(Token::make_word(&quote_ident(&name), None));
        at += 3;
    }
    kept.iter().map(ToString::to_string).collect()
}

/// Which of `names` the text mentions, each once, in the order of the text.
pub fn mentioned<'a>(text: &str, names: &[&'a str]) -> Vec<&'a str> {
    let mut found: Vec<&str> = vec![];
    for (_, w) in column_words(&tokens(text)) {
        if let Some(n) = names.iter().find(|n| **n == w)
            && !found.contains(n)
        {
            found.push(n);
        }
    }
    found
}

/// The places of the words that name types: behind `::`, and behind AS inside of CAST. Of a name with a schema, its last word.
fn type_words(tokens: &[Token]) -> Vec<(usize, String, bool)> {
    let solid: Vec<usize> = (0..tokens.len())
        .filter(|&i| !matches!(tokens[i], Token::Whitespace(_)))
        .collect();
    let at = |k: usize| solid.get(k).map(|&i| &tokens[i]);
    let is = |k: usize, w: &str| at(k).and_then(word).is_some_and(|x| x == w);
    let mut found = vec![];
    let mut casts = vec![];
    for k in 0..solid.len() {
        let type_follows = match at(k) {
            Some(Token::LParen) => {
                casts.push(k > 0 && is(k - 1, "cast"));
                false
            }
            Some(Token::RParen) => {
                casts.pop();
                false
            }
            Some(Token::DoubleColon) => true,
            _ => is(k, "as") && casts.last() == Some(&true),
        };
        if !type_follows {
            continue;
        }
        let mut last = k + 1;
        while matches!(at(last + 1), Some(Token::Period)) {
            last += 2;
        }
        if let Some(name) = at(last).and_then(word) {
            found.push((solid[last], name, last > k + 1));
        }
    }
    found
}

/// Whether the text casts to a type of this name, whatever its schema.
pub fn casts_to(text: &str, name: &str) -> bool {
    let words = type_words(&tokens(text));
    words.iter().any(|(_, w, _)| w == name)
}

/// Writes the schemas of users' types, and of what extensions bring, into a text, so that it means the same under another search path.
pub(super) fn pin_types(work: &Work<'_>, text: &str) -> String {
    let extensions = work.schema.extensions().next().is_some();
    if !extensions && work.schema.user_types().next().is_none() {
        return text.to_owned();
    }
    let mut tokens = tokens(text);
    for (at, name, qualified) in type_words(&tokens) {
        let built_in = super::type_from_text(&tokens[at].to_string()).is_ok();
        if qualified || built_in {
            continue;
        }
        let path: Vec<base::Oid> =
            catalog::namespaces(&work.schema, work.ctx.search_path).collect();
        let named = path
            .iter()
            .find_map(|n| work.schema.user_type_named(*n, &name));
        let citext = || work.schema.extension("citext").filter(|_| name == "citext");
        let namespace = named.map(|t| t.def.namespace);
        if let Some(n) = namespace.or_else(|| Some(citext()?.namespace)) {
            let full = sequence_name(work, n, &name);
            tokens[at] = Token::make_word(&full, None);
        }
    }
    if extensions {
        pin_functions(work, &mut tokens);
    }
    tokens.iter().map(ToString::to_string).collect()
}

/// Writes the schemas of extensions before the names of their functions.
fn pin_functions(work: &Work<'_>, tokens: &mut [Token]) {
    for i in 0..tokens.len().saturating_sub(1) {
        let qualified = i > 0 && matches!(tokens[i - 1], Token::Period);
        if qualified || !matches!(tokens[i + 1], Token::LParen) {
            continue;
        }
        let Some(name) = word(&tokens[i]) else {
            continue;
        };
        let of = crate::functions::registry::extension_of(&name);
        if let Some(e) = of.and_then(|e| work.schema.extension(e)) {
            let full = sequence_name(work, e.namespace, &name);
            tokens[i] = Token::make_word(&full, None);
        }
    }
}

/// The text without the schemas of extensions' functions, where the search path has the schema.
pub fn unpin_functions(text: &str, searched: impl Fn(&str) -> bool) -> String {
    let all = tokens(text);
    let mut kept = String::new();
    let mut i = 0;
    while i < all.len() {
        let spelled = match &all[i..] {
            [schema, Token::Period, name, Token::LParen, ..] => {
                let of = |n: String| crate::functions::registry::extension_of(&n).is_some();
                word(schema).is_some_and(|s| searched(&s)) && word(name).is_some_and(of)
            }
            _ => false,
        };
        if spelled {
            i += 2;
        }
        kept.push_str(&all[i].to_string());
        i += 1;
    }
    kept
}

/// The text with a column's name changed.
pub fn rename_column(text: &str, from: &str, to: &str) -> String {
    let tokens = tokens(text);
    let places = column_words(&tokens);
    let hit = |i: usize| places.iter().any(|(p, w)| *p == i && w == from);
    let print = |(i, t): (usize, &Token)| match hit(i) {
        true => quote_ident(to),
        false => t.to_string(),
    };
    tokens.iter().enumerate().map(print).collect()
}

/// The text of an expression with names that mean the same under every search path: sequences (42P01, 42809) and users' types.
pub(super) fn pinned(work: &Work<'_>, e: &Expr) -> Result<String> {
    pin_sequences(work, &pin_types(work, &print(e)?))
}

/// Rewrites `nextval('s')` to the full name of the sequence that `s` means now, as PostgreSQL binds it: 42P01, 42809.
fn pin_sequences(work: &Work<'_>, text: &str) -> Result<String> {
    if !text.to_lowercase().contains("nextval") {
        return Ok(text.to_owned());
    }
    let mut tokens = tokens(text);
    for i in 0..tokens.len().saturating_sub(2) {
        let call = word(&tokens[i]).is_some_and(|w| w == "nextval");
        if !call || !matches!(tokens[i + 1], Token::LParen) {
            continue;
        }
        let Token::SingleQuotedString(name) = &tokens[i + 2] else {
            continue;
        };
        let (ns, rel) = parse_name(name)?;
        let found = catalog::find(&work.schema, work.ctx.search_path, ns.as_deref(), &rel);
        match found {
            Some(Resolved::Relation(Relation::Sequence(s))) => {
                let full = sequence_name(work, s.namespace, &s.name);
                let cast = matches!(tokens.get(i + 3), Some(Token::DoubleColon));
                let cast = if cast { "" } else { "::regclass" };
                tokens[i + 2] = Token::SingleQuotedString(full.replace('\'', "''"));
                if !cast.is_empty() {
                    let place = i + 3;
                    tokens.insert(place, Token::DoubleColon);
                    tokens.insert(place + 1, Token::make_word("regclass", None));
                }
            }
            Some(other) => return Err(work.wrong_kind(&other, "sequence")),
            None => {
                return Err(Error::new(
                    SqlState::UNDEFINED_TABLE,
                    format!("relation \"{name}\" does not exist"),
                ));
            }
        }
    }
    Ok(tokens.iter().map(ToString::to_string).collect())
}

/// `schema.name`, quoted where needed.
pub(super) fn sequence_name(work: &Work<'_>, namespace: base::Oid, name: &str) -> String {
    let ns = work
        .schema
        .namespace(namespace)
        .expect("relations have schemas");
    format!("{}.{}", quote_ident(&ns.name), quote_ident(name))
}

/// The DEFAULT of a column that a sequence feeds.
pub(super) fn nextval(work: &Work<'_>, namespace: base::Oid, name: &str) -> String {
    let full = sequence_name(work, namespace, name);
    format!("nextval({}::regclass)", quote_literal(&full))
}

/// A name inside a string, as `regclass` reads it: `(schema, name)`. 42601, 42602.
pub fn parse_name(text: &str) -> Result<(Option<String>, String)> {
    let name = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .and_then(|mut p| p.parse_object_name(false))
        .map_err(|_| {
            Error::new(
                SqlState::INVALID_NAME,
                format!("invalid name syntax: \"{text}\""),
            )
        })?;
    catalog::split_name(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_without_their_table() {
        let s = "lower(q.name) || s.q.\"End\" || q.end || x::q.name || q(1) || q.f(1) || 'q.name' || Q.q";
        let plain =
            "lower(name) || \"End\" || \"end\" || x::q.name || q(1) || q.f(1) || 'q.name' || q";
        assert_eq!(unqualified(s, "q"), plain);
    }

    #[test]
    fn names_change_where_they_name_columns() {
        let s = rename_column(
            "qty > 0 AND qty(1) = 'qty' AND \"qty\" < x::qty",
            "qty",
            "Stock",
        );
        assert_eq!(s, "\"Stock\" > 0 AND qty(1) = 'qty' AND \"Stock\" < x::qty");
        assert_eq!(mentioned("a + b > A", &["a", "b", "c"]), ["a", "b"]);
        let case = "CASE WHEN \"end\" THEN t.end END";
        let renamed = "CASE WHEN finish THEN t.finish END";
        assert_eq!(rename_column(case, "end", "finish"), renamed);
        assert_eq!(mentioned("CASE WHEN a THEN 1 END", &["end", "a"]), ["a"]);
        assert_eq!(quote_ident("select"), "\"select\"");
        assert_eq!(quote_ident("t_1"), "t_1");
        assert_eq!(
            parse_name("\"A b\".c").unwrap(),
            (Some("A b".into()), "c".into())
        );
    }
}
