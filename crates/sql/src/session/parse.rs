//! From the text of a query to its statements.
//!
//! The text is tokenised once and cut at the semicolons. A statement that begins with a word of [`utility`] is read there,
//! by PostgreSQL's grammar; the rest goes to `sqlparser`. A syntax error anywhere means that nothing of the text runs, as in
//! PostgreSQL.

use super::refused;
use super::utility::{self, Utility};
use crate::ddl::extra::{self, Extra};
use base::{Error, Result, SqlState};
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, TokenizerError, Word};
use std::cell::Cell;
use std::sync::Arc;

/// What a statement is.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// Read by [`utility`]: the session's own business.
    Utility(Arc<Utility>),
    /// SELECT and its kin, and DDL.
    Sql(Arc<Statement>),
    /// DDL that `sqlparser` does not know.
    Extra(Arc<Extra>),
}

/// One statement with its own text.
#[derive(Clone, Debug)]
pub struct Parsed {
    pub stmt: Stmt,
    pub text: Arc<str>,
    /// The whole text that it came in: places of errors are counted from its start.
    pub source: Arc<str>,
}

/// How many operators may follow one another. `1 + 1 + …` is read by a loop, but becomes a tree as deep as it is long.
const CHAIN: usize = 3000;

/// The statements of a text, empty ones left out.
pub fn parse(sql: &str) -> Result<Vec<Parsed>> {
    let tokens = tokenize(sql)?;
    let starts = LineStarts::new(sql);
    let source: Arc<str> = sql.into();
    let mut out = Vec::new();
    for piece in tokens.split(|t| t.token == Token::SemiColon) {
        let mut words = piece
            .iter()
            .filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF));
        let Some(first) = words.next() else { continue };
        // The trees of short statements take far more than their tokens.
        base::memory::check()?;
        base::cancel::check_cancelled()?;
        let last = words.next_back().unwrap_or(first);
        let from = starts.byte(sql, first.span.start);
        let to = starts.byte(sql, last.span.end).max(from);
        let text = &sql[from..to.min(sql.len())];
        let stmt = statement(piece).map_err(|e| {
            let e = locate(e, sql, &starts);
            let known = (e.code() == SqlState::SYNTAX_ERROR).then(|| refused::named(piece));
            known.flatten().map_or(e, Error::unsupported)
        })?;
        out.push(Parsed {
            stmt,
            text: if text == sql {
                source.clone()
            } else {
                text.into()
            },
            source: source.clone(),
        });
    }
    Ok(out)
}

/// The text from its statement of this number on, counted from 0; blanks stand for what was before, so that places stay.
pub(super) fn from_statement(sql: &str, number: usize) -> Result<String> {
    let tokens = tokenize(sql)?;
    let word = |t: &&TokenWithSpan| !matches!(t.token, Token::Whitespace(_) | Token::EOF);
    let pieces = tokens.split(|t| t.token == Token::SemiColon);
    let mut firsts = pieces.filter_map(|p| p.iter().find(word));
    let starts = LineStarts::new(sql);
    let at = firsts.nth(number);
    let at = at.map_or(sql.len(), |t| starts.byte(sql, t.span.start));
    let blank = |c: char| if c == '\n' { c } else { ' ' };
    Ok(sql[..at].chars().map(blank).collect::<String>() + &sql[at..])
}

/// The one statement of a text, or none; 42601 when there are several.
pub fn parse_one(sql: &str) -> Result<Option<Parsed>> {
    let mut all = parse(sql)?;
    if all.len() > 1 {
        return Err(Error::new(
            SqlState::SYNTAX_ERROR,
            "cannot insert multiple commands into a prepared statement",
        ));
    }
    Ok(all.pop())
}

/// What went wrong, and where in tokens or lines.
pub(super) enum Fault {
    At(Option<TokenWithSpan>),
    Parser(ParserError),
    Other(Error),
}

impl From<ParserError> for Fault {
    fn from(e: ParserError) -> Self {
        Fault::Parser(e)
    }
}

impl From<Error> for Fault {
    fn from(e: Error) -> Self {
        Fault::Other(e)
    }
}

