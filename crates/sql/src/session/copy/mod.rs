//! COPY: its grammar and options. [`text`] and [`csv`] are the formats, [`binary`] the third; `load` takes rows in, `run` moves them.
//!
//! Left out on purpose: files and programs on the server, other encodings than UTF-8, `HEADER MATCH`'s kin of later versions.

mod binary;
mod csv;
mod load;
mod run;
mod text;

pub use run::CopyOut;

use super::class::Class;
use super::parse::{Fault, Parsed, Stmt};
use super::utility::Words;
use base::{Error, Result, SqlState};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// What is copied.
#[derive(Clone, Debug)]
pub enum CopyWhat {
    Table {
        schema: Option<String>,
        name: String,
        columns: Vec<String>,
    },
    Query(Parsed),
}

impl CopyWhat {
    /// The table's name.
    pub fn name(&self) -> &str {
        match self {
            CopyWhat::Table { name, .. } => name,
            CopyWhat::Query(_) => "",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFormat {
    Text,
    Csv,
    Binary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    No,
    Yes,
    /// The names must be those of the columns.
    Match,
}

/// The columns that an option names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    None,
    All,
    These(Vec<String>),
}

impl Names {
    fn has(&self, name: &str) -> bool {
        match self {
            Names::None => false,
            Names::All => true,
            Names::These(n) => n.iter().any(|n| n == name),
        }
    }
}

#[derive(Clone, Debug)]
pub struct CopyOptions {
    pub format: CopyFormat,
    pub delimiter: u8,
    pub null: String,
    pub header: Header,
    pub quote: u8,
    pub escape: u8,
    pub force_quote: Names,
    pub force_null: Names,
    pub force_not_null: Names,
}

#[derive(Clone, Debug)]
pub struct CopyStmt {
    pub what: CopyWhat,
    /// FROM STDIN; else TO STDOUT.
    pub from: bool,
    pub options: CopyOptions,
    /// The condition after WHERE: rows that do not meet it are left out.
    pub filter: Option<String>,
}

impl CopyStmt {
    /// Whether it loads data, or copies what a statement that writes returns.
    pub fn writes(&self) -> bool {
        let writes = |q: &Parsed| matches!(&q.stmt, Stmt::Sql(s) if Class::of(s, &q.text).writes());
        self.from || self.query().is_some_and(writes)
    }

    /// The statement whose rows it copies.
    pub fn query(&self) -> Option<&Parsed> {
        match &self.what {
            CopyWhat::Query(q) => Some(q),
            CopyWhat::Table { .. } => None,
        }
    }
}

/// Options as they are given.
#[derive(Default)]
struct Given {
    format: Option<String>,
    delimiter: Option<String>,
    null: Option<String>,
    header: Option<Header>,
    quote: Option<String>,
    escape: Option<String>,
    encoding: Option<String>,
    force_quote: Option<Names>,
    force_null: Option<Names>,
    force_not_null: Option<Names>,
}

fn conflict() -> Error {
    Error::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options")
}

fn put<T>(slot: &mut Option<T>, v: T) -> Result<()> {
    match slot.replace(v) {
        None => Ok(()),
        Some(_) => Err(conflict()),
    }
}

impl CopyStmt {
    /// Reads what stands after COPY.
    pub(super) fn parse(p: &mut Words<'_>) -> Result<CopyStmt, Fault> {
        let mut given = Given::default();
        if p.opt(&["binary"]) {
            given.format = Some("binary".into());
        }
        let what = if p.opt_token(&Token::LParen) {
            CopyWhat::Query(p.parenthesised()?)
        } else {
            p.opt(&["only"]);
            let first = p.name()?;
            let (schema, name) = if p.opt_token(&Token::Period) {
                (Some(first), p.name()?)
            } else {
                (None, first)
            };
            let columns = if p.peek() == Some(&Token::LParen) {
                p.names()?
            } else {
                Vec::new()
            };
            CopyWhat::Table {
                schema,
                name,
                columns,
            }
        };
        let from = match p.word()?.as_str() {
            "from" if matches!(what, CopyWhat::Table { .. }) => true,
            "to" => false,
            _ => return Err(p.back()),
        };
        if p.opt(&["program"]) || p.peek_word().is_none() {
            return Err(Error::unsupported("COPY from or to a file on the server")
                .hint("Use COPY … FROM STDIN or TO STDOUT, or psql's \\copy.")
                .into());
        }
        match p.word()?.as_str() {
            "stdin" | "stdout" => {}
            _ => return Err(p.back()),
        }
        p.opt(&["with"]);
        if p.opt_token(&Token::LParen) {
            loop {
                given.option(p)?;
                if !p.opt_token(&Token::Comma) {
                    break;
                }
            }
            p.expect_token(&Token::RParen)?;
        } else {
            given.old_options(p)?;
        }
        let filter = match p.opt(&["where"]) {
            true => Some(p.condition()?),
            false => None,
        };
        if filter.is_some() && !from {
            return Err(Error::new(
                SqlState::SYNTAX_ERROR,
                "WHERE clause not allowed with COPY TO",
            )
            .hint("Try the COPY (SELECT ... WHERE ...) TO variant.")
            .into());
        }
        p.end()?;
        Ok(CopyStmt {
            what,
            from,
            options: given.check(from)?,
            filter,
        })
    }
}

impl Given {
    /// `NAME [value]` inside parentheses.
    fn option(&mut self, p: &mut Words<'_>) -> Result<(), Fault> {
        let name = p.word()?;
        match name.as_str() {
            "format" => put(&mut self.format, p.text_value()?)?,
            "freeze" => drop(p.boolean("freeze requires a Boolean value")?),
            "delimiter" => put(&mut self.delimiter, p.text_value()?)?,
            "null" => put(&mut self.null, p.text_value()?)?,
            "header" => {
                let h = if p.opt(&["match"]) {
                    Header::Match
                } else if p.boolean("header requires a Boolean value or \"match\"")? {
                    Header::Yes
                } else {
                    Header::No
                };
                put(&mut self.header, h)?;
            }
            "quote" => put(&mut self.quote, p.text_value()?)?,
            "escape" => put(&mut self.escape, p.text_value()?)?,
            "encoding" => put(&mut self.encoding, p.text_value()?)?,
            "force_quote" => put(&mut self.force_quote, p.columns()?)?,
            "force_null" => put(&mut self.force_null, p.columns()?)?,
            "force_not_null" => put(&mut self.force_not_null, p.columns()?)?,
            _ => {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("option \"{name}\" not recognized"),
                )
                .into());
            }
        }
        Ok(())
    }

