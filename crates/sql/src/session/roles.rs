//! Who a session acts as: the role that logged in, SESSION AUTHORIZATION, ROLE.
//!
//! The settings `session_authorization` and `role` hold names, which are kept, undone and carried to other nodes as those of all settings are.
//! Whom a name means is found out when it is set, and stays: a role that gets another name meanwhile is still the one, and the name
//! may be given to somebody else. A name that nobody has (the role is not known here yet, or is gone) stands for [`NOBODY`], never
//! for who is logged in; it is looked for again with each newer schema.
//!
//! A role may act as a role that it is a member of; a superuser may act and be as any role. Membership is asked when the role is set: one that is taken
//! away later leaves a session that acts by it, as in PostgreSQL.
//!
//! Left out on purpose: nothing of PostgreSQL 15's rules.

use super::Session;
use super::client::Client;
use super::exit::Exit;
use super::settings::Span;
use super::state::State;
use crate::ddl::privileges::is_superuser;
use crate::engine::Engine;
use base::schema::Schema;
use base::{Error, Oid, Result, SqlState};
use std::collections::HashMap;

/// Owns nothing and was granted nothing but what PUBLIC was.
const NOBODY: Oid = 0;

/// A name, and whom it means.
pub type Meaning = (String, Oid);

/// Whom the names meant that were set.
#[derive(Default)]
pub struct Roles {
    meant: HashMap<String, Oid>,
    /// One of the names in force is nobody's.
    missing: bool,
}

impl Roles {
    /// From now on the name means this role.
    pub fn mean(&mut self, name: &str, role: Oid) {
        self.meant.insert(name.to_owned(), role);
    }

    /// What another node knows of the same session.
    pub fn learn(&mut self, roles: Vec<Meaning>) {
        self.meant.extend(roles);
    }

