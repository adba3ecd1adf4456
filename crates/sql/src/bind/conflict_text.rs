//! The targets of ON CONFLICT as the parser takes them.
//!
//! The parser knows a target that is a list of columns. [`adapt`] brings it one with expressions or a condition as a column behind a mark:
//!
//! ```text
//! ON CONFLICT (lower(mail)) WHERE NOT gone DO …   ──▶   ON CONFLICT ("\u{1}(lower(mail)) WHERE NOT gone") DO …
//! ```

use super::tokens::{Edit, MARK, edit, quoted, solid, word_of};
use crate::printed::spelled;
use base::{Error, Result, SqlState};
use sqlparser::ast;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Rewrites the targets that the parser cannot read.
pub(super) fn adapt(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is = |t: &TokenWithSpan, w: &str| word_of(t).as_deref() == Some(w);
    if !tokens.iter().any(|t| is(t, "conflict")) {
        return tokens;
    }
    let solid = solid(&tokens);
    let (mut from, mut edits) = (0, vec![]);
    while let Some((open, end, simple)) = next_target(&tokens, &solid, from) {
        if simple {
            from = open + 1;
            continue;
        }
        from = end;
        let (open, end) = (solid[open], solid[end - 1] + 1);
        let text: String = tokens[open..end]
            .iter()
            .map(|t| spelled(&t.token))
            .collect();
        let span = tokens[open].span;
        let mark = [
            Token::LParen,
            quoted(format!("{MARK}{text}")),
            Token::RParen,
        ];
        edits.push(Edit {
            from: open,
            to: end,
            with: mark.map(|t| TokenWithSpan::new(t, span)).into(),
        });
    }
    edit(tokens, edits)
}

/// The next target from a place on: where it begins and ends, and whether the parser can read it. Places are those of `solid`.
fn next_target(
    tokens: &[TokenWithSpan],
    solid: &[usize],
    from: usize,
) -> Option<(usize, usize, bool)> {
    let is = |k: usize, w: &str| {
        let word = solid.get(k).and_then(|&i| word_of(&tokens[i]));
        word.as_deref() == Some(w)
    };
    let token = |k: usize| solid.get(k).map(|&i| &tokens[i].token);
    let open = (from.max(2)..solid.len())
        .find(|&k| token(k) == Some(&Token::LParen) && is(k - 1, "conflict") && is(k - 2, "on"))?;
    let (mut depth, mut names) = (0usize, true);
    let close = (open..solid.len()).find(|&k| {
        match token(k) {
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth -= 1,
            Some(Token::Word(_) | Token::Comma) => {}
            _ => names = false,
        }
        names &= depth < 2;
        depth == 0
    })?;
    // Two words beside each other are a column and its operator class or collation.
    let word = |k: usize| matches!(token(k), Some(Token::Word(_)));
    let simple = names && !(open..close).any(|k| word(k) && word(k + 1));
    if !is(close + 1, "where") {
        return Some((open, close + 1, simple));
    }
    let (mut depth, mut cases) = (0i32, 0i32);
    let end = (close + 1..solid.len()).find(|&k| {
        match token(k) {
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth -= 1,
            _ if is(k, "case") => cases += 1,
            _ if is(k, "end") => cases -= 1,
            _ => {}
        }
        depth == 0 && cases == 0 && is(k, "do")
    })?;
    Some((open, end, false))
}

/// The elements of a target, and its condition.
pub(super) struct Target {
    pub elements: Vec<ast::Expr>,
    pub condition: Option<ast::Expr>,
}

/// Reads what [`adapt`] has left, or a plain list of columns.
pub(super) fn read_target(cols: &[ast::Ident]) -> Result<Target> {
    let text = match cols {
        [c] => c.value.strip_prefix(MARK),
        _ => None,
    };
    let Some(text) = text else {
        let elements = cols.iter().cloned().map(ast::Expr::Identifier).collect();
        return Ok(Target {
            elements,
            condition: None,
        });
    };
    let read = |text: &str| -> Result<Target, ParserError> {
        let mut p = Parser::new(&PostgreSqlDialect {}).try_with_sql(text)?;
        p.expect_token(&Token::LParen)?;
        let elements = p.parse_comma_separated(Parser::parse_create_index_expr)?;
        p.expect_token(&Token::RParen)?;
        let condition = match p.parse_keyword(Keyword::WHERE) {
            true => Some(p.parse_expr()?),
            false => None,
        };
        p.expect_token(&Token::EOF)?;
        let elements = elements.into_iter().map(|e| e.column.expr).collect();
        Ok(Target {
            elements,
            condition,
        })
    };
    read(text).map_err(|e| Error::new(SqlState::SYNTAX_ERROR, format!("syntax error: {e}")))
}