    /// The grammar before PostgreSQL 9.0: `CSV HEADER DELIMITER AS ','`.
    fn old_options(&mut self, p: &mut Words<'_>) -> Result<(), Fault> {
        while let Some(w) = p.peek_word() {
            if w == "where" {
                break;
            }
            p.next();
            match w.as_str() {
                "csv" | "binary" => put(&mut self.format, w)?,
                "freeze" => {}
                "header" => put(&mut self.header, Header::Yes)?,
                "delimiter" | "delimiters" | "null" | "quote" | "escape" | "encoding" => {
                    p.opt(&["as"]);
                    let v = p.string()?;
                    let slot = match w.as_str() {
                        "null" => &mut self.null,
                        "quote" => &mut self.quote,
                        "escape" => &mut self.escape,
                        "encoding" => &mut self.encoding,
                        _ => &mut self.delimiter,
                    };
                    put(slot, v)?;
                }
                "force" => {
                    let kind = p.word()?;
                    let slot = match kind.as_str() {
                        "quote" => &mut self.force_quote,
                        "null" => &mut self.force_null,
                        "not" => {
                            p.expect("null")?;
                            &mut self.force_not_null
                        }
                        _ => return Err(p.back()),
                    };
                    let names = if p.opt_token(&Token::Mul) {
                        Names::All
                    } else {
                        let mut n = vec![p.name()?];
                        while p.opt_token(&Token::Comma) {
                            n.push(p.name()?);
                        }
                        Names::These(n)
                    };
                    put(slot, names)?;
                }
                _ => return Err(p.back()),
            }
        }
        Ok(())
    }

