//! The statements that are about the session and not about data, read by PostgreSQL's grammar: transactions, settings,
//! prepared statements, cursors, COPY. (`sqlparser` reads several of them by other databases' grammars, or not at all.)
//!
//! Left out on purpose: two-phase commit, notifications (`LISTEN`, `NOTIFY` are refused where they are run).

use super::copy::CopyStmt;
use super::parse::{Fault, Parsed, Stmt, sql_statement, statement};
use sqlparser::ast::Statement;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::Arc;
use txn::Isolation;

/// What BEGIN and SET TRANSACTION ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    pub isolation: Option<Isolation>,
    pub read_only: Option<bool>,
    pub deferrable: Option<bool>,
}

/// A value given to SET: one or more words, or DEFAULT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetValue {
    pub text: String,
    /// A word without quotes: an identifier.
    pub bare: bool,
}

/// How far and where FETCH and MOVE go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward(i64),
    ForwardAll,
    Backward(i64),
    BackwardAll,
    Absolute(i64),
    Relative(i64),
}

#[derive(Clone, Debug)]
pub enum Utility {
    Begin {
        modes: Modes,
        start: bool,
    },
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    SetTransaction(Modes),
    SetCharacteristics(Modes),
    Set {
        name: String,
        value: Option<Vec<SetValue>>,
        local: bool,
    },
    SetRole {
        role: Option<String>,
        local: bool,
        reset: bool,
    },
    SetAuthorization {
        user: Option<String>,
        local: bool,
        reset: bool,
    },
    Reset(String),
    ResetAll,
    Show(String),
    ShowAll,
    Discard(String),
    Prepare {
        name: String,
        types: Vec<String>,
        stmt: Box<Parsed>,
    },
    /// The arguments as a SELECT that gives them.
    Execute {
        name: String,
        args: Option<Arc<Statement>>,
    },
    /// None: all.
    Deallocate(Option<String>),
    Declare {
        name: String,
        binary: bool,
        scroll: Option<bool>,
        hold: bool,
        query: Parsed,
    },
    Fetch {
        name: String,
        direction: Direction,
        moving: bool,
    },
    /// None: all.
    Close(Option<String>),
    Copy(Box<CopyStmt>),
    /// UNLISTEN, CHECKPOINT: nothing to do. The command tag.
    Nothing(&'static str),
    /// Known and refused: 0A000 with this name.
    Unsupported(&'static str),
}

/// Reads the statement if it is one of these.
pub(super) fn parse(tokens: &[TokenWithSpan]) -> Result<Option<Utility>, Fault> {
    let mut p = Words::new(tokens);
    let first = p.peek_word().unwrap_or_default();
    let u = match first.as_str() {
        "begin" => {
            p.next();
            p.opt(&["work", "transaction"]);
            Utility::Begin {
                modes: p.modes()?,
                start: false,
            }
        }
        "start" => {
            p.next();
            p.expect("transaction")?;
            Utility::Begin {
                modes: p.modes()?,
                start: true,
            }
        }
        "commit" | "end" => {
            p.next();
            if p.opt(&["prepared"]) {
                return Ok(Some(Utility::Unsupported("COMMIT PREPARED")));
            }
            p.opt(&["work", "transaction"]);
            Utility::Commit { chain: p.chain()? }
        }
        "rollback" | "abort" => {
            p.next();
            if p.opt(&["prepared"]) {
                return Ok(Some(Utility::Unsupported("ROLLBACK PREPARED")));
            }
            p.opt(&["work", "transaction"]);
            if first == "rollback" && p.opt(&["to"]) {
                p.opt(&["savepoint"]);
                Utility::RollbackTo(p.name()?)
            } else {
                Utility::Rollback { chain: p.chain()? }
            }
        }
        "savepoint" => {
            p.next();
            Utility::Savepoint(p.name()?)
        }
        "release" => {
            p.next();
            p.opt(&["savepoint"]);
            Utility::Release(p.name()?)
        }
        "set" => {
            p.next();
            p.set()?
        }
        "reset" => {
            p.next();
            p.reset()?
        }
        "show" => {
            p.next();
            p.show()?
        }
        "discard" => {
            p.next();
            let what = p.word()?;
            match what.as_str() {
                "all" | "plans" | "sequences" | "temp" | "temporary" => Utility::Discard(what),
                _ => return Err(p.back()),
            }
        }
        "prepare" => {
            p.next();
            if p.opt(&["transaction"]) {
                return Ok(Some(Utility::Unsupported("PREPARE TRANSACTION")));
            }
            return p.prepare().map(Some);
        }
        "execute" => {
            p.next();
            return p.execute().map(Some);
        }
        "deallocate" => {
            p.next();
            p.opt(&["prepare"]);
            let all = p.opt(&["all"]);
            Utility::Deallocate(if all { None } else { Some(p.name()?) })
        }
        "declare" => {
            p.next();
            return p.declare().map(Some);
        }
        "fetch" | "move" => {
            p.next();
            p.fetch(first == "move")?
        }
        "close" => {
            p.next();
            let all = p.opt(&["all"]);
            Utility::Close(if all { None } else { Some(p.name()?) })
        }
        "copy" => {
            p.next();
            return CopyStmt::parse(&mut p).map(|c| Some(Utility::Copy(Box::new(c))));
        }
        "listen" => return Ok(Some(Utility::Unsupported("LISTEN"))),
        "notify" => return Ok(Some(Utility::Unsupported("NOTIFY"))),
        "lock" => return Ok(Some(Utility::Unsupported("LOCK TABLE"))),
        "do" => return Ok(Some(Utility::Unsupported("DO"))),
        "load" => return Ok(Some(Utility::Unsupported("LOAD"))),
        "call" => return Ok(Some(Utility::Unsupported("CALL"))),
        "unlisten" => {
            p.next();
            if !p.opt_token(&Token::Mul) {
                p.name()?;
            }
            Utility::Nothing("UNLISTEN")
        }
        "checkpoint" => {
            p.next();
            Utility::Nothing("CHECKPOINT")
        }
        _ => return Ok(None),
    };
    p.end()?;
    Ok(Some(u))
}

/// The tokens of a statement without blanks, read one after another.
pub(super) struct Words<'a> {
    all: &'a [TokenWithSpan],
    at: usize,
}

impl<'a> Words<'a> {
    fn new(all: &'a [TokenWithSpan]) -> Words<'a> {
        let mut w = Words { all, at: 0 };
        w.skip();
        w
    }

    fn skip(&mut self) {
        while let Some(t) = self.all.get(self.at) {
            match t.token {
                Token::Whitespace(_) | Token::EOF => self.at += 1,
                _ => break,
            }
        }
    }

    pub fn peek(&self) -> Option<&'a Token> {
        self.all.get(self.at).map(|t| &t.token)
    }