/// Reads the tokens of one statement.
pub(super) fn statement(tokens: &[TokenWithSpan]) -> Result<Stmt, Fault> {
    if let Some(u) = utility::parse(tokens)? {
        return Ok(Stmt::Utility(Arc::new(u)));
    }
    check_chains(tokens)?;
    if let Some(e) = extra::parse(tokens)? {
        return Ok(Stmt::Extra(Arc::new(e)));
    }
    Ok(Stmt::Sql(Arc::new(bounded_statement(tokens)?)))
}

/// What begins a statement that may stand in PREPARE, DECLARE and COPY, beside a parenthesis.
const PREPARABLE: [&str; 8] = [
    "select", "insert", "update", "delete", "merge", "values", "table", "with",
];

/// Reads the tokens of a statement that stands in PREPARE, DECLARE or COPY. These may not stand there: one in another without end would be as deep.
pub(super) fn preparable(tokens: &[TokenWithSpan]) -> Result<Stmt, Fault> {
    let blank = |t: &&TokenWithSpan| matches!(t.token, Token::Whitespace(_) | Token::EOF);
    let first = tokens.iter().find(|t| !blank(t));
    let begins = match first.map(|t| &t.token) {
        Some(Token::LParen) => true,
        Some(Token::Word(w)) => {
            let is = |p: &&str| w.value.eq_ignore_ascii_case(p);
            w.quote_style.is_none() && PREPARABLE.iter().any(is)
        }
        _ => false,
    };
    match begins {
        true => Ok(Stmt::Sql(Arc::new(sql_statement(tokens)?))),
        false => Err(Fault::At(first.cloned())),
    }
}

/// Reads the tokens of a statement that `sqlparser` knows.
pub(super) fn sql_statement(tokens: &[TokenWithSpan]) -> Result<Statement, Fault> {
    check_chains(tokens)?;
    bounded_statement(tokens)
}

fn bounded_statement(tokens: &[TokenWithSpan]) -> Result<Statement, Fault> {
    let mut p = Parser::new(&PostgreSqlDialect {})
        .with_recursion_limit(crate::printed::DEPTH)
        .with_tokens_with_locations(crate::bind::adapt(tokens));
    let s = p.parse_statement()?;
    let next = p.peek_token();
    if next.token != Token::EOF {
        return Err(Fault::At(Some(next)));
    }
    Ok(select_into(s))
}

/// `SELECT … INTO t FROM …` is `CREATE TABLE t AS SELECT … FROM …`.
fn select_into(s: Statement) -> Statement {
    use sqlparser::ast::{Expr, ObjectName, SetExpr, helpers::stmt_create_table};
    let Statement::Query(mut q) = s else { return s };
    let mut body = &mut q.body;
    let into = loop {
        match &mut **body {
            SetExpr::SetOperation { left, .. } => body = left,
            SetExpr::Select(s) => break s.into.take(),
            _ => break None,
        }
    };
    let named = into.as_ref().and_then(|i| match &i.targets[..] {
        [Expr::Identifier(name)] => Some(ObjectName::from(vec![name.clone()])),
        [Expr::CompoundIdentifier(parts)] => Some(ObjectName::from(parts.clone())),
        _ => None,
    });
    match (into, named) {
        (Some(into), Some(name)) => Statement::CreateTable(
            stmt_create_table::CreateTableBuilder::new(name)
                .temporary(into.temporary)
                .query(Some(q))
                .build(),
        ),
        _ => Statement::Query(q),
    }
}

/// What stands inside of a pair of brackets, since the last comma.
#[derive(Default)]
struct Chain {
    /// Links between operands, and operators that are words. These count apart, so that an OR of many LIKEs may be as long as another one.
    links: [usize; 2],
    /// How deep its deepest operand is.
    operand: usize,
    /// The same of all that stood before the comma.
    before: usize,
}

impl Chain {
    /// How deep its tree may be: a chain leans to the left, and its first operand may be the deepest.
    fn depth(&self) -> usize {
        self.links.iter().sum::<usize>() + self.operand
    }
}

