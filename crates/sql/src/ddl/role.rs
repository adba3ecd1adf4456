//! Roles and their passwords. CREATE USER is CREATE ROLE with LOGIN.
//!
//! A password is kept as a SCRAM-SHA-256 verifier in PostgreSQL's form (`SCRAM-SHA-256$4096:salt$StoredKey:ServerKey`,
//! RFC 5802, RFC 7677); one that already is a verifier is kept as it is.
//!
//! VALID UNTIL and CONNECTION LIMIT are kept here and asked at a login (`canon`'s `gate::startup`). A limit holds at each node.
//!
//! Left out on purpose: md5 (0A000).

use super::membership::NewMemberships;
use super::work::Work;
use base::schema::{BOOTSTRAP_ROLE, Object, Relation, Role};
use base::{Error, Oid, Result, SqlState};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use sqlparser::ast::{
    AlterRoleOperation, CreateRole, Expr, Ident, ObjectName, Password, RoleOption, Value,
};
use std::sync::Arc;

/// What a statement says of a role.
#[derive(Clone, Debug, Default)]
pub struct RoleOptions {
    pub login: Option<bool>,
    pub superuser: Option<bool>,
    pub createdb: Option<bool>,
    pub createrole: Option<bool>,
    pub replication: Option<bool>,
    /// `Some(None)`: PASSWORD NULL.
    pub password: Option<Option<String>>,
    pub inherit: Option<bool>,
    /// IN ROLE, ROLE, ADMIN of CREATE ROLE.
    pub memberships: NewMemberships,
    pub connection_limit: Option<i64>,
    pub valid_until: Option<String>,
}

/// 42939 for names that roles may not have.
fn may_be_named(name: &str) -> Result<()> {
    let system = name.starts_with("pg_");
    if !system && !matches!(name, "public" | "none") {
        return Ok(());
    }
    let what = format!("role name \"{name}\" is reserved");
    let e = Error::new(SqlState(*b"42939"), what);
    Err(match system {
        true => e.detail("Role names starting with \"pg_\" are reserved."),
        false => e,
    })
}

/// 42939 for a role that is always there: it is not stored, so there is nothing to change.
pub(super) fn may_be_changed(role: &Role) -> Result<()> {
    if !role.is_predefined() {
        return Ok(());
    }
    let what = format!("role name \"{}\" is reserved", role.name);
    Err(Error::new(SqlState(*b"42939"), what).detail("Cannot alter reserved roles."))
}

