//! The text of syntax nodes: what the schema keeps of the query of a view, of a DEFAULT, a CHECK or an index.
//!
//! A text that is kept parses to the node that it was made from. The parser's own printing does not promise that:
//!
//! | node | the parser prints | which reads as |
//! |---|---|---|
//! | `- -5` | `--5` | a comment |
//! | `'a''''b'` | `'a''b'` | another string |
//! | `'a\''b'` | `'a\'b'` | a string without an end |
//!
//! [`printed`] writes a blank between two operators. [`protect`] turns such strings into `E'…'`, before the statement is parsed; the parser
//! prints these as they are read. [`expr_text`], and `bind` for queries, parse their text once more and compare: a difference is an error, so no
//! text is kept that means something else.
//!
//! Left out on purpose: what follows is refused (0A000).
//! - A quoted name with two quotes in a row, or with a quote behind a backslash.
//! - A view with `FOR NO KEY UPDATE`, `FOR KEY SHARE`, or a locking clause that names relations.
//! - Two signs behind a `$$…$$` that has quotes in it.

use base::{Error, Result};
use sqlparser::ast::Expr;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::fmt::{self, Write as _};

/// How deeply expressions may nest.
pub(crate) const DEPTH: usize = 200;

/// Characters of operators. Two operators that touch are read as one, or as a comment.
const OPERATORS: &str = "+-*/<>=~!@#%^&|`?";

/// The text of a node, which is read as the node where it has no strings or names that the parser misprints.
pub(crate) fn printed(node: &impl fmt::Display) -> String {
    let mut out = Apart::default();
    write!(out, "{node}").expect("a text takes all that is written");
    out.text
}

/// The text of an expression: it parses to the same expression, 0A000 where it would not.
pub(crate) fn expr_text(e: &Expr) -> Result<String> {
    let text = printed(e);
    match parse_whole(&text) {
        Ok(again) if again == *e => Ok(text),
        _ => Err(unreadable(&text)),
    }
}

/// The expression that a whole text is.
fn parse_whole(text: &str) -> Result<Expr, sqlparser::parser::ParserError> {
    let mut p = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(DEPTH)
        .try_with_sql(text)?;
    let e = p.parse_expr()?;
    p.expect_token(&Token::EOF)?;
    Ok(e)
}

/// 0A000 for what prints as this text, which is read as something else.
pub(crate) fn unreadable(text: &str) -> Error {
    Error::unsupported("what the schema would have to keep as another text").detail(format!(
        "It prints as: {}",
        text.replace(char::is_control, "")
    ))
}

/// Takes pieces of text as the parser writes them: each operator is a piece, and so is each quote around a string.
#[derive(Default)]
struct Apart {
    text: String,
    inside: Inside,
}

/// What the end of the text is inside of.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Inside {
    #[default]
    Nothing,
    /// `'…'` or `"…"`.
    Quotes(char),
    /// `E'…'`.
    Escapes,
    /// `E'…'`, behind a backslash.
    Escape,
}

impl fmt::Write for Apart {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let operator = |c: char| OPERATORS.contains(c);
        if self.inside == Inside::Nothing
            && self.text.ends_with(operator)
            && piece.starts_with(operator)
        {
            self.text.push(' ');
        }
        for c in piece.chars() {
            self.inside = match (self.inside, c) {
                (Inside::Nothing, '\'') if self.text.ends_with('E') => Inside::Escapes,
                (Inside::Nothing, '\'' | '"') => Inside::Quotes(c),
                (Inside::Quotes(q), c) if q == c => Inside::Nothing,
                (Inside::Escapes, '\'') => Inside::Nothing,
                (Inside::Escapes, '\\') => Inside::Escape,
                (Inside::Escape, _) => Inside::Escapes,
                (inside, _) => inside,
            };
            self.text.push(c);
        }
        Ok(())
    }
}

/// Strings that the parser would print as other ones become `E'…'`.
pub(crate) fn protect(mut tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    for t in &mut tokens {
        if let Token::SingleQuotedString(s) = &mut t.token
            && (s.contains("''") || s.contains("\\'"))
        {
            t.token = Token::EscapedStringLiteral(std::mem::take(s));
        }
    }
    tokens
}

/// A token whose escapes the tokenizer has taken out, as a text that reads as the token.
pub(crate) fn spelled(t: &Token) -> String {
    let doubled = |s: &str, quote: char| s.replace(quote, &format!("{quote}{quote}"));
    let escaped = |s: &str| doubled(s, '\'').replace('\\', r"\\");
    match t {
        Token::SingleQuotedString(s) => format!("'{}'", doubled(s, '\'')),
        Token::NationalStringLiteral(s) => format!("N'{}'", doubled(s, '\'')),
        Token::EscapedStringLiteral(s) => format!("E'{}'", escaped(s)),
        Token::UnicodeStringLiteral(s) => format!("U&'{}'", escaped(s)),
        Token::Word(w) if w.quote_style.is_some() => format!("\"{}\"", doubled(&w.value, '"')),
        t => t.to_string(),
    }
}