    fn check(self, from: bool) -> Result<CopyOptions> {
        let format = match self.format.as_deref() {
            None | Some("text") => CopyFormat::Text,
            Some("csv") => CopyFormat::Csv,
            Some("binary") => CopyFormat::Binary,
            Some(f) => {
                return Err(invalid(format!("COPY format \"{f}\" not recognized")));
            }
        };
        let csv = format == CopyFormat::Csv;
        if format == CopyFormat::Binary {
            let name = [
                ("DELIMITER", self.delimiter.is_some()),
                ("NULL", self.null.is_some()),
                ("HEADER", self.header.is_some()),
            ];
            if let Some((n, _)) = name.iter().find(|n| n.1) {
                return Err(Error::new(
                    SqlState::SYNTAX_ERROR,
                    format!("cannot specify {n} in BINARY mode"),
                ));
            }
        }
        for (name, on) in [
            ("quote", self.quote.is_some()),
            ("escape", self.escape.is_some()),
            ("force quote", self.force_quote.is_some()),
            ("force null", self.force_null.is_some()),
            ("force not null", self.force_not_null.is_some()),
        ] {
            if on && !csv {
                return Err(Error::new(
                    SqlState::FEATURE_NOT_SUPPORTED,
                    format!("COPY {name} available only in CSV mode"),
                ));
            }
        }
        if let Some(e) = &self.encoding
            && !matches!(
                e.to_ascii_lowercase().replace(['-', '_'], "").as_str(),
                // Bytes as they are, which the server takes if they are UTF-8.
                "utf8" | "unicode" | "sqlascii"
            )
        {
            return Err(invalid(format!(
                "argument to option \"encoding\" must be a valid encoding name: {e}"
            )));
        }
        let default = if csv { "," } else { "\t" };
        let delimiter = one_byte("delimiter", self.delimiter.as_deref().unwrap_or(default))?;
        let forbidden: &[u8] = if csv {
            b"\r\n"
        } else {
            b"\\.abcdefghijklmnopqrstuvwxyz0123456789\r\n"
        };
        if forbidden.contains(&delimiter) {
            return Err(invalid(format!(
                "COPY delimiter cannot be \"{}\"",
                delimiter as char
            )));
        }
        let null = self
            .null
            .unwrap_or_else(|| if csv { String::new() } else { "\\N".into() });
        if null.contains(['\r', '\n']) {
            return Err(invalid(
                "COPY null representation cannot use newline or carriage return",
            ));
        }
        if null.as_bytes().contains(&delimiter) {
            return Err(invalid(
                "COPY delimiter character must not appear in the NULL specification",
            ));
        }
        let quote = one_byte("quote", self.quote.as_deref().unwrap_or("\""))?;
        if csv && quote == delimiter {
            return Err(invalid("COPY delimiter and quote must be different"));
        }
        let escape = match &self.escape {
            Some(e) => one_byte("escape", e)?,
            None => quote,
        };
        let header = self.header.unwrap_or(Header::No);
        if header == Header::Match && !from {
            let what = "cannot use \"match\" with HEADER in COPY TO";
            return Err(Error::new(SqlState::FEATURE_NOT_SUPPORTED, what));
        }
        Ok(CopyOptions {
            format,
            delimiter,
            null,
            header,
            quote,
            escape,
            force_quote: self.force_quote.unwrap_or(Names::None),
            force_null: self.force_null.unwrap_or(Names::None),
            force_not_null: self.force_not_null.unwrap_or(Names::None),
        })
    }
}

fn invalid(m: impl Into<String>) -> Error {
    Error::new(SqlState::INVALID_PARAMETER_VALUE, m)
}

fn one_byte(what: &str, v: &str) -> Result<u8> {
    match v.as_bytes() {
        [b] => Ok(*b),
        _ => Err(Error::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            format!("COPY {what} must be a single one-byte character"),
        )),
    }
}

/// 22P04 about a line of the data.
fn bad_data(m: impl Into<String>) -> Error {
    Error::new(SqlState::BAD_COPY_FILE_FORMAT, m)
}

