//! ALTER DEFAULT PRIVILEGES: what is granted on objects at their birth.
//!
//! An entry belongs to a role that makes objects, a kind of objects, and a schema or none. An entry without a schema stands for the built-in
//! privileges; one for a schema adds to what holds everywhere. An entry that says the same as no entry is dropped, as in PostgreSQL, so that
//! `pg_default_acl` and dumps show only differences. Privileges of objects that are there do not change.
//!
//! Left out on purpose: grant options, revoking from the role that makes the objects (0A000). Entries for functions are kept for dumps: there are
//! no functions that users make.

use super::extra::Words;
use super::work::Work;
use crate::catalog::fold;
use base::schema::{Acl, DefaultAcl, DefaultFor, Object, privilege};
use base::{Error, Oid, Result, SqlState};
use sqlparser::ast::Ident;
use sqlparser::tokenizer::Token;

/// The statement.
#[derive(Clone, Debug)]
pub struct DefaultPrivileges {
    /// Roles whose objects it is about; none: the current one.
    makers: Vec<Ident>,
    schemas: Vec<Ident>,
    give: bool,
    /// None: ALL PRIVILEGES.
    privileges: Option<Vec<String>>,
    of: DefaultFor,
    grantees: Vec<Ident>,
}

const KINDS: [(&str, DefaultFor); 6] = [
    ("tables", DefaultFor::Tables),
    ("sequences", DefaultFor::Sequences),
    ("functions", DefaultFor::Functions),
    ("routines", DefaultFor::Functions),
    ("types", DefaultFor::Types),
    ("schemas", DefaultFor::Schemas),
];

/// All privileges on objects of the kind, those of PUBLIC on a new one, and the kind's name in errors.
fn facts(of: DefaultFor) -> (u32, u32, &'static str) {
    let sequence = privilege::USAGE | privilege::SELECT | privilege::UPDATE;
    match of {
        DefaultFor::Tables => (privilege::ALL, 0, "relation"),
        DefaultFor::Sequences => (sequence, 0, "sequence"),
        DefaultFor::Functions => (privilege::EXECUTE, privilege::EXECUTE, "function"),
        DefaultFor::Types => (privilege::USAGE, privilege::USAGE, "type"),
        DefaultFor::Schemas => (privilege::USAGE | privilege::CREATE, 0, "schema"),
    }
}

/// What an object has that its role has just made, before ALTER DEFAULT PRIVILEGES.
fn built_in(of: DefaultFor, role: Oid) -> Acl {
    let (own, public, _) = facts(of);
    let mut acl = vec![(role, own)];
    if public != 0 {
        acl.push((0, public));
    }
    acl
}

fn same(a: &Acl, b: &Acl) -> bool {
    let sorted = |acl: &Acl| {
        let mut acl = acl.clone();
        acl.sort_unstable();
        acl
    };
    sorted(a) == sorted(b)
}

fn give(acl: &mut Acl, to: Oid, bits: u32) {
    match acl.iter_mut().find(|(role, _)| *role == to) {
        Some((_, held)) => *held |= bits,
        None => acl.push((to, bits)),
    }
}

impl Words<'_> {
    pub(super) fn default_privileges(&mut self) -> Result<DefaultPrivileges> {
        self.expect("alter default privileges")?;
        let (mut makers, mut schemas) = (vec![], vec![]);
        loop {
            if self.eat("for role") || self.eat("for user") {
                makers = self.role_list()?;
            } else if self.eat("in schema") {
                schemas = self.role_list()?;
            } else {
                break;
            }
        }
        let give = self.eat("grant");
        if !give {
            self.expect("revoke")?;
            if self.at("grant option for") {
                return Err(Error::unsupported("REVOKE GRANT OPTION"));
            }
        }
        let privileges = match self.eat("all") {
            true => {
                self.eat("privileges");
                None
            }
            false => Some(self.privilege_names()?),
        };
        self.expect("on")?;
        let kind = KINDS.iter().find(|(name, _)| self.eat(name));
        let (_, of) = *kind.ok_or_else(|| self.wrong())?;
        self.expect(if give { "to" } else { "from" })?;
        self.eat("group");
        let grantees = self.role_list()?;
        if self.at("with grant option") {
            return Err(Error::unsupported("WITH GRANT OPTION"));
        }
        let _ = !give && (self.eat("restrict") || self.eat("cascade"));
        Ok(DefaultPrivileges {
            makers,
            schemas,
            give,
            privileges,
            of,
            grantees,
        })
    }

    fn privilege_names(&mut self) -> Result<Vec<String>> {
        let mut all = vec![];
        loop {
            all.push(self.ident()?.value.to_lowercase());
            if !self.0.consume_token(&Token::Comma) {
                return Ok(all);
            }
        }
    }
}

fn bits(names: Option<&[String]>, of: DefaultFor) -> Result<u32> {
    let (all, _, kind) = facts(of);
    let Some(names) = names else { return Ok(all) };
    let mut bits = 0;
    for n in names {
        let bit = match n.as_str() {
            "select" => privilege::SELECT,
            "insert" => privilege::INSERT,
            "update" => privilege::UPDATE,
            "delete" => privilege::DELETE,
            "truncate" => privilege::TRUNCATE,
            "references" => privilege::REFERENCES,
            "trigger" => privilege::TRIGGER,
            "usage" => privilege::USAGE,
            "create" => privilege::CREATE,
            "execute" => privilege::EXECUTE,
            other => {
                let what = format!("unrecognized privilege type \"{other}\"");
                return Err(Error::new(SqlState::SYNTAX_ERROR, what));
            }
        };
        if bit & all == 0 {
            let what = format!("invalid privilege type {} for {kind}", n.to_uppercase());
            return Err(Error::new(SqlState::INVALID_GRANT_OPERATION, what));
        }
        bits |= bit;
    }
    Ok(bits)
}