impl Work<'_> {
    pub(super) fn role_named(&self, name: &str) -> Result<&Arc<Role>> {
        let id = match name {
            "current_user" | "current_role" => self.schema.role(self.ctx.role),
            "session_user" => self.schema.role(self.ctx.session_user),
            _ => self.schema.role_named(name),
        };
        id.ok_or_else(|| {
            Error::new(
                SqlState::UNDEFINED_OBJECT,
                format!("role \"{name}\" does not exist"),
            )
        })
    }

    pub(super) fn create_role_statement(&mut self, c: &CreateRole) -> Result<String> {
        let names = |lists: [&Vec<Ident>; 2]| {
            let all = lists.into_iter().flatten();
            all.map(crate::catalog::fold).collect::<Vec<_>>()
        };
        let options = RoleOptions {
            inherit: c.inherit,
            memberships: NewMemberships {
                of: names([&c.in_role, &c.in_group]),
                members: names([&c.role, &c.user]),
                admins: names([&c.admin, &vec![]]),
            },
            login: c.login,
            superuser: c.superuser,
            createdb: c.create_db,
            createrole: c.create_role,
            replication: c.replication,
            password: c.password.as_ref().map(password_text).transpose()?,
            connection_limit: c.connection_limit.as_ref().map(int).transpose()?,
            valid_until: c.valid_until.as_ref().map(string).transpose()?,
        };
        for name in &c.names {
            let (_, name) = self.split(name)?;
            self.create_role(&name, c.if_not_exists, &options)?;
        }
        Ok("CREATE ROLE".into())
    }

    pub(super) fn create_role(
        &mut self,
        name: &str,
        if_not_exists: bool,
        options: &RoleOptions,
    ) -> Result<()> {
        self.may_manage_roles("create role")?;
        may_be_named(name)?;
        if self.schema.role_named(name).is_some() {
            if if_not_exists {
                self.notice(
                    SqlState::DUPLICATE_OBJECT,
                    format!("role \"{name}\" already exists, skipping"),
                );
                return Ok(());
            }
            return Err(Error::new(
                SqlState::DUPLICATE_OBJECT,
                format!("role \"{name}\" already exists"),
            ));
        }
        let id = self.oid();
        let mut role = Role::new(id, name);
        self.apply_options(&mut role, options)?;
        self.put(Object::Role(role));
        self.join(id, &options.memberships)
    }

    /// 42501 unless the role may make and change roles.
    fn may_manage_roles(&self, what: &str) -> Result<()> {
        let role = self.schema.role(self.ctx.role);
        if role.is_some_and(|r| r.superuser || r.createrole) {
            return Ok(());
        }
        Err(Error::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            match what {
                "create role" => "permission denied to create role".to_string(),
                _ => "permission denied".to_string(),
            },
        ))
    }

    fn apply_options(&mut self, role: &mut Role, o: &RoleOptions) -> Result<()> {
        if let Some(n) = o.connection_limit {
            role.connection_limit = match i32::try_from(n) {
                Ok(-1) => None,
                Ok(n @ 0..) => Some(n),
                _ => {
                    let what = format!("invalid connection limit: {n}");
                    return Err(Error::new(SqlState::INVALID_PARAMETER_VALUE, what));
                }
            };
        }
        if let Some(text) = &o.valid_until {
            let read = crate::types::datetime::parse::timestamptz;
            role.valid_until = Some(read(text, -1, self.ctx.settings)?);
        }
        if !self.superuser() && (o.superuser == Some(true) || o.replication == Some(true)) {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "must be superuser to create superusers or replication users",
            ));
        }
        let flags = [
            (o.login, &mut role.login),
            (o.superuser, &mut role.superuser),
            (o.createdb, &mut role.createdb),
            (o.createrole, &mut role.createrole),
            (o.replication, &mut role.replication),
        ];
        if let Some(inherit) = o.inherit {
            role.no_inherit = !inherit;
        }
        for (said, flag) in flags {
            if let Some(on) = said {
                *flag = on;
            }
        }
        match &o.password {
            None => {}
            Some(None) => role.password = None,
            Some(Some(p)) if p.is_empty() || is_verifier_of("", p) => {
                self.notice(
                    SqlState([b'0'; 5]),
                    "empty string is not a valid password, clearing password",
                );
                role.password = None;
            }
            Some(Some(p)) => role.password = Some(self.verifier(p)?),
        }
        Ok(())
    }

    fn verifier(&self, password: &str) -> Result<String> {
        if is_verifier(password) {
            return Ok(password.to_owned());
        }
        if password.len() == 35 && password.starts_with("md5") {
            return Err(Error::unsupported("an md5 password"));
        }
        let mut salt = [0; 16];
        (self.ctx.random_bytes)(&mut salt);
        Ok(scram_verifier(password, &salt, ITERATIONS))
    }

    pub(super) fn alter_role_statement(
        &mut self,
        name: &Ident,
        operation: &AlterRoleOperation,
    ) -> Result<String> {
        let name = crate::catalog::fold(name);
        let tag = "ALTER ROLE".to_string();
        match operation {
            AlterRoleOperation::WithOptions { options } => {
                let mut o = RoleOptions::default();
                for option in options {
                    match option {
                        RoleOption::Login(b) => o.login = Some(*b),
                        RoleOption::SuperUser(b) => o.superuser = Some(*b),
                        RoleOption::CreateDB(b) => o.createdb = Some(*b),
                        RoleOption::CreateRole(b) => o.createrole = Some(*b),
                        RoleOption::Replication(b) => o.replication = Some(*b),
                        RoleOption::Password(p) => o.password = Some(password_text(p)?),
                        RoleOption::ConnectionLimit(e) => o.connection_limit = Some(int(e)?),
                        RoleOption::ValidUntil(e) => o.valid_until = Some(string(e)?),
                        RoleOption::Inherit(b) => o.inherit = Some(*b),
                        RoleOption::BypassRLS(_) => {}
                    }
                }
                self.alter_role(&name, &o)?;
            }
            AlterRoleOperation::RenameRole { role_name } => {
                let mut role = (**self.role_named(&name)?).clone();
                may_be_changed(&role)?;
                let to = self.name(role_name);
                for (id, who) in [
                    (self.ctx.session_user, "session user"),
                    (self.ctx.role, "current user"),
                ] {
                    if id == role.id {
                        return Err(Error::new(
                            SqlState::FEATURE_NOT_SUPPORTED,
                            format!("{who} cannot be renamed"),
                        ));
                    }
                }
                may_be_named(&to)?;
                if self.schema.role_named(&to).is_some() {
                    return Err(Error::new(
                        SqlState::DUPLICATE_OBJECT,
                        format!("role \"{to}\" already exists"),
                    ));
                }
                if role.superuser && !self.superuser() {
                    return Err(must_be_superuser());
                }
                self.may_manage_roles("rename role")?;
                role.name = to;
                self.put(Object::Role(role));
            }
            AlterRoleOperation::AddMember { .. } | AlterRoleOperation::DropMember { .. } => {
                return Err(Error::unsupported("membership of roles"));
            }
            AlterRoleOperation::Set { .. } | AlterRoleOperation::Reset { .. } => {
                return Err(Error::unsupported("settings of a role"));
            }
        }
        Ok(tag)
    }

    pub(super) fn alter_role(&mut self, name: &str, o: &RoleOptions) -> Result<()> {
        let mut role = (**self.role_named(name)?).clone();
        may_be_changed(&role)?;
        let only_password = [
            o.login,
            o.superuser,
            o.createdb,
            o.createrole,
            o.replication,
            o.inherit,
        ]
        .iter()
        .all(Option::is_none)
            && o.connection_limit.is_none()
            && o.valid_until.is_none();
        if !(role.id == self.ctx.role && only_password) {
            self.may_manage_roles("alter role")?;
        }
        if role.superuser && !self.superuser() {
            return Err(must_be_superuser());
        }
        if (role.replication || o.replication.is_some()) && !self.superuser() {
            return Err(Error::new(
                SqlState::INSUFFICIENT_PRIVILEGE,
                "must be superuser to alter replication roles or change replication attribute",
            ));
        }
        if role.id == BOOTSTRAP_ROLE && o.superuser == Some(false) {
            return Err(Error::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                "permission denied to alter role",
            )
            .detail("The bootstrap user must be superuser."));
        }
        self.apply_options(&mut role, o)?;
        self.put(Object::Role(role));
        Ok(())
    }

    pub(super) fn drop_roles(&mut self, if_exists: bool, names: &[ObjectName]) -> Result<String> {
        self.may_manage_roles("drop role")?;
        for name in names {
            let (_, name) = self.split(name)?;
            let Some(role) = self.schema.role_named(&name).cloned() else {
                if !if_exists {
                    self.role_named(&name)?;
                }
                self.notice(
                    SqlState([b'0'; 5]),
                    format!("role \"{name}\" does not exist, skipping"),
                );
                continue;
            };
            if role.id == self.ctx.role {
                return Err(Error::new(
                    SqlState::OBJECT_IN_USE,
                    "current user cannot be dropped",
                ));
            }
            if role.id == self.ctx.session_user {
                return Err(Error::new(
                    SqlState::OBJECT_IN_USE,
                    "session user cannot be dropped",
                ));
            }
            if role.superuser && !self.superuser() {
                return Err(must_be_superuser());
            }
            if role.id == BOOTSTRAP_ROLE || role.is_predefined() {
                return Err(Error::new(
                    SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!(
                        "cannot drop role {name} because it is required by the database system"
                    ),
                ));
            }
            let uses = self.uses_of_role(role.id);
            if !uses.is_empty() {
                return Err(Error::new(
                    SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
                    format!("role \"{name}\" cannot be dropped because some objects depend on it"),
                )
                .detail(uses.join("\n")));
            }
            self.drop_settings_of(role.id);
            self.drop_memberships_of(role.id);
            self.drop_object(role.id);
        }
        Ok("DROP ROLE".into())
    }

    fn uses_of_role(&self, role: Oid) -> Vec<String> {
        let mut uses = vec![];
        for n in self.schema.namespaces() {
            if n.owner == role {
                uses.push(format!("owner of schema {}", n.name));
            } else if n.acl.iter().any(|(to, _)| *to == role) {
                uses.push(format!("privileges for schema {}", n.name));
            }
        }
        for t in self.schema.user_types() {
            if t.def.owner == role {
                uses.push(format!("owner of type {}", t.def.name));
            } else if t.def.acl.iter().flatten().any(|(to, _)| *to == role) {
                uses.push(format!("privileges for type {}", t.def.name));
            }
        }
        for r in self.schema.relations() {
            let (kind, owner, acl) = match r {
                Relation::Table(t) => ("table", t.def.owner, &t.def.acl),
                Relation::View(v) => ("view", v.owner, &v.acl),
                Relation::Sequence(s) => ("sequence", s.owner, &s.acl),
            };
            if owner == role {
                uses.push(format!("owner of {kind} {}", self.shown(r.id())));
            } else if acl.iter().any(|(to, _)| *to == role) {
                uses.push(format!("privileges for {kind} {}", self.shown(r.id())));
            }
            for c in r.columns() {
                if c.acl.iter().any(|(to, _)| *to == role) {
                    let (name, of) = (&c.name, self.shown(r.id()));
                    uses.push(format!("privileges for column {name} of {kind} {of}"));
                }
            }
        }
        uses.extend(self.default_uses_of(role));
        uses.sort();
        uses
    }
}

