//! What the parser does not know, brought to it by other words, and text that is parsed again: view queries, defaults.
//!
//! `FOR NO KEY UPDATE`, `FOR KEY SHARE` and lists after `OF` are not in the parser's grammar. [`allow_row_locks`] rewrites
//! the tokens to `FOR UPDATE OF "\u{1}<mode>"."t1"."t2"`, which [`lock_words`] reads.

use crate::catalog::fold;
use base::{Error, Result, SqlState};
use sqlparser::ast::{Expr, LockClause, LockType, ObjectNamePart, Query, SetExpr, Statement};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};
use txn::LockMode;

const MARK: char = '\u{1}';

/// Rewrites row-locking clauses to what the parser takes. Call on the tokens of a statement before they are parsed.
pub fn allow_row_locks(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let solid: Vec<usize> = (0..tokens.len())
        .filter(|&i| !matches!(tokens[i].token, Token::Whitespace(_)))
        .collect();
    let word = |k: usize| -> Option<String> {
        match &tokens[*solid.get(k)?].token {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_ascii_lowercase()),
            _ => None,
        }
    };
    let is = |k: usize, w: &str| word(k).as_deref() == Some(w);
    let mut out = Vec::with_capacity(tokens.len());
    let mut k = 0;
    let mut copied = 0;
    while k < solid.len() {
        let (mode, len) = if !is(k, "for") {
            (None, 0)
        } else if is(k + 1, "no") && is(k + 2, "key") && is(k + 3, "update") {
            (Some("n"), 4)
        } else if is(k + 1, "key") && is(k + 2, "share") {
            (Some("k"), 3)
        } else if is(k + 1, "update") {
            (Some("u"), 2)
        } else if is(k + 1, "share") {
            (Some("s"), 2)
        } else {
            (None, 0)
        };
        let plain = matches!(mode, Some("u" | "s")) && !is(k + len, "of");
        let Some(mode) = mode.filter(|_| !plain) else {
            k += 1;
            continue;
        };
        out.extend_from_slice(&tokens[copied..solid[k]]);
        let at = tokens[solid[k]].span;
        let put = |t: Token, out: &mut Vec<TokenWithSpan>| out.push(TokenWithSpan::new(t, at));
        let quoted = |s: String| {
            Token::Word(Word {
                value: s,
                quote_style: Some('"'),
                keyword: sqlparser::keywords::Keyword::NoKeyword,
            })
        };
        for w in ["FOR", "UPDATE", "OF"] {
            put(Token::make_keyword(w), &mut out);
        }
        put(quoted(format!("{MARK}{mode}")), &mut out);
        k += len;
        if is(k, "of") {
            k += 1;
            while let Some(&i) = solid.get(k) {
                let Token::Word(w) = &tokens[i].token else {
                    break;
                };
                let name = match w.quote_style {
                    Some(_) => w.value.clone(),
                    None => w.value.to_lowercase(),
                };
                put(Token::Period, &mut out);
                put(quoted(name), &mut out);
                k += 1;
                match solid.get(k).map(|&i| &tokens[i].token) {
                    Some(Token::Comma) => k += 1,
                    _ => break,
                }
            }
        }
        copied = solid.get(k).copied().unwrap_or(tokens.len());
    }
    out.extend_from_slice(&tokens[copied..]);
    out
}

/// The mode of a locking clause and the relations it names.
pub(super) fn lock_words(c: &LockClause) -> (LockMode, Vec<String>) {
    let plain = match c.lock_type {
        LockType::Share => LockMode::Share,
        LockType::Update => LockMode::Update,
    };
    let mut names: Vec<String> = c.of.iter().flat_map(|n| &n.0).filter_map(part).collect();
    let mode = match names.first().and_then(|n| n.strip_prefix(MARK)) {
        Some("n") => LockMode::NoKeyUpdate,
        Some("k") => LockMode::KeyShare,
        Some("s") => LockMode::Share,
        Some(_) => LockMode::Update,
        None => return (plain, names),
    };
    names.remove(0);
    (mode, names)
}

fn part(p: &ObjectNamePart) -> Option<String> {
    p.as_ident().map(fold)
}

fn corrupt(what: &str, text: &str, e: impl std::fmt::Display) -> Error {
    Error::new(
        SqlState::DATA_CORRUPTED,
        format!("the schema holds {what} that cannot be read: {text}: {e}"),
    )
}

/// The query of a view.
pub(super) fn parse_query(text: &str) -> Result<Query> {
    let tokens = sqlparser::tokenizer::Tokenizer::new(&PostgreSqlDialect {}, text)
        .tokenize_with_location()
        .map_err(|e| corrupt("a query", text, e))?;
    let s = Parser::new(&PostgreSqlDialect {})
        .with_tokens_with_locations(allow_row_locks(&tokens))
        .parse_statement()
        .map_err(|e| corrupt("a query", text, e))?;
    match s {
        Statement::Query(q) => Ok(*q),
        _ => Err(corrupt("a query", text, "it is no query")),
    }
}

/// The expression of a DEFAULT or CHECK.
pub(super) fn parse_expr(text: &str) -> Result<Expr> {
    Parser::new(&PostgreSqlDialect {})
        .try_with_sql(text)
        .and_then(|mut p| p.parse_expr())
        .map_err(|e| corrupt("an expression", text, e))
}

/// Whether a row of VALUES or a SET clause says DEFAULT here.
pub(super) fn is_default(e: &Expr) -> bool {
    matches!(e, Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

/// The rows of a query that is nothing but VALUES.
pub(super) fn values_of(q: &Query) -> Option<&sqlparser::ast::Values> {
    let bare = q.with.is_none()
        && q.order_by.is_none()
        && q.limit_clause.is_none()
        && q.fetch.is_none()
        && q.locks.is_empty();
    match &*q.body {
        SetExpr::Values(v) if bare => Some(v),
        _ => None,
    }
}