/// The tokens of a text with the escapes in their strings and names taken out.
pub(crate) fn plain_tokens(text: &str) -> Result<Vec<Token>> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize();
    tokens.map_err(|e| Error::new(base::SqlState::SYNTAX_ERROR, e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::query_text;
    use sqlparser::ast::{ColumnOption, Query, SelectItem, SetExpr, Statement, TableConstraint};

    /// The statements of a text that the parser knows.
    fn statements(sql: &str) -> Vec<Statement> {
        let dialect = PostgreSqlDialect {};
        let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location();
        let tokens = tokens.unwrap_or_default();
        let one = |tokens: &[TokenWithSpan]| {
            let mut p = Parser::new(&dialect)
                .with_recursion_limit(DEPTH)
                .with_tokens_with_locations(crate::bind::adapt(tokens));
            let s = p.parse_statement().ok()?;
            (p.peek_token().token == Token::EOF).then_some(s)
        };
        let all = tokens.split(|t| t.token == Token::SemiColon);
        all.filter_map(one).collect()
    }

    fn select(sql: &str) -> Option<Query> {
        match statements(sql).pop()? {
            Statement::Query(q) => Some(*q),
            _ => None,
        }
    }

    fn expr(sql: &str) -> Option<Expr> {
        let q = select(&format!("SELECT {sql}"))?;
        match *q.body {
            SetExpr::Select(s) => match &s.projection[..] {
                [SelectItem::UnnamedExpr(e)] => Some(e.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    #[test]
    fn what_the_parser_misprints() {
        for (sql, text) in [
            ("- -5", "- -5"),
            ("a - -5", "a - -5"),
            ("- - - x", "- - -x"),
            ("@ -5", "@ -5"),
            ("~ - x", "~ -x"),
            ("-(-5)::int", "-(-5)::INT"),
            ("NOT NOT a", "NOT NOT a"),
            ("'a''b'", "'a''b'"),
            ("'a''''b'", r"E'a\'\'b'"),
            (r"'a\''b'", r"E'a\\\'b'"),
            (r"E'- -' || - -5", "E'- -' || - -5"),
            ("'--' || - -5", "'--' || - -5"),
            ("E'--' || - -5", "E'--' || - -5"),
            (r"E'\'--' || - -5", r"E'\'--' || - -5"),
            (r#""--" + - -5"#, r#""--" + - -5"#),
            ("f(- -5)", "f(- -5)"),
        ] {
            let e = expr(sql).unwrap_or_else(|| panic!("{sql}"));
            assert_eq!(expr_text(&e).expect(sql), text);
        }
    }

    #[test]
    fn what_would_be_another_text_is_refused() {
        let e = expr(r#""a""""b""#).expect("it parses");
        assert_eq!(
            expr_text(&e).unwrap_err().code(),
            base::SqlState::FEATURE_NOT_SUPPORTED
        );
        let q = select(r#"SELECT 1 AS "a""""b""#).expect("it parses");
        assert_eq!(
            query_text(&q).unwrap_err().code(),
            base::SqlState::FEATURE_NOT_SUPPORTED
        );
    }

    #[test]
    fn tokens_without_their_escapes_are_spelled() {
        let text = r#"'it''s' E'a\\b''c' "q""q" N'x''y' U&'\0041''' a.b - -5 $$x'y$$"#;
        let tokens = plain_tokens(text).expect("it can be read");
        let again: String = tokens.iter().map(spelled).collect();
        assert_eq!(plain_tokens(&again).expect("it can be read"), tokens);
    }

    /// The queries and kept expressions of a statement.
    fn parts(s: &Statement, queries: &mut Vec<Query>, exprs: &mut Vec<Expr>) {
        match s {
            Statement::Query(q) => queries.push((**q).clone()),
            Statement::CreateView(v) => queries.push((*v.query).clone()),
            Statement::Insert(i) => queries.extend(i.source.as_deref().cloned()),
            Statement::CreateIndex(i) => {
                exprs.extend(i.predicate.clone());
                exprs.extend(i.columns.iter().map(|c| c.column.expr.clone()));
            }
            Statement::CreateTable(t) => {
                queries.extend(t.query.as_deref().cloned());
                for o in t.columns.iter().flat_map(|c| &c.options) {
                    match &o.option {
                        ColumnOption::Default(e) => exprs.push(e.clone()),
                        ColumnOption::Check(c) => exprs.push((*c.expr).clone()),
                        _ => {}
                    }
                }
                for c in &t.constraints {
                    if let TableConstraint::Check(c) = c {
                        exprs.push((*c.expr).clone());
                    }
                }
            }
            _ => {}
        }
    }

    #[test]
    fn the_statements_of_the_tests_read_back() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../canon/tests/slt");
        let (mut queries, mut exprs, mut wrong) = (vec![], vec![], vec![]);
        for file in std::fs::read_dir(dir).expect("the tests are there") {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("a text");
            for record in text.split("\n\n") {
                let lines = record
                    .lines()
                    .skip_while(|l| !["statement", "query"].iter().any(|w| l.starts_with(w)));
                let sql: Vec<&str> = lines.skip(1).take_while(|l| *l != "----").collect();
                for s in statements(&sql.join("\n")) {
                    parts(&s, &mut queries, &mut exprs);
                }
            }
        }
        assert!(queries.len() > 1500, "{}", queries.len());
        assert!(exprs.len() > 100, "{}", exprs.len());
        // Locking clauses that the parser knows by other words are refused in views.
        for q in queries.iter().filter(|q| q.locks.is_empty()) {
            wrong.extend(query_text(q).err().map(|e| e.fields().detail.clone()));
        }
        for e in &exprs {
            wrong.extend(expr_text(e).err().map(|e| e.fields().detail.clone()));
        }
        assert!(wrong.is_empty(), "{}\n{wrong:#?}", wrong.len());
    }
}