fn must_be_superuser() -> Error {
    Error::new(
        SqlState::INSUFFICIENT_PRIVILEGE,
        "must be superuser to alter superuser roles or change superuser attribute",
    )
}

fn password_text(p: &Password) -> Result<Option<String>> {
    match p {
        Password::NullPassword => Ok(None),
        Password::Password(e) => string(e).map(Some),
    }
}

fn string(e: &Expr) -> Result<String> {
    match e {
        Expr::Value(v) => match &v.value {
            Value::SingleQuotedString(s)
            | Value::EscapedStringLiteral(s)
            | Value::NationalStringLiteral(s) => Ok(s.clone()),
            Value::DollarQuotedString(s) => Ok(s.value.clone()),
            other => Err(syntax(other)),
        },
        other => Err(syntax(other)),
    }
}

fn int(e: &Expr) -> Result<i64> {
    e.to_string()
        .replace(' ', "")
        .parse()
        .map_err(|_| syntax(e))
}

fn syntax(near: impl std::fmt::Display) -> Error {
    Error::new(
        SqlState::SYNTAX_ERROR,
        format!("syntax error at or near \"{near}\""),
    )
}

/// PostgreSQL's default number of iterations.
const ITERATIONS: u32 = 4096;

/// Of a verifier that is given, and looked at.
const MOST_ITERATIONS: u32 = 1_000_000;