/// Refuses chains of operators that would become too deep a tree (54001).
fn check_chains(tokens: &[TokenWithSpan]) -> Result<(), Fault> {
    let mut open = vec![];
    let mut here = Chain::default();
    for t in tokens {
        let link = match &t.token {
            Token::LParen | Token::LBracket => {
                open.push(std::mem::take(&mut here));
                None
            }
            close @ (Token::RParen | Token::RBracket) => match open.pop() {
                None => Some(0),
                Some(around) => {
                    let inside = std::mem::replace(&mut here, around);
                    let depth = 1 + inside.before.max(inside.depth());
                    here.operand = here.operand.max(depth);
                    // `int[][][]`
                    (*close == Token::RBracket).then_some(1)
                }
            },
            Token::Comma => {
                here = Chain {
                    before: here.before.max(here.depth()),
                    ..Chain::default()
                };
                None
            }
            Token::Whitespace(_) | Token::Number(..) | Token::Placeholder(_) | Token::Period => {
                None
            }
            Token::SingleQuotedString(_) | Token::EscapedStringLiteral(_) => None,
            Token::Word(w) if LINKS.contains(&w.keyword) => Some(0),
            Token::Word(w) if OPERATORS.contains(&w.keyword) || is_null_test(w) => Some(1),
            Token::Word(_) => None,
            _ => Some(0),
        };
        if let Some(kind) = link {
            here.links[kind] += 1;
        }
        if here.links.iter().any(|n| *n > CHAIN) || here.depth() > 2 * CHAIN {
            return Err(Fault::Other(too_deep()));
        }
    }
    Ok(())
}

/// `x ISNULL`, which is no keyword of the parser.
fn is_null_test(w: &Word) -> bool {
    w.quote_style.is_none() && w.value.eq_ignore_ascii_case("isnull")
}

/// Words between the operands of a chain.
const LINKS: [Keyword; 8] = [
    Keyword::AND,
    Keyword::OR,
    Keyword::NOT,
    Keyword::UNION,
    Keyword::INTERSECT,
    Keyword::EXCEPT,
    Keyword::IS,
    Keyword::COLLATE,
];

/// Words that an operator begins with, and that may follow its own operand again: `x IN (true) IN (true)`, `x AT TIME ZONE 'a' AT TIME ZONE 'b'`.
const OPERATORS: [Keyword; 16] = [
    Keyword::AT,
    Keyword::BETWEEN,
    Keyword::DIV,
    Keyword::GLOB,
    Keyword::ILIKE,
    Keyword::IN,
    Keyword::LIKE,
    Keyword::MATCH,
    Keyword::MEMBER,
    Keyword::NOTNULL,
    Keyword::OPERATOR,
    Keyword::OVERLAPS,
    Keyword::REGEXP,
    Keyword::RLIKE,
    Keyword::SIMILAR,
    Keyword::XOR,
];

fn too_deep() -> Error {
    Error::new(
        SqlState::STATEMENT_TOO_COMPLEX,
        "stack depth limit exceeded",
    )
    .hint("The statement nests more deeply than the server follows.")
}

fn tokenize(sql: &str) -> Result<Vec<TokenWithSpan>> {
    let tokens = match tokens(sql)? {
        Err(e) if e.message.contains("encoded string") => tokens(&super::escapes::rewrite(sql)?)?,
        other => other,
    };
    let tokens = tokens.map_err(|e| bad_token(sql, &e))?;
    check_numbers(sql, &tokens)?;
    check_neighbours(sql, &tokens)?;
    // What the parser makes of them. It cannot be stopped on its way, so its memory is asked for before.
    base::memory::want(tokens.len().saturating_mul(TREE))?;
    Ok(tokens)
}

/// Bytes that a token takes until its statement is bound, beside itself: a copy for the parser, and its part of the syntax tree. Measured of
/// arithmetic and of VALUES.
const TREE: usize = 256;
/// Tokens between two looks at whether the statement may go on.
const LOOK: usize = 256;

/// What stops the tokenizer.
struct Stopped(Error);

