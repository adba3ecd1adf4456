//! ALTER ROLE … SET, ALTER ROLE ALL SET, ALTER DATABASE … SET, and RESET: settings that the database keeps for its sessions.
//!
//! A stored value holds for sessions that begin after it. Who may store one: for a role the role itself, or a role that may change it; for
//! all roles a superuser; for the database its owner.
//!
//! Left out on purpose (0A000): `SET … FROM CURRENT`.

use super::extra::Words;
use super::work::Work;
use crate::catalog::fold;
use base::schema::{BOOTSTRAP_ROLE, Object};
use base::stored_settings::{For, StoredSettings};
use base::{Error, Result, SqlState};
use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

/// Whose settings a statement changes.
#[derive(Clone, Debug)]
enum Whose {
    Role(Ident),
    AllRoles,
    NoRole,
}

/// What a statement stores.
#[derive(Clone, Debug)]
pub struct StoreSetting {
    whose: Whose,
    database: Option<Ident>,
    /// None: all of them are forgotten.
    name: Option<String>,
    /// None: it is forgotten.
    value: Option<String>,
}

impl Words<'_> {
    /// The statement, if it is one of these.
    pub(super) fn stored_setting(&mut self) -> Result<Option<StoreSetting>> {
        let of_role = self.at("alter role") || self.at("alter user");
        if !of_role && !self.at("alter database") {
            return Ok(None);
        }
        // The word behind the name, and behind IN DATABASE name.
        let word = |n: usize| self.peek(n).unwrap_or_default();
        let in_database = of_role && word(3) == "in" && word(4) == "database";
        let verb = word(if in_database { 6 } else { 3 });
        let tablespace = !of_role && word(4) == "tablespace";
        if !matches!(verb.as_str(), "set" | "reset") || tablespace {
            return Ok(None);
        }
        self.0.next_token();
        self.0.next_token();
        let all = of_role && self.at("all");
        let first = self.ident()?;
        let database = match (of_role, in_database) {
            (false, _) => Some(first.clone()),
            (true, false) => None,
            (true, true) => {
                self.expect("in database")?;
                Some(self.ident()?)
            }
        };
        let whose = match (of_role, all) {
            (false, _) => Whose::NoRole,
            (true, true) => Whose::AllRoles,
            (true, false) => Whose::Role(first),
        };
        let (name, value) = match self.eat("reset") {
            true if self.eat("all") => (None, None),
            true => (Some(self.setting_name()?), None),
            false => {
                self.expect("set")?;
                self.setting()?
            }
        };
        Ok(Some(StoreSetting {
            whose,
            database,
            name,
            value,
        }))
    }

    fn setting_name(&mut self) -> Result<String> {
        if self.eat("time zone") {
            return Ok("timezone".into());
        }
        let parts = self.name()?.0;
        let one = |p: &sqlparser::ast::ObjectNamePart| p.as_ident().map(fold).unwrap_or_default();
        Ok(parts.iter().map(one).collect::<Vec<_>>().join("."))
    }

    /// `name TO value, …`; the values as one text, none for DEFAULT.
    fn setting(&mut self) -> Result<(Option<String>, Option<String>)> {
        let zone = self.at("time zone");
        let name = self.setting_name()?;
        if self.at("from current") {
            return Err(Error::unsupported("SET … FROM CURRENT"));
        }
        if !zone && !self.eat("to") && !self.0.consume_token(&Token::Eq) {
            return Err(self.wrong());
        }
        if self.eat("default") {
            return Ok((Some(name), None));
        }
        let mut values = vec![];
        loop {
            values.push(self.setting_value(name == "search_path")?);
            if !self.0.consume_token(&Token::Comma) {
                break;
            }
        }
        Ok((Some(name), Some(values.join(", "))))
    }

    fn setting_value(&mut self, quote: bool) -> Result<String> {
        let minus = self.0.consume_token(&Token::Minus);
        let v = match self.0.peek_token().token {
            Token::Number(n, _) => match minus {
                true => format!("-{n}"),
                false => n,
            },
            _ if minus => return Err(self.wrong()),
            Token::SingleQuotedString(s) | Token::EscapedStringLiteral(s) => match quote {
                true => super::expr_text::quote_ident(&s),
                false => s,
            },
            Token::Word(w) => {
                let name = fold(&w.into_ident(sqlparser::tokenizer::Span::empty()));
                match quote {
                    true => super::expr_text::quote_ident(&name),
                    false => name,
                }
            }
            _ => return Err(self.wrong()),
        };
        self.0.next_token();
        Ok(v)
    }
}

impl Work<'_> {
    pub(super) fn store_setting(&mut self, s: &StoreSetting) -> Result<String> {
        if let Some(d) = &s.database {
            let name = fold(d);
            if name != self.ctx.database {
                return Err(Error::new(
                    SqlState::INVALID_CATALOG_NAME,
                    format!("database \"{name}\" does not exist"),
                ));
            }
        }
        let (of, tag) = match &s.whose {
            Whose::NoRole => {
                if !self.superuser() {
                    return Err(Error::new(
                        SqlState::INSUFFICIENT_PRIVILEGE,
                        format!("must be owner of database {}", self.ctx.database),
                    ));
                }
                (For::Database, "ALTER DATABASE")
            }
            Whose::AllRoles => {
                if !self.superuser() {
                    return Err(Error::new(
                        SqlState::INSUFFICIENT_PRIVILEGE,
                        "must be superuser to alter settings globally",
                    ));
                }
                (For::Database, "ALTER ROLE")
            }
            Whose::Role(name) => {
                let role = self.changeable_role(&fold(name))?;
                let of = match s.database {
                    Some(_) => For::RoleInDatabase(role),
                    None => For::Role(role),
                };
                (of, "ALTER ROLE")
            }
        };
        if let (Some(name), Some(value)) = (&s.name, &s.value) {
            (self.ctx.check_setting)(name, value)?;
        }
        let before = self.schema.settings_for(of).map(|s| (**s).clone());
        let mut stored = match before {
            Some(s) => s,
            None => StoredSettings {
                id: self.oid(),
                of,
                values: vec![],
            },
        };
        match &s.name {
            Some(name) => stored.set(name, s.value.clone()),
            None => stored.values.clear(),
        }
        match stored.values.is_empty() {
            true => {
                if self.schema.settings_for(of).is_some() {
                    self.drop_object(stored.id);
                }
            }
            false => self.put(Object::Settings(stored)),
        }
        Ok(tag.into())
    }

    /// The role of this name, whose settings the current role may change.
    fn changeable_role(&self, name: &str) -> Result<base::Oid> {
        let role = self.role_named(name)?.clone();
        super::role::may_be_changed(&role)?;
        if role.id == self.ctx.role || self.superuser() {
            return Ok(role.id);
        }
        if role.superuser || role.id == BOOTSTRAP_ROLE {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "must be superuser to alter superuser roles or change superuser attribute",
            ));
        }
        let me = self.schema.role(self.ctx.role);
        match me.is_some_and(|r| r.createrole) {
            true => Ok(role.id),
            false => Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "permission denied",
            )),
        }
    }

    /// Forgets what is stored for a role that is dropped.
    pub(super) fn drop_settings_of(&mut self, role: base::Oid) {
        for of in [For::Role(role), For::RoleInDatabase(role)] {
            if let Some(id) = self.schema.settings_for(of).map(|s| s.id) {
                self.drop_object(id);
            }
        }
    }
}