/// Whether the text has the form of a verifier.
fn is_verifier(text: &str) -> bool {
    let parts = || {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        iterations.parse::<u32>().ok()?;
        BASE64_STANDARD.decode(salt).ok()?;
        let key = |k: &str| BASE64_STANDARD.decode(k).is_ok_and(|k| k.len() == 32);
        (key(stored) && key(server)).then_some(())
    };
    parts().is_some()
}

/// Whether the text is a verifier, of this password.
fn is_verifier_of(password: &str, text: &str) -> bool {
    let parts = || {
        let (head, _) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let salt = BASE64_STANDARD.decode(salt).ok()?;
        Some((iterations.parse().ok()?, salt))
    };
    let Some((iterations, salt)) = parts().filter(|p: &(u32, Vec<u8>)| p.0 <= MOST_ITERATIONS)
    else {
        return false;
    };
    is_verifier(text) && scram_verifier(password, &salt, iterations) == text
}

/// The verifier of a password: RFC 5802 with SHA-256.
pub fn scram_verifier(password: &str, salt: &[u8], iterations: u32) -> String {
    // As PostgreSQL: a password that SASLprep refuses is used as it is.
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let salted = salted_password(prepared.as_bytes(), salt, iterations);
    let client = mac(&salted, b"Client Key");
    let stored: [u8; 32] = Sha256::digest(client).into();
    let server = mac(&salted, b"Server Key");
    let b64 = |b: &[u8]| BASE64_STANDARD.encode(b);
    format!(
        "SCRAM-SHA-256${iterations}:{}${}:{}",
        b64(salt),
        b64(&stored),
        b64(&server)
    )
}

fn mac(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut m = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    m.update(text);
    m.finalize().into_bytes().into()
}

/// PBKDF2 of one block: `Hi` of RFC 5802.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let first = [salt, &1u32.to_be_bytes()].concat();
    let mut u = mac(password, &first);
    let mut out = u;
    for _ in 1..iterations {
        u = mac(password, &u);
        out.iter_mut().zip(u).for_each(|(o, u)| *o ^= u);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3: password `pencil`.
    #[test]
    fn the_verifier_is_that_of_the_rfc() {
        let salt = BASE64_STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let v = scram_verifier("pencil", &salt, 4096);
        assert_eq!(
            v,
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
        assert!(is_verifier(&v));
        assert!(!is_verifier("SCRAM-SHA-256$x"));
    }
}