/// The tokens of a text, or what is wrong in it. An error of the statement (cancelled, out of memory) ends the tokenizer by unwinding, since it has
/// no other way out. No panic hook runs.
fn tokens(sql: &str) -> Result<Result<Vec<TokenWithSpan>, TokenizerError>> {
    let mut tokens = Vec::new();
    let mut left = LOOK;
    let look = |token| {
        left -= 1;
        if left == 0 {
            left = LOOK;
            let may = base::memory::check().and_then(|()| base::cancel::check_cancelled());
            if let Err(e) = may {
                std::panic::resume_unwind(Box::new(Stopped(e)));
            }
        }
        token
    };
    let all = || {
        let mut tokenizer = Tokenizer::new(&PostgreSqlDialect {}, sql);
        tokenizer.tokenize_with_location_into_buf_with_mapper(&mut tokens, look)
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(all)) {
        Ok(read) => Ok(read.map(|()| tokens)),
        Err(panic) => match panic.downcast::<Stopped>() {
            Ok(stopped) => Err(stopped.0),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// Refuses numbers that a word follows at once (`123abc`), and what other databases take for numbers.
fn check_numbers(sql: &str, tokens: &[TokenWithSpan]) -> Result<()> {
    let mut starts = None;
    for (i, t) in tokens.iter().enumerate() {
        let next = tokens.get(i + 1);
        let word = next.is_some_and(|n| {
            n.span.start == t.span.end
                && matches!(&n.token, Token::Word(w) if w.quote_style.is_none())
        });
        let junk = match &t.token {
            Token::Number(n, long) => word || *long || n.contains('_'),
            Token::Placeholder(p) => {
                p.starts_with('$') && p[1..].contains(|c: char| !c.is_ascii_digit())
            }
            // X'1F' is another thing.
            Token::HexStringLiteral(_) => {
                let starts = starts.get_or_insert_with(|| LineStarts::new(sql));
                sql[starts.byte(sql, t.span.start)..].starts_with('0')
            }
            _ => false,
        };
        if junk {
            let starts = LineStarts::new(sql);
            let from = starts.byte(sql, t.span.start);
            let what = match &t.token {
                Token::Placeholder(_) => "parameter",
                _ => "numeric literal",
            };
            let part = |c: char| !(c.is_alphanumeric() || c == '_' || c == '.' || c == '$');
            let near = sql[from..].split(part).next().unwrap_or_default();
            let e = format!("trailing junk after {what} at or near \"{near}\"");
            return Err(
                Error::new(SqlState::SYNTAX_ERROR, e).at(starts.character(sql, t.span.start))
            );
        }
    }
    Ok(())
}

/// Refuses a string right behind another on the same line. On the next line it would go on with the first one.
fn check_neighbours(sql: &str, tokens: &[TokenWithSpan]) -> Result<()> {
    let is_string = |t: &&TokenWithSpan| matches!(t.token, Token::SingleQuotedString(_));
    let mut before: Option<&TokenWithSpan> = None;
    for t in tokens {
        if matches!(t.token, Token::Whitespace(_)) {
            continue;
        }
        if let Some(b) = before.filter(is_string).filter(|_| is_string(&t))
            && b.span.end.line == t.span.start.line
        {
            let starts = LineStarts::new(sql);
            let near = &sql[starts.byte(sql, t.span.start)..starts.byte(sql, t.span.end)];
            let e = format!("syntax error at or near \"{near}\"");
            return Err(
                Error::new(SqlState::SYNTAX_ERROR, e).at(starts.character(sql, t.span.start))
            );
        }
        before = Some(t);
    }
    Ok(())
}

fn bad_token(sql: &str, e: &TokenizerError) -> Error {
    let at = LineStarts::new(sql).character(sql, e.location);
    let lower = e.message.to_ascii_lowercase();
    let rest: String = sql.chars().skip(at.saturating_sub(1)).take(40).collect();
    let what = if lower.contains("unterminated string") || lower.contains("string literal") {
        format!("unterminated quoted string at or near \"{rest}\"")
    } else if lower.contains("comment") {
        format!("unterminated /* comment at or near \"{rest}\"")
    } else if lower.contains("close delimiter") {
        format!("unterminated quoted identifier at or near \"{rest}\"")
    } else if lower.contains("dollar") {
        format!("unterminated dollar-quoted string at or near \"{rest}\"")
    } else {
        format!("syntax error at or near \"{rest}\"")
    };
    Error::new(SqlState::SYNTAX_ERROR, what).at(at)
}

fn locate(f: Fault, sql: &str, starts: &LineStarts) -> Error {
    match f {
        Fault::Other(e) => e,
        Fault::At(None) => Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
            .at(sql.chars().count() + 1),
        Fault::At(Some(t)) if t.token == Token::EOF => {
            Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
                .at(sql.chars().count() + 1)
        }
        Fault::At(Some(t)) => {
            let from = starts.byte(sql, t.span.start);
            let to = starts.byte(sql, t.span.end).clamp(from, sql.len());
            syntax_error(&sql[from..to]).at(starts.character(sql, t.span.start))
        }
        Fault::Parser(ParserError::RecursionLimitExceeded) => too_deep(),
        Fault::Parser(ParserError::TokenizerError(m) | ParserError::ParserError(m)) => {
            expected(&m, sql, starts)
        }
    }
}

fn syntax_error(near: &str) -> Error {
    Error::new(
        SqlState::SYNTAX_ERROR,
        format!("syntax error at or near \"{near}\""),
    )
}

/// `sqlparser` says "Expected: X, found: Y at Line: 1, Column: 8".
fn expected(m: &str, sql: &str, starts: &LineStarts) -> Error {
    let place = m.rsplit_once(" at Line: ").and_then(|(head, tail)| {
        let (line, column) = tail.split_once(", Column: ")?;
        let location = Location {
            line: line.trim().parse().ok()?,
            column: column.trim().parse().ok()?,
        };
        let found = head.rsplit_once("found: ").map_or("", |(_, f)| f);
        Some((found.to_owned(), location))
    });
    match place {
        Some((found, l)) if found == "EOF" || l.line == 0 => {
            Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
                .at(sql.chars().count() + 1)
        }
        Some((found, l)) => {
            let from = starts.byte(sql, l);
            let near = if found.is_empty() || !sql[from..].starts_with(&found) {
                word_at(&sql[from..])
            } else {
                &found
            };
            syntax_error(near).at(starts.character(sql, l))
        }
        None if m.contains("found: EOF") => {
            Error::new(SqlState::SYNTAX_ERROR, "syntax error at end of input")
                .at(sql.chars().count() + 1)
        }
        None => Error::new(SqlState::SYNTAX_ERROR, format!("syntax error: {m}")),
    }
}

fn word_at(s: &str) -> &str {
    let end = s
        .find(|c: char| !(c.is_alphanumeric() || c == '_'))
        .unwrap_or(s.len());
    match end {
        0 => s.get(..1).unwrap_or(""),
        n => &s[..n],
    }
}

/// Where lines begin, to turn a line and a column into an offset.
struct LineStarts {
    lines: Vec<usize>,
    /// Line, column and offset that were looked up last. Places that come in order are found on one way through the text, however long its lines are.
    last: Cell<(u64, u64, usize)>,
}

impl LineStarts {
    fn new(sql: &str) -> LineStarts {
        let breaks = sql.bytes().enumerate().filter(|(_, b)| *b == b'\n');
        let lines = std::iter::once(0)
            .chain(breaks.map(|(i, _)| i + 1))
            .collect();
        LineStarts {
            lines,
            last: Cell::new((1, 1, 0)),
        }
    }

    /// Byte offset of a location; the end of the text for none.
    fn byte(&self, sql: &str, l: Location) -> usize {
        let Some(&start) = self.lines.get((l.line as usize).wrapping_sub(1)) else {
            return sql.len();
        };
        let column = l.column.max(1);
        let (line, before, at) = self.last.get();
        let (start, columns) = match line == l.line && before <= column {
            true => (at, column - before),
            false => (start, column - 1),
        };
        let mut there = sql[start..].char_indices();
        let found = there.nth(columns as usize);
        found.map_or(sql.len(), |(i, _)| {
            self.last.set((l.line, column, start + i));
            start + i
        })
    }

    /// 1-based number of the character at a location.
    fn character(&self, sql: &str, l: Location) -> usize {
        sql[..self.byte(sql, l)].chars().count() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_semicolons_outside_of_strings() {
        let all = parse("SELECT ';' ;; -- c;\n  BEGIN; SELECT $$;$$").unwrap();
        let texts: Vec<&str> = all.iter().map(|p| &*p.text).collect();
        assert_eq!(texts, ["SELECT ';'", "BEGIN", "SELECT $$;$$"]);
        assert!(parse("  ; ").unwrap().is_empty());
        assert!(parse_one("SELECT 1; SELECT 2").is_err());
    }

    #[test]
    fn what_prepares_or_copies_is_prepared_and_copied_nowhere() {
        for (before, behind) in [
            ("PREPARE p AS ", ""),
            ("DECLARE c CURSOR FOR ", ""),
            ("COPY (", ") TO STDOUT"),
        ] {
            let text = |n: usize| format!("{}SELECT 1{}", before.repeat(n), behind.repeat(n));
            assert!(parse(&text(1)).is_ok(), "{before}");
            for n in [2, 100_000] {
                let e = parse(&text(n)).unwrap_err();
                assert_eq!(e.code(), SqlState::SYNTAX_ERROR, "{before}");
            }
        }
    }

    #[test]
    fn places_are_found_in_any_order() {
        let sql = "aä\nb é c\n\nd";
        let starts = LineStarts::new(sql);
        let place = |line, column| starts.byte(sql, Location { line, column });
        let all = [(1, 1), (1, 2), (2, 1), (2, 3), (2, 3), (2, 5), (4, 1)];
        let bytes = [0, 1, 4, 6, 6, 9, 12];
        for (at, byte) in all.iter().zip(bytes).chain(all.iter().zip(bytes).rev()) {
            assert_eq!(place(at.0, at.1), byte, "{at:?}");
        }
        assert_eq!((place(0, 0), place(2, 0)), (sql.len(), 4));
        assert_eq!((place(9, 1), place(4, 9)), (sql.len(), sql.len()));
    }

    #[test]
    fn syntax_errors_say_where() {
        for (sql, message, at) in [
            ("SELEC 1", "syntax error at or near \"SELEC\"", 1),
            ("SELECT 1; SELEC", "syntax error at or near \"SELEC\"", 11),
            ("SELECT 1 FROM", "syntax error at end of input", 14),
            ("SELECT\n  1 1", "syntax error at or near \"1\"", 12),
            ("COMMIT nonsense", "syntax error at or near \"nonsense\"", 8),
        ] {
            let e = parse(sql).unwrap_err();
            assert_eq!(e.code(), SqlState::SYNTAX_ERROR, "{sql}");
            assert_eq!(e.fields().message, message, "{sql}");
            assert_eq!(e.fields().position, at, "{sql}");
        }
        let e = parse("SELECT 'abc").unwrap_err();
        assert!(
            e.fields().message.starts_with("unterminated quoted string"),
            "{e}"
        );
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let sql = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
        let e = parse(&sql).unwrap_err();
        assert_eq!(e.code(), SqlState::STATEMENT_TOO_COMPLEX);
        for link in [
            " + 1",
            " OR true",
            "::text",
            " UNION ALL SELECT 1",
            " IN (true)",
            " AT TIME ZONE 'utc'",
            " ISNULL",
            " NOTNULL",
            " LIKE 'a'",
            " OPERATOR(pg_catalog.+) 1",
        ] {
            let long = |n: usize| parse(&format!("SELECT 1{}", link.repeat(n)));
            assert_eq!(
                long(5000).unwrap_err().code(),
                SqlState::STATEMENT_TOO_COMPLEX
            );
            assert!(long(500).is_ok(), "{link}");
        }
        let array = |n: usize| parse(&format!("SELECT '{{}}'::int{}", "[]".repeat(n)));
        assert_eq!(
            array(5000).unwrap_err().code(),
            SqlState::STATEMENT_TOO_COMPLEX
        );
        assert!(array(3).is_ok());
        // A chain is the first operand of another one.
        let nested = |n: usize| {
            let one = |inner: String, _| format!("({inner}{})", " + 1".repeat(n));
            parse(&format!("SELECT {}", (0..20).fold("1".into(), one)))
        };
        assert_eq!(
            nested(400).unwrap_err().code(),
            SqlState::STATEMENT_TOO_COMPLEX
        );
        assert!(nested(40).is_ok());
        // Of many operators beside each other each counts for itself.
        let many = "a[1] LIKE 'x' OR b IN (1, 2) AND c ISNULL";
        let many = [many; 400].join(" OR ");
        assert!(parse(&format!("SELECT 1 FROM t WHERE {many}")).is_ok());
        assert!(parse(&format!("SELECT 1 IN ({}2)", "-1, ".repeat(50_000))).is_ok());
    }
}