    /// Whom these names mean, as far as that is known; in order.
    pub fn meanings<'a>(&self, names: impl Iterator<Item = &'a str>) -> Vec<Meaning> {
        let known = |n: &str| Some((n.to_owned(), *self.meant.get(n)?));
        let mut all: Vec<_> = names.filter_map(known).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Whether the setting of this name says who the session is.
pub(super) fn is_of_role(setting: &str) -> bool {
    ["role", "session_authorization"]
        .iter()
        .any(|n| n.eq_ignore_ascii_case(setting))
}

impl<E: Engine> State<E> {
    /// Before the setting `role` or `session_authorization` gets this name: 22023 when there is no such role; 42501 unless `who` may
    /// become it.
    pub(super) fn may_become(
        &self,
        role: &str,
        who: Oid,
        may: impl FnOnce(&Schema, Oid, Oid) -> bool,
        denied: impl FnOnce() -> String,
    ) -> Result<()> {
        let schema = self.schema();
        let Some(found) = schema.role_named(role) else {
            return Err(Error::new(
                SqlState::INVALID_PARAMETER_VALUE,
                format!("role \"{role}\" does not exist"),
            ));
        };
        if !may(&schema, who, found.id) {
            return Err(Error::new(SqlState::INSUFFICIENT_PRIVILEGE, denied()));
        }
        self.roles.borrow_mut().mean(role, found.id);
        Ok(())
    }

    /// The same for `role`.
    pub(super) fn may_act_as(&self, role: &str) -> Result<()> {
        self.may_become(role, self.session_user.get(), Schema::is_member_of, || {
            format!("permission denied to set role \"{role}\"")
        })
    }

    /// The same for `session_authorization`.
    pub(super) fn may_be(&self, user: &str) -> Result<()> {
        let may = |s: &Schema, who: Oid, user: Oid| who == user || is_superuser(s, who);
        self.may_become(user, self.authenticated, may, || {
            "permission denied to set session authorization".to_owned()
        })
    }
}

impl<E: Engine> Session<E> {
    /// At a node that follows: waits for the newest roles, which say who may become whom.
    pub(super) async fn look_for_role(&mut self, name: Option<&str>) -> Result<(), Exit> {
        if name.is_none_or(|n| n == "none") || !self.follows() {
            return Ok(());
        }
        let waited = self.newest_schema().await;
        waited.map_err(|e| self.or_elsewhere(e))
    }

    /// The roles as they are now.
    pub(super) fn see_roles(&mut self) {
        *self.state.catalog.get_mut() = match &self.block.txn {
            Some(t) => t.catalog(),
            None => self.temp.over(self.shared.engine.catalog()),
        };
        self.output.catalog = None;
    }

    /// SET ROLE.
    pub(super) fn set_role<C: Client>(
        &mut self,
        c: &mut C,
        role: Option<&str>,
        local: bool,
    ) -> Result<()> {
        self.local_warning(c, local);
        self.act_as(role, local)
    }

    fn act_as(&mut self, role: Option<&str>, local: bool) -> Result<()> {
        if let Some(name) = role {
            self.see_roles();
            self.state.may_act_as(name)?;
        }
        let span = if local { Span::Local } else { Span::Session };
        let s = self.state.settings.get_mut();
        s.force("role", role.unwrap_or("none"), span);
        self.changed_settings();
        self.restore_roles();
        Ok(())
    }

    /// SET SESSION AUTHORIZATION; none: who logged in.
    pub(super) fn set_authorization<C: Client>(
        &mut self,
        c: &mut C,
        user: Option<&str>,
        local: bool,
    ) -> Result<()> {
        self.local_warning(c, local);
        self.be(user, local)
    }

    fn be(&mut self, user: Option<&str>, local: bool) -> Result<()> {
        let name = match user {
            Some(name) => {
                self.see_roles();
                self.state.may_be(name)?;
                name.to_owned()
            }
            None => {
                let me = self.state.authenticated;
                let name = self.state.role_name(me);
                self.state.roles.get_mut().mean(&name, me);
                name
            }
        };
        let span = if local { Span::Local } else { Span::Session };
        let s = self.state.settings.get_mut();
        s.force("session_authorization", &name, span);
        s.force("role", "none", span);
        self.changed_settings();
        self.restore_roles();
        Ok(())
    }

    /// What the start-up message says of roles: as if it were set.
    pub(super) fn begin_as(&mut self, asked: &[(String, String)]) -> Result<()> {
        for (setting, name) in asked {
            if setting.eq_ignore_ascii_case("session_authorization") {
                self.be(Some(name), false)?;
            }
        }
        for (setting, name) in asked {
            if setting.eq_ignore_ascii_case("role") {
                self.act_as(Some(&**name).filter(|n| *n != "none"), false)?;
            }
        }
        if !asked.is_empty() {
            self.state.settings.get_mut().told();
        }
        Ok(())
    }

    /// Makes the roles what the settings say, after one was set or a SET was undone.
    pub(super) fn restore_roles(&mut self) {
        let s = self.state.settings.get_mut();
        let user = s.show("session_authorization").unwrap_or_default();
        let role = s.show("role").unwrap_or_default();
        let schema = self.state.catalog.get_mut().schema.clone();
        let roles = self.state.roles.get_mut();
        roles.missing = false;
        let mut id = |name: &str| match roles.meant.get(name) {
            Some(role) => *role,
            None => match schema.role_named(name) {
                Some(role) => {
                    roles.meant.insert(name.to_owned(), role.id);
                    role.id
                }
                None => {
                    roles.missing = true;
                    NOBODY
                }
            },
        };
        let user = id(&user);
        let current = if role == "none" { user } else { id(&role) };
        self.state.session_user.set(user);
        self.state.current_role.set(current);
        let now = match is_superuser(&schema, current) {
            true => "on",
            false => "off",
        };
        let s = self.state.settings.get_mut();
        if s.show("is_superuser").as_deref() != Some(now) {
            s.initialise_shown("is_superuser", now);
        }
        self.stale = true;
    }

    /// There is a newer schema: whoever was not there may be by now.
    #[inline]
    pub(super) fn find_roles(&mut self) {
        if self.state.roles.get_mut().missing {
            self.restore_roles();
        }
    }
}