impl Words<'_> {
    /// A statement up to the closing parenthesis, which is taken too.
    fn parenthesised(&mut self) -> Result<Parsed, Fault> {
        let rest = self.rest();
        let mut depth = 0;
        let end = rest
            .iter()
            .position(|t| {
                match t.token {
                    Token::LParen => depth += 1,
                    Token::RParen if depth == 0 => return true,
                    Token::RParen => depth -= 1,
                    _ => {}
                }
                false
            })
            .ok_or_else(|| self.fault())?;
        let stmt = super::parse::preparable(&rest[..end])?;
        self.skip_to(end + 1);
        Ok(Parsed {
            stmt,
            text: super::utility::text_of(&rest[..end]).into(),
            source: "".into(),
        })
    }

    /// The rest as one expression, in parentheses.
    fn condition(&mut self) -> Result<String, Fault> {
        let rest = self.rest();
        let first = rest.first().ok_or_else(|| self.fault())?;
        let mut depth = 0;
        for t in rest {
            match t.token {
                Token::LParen => depth += 1,
                Token::RParen if depth == 0 => return Err(Fault::At(Some(t.clone()))),
                Token::RParen => depth -= 1,
                _ => {}
            }
        }
        let at = |token| TokenWithSpan {
            token,
            span: first.span,
        };
        // `SELECT (rest)`: what reads as one expression is one. The places of errors are those of `SELECT rest`.
        let select = at(Token::make_keyword("SELECT"));
        let end = rest.iter().filter(|t| t.token != Token::EOF).cloned();
        let mut tokens = vec![select.clone(), at(Token::LParen)];
        tokens.extend(end.clone());
        tokens.push(at(Token::RParen));
        if let Err(e) = super::parse::sql_statement(&tokens) {
            let plain: Vec<_> = std::iter::once(select).chain(end).collect();
            super::parse::sql_statement(&plain)?;
            return Err(e);
        }
        let text = super::utility::text_of(rest);
        self.finish();
        Ok(text)
    }

    /// `(a, b)`.
    fn names(&mut self) -> Result<Vec<String>, Fault> {
        self.expect_token(&Token::LParen)?;
        let mut n = vec![self.name()?];
        while self.opt_token(&Token::Comma) {
            n.push(self.name()?);
        }
        self.expect_token(&Token::RParen)?;
        Ok(n)
    }

    fn columns(&mut self) -> Result<Names, Fault> {
        if self.opt_token(&Token::Mul) {
            return Ok(Names::All);
        }
        self.names().map(Names::These)
    }

    fn text_value(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Some(Token::Word(_)) => self.name(),
            _ => self.string(),
        }
    }

    /// A Boolean, on when left out; `otherwise` says what is none.
    fn boolean(&mut self, otherwise: &str) -> Result<bool, Fault> {
        let on = match self.peek() {
            None | Some(Token::Comma | Token::RParen) => return Ok(true),
            Some(Token::Number(n, _)) => {
                let on = (n == "0" || n == "1").then_some(n == "1");
                self.next();
                on
            }
            _ => super::settings::bool_of(&self.text_value()?),
        };
        on.ok_or_else(|| Fault::Other(Error::new(SqlState::SYNTAX_ERROR, otherwise)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse::{Stmt, parse};
    use super::super::utility::Utility;
    use super::*;

    pub fn one(sql: &str) -> Result<CopyStmt> {
        match &parse(sql)?[0].stmt {
            Stmt::Utility(u) => match &**u {
                Utility::Copy(c) => Ok((**c).clone()),
                u => panic!("{u:?}"),
            },
            s => panic!("{s:?}"),
        }
    }

    /// The options of a COPY statement.
    pub fn options(sql: &str) -> CopyOptions {
        one(sql).unwrap().options
    }

    #[test]
    fn both_grammars() {
        let c = one("copy pgbench_accounts from stdin with (freeze on)").unwrap();
        assert!(
            c.from && matches!(c.what, CopyWhat::Table { name, .. } if name == "pgbench_accounts")
        );
        let c = one("COPY public.t (a, \"B\") FROM STDIN CSV HEADER DELIMITER ';' NULL AS 'x'")
            .unwrap();
        assert_eq!(
            (c.options.format, c.options.header),
            (CopyFormat::Csv, Header::Yes)
        );
        assert_eq!((c.options.delimiter, c.options.null.as_str()), (b';', "x"));
        let c = one("COPY (SELECT (1), ')') TO STDOUT (FORMAT csv, FORCE_QUOTE *, ESCAPE '\\')")
            .unwrap();
        assert!(!c.from && matches!(c.what, CopyWhat::Query(_)));
        assert_eq!(
            (c.options.escape, c.options.force_quote),
            (b'\\', Names::All)
        );
    }

    #[test]
    fn conditions() {
        let c = one("COPY t FROM STDIN CSV HEADER WHERE a > 1 AND (b = 'x')").unwrap();
        assert_eq!(c.filter.as_deref(), Some("a > 1 AND (b = 'x')"));
        let c = one("COPY t FROM STDIN WHERE b <> 'it''s' AND \"q\"\"q\" > - -1").unwrap();
        let text = "b <> 'it''s' AND \"q\"\"q\" > - -1";
        assert_eq!(c.filter.as_deref(), Some(text));
        let c = one("COPY t FROM STDIN (FORMAT csv) WHERE true").unwrap();
        assert_eq!(c.filter.as_deref(), Some("true"));
        assert!(one("COPY t FROM STDIN").unwrap().filter.is_none());
    }

    #[test]
    fn what_is_refused() {
        for (sql, code) in [
            ("COPY t FROM '/etc/passwd'", "0A000"),
            ("COPY t TO PROGRAM 'x'", "0A000"),
            ("COPY (SELECT 1) FROM STDIN", "42601"),
            ("COPY t TO STDOUT WHERE true", "42601"),
            ("COPY t FROM STDIN WHERE", "42601"),
            ("COPY t FROM STDIN WHERE a) UNION (SELECT 1", "42601"),
            ("COPY t FROM STDIN (FORMAT xml)", "22023"),
            ("COPY t FROM STDIN (NONSENSE 1)", "42601"),
            ("COPY t FROM STDIN (DELIMITER 'ab')", "0A000"),
            ("COPY t FROM STDIN (DELIMITER 'a')", "22023"),
            ("COPY t FROM STDIN (QUOTE '''')", "0A000"),
            ("COPY t FROM STDIN (HEADER, HEADER)", "42601"),
            ("COPY t FROM STDIN (ENCODING 'latin1')", "22023"),
        ] {
            assert_eq!(one(sql).unwrap_err().code().code(), code, "{sql}");
        }
    }
}