    pub fn next(&mut self) -> Option<&'a Token> {
        let t = self.peek()?;
        self.at += 1;
        self.skip();
        Some(t)
    }

    /// The tokens not read yet.
    pub fn rest(&self) -> &'a [TokenWithSpan] {
        &self.all[self.at.min(self.all.len())..]
    }

    /// Skips `n` tokens, blanks counted.
    pub fn skip_to(&mut self, n: usize) {
        self.at += n;
        self.skip();
    }

    /// Skips to the end.
    pub fn finish(&mut self) {
        self.at = self.all.len();
    }

    /// A syntax error at the next token.
    pub fn fault(&self) -> Fault {
        Fault::At(self.all.get(self.at).cloned())
    }

    /// A syntax error at the token before.
    pub fn back(&self) -> Fault {
        let blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_) | Token::EOF);
        Fault::At(
            self.all[..self.at]
                .iter()
                .rev()
                .find(|t| !blank(t))
                .cloned(),
        )
    }

    pub fn end(&self) -> Result<(), Fault> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.fault()),
        }
    }

    /// The next token if it is a word without quotes, in lower case.
    pub fn peek_word(&self) -> Option<String> {
        match self.peek()? {
            Token::Word(w) if w.quote_style.is_none() => Some(w.value.to_ascii_lowercase()),
            _ => None,
        }
    }

    pub fn word(&mut self) -> Result<String, Fault> {
        let w = self.peek_word().ok_or_else(|| self.fault())?;
        self.next();
        Ok(w)
    }

    /// Takes the next word if it is one of these.
    pub fn opt(&mut self, words: &[&str]) -> bool {
        let hit = self
            .peek_word()
            .is_some_and(|w| words.contains(&w.as_str()));
        if hit {
            self.next();
        }
        hit
    }

    pub fn opt_token(&mut self, t: &Token) -> bool {
        let hit = self.peek() == Some(t);
        if hit {
            self.next();
        }
        hit
    }

    pub fn expect(&mut self, word: &str) -> Result<(), Fault> {
        if self.opt(&[word]) {
            Ok(())
        } else {
            Err(self.fault())
        }
    }

    pub fn expect_token(&mut self, t: &Token) -> Result<(), Fault> {
        if self.opt_token(t) {
            Ok(())
        } else {
            Err(self.fault())
        }
    }

    /// An identifier: folded to lower case unless quoted.
    pub fn name(&mut self) -> Result<String, Fault> {
        let Some(Token::Word(w)) = self.peek() else {
            return Err(self.fault());
        };
        self.next();
        Ok(match w.quote_style {
            Some(_) => w.value.clone(),
            None => w.value.to_lowercase(),
        })
    }

    /// A string literal.
    pub fn string(&mut self) -> Result<String, Fault> {
        match self.peek() {
            Some(Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s)) => {
                self.next();
                Ok(s.clone())
            }
            Some(Token::DollarQuotedString(s)) => {
                self.next();
                Ok(s.value.clone())
            }
            _ => Err(self.fault()),
        }
    }

    /// A whole number, perhaps with a sign.
    fn integer(&mut self) -> Result<i64, Fault> {
        let negative = self.opt_token(&Token::Minus);
        if !negative {
            self.opt_token(&Token::Plus);
        }
        match self.peek() {
            Some(Token::Number(n, _)) => {
                let n: i64 = n.parse().map_err(|_| self.fault())?;
                self.next();
                Ok(if negative { -n } else { n })
            }
            _ => Err(self.fault()),
        }
    }

    fn chain(&mut self) -> Result<bool, Fault> {
        if !self.opt(&["and"]) {
            return Ok(false);
        }
        let no = self.opt(&["no"]);
        self.expect("chain")?;
        Ok(!no)
    }

    fn modes(&mut self) -> Result<Modes, Fault> {
        let mut m = Modes::default();
        while let Some(w) = self.peek_word() {
            match w.as_str() {
                "isolation" => {
                    self.next();
                    self.expect("level")?;
                    m.isolation = Some(self.level()?);
                }
                "read" => {
                    self.next();
                    match self.word()?.as_str() {
                        "only" => m.read_only = Some(true),
                        "write" => m.read_only = Some(false),
                        _ => return Err(self.back()),
                    }
                }
                "deferrable" => {
                    self.next();
                    m.deferrable = Some(true);
                }
                "not" => {
                    self.next();
                    self.expect("deferrable")?;
                    m.deferrable = Some(false);
                }
                _ => return Err(self.fault()),
            }
            self.opt_token(&Token::Comma);
        }
        Ok(m)
    }

    fn level(&mut self) -> Result<Isolation, Fault> {
        match self.word()?.as_str() {
            "serializable" => Ok(Isolation::Serializable),
            "repeatable" => {
                self.expect("read")?;
                Ok(Isolation::RepeatableRead)
            }
            "read" => match self.word()?.as_str() {
                "committed" | "uncommitted" => Ok(Isolation::ReadCommitted),
                _ => Err(self.back()),
            },
            _ => Err(self.back()),
        }
    }

    fn set(&mut self) -> Result<Utility, Fault> {
        let local = match self.peek_word().as_deref() {
            Some("session") => {
                self.next();
                match self.peek_word().as_deref() {
                    Some("characteristics") => {
                        self.next();
                        self.expect("as")?;
                        self.expect("transaction")?;
                        return Ok(Utility::SetCharacteristics(self.modes()?));
                    }
                    Some("authorization") => {
                        self.next();
                        return self.authorization(false);
                    }
                    _ => false,
                }
            }
            Some("local") => {
                self.next();
                true
            }
            _ => false,
        };
        match self.peek_word().as_deref() {
            Some("transaction") => {
                self.next();
                if self.opt(&["snapshot"]) {
                    self.finish();
                    return Ok(Utility::Unsupported("SET TRANSACTION SNAPSHOT"));
                }
                return Ok(Utility::SetTransaction(self.modes()?));
            }
            Some("time") => {
                self.next();
                self.expect("zone")?;
                return self.values("timezone".into(), local);
            }
            Some("names") => {
                self.next();
                let value = match self.peek() {
                    None => None,
                    Some(_) if self.opt(&["default"]) => None,
                    Some(_) => Some(vec![SetValue {
                        text: self.string()?,
                        bare: false,
                    }]),
                };
                let name = "client_encoding".into();
                return Ok(Utility::Set { name, value, local });
            }
            Some("role") => {
                self.next();
                if !self.opt_token(&Token::Eq) {
                    self.opt(&["to"]);
                }
                let role = self.role_name()?;
                let role = role.filter(|r| r != "none");
                return Ok(Utility::SetRole {
                    role,
                    local,
                    reset: false,
                });
            }
            Some("session") => {
                self.next();
                self.expect("authorization")?;
                return self.authorization(local);
            }
            Some("constraints") => {
                self.finish();
                return Ok(Utility::Nothing("SET CONSTRAINTS"));
            }
            _ => {}
        }
        let name = self.dotted()?;
        if !self.opt_token(&Token::Eq) {
            self.expect("to")?;
        }
        self.values(name, local)
    }

    fn authorization(&mut self, local: bool) -> Result<Utility, Fault> {
        let user = self.role_name()?;
        Ok(Utility::SetAuthorization {
            user,
            local,
            reset: false,
        })
    }

    /// A role's name as an identifier or a string; DEFAULT is none.
    fn role_name(&mut self) -> Result<Option<String>, Fault> {
        if self.opt(&["default"]) {
            return Ok(None);
        }
        match self.peek() {
            Some(Token::Word(_)) => self.name().map(Some),
            _ => self.string().map(Some),
        }
    }

    /// A name with dots, as settings may have.
    fn dotted(&mut self) -> Result<String, Fault> {
        let mut name = self.name()?;
        while self.opt_token(&Token::Period) {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name)
    }

    fn values(&mut self, name: String, local: bool) -> Result<Utility, Fault> {
        if self.opt(&["default"]) || (name == "timezone" && self.opt(&["local"])) {
            return Ok(Utility::Set {
                name,
                value: None,
                local,
            });
        }
        let mut values = vec![self.value()?];
        while self.opt_token(&Token::Comma) {
            values.push(self.value()?);
        }
        Ok(Utility::Set {
            name,
            value: Some(values),
            local,
        })
    }

    fn value(&mut self) -> Result<SetValue, Fault> {
        let sign = if self.opt_token(&Token::Minus) {
            "-"
        } else {
            self.opt_token(&Token::Plus);
            ""
        };
        match self.peek() {
            Some(Token::Number(n, _)) => {
                let text = format!("{sign}{n}");
                self.next();
                // `SET work_mem = 4MB` is a number and a word; PostgreSQL wants quotes, and so do we.
                Ok(SetValue { text, bare: false })
            }
            _ if !sign.is_empty() => Err(self.fault()),
            Some(Token::Word(w)) if w.quote_style.is_none() => {
                let mut text = w.value.to_lowercase();
                self.next();
                // `SET TIME ZONE INTERVAL '-08:00' HOUR TO MINUTE`.
                if text == "interval" {
                    text = self.string()?;
                    self.finish();
                    return Ok(SetValue { text, bare: false });
                }
                Ok(SetValue { text, bare: true })
            }
            Some(Token::Word(_)) => Ok(SetValue {
                text: self.name()?,
                bare: true,
            }),
            _ => Ok(SetValue {
                text: self.string()?,
                bare: false,
            }),
        }
    }

    fn reset(&mut self) -> Result<Utility, Fault> {
        Ok(match self.peek_word().as_deref() {
            Some("all") => {
                self.next();
                Utility::ResetAll
            }
            Some("role") => {
                self.next();
                Utility::SetRole {
                    role: None,
                    local: false,
                    reset: true,
                }
            }
            Some("session") => {
                self.next();
                self.expect("authorization")?;
                Utility::SetAuthorization {
                    user: None,
                    local: false,
                    reset: true,
                }
            }
            Some("time") => {
                self.next();
                self.expect("zone")?;
                Utility::Reset("timezone".into())
            }
            Some("transaction") => {
                self.next();
                self.expect("isolation")?;
                self.expect("level")?;
                Utility::Reset("transaction_isolation".into())
            }
            _ => Utility::Reset(self.dotted()?),
        })
    }

    fn show(&mut self) -> Result<Utility, Fault> {
        Ok(match self.peek_word().as_deref() {
            Some("all") => {
                self.next();
                Utility::ShowAll
            }
            Some("time") => {
                self.next();
                self.expect("zone")?;
                Utility::Show("TimeZone".into())
            }
            Some("transaction") => {
                self.next();
                self.expect("isolation")?;
                self.expect("level")?;
                Utility::Show("transaction_isolation".into())
            }
            Some("session") => {
                self.next();
                self.expect("authorization")?;
                Utility::Show("session_authorization".into())
            }
            _ => Utility::Show(self.dotted()?),
        })
    }

    fn prepare(&mut self) -> Result<Utility, Fault> {
        let name = self.name()?;
        let mut types = Vec::new();
        if self.opt_token(&Token::LParen) {
            let mut one = String::new();
            let mut depth = 0;
            loop {
                let t = self.next().ok_or_else(|| self.fault())?;
                match t {
                    Token::RParen if depth == 0 => break,
                    Token::Comma if depth == 0 => {
                        types.push(std::mem::take(&mut one));
                        continue;
                    }
                    Token::LParen => depth += 1,
                    Token::RParen => depth -= 1,
                    _ => {}
                }
                if !one.is_empty() && matches!(t, Token::Word(_)) {
                    one.push(' ');
                }
                one.push_str(&t.to_string());
            }
            types.push(one);
        }
        self.expect("as")?;
        let stmt = Box::new(self.parsed()?);
        Ok(Utility::Prepare { name, types, stmt })
    }

    /// The rest as a statement of its own.
    pub fn parsed(&mut self) -> Result<Parsed, Fault> {
        let rest = self.rest();
        if rest.is_empty() {
            return Err(self.fault());
        }
        let stmt = statement(rest)?;
        self.finish();
        Ok(Parsed {
            stmt,
            text: text_of(rest).into(),
            source: "".into(),
        })
    }

    fn execute(&mut self) -> Result<Utility, Fault> {
        let name = self.name()?;
        let rest = self.rest();
        if rest.is_empty() {
            return Ok(Utility::Execute { name, args: None });
        }
        if self.peek() != Some(&Token::LParen) {
            return Err(self.fault());
        }
        // `(a, b)` becomes `SELECT a, b`.
        let open = rest.first().expect("not empty");
        let close = rest
            .iter()
            .rposition(|t| t.token == Token::RParen)
            .ok_or_else(|| self.fault())?;
        let mut tokens = vec![TokenWithSpan {
            token: Token::make_keyword("SELECT"),
            span: open.span,
        }];
        tokens.extend_from_slice(&rest[1..close]);
        let blank = |t: &TokenWithSpan| matches!(t.token, Token::Whitespace(_) | Token::EOF);
        if let Some(extra) = rest[close + 1..].iter().find(|t| !blank(t)) {
            return Err(Fault::At(Some(extra.clone())));
        }
        let args = Some(Arc::new(sql_statement(&tokens)?));
        self.finish();
        Ok(Utility::Execute { name, args })
    }

    fn declare(&mut self) -> Result<Utility, Fault> {
        let name = self.name()?;
        let (mut binary, mut scroll) = (false, None);
        loop {
            match self.word()?.as_str() {
                "binary" => binary = true,
                "insensitive" | "asensitive" => {}
                "scroll" => scroll = Some(true),
                "no" => {
                    self.expect("scroll")?;
                    scroll = Some(false);
                }
                "cursor" => break,
                _ => return Err(self.back()),
            }
        }
        let hold = match self.peek_word().as_deref() {
            Some("with") => {
                self.next();
                self.expect("hold")?;
                true
            }
            Some("without") => {
                self.next();
                self.expect("hold")?;
                false
            }
            _ => false,
        };
        self.expect("for")?;
        let query = self.parsed()?;
        if !matches!(&query.stmt, Stmt::Sql(s) if matches!(**s, Statement::Query(_))) {
            return Err(self.fault());
        }
        Ok(Utility::Declare {
            name,
            binary,
            scroll,
            hold,
            query,
        })
    }

    fn fetch(&mut self, moving: bool) -> Result<Utility, Fault> {
        use Direction as D;
        let word = self.peek_word().unwrap_or_default();
        let mut direction = D::Forward(1);
        // A word may be a direction or the cursor's name: `FETCH next` with nothing after it is a name.
        let alone = self
            .rest()
            .iter()
            .filter(|t| !matches!(t.token, Token::Whitespace(_) | Token::EOF))
            .count()
            == 1;
        if !alone {
            let known = [
                "next", "prior", "first", "last", "absolute", "relative", "all", "forward",
                "backward",
            ];
            if known.contains(&word.as_str()) {
                self.next();
            }
            direction = match word.as_str() {
                "prior" => D::Backward(1),
                "first" => D::Absolute(1),
                "last" => D::Absolute(-1),
                "absolute" => D::Absolute(self.integer()?),
                "relative" => D::Relative(self.integer()?),
                "all" => D::ForwardAll,
                "forward" | "backward" => {
                    let n = match self.peek() {
                        Some(Token::Number(..) | Token::Minus | Token::Plus) => {
                            Some(self.integer()?)
                        }
                        _ if self.opt(&["all"]) => None,
                        _ => Some(1),
                    };
                    match (word.as_str(), n) {
                        ("forward", Some(n)) => D::Forward(n),
                        ("forward", None) => D::ForwardAll,
                        (_, Some(n)) => D::Backward(n),
                        (_, None) => D::BackwardAll,
                    }
                }
                _ => match self.peek() {
                    Some(Token::Number(..) | Token::Minus | Token::Plus) => {
                        D::Forward(self.integer()?)
                    }
                    _ => D::Forward(1),
                },
            };
            direction = match direction {
                D::Forward(n) if n < 0 => D::Backward(-n),
                D::Backward(n) if n < 0 => D::Forward(-n),
                d => d,
            };
            self.opt(&["from", "in"]);
        }
        Ok(Utility::Fetch {
            name: self.name()?,
            direction,
            moving,
        })
    }
}

