//! The grammar of transactions' modes, SET, RESET and SHOW.

use super::super::level::Level;
use super::super::parse::Fault;
use super::words::Words;
use super::{Modes, SetValue, Utility};
use sqlparser::tokenizer::Token;

impl Words<'_> {
    pub(super) fn chain(&mut self) -> Result<bool, Fault> {
        if !self.opt(&["and"]) {
            return Ok(false);
        }
        let no = self.opt(&["no"]);
        self.expect("chain")?;
        Ok(!no)
    }

    pub(super) fn modes(&mut self) -> Result<Modes, Fault> {
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

    pub(super) fn level(&mut self) -> Result<Level, Fault> {
        match self.word()?.as_str() {
            "serializable" => Ok(Level::Serializable),
            "repeatable" => {
                self.expect("read")?;
                Ok(Level::RepeatableRead)
            }
            "read" => match self.word()?.as_str() {
                "committed" => Ok(Level::ReadCommitted),
                "uncommitted" => Ok(Level::ReadUncommitted),
                _ => Err(self.back()),
            },
            _ => Err(self.back()),
        }
    }

    pub(super) fn set(&mut self) -> Result<Utility, Fault> {
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
                self.next();
                return self.set_constraints();
            }
            _ => {}
        }
        let name = self.dotted()?;
        if !self.opt_token(&Token::Eq) {
            self.expect("to")?;
        }
        self.values(name, local)
    }

    pub(super) fn authorization(&mut self, local: bool) -> Result<Utility, Fault> {
        let user = self.role_name()?;
        Ok(Utility::SetAuthorization {
            user,
            local,
            reset: false,
        })
    }

    /// A role's name as an identifier or a string; DEFAULT is none.
    pub(super) fn role_name(&mut self) -> Result<Option<String>, Fault> {
        if self.opt(&["default"]) {
            return Ok(None);
        }
        match self.peek() {
            Some(Token::Word(_)) => self.name().map(Some),
            _ => self.string().map(Some),
        }
    }

    /// A name with dots, as settings may have.
    pub(super) fn dotted(&mut self) -> Result<String, Fault> {
        let mut name = self.name()?;
        while self.opt_token(&Token::Period) {
            name.push('.');
            name.push_str(&self.name()?);
        }
        Ok(name)
    }

    pub(super) fn values(&mut self, name: String, local: bool) -> Result<Utility, Fault> {
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

    pub(super) fn value(&mut self) -> Result<SetValue, Fault> {
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
                    let text = hours_east(&text).unwrap_or(text);
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

    pub(super) fn reset(&mut self) -> Result<Utility, Fault> {
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

    pub(super) fn show(&mut self) -> Result<Utility, Fault> {
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
}

/// An interval to the east of Greenwich as a number of hours.
fn hours_east(text: &str) -> Option<String> {
    let settings = crate::types::OutputSettings::default();
    let ty = base::Type::Interval.into();
    match crate::types::text::input(text, ty, &settings).ok()? {
        base::Value::Interval(i) if i.months == 0 && i.days == 0 => {
            Some((i.micros as f64 / 3_600_000_000.0).to_string())
        }
        _ => None,
    }
}