impl Work<'_> {
    pub(super) fn alter_default_privileges(&mut self, d: &DefaultPrivileges) -> Result<String> {
        let bits = bits(d.privileges.as_deref(), d.of)?;
        if d.of == DefaultFor::Schemas && !d.schemas.is_empty() {
            return Err(Error::new(
                SqlState::INVALID_GRANT_OPERATION,
                "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS",
            ));
        }
        let grantee = |r: &Ident| match fold(r).as_str() {
            "public" if r.quote_style.is_none() => Ok(0),
            name => Ok(self.role_named(name)?.id),
        };
        let grantees: Vec<Oid> = d.grantees.iter().map(grantee).collect::<Result<_>>()?;
        let maker = |r: &Ident| Ok(self.role_named(&fold(r))?.id);
        let mut makers: Vec<Oid> = d.makers.iter().map(maker).collect::<Result<_>>()?;
        if makers.is_empty() {
            makers.push(self.ctx.role);
        }
        let mut schemas: Vec<Oid> = vec![];
        for s in &d.schemas {
            schemas.push(self.namespace(&fold(s))?);
        }
        if schemas.is_empty() {
            schemas.push(0);
        }
        for &role in &makers {
            if !self.has_rights_of(role) {
                return Err(Error::new(
                    SqlState::INSUFFICIENT_PRIVILEGE,
                    "permission denied to change default privileges",
                ));
            }
            if !d.give && grantees.contains(&role) {
                return Err(Error::unsupported(
                    "revoking a default privilege from the role that makes the objects",
                ));
            }
            for &namespace in &schemas {
                self.change_default((role, namespace, d.of), bits, &grantees, d.give);
            }
        }
        Ok("ALTER DEFAULT PRIVILEGES".into())
    }

    fn default_acl(&self, (role, namespace, of): (Oid, Oid, DefaultFor)) -> Option<DefaultAcl> {
        let mut all = self.schema.default_acls();
        let found = all.find(|d| d.role == role && d.namespace == namespace && d.of == of);
        found.map(|d| (**d).clone())
    }

    fn change_default(
        &mut self,
        (role, namespace, of): (Oid, Oid, DefaultFor),
        bits: u32,
        grantees: &[Oid],
        adds: bool,
    ) {
        let nothing = match namespace {
            0 => built_in(of, role),
            _ => vec![],
        };
        let old = self.default_acl((role, namespace, of));
        let mut acl = old.as_ref().map_or(nothing.clone(), |d| d.acl.clone());
        for &to in grantees {
            match adds {
                true => give(&mut acl, to, bits),
                false => {
                    let held = acl.iter_mut().filter(|(role, _)| *role == to);
                    held.for_each(|(_, held)| *held &= !bits);
                }
            }
        }
        acl.retain(|(_, bits)| *bits != 0);
        match (old, same(&acl, &nothing)) {
            (None, true) => {}
            (Some(d), true) => self.drop_object(d.id),
            (old, false) => {
                let id = old.map_or_else(|| self.oid(), |d| d.id);
                self.put(Object::DefaultAcl(DefaultAcl {
                    id,
                    role,
                    namespace,
                    of,
                    acl,
                }));
            }
        }
    }

    /// The ACL of an object that a role makes in a schema (0: in none); empty where it is the built-in one.
    pub(super) fn born_with(&self, of: DefaultFor, role: Oid, namespace: Oid) -> Acl {
        let everywhere = self.default_acl((role, 0, of));
        let here = (namespace != 0).then(|| self.default_acl((role, namespace, of)));
        let here = here.flatten();
        if everywhere.is_none() && here.is_none() {
            return vec![];
        }
        let built_in = built_in(of, role);
        let mut acl = everywhere.map_or(built_in.clone(), |d| d.acl);
        for (to, bits) in here.into_iter().flat_map(|d| d.acl) {
            give(&mut acl, to, bits);
        }
        match same(&acl, &built_in) {
            true => vec![],
            false => acl,
        }
    }

    /// [`Work::born_with`] of a type that the current role makes.
    pub(super) fn type_born_with(&self, namespace: Oid) -> Option<Acl> {
        let acl = self.born_with(DefaultFor::Types, self.ctx.role, namespace);
        (!acl.is_empty()).then_some(acl)
    }

    /// Drops the entries of a schema that goes.
    pub(super) fn drop_defaults_in(&mut self, namespace: Oid) {
        let all = self.schema.default_acls();
        let of: Vec<Oid> = all
            .filter(|d| d.namespace == namespace)
            .map(|d| d.id)
            .collect();
        of.into_iter().for_each(|id| self.drop_object(id));
    }

    /// What keeps a role from being dropped, as a detail of the error says it.
    pub(super) fn default_uses_of(&self, role: Oid) -> Vec<String> {
        let mut uses = vec![];
        for d in self.schema.default_acls() {
            let how = match d.role == role {
                true => "owner of",
                false if d.acl.iter().any(|(to, _)| *to == role) => "privileges for",
                false => continue,
            };
            let (_, _, kind) = facts(d.of);
            let maker = self.schema.role(d.role).map_or("?", |r| &r.name);
            let mut what =
                format!("{how} default privileges on new {kind}s belonging to role {maker}");
            if let Some(n) = self.schema.namespace(d.namespace) {
                what.push_str(&format!(" in schema {}", n.name));
            }
            uses.push(what);
        }
        uses
    }
}
