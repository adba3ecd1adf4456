//! The grammar of prepared statements and cursors.

use super::super::parse::{Fault, Parsed, Stmt, preparable, sql_statement};
use super::words::{Words, text_of};
use super::{Direction, Utility};
use sqlparser::ast::Statement;
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::sync::Arc;

impl Words<'_> {
    pub(super) fn prepare(&mut self) -> Result<Utility, Fault> {
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
        let stmt = preparable(rest)?;
        self.finish();
        Ok(Parsed {
            stmt,
            text: text_of(rest).into(),
            source: "".into(),
        })
    }

    pub(super) fn execute(&mut self) -> Result<Utility, Fault> {
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

    pub(super) fn set_constraints(&mut self) -> Result<Utility, Fault> {
        let mut names = Vec::new();
        if !self.opt(&["all"]) {
            loop {
                let mut name = (None, self.name()?);
                if self.opt_token(&Token::Period) {
                    name = (Some(name.1), self.name()?);
                }
                names.push(name);
                if !self.opt_token(&Token::Comma) {
                    break;
                }
            }
        }
        let deferred = self.opt(&["deferred"]);
        if !deferred {
            self.expect("immediate")?;
        }
        Ok(Utility::SetConstraints { names, deferred })
    }

    /// EXPLAIN EXECUTE; EXPLAIN of anything else is the parser's.
    pub(super) fn explain_execute(&mut self) -> Result<Option<Utility>, Fault> {
        self.next();
        let all = self.rest();
        let mut depth = 0;
        let execute = all.iter().position(|t| {
            match &t.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            let other = |w: &str| !["analyze", "analyse", "verbose"].contains(&w);
            matches!(&t.token, Token::Word(w) if depth == 0 && other(&w.value.to_lowercase()))
        });
        let Some(at) = execute else { return Ok(None) };
        let is = |w: &str| matches!(&all[at].token, Token::Word(x) if x.quote_style.is_none() && x.value.eq_ignore_ascii_case(w));
        if !is("execute") {
            return Ok(None);
        }
        let options = text_of(&all[..at]);
        self.skip_to(at);
        self.expect("execute")?;
        match self.execute()? {
            Utility::Execute { name, args } => Ok(Some(Utility::ExplainExecute {
                options,
                name,
                args,
            })),
            _ => Err(self.fault()),
        }
    }

    pub(super) fn declare(&mut self) -> Result<Utility, Fault> {
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
            values: Vec::new(),
        })
    }

    pub(super) fn fetch(&mut self, moving: bool) -> Result<Utility, Fault> {
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