/// Tokens as text again.
pub(super) fn text_of(tokens: &[TokenWithSpan]) -> String {
    let mut s = String::new();
    for t in tokens {
        if t.token != Token::EOF {
            s.push_str(&t.token.to_string());
        }
    }
    s.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse;
    use super::*;

    fn one(sql: &str) -> Utility {
        match &parse(sql).unwrap()[0].stmt {
            Stmt::Utility(u) => (**u).clone(),
            s => panic!("{sql}: {s:?}"),
        }
    }

    #[test]
    fn transactions() {
        let Utility::Begin {
            modes,
            start: false,
        } = one("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY NOT DEFERRABLE")
        else {
            panic!()
        };
        assert_eq!(modes.isolation, Some(Isolation::RepeatableRead));
        assert_eq!(
            (modes.read_only, modes.deferrable),
            (Some(true), Some(false))
        );
        assert!(matches!(one("END"), Utility::Commit { chain: false }));
        assert!(matches!(
            one("COMMIT AND CHAIN"),
            Utility::Commit { chain: true }
        ));
        assert!(matches!(one("ROLLBACK TO SAVEPOINT \"A\""), Utility::RollbackTo(n) if n == "A"));
        assert!(matches!(one("RELEASE s"), Utility::Release(n) if n == "s"));
        assert!(matches!(
            one("SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE"),
            Utility::SetCharacteristics(Modes {
                read_only: Some(false),
                ..
            })
        ));
    }

    #[test]
    fn settings() {
        let Utility::Set {
            name,
            value: Some(v),
            local: true,
        } = one("SET LOCAL search_path TO a, \"B\", 'c'")
        else {
            panic!()
        };
        assert_eq!(name, "search_path");
        assert_eq!(
            v.iter()
                .map(|v| (v.text.as_str(), v.bare))
                .collect::<Vec<_>>(),
            [("a", true), ("B", true), ("c", false)]
        );
        assert!(
            matches!(one("SET extra_float_digits = -3"), Utility::Set { value: Some(v), .. } if v[0].text == "-3")
        );
        assert!(matches!(
            one("SET TIME ZONE LOCAL"),
            Utility::Set { value: None, .. }
        ));
        assert!(matches!(one("SET a.b = on"), Utility::Set { name, .. } if name == "a.b"));
        assert!(
            matches!(one("show transaction isolation level"), Utility::Show(n) if n == "transaction_isolation")
        );
        assert!(
            matches!(one("SET NAMES 'UTF8'"), Utility::Set { name, .. } if name == "client_encoding")
        );
        assert!(matches!(
            one("SET ROLE none"),
            Utility::SetRole { role: None, .. }
        ));
        assert!(parse("SET x").is_err());
    }

    #[test]
    fn statements_and_cursors() {
        let Utility::Prepare { types, stmt, .. } =
            one("PREPARE p (int, numeric(4, 2)) AS SELECT $1")
        else {
            panic!()
        };
        assert_eq!(types, ["int", "numeric(4,2)"]);
        assert_eq!(&*stmt.text, "SELECT $1");
        assert!(matches!(
            one("EXECUTE p (1, (2))"),
            Utility::Execute { args: Some(_), .. }
        ));
        assert!(matches!(
            one("DECLARE c NO SCROLL CURSOR FOR SELECT 1"),
            Utility::Declare {
                scroll: Some(false),
                hold: false,
                ..
            }
        ));
        for (sql, d) in [
            ("FETCH c", Direction::Forward(1)),
            ("FETCH next", Direction::Forward(1)),
            ("FETCH 5 FROM c", Direction::Forward(5)),
            ("FETCH -5 c", Direction::Backward(5)),
            ("MOVE ALL IN c", Direction::ForwardAll),
            ("FETCH BACKWARD ALL c", Direction::BackwardAll),
            ("FETCH FORWARD 3 FROM c", Direction::Forward(3)),
            ("FETCH LAST FROM c", Direction::Absolute(-1)),
            ("FETCH RELATIVE -2 FROM c", Direction::Relative(-2)),
        ] {
            assert!(
                matches!(one(sql), Utility::Fetch { direction, .. } if direction == d),
                "{sql}"
            );
        }
    }
}
